"""Self-supervised pre-training: a task for each objective, which all learn an encoder from images alone."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Unpack, cast

import torch
from torch import Tensor, nn

from vitreous.checkpoints.loading import open_checkpoint
from vitreous.data.config import DataConfig
from vitreous.data.dataset import ClassTargets, DataSummary, ImageDataset, Splits
from vitreous.data.image_samples import Batch
from vitreous.data.sources import open_data
from vitreous.data.workers import loading_workers
from vitreous.errors import LazyModule
from vitreous.evaluation.outputs import Batching, compute_outputs
from vitreous.evaluation.probes import knn_measure
from vitreous.evaluation.result import Evaluation, Metric
from vitreous.evaluation.scores import is_better
from vitreous.languages import phrase
from vitreous.languages.terminal import said
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.model import Model, build_model
from vitreous.models.settings import merged
from vitreous.results import percent
from vitreous.rng import torch_generator
from vitreous.tasks import task_named
from vitreous.tasks.images import INSPECTING, ImageTask, MeasureMore
from vitreous.tasks.pretraining.adaptation import encoder_of, feature_measure
from vitreous.tasks.pretraining.mae import MAE
from vitreous.tasks.pretraining.mae_decoder import decoder_for, published_decoder
from vitreous.tasks.pretraining.masked_patch import MaskedPatchPrediction
from vitreous.tasks.pretraining.rules import (
    RECIPES,
    MAERunConfig,
    MaskedPatchRunConfig,
    PretrainingRunConfig,
    flat_share,
    pretraining_recipe,
    sampled_images,
)
from vitreous.tasks.recipe_choice import (
    LAYER_DECAY,
    SMALL_ENCODER,
    Reason,
    RecipeChoice,
    choose_recipe,
    encoder_weight_count,
    packaged_config,
    rate_factor,
)
from vitreous.tasks.task import (
    IMAGES,
    Card,
    Plan,
    RunResult,
    TaskInfo,
    Trained,
    TrainingBatches,
    Tree,
    get_held_out,
)
from vitreous.training.config import RunConfig, length_of
from vitreous.training.initial_model import described_checkpoint, starting_model
from vitreous.training.learner import scaled_lr
from vitreous.training.objectives import Measured, Objective
from vitreous.training.run import RunDirectory, finished
from vitreous.training.settings import configure

if TYPE_CHECKING:
    from vitreous.inspection import run_report
else:  # it imports matplotlib, which is not installed everywhere
    run_report = LazyModule("vitreous.inspection.run_report")

log = logging.getLogger(__name__)
ADAPTING_EPOCHS = 30
LOOKS = 10  # at the features of an encoder that is adapted
PATIENCE = 4  # looks without better features, after which the training ends
FLAT_SHARE = 0.25  # of flat patches, from which on plain pixels are the target


@dataclass(frozen=True, kw_only=True)
class PretrainingEvaluation(Evaluation):
    """The objective on held-out images.

    Attributes:
        task: the objective.
        loss: the mean over the images, with masks or views that are the same every time.
        trivial: the loss of the best prediction that does not look at the image, in the same places.
    """

    task: str  # type: ignore[misc]
    loss: float
    trivial: float

    @property
    def explained(self) -> float:
        """1 - loss / trivial loss; NaN where nothing is left to explain."""
        return 1 - self.loss / self.trivial if self.trivial > 0 else math.nan

    @property
    def trivial_answer(self) -> str:
        """What the trivial loss is that of, in words."""
        return phrase(f"models.trivial.{self.task}")

    @property
    def metrics(self) -> dict[str, Metric]:
        return {
            "explained_share": Metric(self.explained, "explained share: 1 - loss / trivial loss"),
            "loss": Metric(self.loss, "loss", rate=False),
        }

    def details(self) -> dict[str, object]:
        return {"trivial_loss": self.trivial}


INFO = TaskInfo(
    noun="a pre-trained encoder without classes",
    card=Card(
        "An encoder that was pre-trained without labels ({task}), to be fine-tuned or probed",
        IMAGES,
        "train DATA --init RUN",
        "features = model.features(model.preprocessing([image]))",
        "A lower loss is not always a better encoder: probe it on labels, with vitreous probe.",
    ),
    source="digits",
    targets="unlabeled",
    held_out=("validation", "test"),
    training="pre-training",
    no_answers="use vitreous probe, inspect or train --init",
    generator=True,
    options={"pretrain": frozenset({"model", "init", "image_size", "recipe"}), "inspect": INSPECTING},
)


PretrainingT = TypeVar("PretrainingT", bound=PretrainingRunConfig)


class Pretraining(ImageTask[PretrainingT, Splits, nn.Module]):
    """An encoder without labels."""

    info = INFO
    module: Callable[..., nn.Module]  # the objective
    defaults: ClassVar[Path] = Path(__file__).parent / "pretraining.toml"  # settings for any data
    adapting_rate: ClassVar[float] = 0.1  # of a trained encoder, as a share of that for random weights

    def built(self, model: Model, settings: Any, *, steps: int, seed: int = 0) -> nn.Module:
        """Build the objective around `model`.

        Args:
            settings: of the objective.
            steps: of the optimizer in the whole training.
            seed: of the weights that the objective adds: mask token, decoder, heads.

        Raises:
            InputError: the objective cannot be had with this model.
        """
        return self.module(model, settings, seed=seed)

    def suited(self, config: RunConfig, data: DataSummary) -> Tree:
        """Return settings that follow from the data, and from how `train` would learn them from scratch."""
        return {}

    def fitted(self, config: PretrainingT, data: DataSummary, images: ImageDataset) -> Tree:
        """Return settings that follow from the encoder and the images."""
        return {}

    def open_source(self, source: str, config: DataConfig, model: nn.Module | None = None) -> Splits:
        return open_data(source, config, "unlabeled")

    def choose(
        self, source: str, data: Splits, settings: Tree, *, recipe: str | None, init: str | None
    ) -> RecipeChoice[PretrainingT]:
        named = settings.get("model", {}).get("name")
        if recipe:
            chosen = pretraining_recipe(recipe).suited(name=named)
            assert isinstance(chosen, self.config)
            return RecipeChoice(chosen, ())
        config = self.rules(data.summary, source, named)
        if init is None:
            return RecipeChoice(config, ())
        looks = self.validation_images(data) is not None  # at features, while it learns
        encoder, _ = described_checkpoint(init)
        config = configure(config, self.adapting(config, encoder, looks=looks))
        return RecipeChoice(config, (adapted(config),))

    def adapting(self, config: PretrainingT, encoder: ViTConfig | BiTConfig, *, looks: bool) -> Tree:
        """Return what changes where a trained encoder learns on: a part of the rate for random weights, which
        falls with the width, and in a large ViT from layer to layer towards the image; fewer epochs, and
        where there are images to look at, the best features are kept."""
        large = isinstance(encoder, ViTConfig) and encoder_weight_count(encoder) >= SMALL_ENCODER
        rate = config.training.peak_lr / rate_factor(config.model) * rate_factor(encoder)
        epochs = min(config.training.epochs or ADAPTING_EPOCHS, ADAPTING_EPOCHS)
        training: dict[str, object] = {
            "length": length_of(epochs=epochs),
            "peak_lr": self.adapting_rate * rate,
            "optimizer": {"layer_decay": LAYER_DECAY if large else None},
        }
        if looks:
            training["records"] = {"early_stopping": {"patience": PATIENCE}}
        return {"training": training, "evaluation": {"every_epochs": max(1, round(epochs / LOOKS))}}

    def rules(self, data: DataSummary, source: str = "", named: str | None = None) -> PretrainingT:
        """Return the model, normalization and changes of the images with which `vitreous train` learns the
        same data from scratch, so that its run can begin from this one; trained for long, since images
        without labels cost nothing, at a rate that falls with the model's width."""
        config = choose_recipe(source, data, named).config
        tree: Tree = {
            "recipe": f"pretrain-{self.name}",
            "model": config.model.model_dump() | {"num_classes": None},
            "preprocessing": config.preprocessing.model_dump(),
            "training": {"batch_size": min(64, data.images)},
            "augmentation": {"affine": config.augmentation.model_dump()["affine"]},
        }
        chosen = packaged_config(self.config, self.defaults, merged(tree, self.suited(config, data)))
        rate = chosen.training.peak_lr * rate_factor(chosen.model)
        return configure(chosen, {"training": {"peak_lr": rate}})

    def plan(
        self,
        source: str | Splits | None,
        settings: Tree,
        *,
        recipe: str | None = None,
        init: str | None = None,
        base: Tree | None = None,
    ) -> Plan[PretrainingT, Splits]:
        plan = super().plan(source, settings, recipe=recipe, init=init, base=base)
        config, seen = plan.config, plan.data.summary
        (height, width), kind = config.model.image_size, type(config.model).__name__.removesuffix("Config")
        why = (
            f"{seen.images} images of about {seen.width}x{seen.height}: {config.task} with {kind} at "
            f"{width}x{height} for {config.training.length}"
        )
        reasons = said("recipe: {reason}", reason=why), *plan.reasons
        return replace(plan, reasons=reasons, name=f"{plan.name}-{self.name}")

    def configured(self, config: PretrainingT, data: Splits, settings: Tree) -> PretrainingT:
        config = configure(config, settings, {"model": {"num_classes": None}})
        if config.recipe not in RECIPES:  # whose objective is that of a paper
            config = configure(config, self.fitted(config, data.summary, data.train), settings)
        self.check(config)
        return config

    def check(self, config: PretrainingT) -> None:
        """Raise InputError for an objective that does not fit the model, before a run is begun."""
        with torch.device("meta"):
            self.built(build_model(config.model), config.own, steps=1)

    def build(self, config: PretrainingT, data: Splits | None, *, steps: int) -> nn.Module:
        model = starting_model(config, labels=())
        model.labels, model.task = None, self.name
        return self.built(model, config.own, steps=steps, seed=config.seed)

    def objective(self, config: PretrainingT, data: Splits) -> Objective:
        return self_supervised

    def validation_images(self, data: Splits) -> ImageDataset | None:
        return data.validation or data.test

    def validation_measures(self, config: PretrainingT, data: Splits) -> list[MeasureMore]:
        """Return what measures the accuracy of nearest neighbors, too, where the images have classes, which
        the training does not see."""
        more, images = super().validation_measures(config, data), self.validation_images(data)
        if config.init:
            more.append(feature_measure(data).score)
        if images is None or not isinstance(images.targets, ClassTargets) or len(images.classes) < 2:
            return more
        return [*more, knn_measure(data.train, images)]

    def validation_scores(
        self, config: PretrainingT, model: nn.Module, images: ImageDataset, **options: Unpack[Batching]
    ) -> Mapping[str, float]:
        found = self.evaluate(model, images, **options)
        return {"validation_loss": found.loss, "validation_explained": found.explained}

    def save(self, run: RunDirectory[PretrainingT], result: nn.Module, batches: TrainingBatches) -> None:
        run.save_model(result.get_submodule("encoder"))

    def finalize(
        self, trained: Trained[PretrainingT, Splits], **options: Unpack[Batching]
    ) -> tuple[Trained[PretrainingT, Splits], list[str]]:
        """Keep an encoder that was adapted where its features are better than those it began with."""
        config, data = trained.run.config, trained.data
        device, world = options["device"], options["world"]
        if not config.init:
            return trained, []
        measure, begun = feature_measure(data), self.build(config, data, steps=1)
        workers = loading_workers(config.data.read.workers)
        right = partial(measure.right, device=device, workers=workers, world=world)
        before = right(encoder_of(begun).to(device).eval())
        after = right(encoder_of(trained.model).to(device).eval())
        trained.model.cpu()
        values = {"measured": measure.name, "before": percent(before.mean()), "after": percent(after.mean())}
        if is_better(after, before):
            line = said("kept: the adapted encoder; {measured}: {before} before, {after} after", **values)
            return trained, [line]
        kept = finished(begun.cpu())
        if world.first:
            self.save(trained.run, kept, trained.batches)
        line = said("kept: the encoder as it was; {measured}: {before} before, {after} after", **values)
        return trained._replace(model=kept), [line]

    def evaluate(
        self, answerer: Any, examples: ImageDataset, **options: Unpack[Batching]
    ) -> PretrainingEvaluation:
        """Measure the objective, always with the same masks or views."""
        rows: list[dict[str, float]] = []

        def losses(batch: Batch) -> Tensor:
            first = int(batch.indices[0])
            generator, again = (torch_generator(0, "evaluation", first) for _ in range(2))
            loss, measured = answerer(batch.images, generator)
            rows.append({"step": math.inf, **{name: float(value) for name, value in measured.items()}})
            both = torch.stack([loss.double(), answerer.trivial_loss(batch.images, again).to(loss).double()])
            return both.expand(len(batch.images), 2)

        shown = answerer.encoder.preprocessing
        found = compute_outputs(answerer, examples, losses, preprocessing=shown, **options)
        loss, trivial = found.values.mean(dim=0).tolist()
        for alarm in self.info.alarms:
            # Only the first batch is asked: the last one may be a single image.
            for found_in_first in alarm(rows[:1]):
                log.warning("%s", found_in_first.problem)
        return PretrainingEvaluation(
            task=self.name,
            loss=loss,
            trivial=trivial,
            **found.evaluation_fields,
        )

    def report(self, trained: Trained[PretrainingT, Splits], result: RunResult) -> Path:
        run, images = trained.run, get_held_out(self, trained.data)[1] or trained.data.train
        answerer = result.answerer.cpu()
        return run_report.write_pretraining_report(
            run.path,
            encoder=answerer.encoder,
            objective=self.name,
            panels=self.info.panels,
            illustrate=answerer.illustration,
            images=images,
            evaluation=result.evaluation,
            findings=result.findings,
        )

    def extra_fields(self, trained: Trained[PretrainingT, Splits]) -> dict[str, Any]:
        last = trained.run.metrics()[-1]
        return {
            "objective": self.name,
            "loss": last["loss"],
            "held_out_loss": last.get("validation_loss"),
        }


def adapted(config: PretrainingRunConfig) -> Reason:
    """Return how a trained encoder learns on."""
    training, decay = config.training, config.training.optimizer.layer_decay
    text = said(
        "training of the encoder continues at a learning rate of {rate:.2g}; if its features do not "
        "improve, it is kept as it was",
        rate=scaled_lr(training),
    )
    if decay:
        text = said(
            "training of the encoder continues at a learning rate of {rate:.2g}, each layer {decay:g} times "
            "as fast as the one above it; if its features do not improve, it is kept as it was",
            rate=scaled_lr(training),
            decay=decay,
        )
    return Reason.of_settings(config, ("training.peak_lr", "training.optimizer"), text)


def self_supervised(objective: nn.Module, batch: Batch, generator: torch.Generator) -> Measured:
    """Return the loss of a self-supervised objective, whose masks come from the generator."""
    measured: Measured = objective(batch.images, generator)
    return measured


def build_objective(
    model: Model, name: str, settings: Tree | None = None, *, steps: int, seed: int = 0
) -> nn.Module:
    """Build the objective called `name` around `model`; the rest is as of `Pretraining.built`."""
    task = task_named(name)
    assert isinstance(task, Pretraining)
    config: Any = configure(task.config(), {"pretraining": {name.replace("-", "_"): settings or {}}})
    return task.built(model, config.own, steps=steps, seed=seed)


class Masked(Pretraining[PretrainingT]):
    """An objective that hides patches."""

    def suited(self, config: RunConfig, data: DataSummary) -> Tree:
        """Return fixed positions: the first question of a masked objective is where a patch was."""
        learned = isinstance(config.model, ViTConfig) and config.model.position.kind == "learned"
        return {"model": {"position": {"kind": "sincos-2d"}}} if learned else {}

    def build(self, config: PretrainingT, data: Splits | None, *, steps: int) -> nn.Module:
        objective: Any = super().build(config, data, steps=steps)
        here = not next(objective.parameters()).is_meta  # else it is given all weights
        papers = config.recipe in RECIPES  # which begins as the paper's code does
        if data is not None and here and not papers:
            objective.start_at_constant(sampled_images(data.train, config))
        return cast(nn.Module, objective)


class MaskedPatchTask(Masked[MaskedPatchRunConfig]):
    """Masked patch prediction."""

    name, config, module = "masked-patch", MaskedPatchRunConfig, MaskedPatchPrediction


class MAETask(Masked[MAERunConfig]):
    """A masked autoencoder."""

    name, config, module = "mae", MAERunConfig, MAE

    def suited(self, config: RunConfig, data: DataSummary) -> Tree:
        flip = {"augmentation": {"flip": 0.5 if data.channels == 3 else 0.0}}
        return merged(super().suited(config, data), flip)

    def fitted(self, config: MAERunConfig, data: DataSummary, images: ImageDataset) -> Tree:
        """Return the decoder, a published one's where there is one, and whether pixels are normalized."""
        if not isinstance(config.model, ViTConfig):
            return {}
        published = published_decoder(open_checkpoint(config.init)) if config.init else None
        if published:
            return {"pretraining": {"mae": published.config.model_dump()}}
        share = flat_share(images, config, config.model.patch_size)
        mae = decoder_for(config.model).model_copy(update={"normalize_pixels": share < FLAT_SHARE})
        return {"pretraining": {"mae": mae.model_dump()}}

    def build(self, config: MAERunConfig, data: Splits | None, *, steps: int) -> nn.Module:
        mae = super().build(config, data, steps=steps)
        assert isinstance(mae, MAE)
        published = published_decoder(open_checkpoint(config.init)) if config.init else None
        if published and published.fits(mae.decoder, mae.config):
            published.give(mae.decoder)
        return mae


DEFINED = (MaskedPatchTask(), MAETask())
