"""Image classification: one class for each image, or (multilabel) a yes or no for each class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from vitreous.data.checking import looks_masked
from vitreous.data.config import DataConfig
from vitreous.data.contact_sheet import contact_sheet
from vitreous.data.dataset import ImageDataset, Splits, Subset, sampled
from vitreous.data.image_samples import Batch, evaluation_loader, image_loader
from vitreous.data.loading import worker_count
from vitreous.data.prefetching import DevicePrefetcher
from vitreous.data.sources import open_data
from vitreous.deployment.predictor import Prediction, Predictor
from vitreous.deployment.serving.endpoints import Limits, Served
from vitreous.errors import InputError
from vitreous.evaluation.baselines import digits_baselines
from vitreous.evaluation.classification import ClassificationEvaluation
from vitreous.evaluation.classification import evaluate as evaluate_classifier
from vitreous.evaluation.monitor import monitor
from vitreous.evaluation.multilabel import MultiLabelEvaluation, evaluate_multilabel
from vitreous.evaluation.result import Evaluation
from vitreous.tasks.choose import choose_fine_tuning, choose_recipe
from vitreous.tasks.images import INSPECTING, Base, ImageTask
from vitreous.tasks.task import Card, Material, Measure, Progress, Tree
from vitreous.training.config import RunConfig
from vitreous.training.distillation import Teacher, distillation
from vitreous.training.distributed import World
from vitreous.training.initial_model import checkpoint
from vitreous.training.objectives import Objective, classification
from vitreous.training.recipes import recipe as recipe_named
from vitreous.training.run import Run

OPENING = frozenset({"--image-size", "--set"})
LABELING = {
    "train": frozenset({"--model", "--init", "--recipe", "--image-size", "--minutes", "--workers"})
    | {"--batch-size auto", "--strict"},
    "evaluate": OPENING | {"--config", "--workers"},
    "predict": OPENING | {"--top", "--workers"},
    "inspect": INSPECTING,
    "serve": OPENING,
}


class Classification(ImageTask):
    """Labels for images."""

    noun = "a classifier"
    config = RunConfig
    default_source = "digits"
    options = LABELING

    def __init__(self, name: str) -> None:
        self.name = name

    def open_source(self, source: Any, config: DataConfig, **options: Any) -> Splits:
        return open_data(source, config)

    def base(
        self, source: Any, data: Splits, settings: Tree, *, recipe: str | None, init: str | None
    ) -> Base:
        check_classes(str(source), data)
        if recipe:
            chosen = recipe_named(recipe)
            return Base(chosen.config, (f"{recipe}, as asked",), tuple(chosen.imposed))
        choice = choose_fine_tuning(data.summary) if init else choose_recipe(source, data.summary)
        return Base(choice.config, choice.reasons)

    def task_for(self, data: Splits) -> str:
        several = data.summary.multi_label
        if self.name == "multilabel" and not several:
            raise InputError(f"{data.name} has one label for each image: leave out --task multilabel")
        return "multilabel" if several else "classification"

    def prepare(self, config: RunConfig, data: Splits, *, device: torch.device, world: World) -> Material:
        loader = train_loader(config, data, device, world)
        return Material(loader, len(data.train), loader.bad)

    def some_of(self, data: Splits, count: int) -> Splits:
        few = np.array(sampled(data.train, min(count, len(data.train))))
        return data._replace(train=Subset(data.train, few))

    def objective(self, config: RunConfig, data: Splits) -> Objective:
        name = config.training.distillation.teacher
        if not name:
            return classification(config.training)
        teacher = Teacher(checkpoint(name), config.preprocessing, data.train.classes)
        return distillation(config.training, teacher)

    def validation(self, config: RunConfig, data: Splits) -> Measure | None:
        return monitor(data, config)

    def evaluate(
        self,
        answerer: Any,
        examples: ImageDataset,
        *,
        device: torch.device,
        batch_size: int,
        workers: int = 0,
        progress: Progress | None = None,
        **options: Any,
    ) -> Evaluation:
        measure = evaluate_multilabel if examples.targets.ndim == 2 else evaluate_classifier
        return measure(
            answerer, examples, device=device, batch_size=batch_size, workers=workers, progress=progress
        )

    def report(
        self, run: Run, answerer: Any, evaluation: Evaluation | None, examples: Any, data: Splits, **more: Any
    ) -> Path | None:
        if evaluation is None:
            return None
        assert isinstance(evaluation, ClassificationEvaluation | MultiLabelEvaluation)
        from vitreous.inspection.run_report import write_training_report

        return write_training_report(
            run.path,
            model=answerer,
            evaluation=evaluation,
            images=examples,
            baselines=more["baselines"],
            sheet=contact_sheet(
                train_loader(run.config, data, torch.device("cpu")),
                run.config.preprocessing,
                data.train.classes,
                count=24,
            ),
        )

    def more(self, run: Run, answerer: Any, material: Material, data: Splits) -> dict[str, Any]:
        baselines = digits_baselines(data) if data.name == "digits" else ()
        return {"classes": list(data.train.classes), "baselines": baselines}

    def card(self, config: RunConfig, result: Mapping[str, Any]) -> Card:
        height, width = config.model.image_size
        return Card(
            "An image classifier: a Vision Transformer",
            {
                "Classes": named_classes(result),
                "Images": f"{height}x{width}, {config.model.channels} channels",
            },
            "predict RUN image.jpg",
            "logits = model(model.preprocessing([image]))  # a PIL image; the classes are model.labels",
            "The accuracy holds for images like those it was measured on. The model gives one of its classes "
            "for every image, also for one that shows none of them.",
        )

    def predict(
        self,
        answerer: Any,
        images: ImageDataset,
        failed: dict[str, str],
        *,
        device: torch.device,
        batch_size: int,
        workers: int = 0,
        **options: Any,
    ) -> Iterator[Prediction]:
        """Yield the most probable labels of each image.

        Args:
            options: `top`, how many labels.
        """
        predictor = Predictor(answerer, device)
        loader = evaluation_loader(
            images,
            preprocessing=answerer.preprocessing,
            batch_size=batch_size,
            workers=workers,
            device=device,
        )
        for batch in loader:
            failed |= dict(loader.bad)
            choices = predictor.choices(batch.images, top=options.get("top") or 5)
            for index, best in zip(batch.indices.tolist(), choices, strict=True):
                yield Prediction(images.name(index), best)
        failed |= dict(loader.bad)

    def serve(self, answerer: Any, device: torch.device, limits: Limits) -> Served:
        from vitreous.deployment.serving.classifying import Classifier

        return Classifier(answerer, device, most_pixels=limits.pixels)

    def examples(self, run: Path, config: RunConfig, count: int) -> Sequence[Any]:
        """Return a held-out digit of each class."""
        if config.source != self.default_source:
            return ()
        images = cast(ImageDataset, open_data(config.source, config.data).test)
        first = [int(np.flatnonzero(images.targets == number)[0]) for number in range(len(images.classes))]
        return [images.image(row) for row in first]


def named_classes(result: Mapping[str, Any], most: int = 50) -> str:
    """Return the classes of a result, as a model card has them."""
    return ", ".join(f"`{name}`" for name in result["classes"][:most])


def check_classes(source: str, data: Splits) -> None:
    """Raise InputError for a folder of images and masks."""
    if looks_masked(data.train.classes):
        raise InputError(
            f"{source} holds images and their masks: add --task segmentation; or, should these be two "
            "classes, give their folders other names"
        )


def train_loader(
    config: RunConfig, splits: Splits, device: torch.device, world: World | None = None
) -> DevicePrefetcher[Batch]:
    """Return the training part of the data in batches; this process's share of them."""
    world = world or World()
    return image_loader(
        splits.train,
        preprocessing=config.preprocessing,
        augmentation=config.augmentation,
        batch_size=world.share(config.training.batch_size),
        seed=config.seed,
        workers=worker_count(config.data.workers),
        rank=world.rank,
        world_size=world.size,
        config=config.data,
        device=device,
    )


DEFINED = (Classification("classification"), Classification("multilabel"))
