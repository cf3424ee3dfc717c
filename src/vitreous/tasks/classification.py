"""Image classification: one class for each image, or (multilabel) a yes or no for each class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from vitreous.data.dataset import ImageDataset, Splits, check_to_learn
from vitreous.data.image_samples import Batch, ContactSheet
from vitreous.data.workers import loading_workers
from vitreous.errors import InputError, LazyModule, Param
from vitreous.evaluation.outputs import Batching, ImageAnswerer, compute_outputs
from vitreous.extensions import task_of_folders
from vitreous.languages.terminal import said
from vitreous.models.model import Model
from vitreous.results import Answer, percent
from vitreous.tasks.images import INSPECTING, READING, TRAINING, ImageTask
from vitreous.tasks.task import IMAGES, Card, TaskInfo, get_held_out
from vitreous.training.config import RunConfig

if TYPE_CHECKING:
    from vitreous.data import sources
    from vitreous.data.config import DataConfig
    from vitreous.deployment import classifier
    from vitreous.evaluation import calibration, classical, classification, features, scores
    from vitreous.evaluation.result import Evaluation
    from vitreous.inspection import run_report
    from vitreous.tasks import candidates, recipe_choice
    from vitreous.tasks.task import RunResult, Trained
    from vitreous.training import initial_model, objectives
    from vitreous.training import run as runs
    from vitreous.training import settings as training_settings
    from vitreous.training.config import Tree
    from vitreous.training.distributed import World
else:  # a command that answers needs none of what trains, and the report imports matplotlib
    calibration = LazyModule("vitreous.evaluation.calibration")
    candidates = LazyModule("vitreous.tasks.candidates")
    classical = LazyModule("vitreous.evaluation.classical")
    classification = LazyModule("vitreous.evaluation.classification")
    classifier = LazyModule("vitreous.deployment.classifier")
    features = LazyModule("vitreous.evaluation.features")
    initial_model = LazyModule("vitreous.training.initial_model")
    objectives = LazyModule("vitreous.training.objectives")
    recipe_choice = LazyModule("vitreous.tasks.recipe_choice")
    run_report = LazyModule("vitreous.inspection.run_report")
    runs = LazyModule("vitreous.training.run")
    scores = LazyModule("vitreous.evaluation.scores")
    training_settings = LazyModule("vitreous.training.settings")
    sources = LazyModule("vitreous.data.sources")


class Classification(ImageTask[RunConfig, Splits, ImageAnswerer]):
    """Labels for images."""

    name, config = "classification", RunConfig
    info = TaskInfo(
        noun="a classifier",
        card=Card(
            "An image classifier: a Vision Transformer",
            {"Classes": "{classes}", **IMAGES},
            "predict RUN image.jpg",
            "logits = model(model.preprocessing([image]))  # a PIL image; the classes are model.labels",
            "The accuracy applies to images like those it was measured on. The model predicts one of its "
            "classes for every image, even if the image shows none of them.",
        ),
        source="digits",
        compares=True,
        options={
            "train": TRAINING | {"recipe", "batch_size auto"},
            "evaluate": READING | {"tta", "real_labels"},
            "predict": READING | {"top", "out", "tta", "threshold"},
            "inspect": INSPECTING,
        },
    )

    def open_source(self, source: str, config: DataConfig, model: ImageAnswerer | None = None) -> Splits:
        return sources.open_data(source, config)

    def choose(
        self, source: str, data: Splits, settings: Tree, *, recipe: str | None, init: str | None
    ) -> recipe_choice.RecipeChoice[RunConfig]:
        if task := task_of_folders(data.train.classes):
            raise InputError(
                f"{source} has the folders of a dataset for {task}: add {Param('task')} {task}; or, if these "
                "are classes, rename the folders"
            )
        check_to_learn(data.train, source)
        model = settings.get("model", {}).get("name")
        choice = recipe_choice.choose(source, data.summary, name=recipe, init=init, model=model)
        own = training_settings.leaves(settings)
        asked = recipe or "augmentation.flip" in own
        return choice if asked or not any(choice.config.augmentation.flip) else mirrored_by_data(choice, data)

    def configured(self, config: RunConfig, data: Splits, settings: Tree) -> RunConfig:
        """Lay the user's settings over a configuration; images with several labels make the task
        multilabel."""
        several = data.summary.multi_label
        if self.name == "multilabel" and not several:
            raise InputError(
                f"{data.name} has one label for each image: leave out {Param('task')} multilabel"
            )
        training = settings.get("training", {})
        if several and training.get("loss") in objectives.RareClassLoss.NAMES:
            raise InputError(
                f"training.loss={training['loss']} is for one label per image: use data.class_balance=true"
            )
        task = "multilabel" if several else "classification"
        return super().configured(config, data, {**settings, "task": task})

    def objective(self, config: RunConfig, data: Splits) -> objectives.Objective:
        teacher = None
        if distilled := config.training.distillation:
            teacher = objectives.Teacher(
                initial_model.checkpoint(distilled.teacher), config.prepared, data.train.classes
            )
        several = config.task == "multilabel"
        return objectives.classification(
            config.training,
            teacher,
            objectives.ACCURACY[config.task],
            several_labels=several,
            counts=data.train.targets.counts().tolist(),
        )

    def build(self, config: RunConfig, data: Splits, *, steps: int) -> Model:
        model = initial_model.starting_model(config, data.train.classes)
        model.task = self.name
        if config.training.linear_start and not data.summary.multi_label:
            begin_with_linear(
                model,
                data.train,
                smoothing=config.training.label_smoothing,
                workers=config.data.read.workers,
            )
        return model

    def finalize(
        self, trained: Trained[RunConfig, Splits], **options: Unpack[Batching]
    ) -> tuple[Trained[RunConfig, Splits], list[str]]:
        kept = None
        if trained.run.config.training.linear_start and trained.compared is None:
            trained, kept = self.better_of(trained, device=options["device"], world=options["world"])
        idle = trained.compared is not None and not trained.run.metrics()  # the network has learned nothing
        calibrated = None if idle else self.calibrate(trained, **options)
        sentences = [kept] if kept else []
        return trained, [*sentences, calibrated] if calibrated else sentences

    def better_of(
        self, trained: Trained[RunConfig, Splits], *, device: str | torch.device, world: World
    ) -> tuple[Trained[RunConfig, Splits], str | None]:
        """Keep frozen features with a linear classifier where fine-tuning is no better on the validation
        part: by accuracy, and by the loss where that is equal."""
        config, data = trained.run.config, trained.data
        measure = self.validation(config, data, world)
        if data.validation is None or measure is None or config.training.steps == 0:
            return trained, None
        begun = self.build(config, data, steps=1)
        before, after = measure(begun.to(device)), measure(trained.model.to(device))
        trained.model.cpu()
        start, start_loss = before["validation_accuracy"], before["validation_loss"]
        end, end_loss = after["validation_accuracy"], after["validation_loss"]
        numbers = {"tuned": percent(end), "frozen": percent(start), "count": len(data.validation)}
        if (end, -end_loss) > (start, -start_loss):
            return trained, said(
                "kept: the fine-tuned model, {tuned} on {count} validation images; a linear classifier on "
                "frozen features has {frozen}",
                **numbers,
            )
        kept = runs.finished(begun.cpu())
        if world.first:
            self.save(trained.run, kept, trained.batches)
        return trained._replace(model=kept), said(
            "kept: a linear classifier on frozen features, {frozen} on {count} validation images; the "
            "fine-tuned model has {tuned}",
            **numbers,
        )

    def validation_scores(
        self, config: RunConfig, model: nn.Module, images: ImageDataset, **options: Unpack[Batching]
    ) -> Mapping[str, float]:
        loss = objectives.LOSSES.get(config.training.loss, objectives.softmax_loss)
        share = objectives.ACCURACY[config.task]

        def batch_scores(batch: Batch) -> Tensor:
            """Return the batch's means, for each image: processes exchange these and not their logits."""
            logits = model(batch.images).float()
            means = torch.stack([loss(logits, batch.targets, 0.0), share(logits, batch.targets)])
            return means.expand(len(logits), 2)

        means = compute_outputs(model, images, batch_scores, **options).values.double().mean(dim=0).tolist()
        return dict(zip(("validation_loss", "validation_accuracy"), means, strict=True))

    def calibrate(self, trained: Trained[RunConfig, Splits], **options: Unpack[Batching]) -> str | None:
        """Calibrate the probabilities of a trained model on the validation set, and save it again. Return a
        sentence about it; None where it is not asked for."""
        validation, asked, after = trained.data.validation, trained.run.config.evaluation, None
        answerer = trained.model
        if not asked.calibrate or trained.data.test is None or not isinstance(answerer, Model):
            return None
        before = answerer.temperature
        if validation is not None:
            try:
                _, after = calibration.calibrate_model(
                    answerer, validation, learned=trained.data.train, **options
                )
            except InputError as error:
                return said("calibration: none: {reason}", reason=error)
            if answerer.temperature == before:
                if options["world"].first:
                    calibration.write_thresholds(trained.run.path / "model", after)
                return said(
                    "calibration: none: a temperature fitted on some of the {count} validation images does "
                    "not help on the others",
                    count=after.count,
                )
        elif not isinstance(asked.calibrate, bool):
            calibration.scale_head(answerer, asked.calibrate)
        else:
            return said(
                "calibration: none, since there is no validation set: set data.validation_fraction=0.1"
            )
        if options["world"].first:
            trained.run.save_model(answerer)
            if after:
                calibration.write_thresholds(trained.run.path / "model", after)
        if after is None:
            return said(
                "calibration: temperature {temperature:.3g}, set by evaluation.calibrate, since there is "
                "no validation set",
                temperature=answerer.temperature,
            )
        return said(
            "calibration: temperature {temperature:.3g}, fitted on {count} validation images and, to the "
            "extent that they agree, on training images",
            temperature=answerer.temperature,
            count=after.count,
        )

    def evaluate(
        self, answerer: ImageAnswerer, examples: ImageDataset, **options: Unpack[Batching]
    ) -> Evaluation:
        return classification.evaluate_classification(answerer, examples, **options)

    def report(self, trained: Trained[RunConfig, Splits], result: RunResult) -> Path | None:
        run, data = trained.run, trained.data
        answerer, images = result.answerer, get_held_out(self, data)[1]
        evaluation: Any = result.evaluation
        if images is None or not isinstance(answerer, Model):
            return None
        if (
            isinstance(evaluation, classification.ClassificationEvaluation)
            and len(evaluation.classes) > classification.MOST_CLASSES
        ):
            found = evaluation.targets, evaluation.predictions, evaluation.classes
            scores.save_confusion(run.path / "confusion.npz", *found)
        sheet = None
        # Only where a network has learned were images shown as the sheet shows them.
        if run.metrics():
            loader: Any = trained.batches.loader
            sheet = ContactSheet.of(loader, run.config.prepared, data.train.classes, 24)
        return run_report.write_training_report(
            run.path,
            model=answerer,
            evaluation=evaluation,
            images=images,
            baselines=[classical.Baseline(**each) for each in result.extra["baselines"]],
            candidates=result.candidates,
            sheet=sheet,
            findings=result.findings,
        )

    def extra_fields(self, trained: Trained[RunConfig, Splits]) -> dict[str, Any]:
        classes = {"classes": list(trained.data.train.classes)}
        return classes | candidates.compared_fields(self, trained)

    def answer_function(
        self, answerer: ImageAnswerer, device: torch.device, **options: Any
    ) -> Callable[[Sequence[str], Tensor], Iterable[Answer]]:
        """Return what names the `top` labels of each image, and with a `threshold` all that reach it."""
        return classifier.ClassPredictor(answerer, device, **options)


def mirrored_by_data(
    choice: recipe_choice.RecipeChoice[RunConfig], data: Splits
) -> recipe_choice.RecipeChoice[RunConfig]:
    """Return a choice whose training images are mirrored only where the data do not speak against it: an SVM
    that learns from mirror images as well is no worse on images as they are. Gray ones, which may be those of
    a microscope or a sensor, are mirrored top and bottom as well where that costs no right answer."""
    found = classical.mirroring_of(data)
    if found is None:
        return choice
    plain, sideways, both = (float(each.mean()) for each in found)
    measured = {"mirrored": percent(sideways), "plain": percent(plain), "count": len(found.plain)}
    if scores.is_better(found.plain, found.sideways):
        config = training_settings.configure(choice.config, {"augmentation": {"flip": 0.0}})
        reason = recipe_choice.Reason(
            said(
                "images are not mirrored: on {count} training images, an SVM that also learns from mirror "
                "images reaches {mirrored} instead of {plain}",
                **measured,
            )
        )
        return choice._replace(config=config, reasons=(*choice.reasons, reason))
    reason = recipe_choice.Reason(
        said(
            "mirroring does no significant harm: on {count} training images, an SVM that also "
            "learns from mirror images reaches {mirrored}, and {plain} without them",
            **measured,
        )
    )
    if data.summary.channels != 3 and both >= sideways:
        flip = choice.config.augmentation.flip[0], 0.5
        config = training_settings.configure(choice.config, {"augmentation": {"flip": flip}})
        more = recipe_choice.Reason(
            said(
                "images are also mirrored top to bottom: {accuracy} with those as well",
                accuracy=percent(both),
            )
        )
        return choice._replace(config=config, reasons=(*choice.reasons, reason, more))
    return choice._replace(reasons=(*choice.reasons, reason))


class MultiLabel(Classification):
    """Several labels for images: a yes or no for each class."""

    name = "multilabel"


DEFINED = (Classification(), MultiLabel())


MOST_LEARNED = 20_000  # images that a head is fitted on


# Of the logits that cross-fitting finds. Smoothed labels punish logits that are far apart, however right they
# are: a head that begins with those of the plain loss unlearns them first.
SCALES = np.geomspace(1 / 64, 1, 19)


def begin_with_linear(model: Model, images: ImageDataset, *, smoothing: float, workers: int | None) -> None:
    """Fit the head of a model on the features of its encoder, which stays as it is, with logits as large as
    smoothed labels ask for; nothing where the head is not linear, or there are no two classes to tell apart.
    """
    head: object = model.head
    if not isinstance(head, nn.Linear) or len(np.unique(images.targets.strata())) < 2:
        return
    if len(images) > MOST_LEARNED:
        images = images.subset(np.array(images.sample(MOST_LEARNED)))
    found = features.cached_features(model, images, workers=loading_workers(workers))
    problem = classical.Problem("classification", head.out_features, found.groups)
    targets = torch.from_numpy(found.targets)
    fitted = classical.linear(
        "", "", classical.ImageFeatures(torch.from_numpy(found.values)), targets, problem
    )

    def smoothed_loss(scale: float) -> float:
        return float(objectives.softmax_loss(scale * fitted.answers, targets, smoothing))

    scale = float(min(SCALES, key=smoothed_loss)) if smoothing else 1.0
    head.load_state_dict({name: scale * value for name, value in fitted.head.state_dict().items()})
