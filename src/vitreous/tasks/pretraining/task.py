"""Self-supervised pre-training: a task for each objective, which all learn an encoder from images alone."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from vitreous.checkpoints.loading import open_path
from vitreous.data.config import DataConfig
from vitreous.data.dataset import ImageDataset, Splits
from vitreous.data.image_samples import Batch
from vitreous.data.sources import open_data, summarize
from vitreous.data.sources.folders import FileImages, index_folder, subfolders
from vitreous.data.splitting import split
from vitreous.errors import InputError
from vitreous.evaluation.outputs import compute_outputs
from vitreous.evaluation.probing import knn_measure
from vitreous.evaluation.result import Evaluation, Metric
from vitreous.models.names import Model, build_model
from vitreous.outside import local_path
from vitreous.rng import torch_generator
from vitreous.tasks.card import IMAGES, Card
from vitreous.tasks.choose import Choice
from vitreous.tasks.images import INSPECTING, ImageTask
from vitreous.tasks.pretraining.contrastive import Contrastive
from vitreous.tasks.pretraining.dino import DINO
from vitreous.tasks.pretraining.distillation import FeatureDistillation, check_teacher
from vitreous.tasks.pretraining.mae import MAE
from vitreous.tasks.pretraining.mae_decoder import published_decoder
from vitreous.tasks.pretraining.masked_patch import MaskedPatchPrediction
from vitreous.tasks.pretraining.masking import MaskedPrediction
from vitreous.tasks.pretraining.rules import (
    OBJECTIVES,
    RECIPES,
    ObjectiveName,
    PretrainingConfig,
    PretrainingRunConfig,
    by_model,
    pretraining_recipe,
    reason,
    rules,
    sampled,
)
from vitreous.tasks.pretraining.views import MultiCrop, ViewReader, Views, small_size
from vitreous.tasks.task import Material, Plan, Trained, Tree
from vitreous.training.diagnosis import collapse
from vitreous.training.initial_model import starting_model
from vitreous.training.objectives import Measured, Objective
from vitreous.training.run import Run
from vitreous.training.settings import configure

log = logging.getLogger(__name__)
SelfSupervision = MaskedPatchPrediction | MAE | DINO | Contrastive | FeatureDistillation


def build_objective(
    model: Model, name: ObjectiveName, config: PretrainingConfig, *, steps: int, seed: int = 0
) -> SelfSupervision:
    """Build the objective called `name` around `model`.

    Args:
        steps: of the optimizer in the whole training.
        seed: of the weights that the objective adds: mask token, decoder, heads.

    Raises:
        InputError: the objective cannot be had with this model.
    """
    match name:
        case "masked-patch":
            return MaskedPatchPrediction(model, config.masked_patch, seed=seed)
        case "mae":
            return MAE(model, config.mae, seed=seed)
        case "dino":
            return DINO(model, config.dino, steps=steps, seed=seed)
        case "contrastive":
            return Contrastive(model, config.contrastive, seed=seed)
        case "distillation":
            return FeatureDistillation(model, config.distillation, seed=seed)


def open_unlabeled(source: str, data: DataConfig) -> Splits:
    """Open any DATA, or a folder of images in any sub-folders. Where there are classes, the held-out part is
    the one that `vitreous train` holds out, so that it stays unseen until then."""
    folder = local_path(source)
    if not folder.is_dir() or len(subfolders(folder)) > 1 or (folder / "train").is_dir():
        return open_data(source, data, "unlabeled")
    paths = index_folder(folder, (".",)).paths
    if not len(paths):
        if any(folder.glob("*.tar")):
            return open_data(source, data, "unlabeled")
        raise InputError(f"{folder} holds no images")
    images = FileImages(folder, paths, np.zeros(len(paths), dtype=np.int64), ("image",))
    train, validation, test = split(images, data)
    return Splits(train, validation, test, source, summarize(train))


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
    def metrics(self) -> dict[str, Metric]:
        return {
            "explained_share": Metric(self.explained, "explained share: 1 - loss / trivial loss"),
            "loss": Metric(self.loss, "loss", rate=False),
        }

    def details(self) -> dict[str, Any]:
        return {"trivial_loss": self.trivial}


class Pretraining(ImageTask):
    """An encoder without labels."""

    noun = "a pre-trained encoder without classes"
    card = Card(
        "An encoder that was pre-trained without labels ({task}), to be fine-tuned or probed",
        IMAGES,
        "train DATA --init RUN",
        "features = model.features(model.preprocessing([image]))",
        "A lower loss is not always a better encoder: probe it on labels, with vitreous probe.",
    )
    config = PretrainingRunConfig
    default_source = "digits"
    targets = "unlabeled"
    training_words = "pre-training"
    options: ClassVar = {
        "pretrain": frozenset({"model", "init", "image_size", "recipe"}),
        "inspect": INSPECTING,
    }

    def __init__(self, name: ObjectiveName) -> None:
        self.name = name
        self.objective_name = name

    def open_source(self, source: Any, config: DataConfig, model: Any = None) -> Splits:
        return open_unlabeled(source, config)

    def choose(
        self, source: Any, data: Splits, settings: Tree, *, recipe: str | None, init: str | None
    ) -> Choice:
        named = settings.get("model", {}).get("name")
        if recipe:
            return Choice(pretraining_recipe(recipe).suited(name=named), ())
        return Choice(rules(data.summary, self.objective_name, str(source), named), ())

    def plan(
        self,
        source: Any | None,
        settings: Tree,
        *,
        recipe: str | None = None,
        init: str | None = None,
        base: Tree | None = None,
    ) -> Plan:
        config, reasons, data, name = super().plan(source, settings, recipe=recipe, init=init, base=base)
        return Plan(config, (reason(config, data.summary), *reasons), data, f"{name}-{self.name}")

    def configured(self, config: Any, data: Splits, settings: Tree) -> PretrainingRunConfig:
        config = configure(config, settings, {"model": {"num_classes": None}})
        if config.recipe not in RECIPES:  # whose objective is that of a paper
            config = configure(config, by_model(config, data.summary, data.train), settings)
        views = settings.get("pretraining", {}).get("dino", {}).get("views", {})
        idle = sorted({"small_scale", "small_size"} & dict(views).keys())
        if idle and config.task == "dino" and not config.pretraining.dino.views.small_count:
            what = f"pretraining.dino.views.{idle[0]} has no effect without small views"
            raise InputError(f"{what}: set small_count, or leave it out")
        if self.name == "distillation":
            check_teacher(config.pretraining.distillation)
            return config
        with torch.device("meta"):  # what does not fit is refused before a run is begun
            build_objective(build_model(config.model), self.objective_name, config.pretraining, steps=1)
        return config

    def build(self, config: PretrainingRunConfig, data: Any, *, steps: int) -> SelfSupervision:
        model = starting_model(config, labels=())
        model.labels, model.task = None, self.name
        objective = build_objective(
            model, self.objective_name, config.pretraining, steps=steps, seed=config.seed
        )
        here = not next(objective.parameters()).is_meta  # else it is given all weights
        papers = config.recipe in RECIPES  # which begins as the paper's code does
        if isinstance(objective, MaskedPrediction) and data is not None and here and not papers:
            objective.start_at_constant(sampled(data.train, config))
        if config.init and isinstance(objective, MAE):
            published = published_decoder(open_path(config.init))
            if published and published.fits(objective.decoder, objective.config):
                published.give(objective.decoder)
        return objective

    def reader(self, config: PretrainingRunConfig, data: Splits) -> ViewReader | None:
        views = config.views
        if views is None:
            return None
        crops = MultiCrop(views, config.model.image_size, small_size(config.model, views))
        return ViewReader(data.train, config.preprocessing.channels, crops)

    def objective(self, config: PretrainingRunConfig, data: Splits) -> Objective:
        return self_supervised

    def validation_images(self, data: Splits) -> ImageDataset | None:
        return data.validation or data.test

    def validation_measures(self, config: Any, data: Splits) -> list[Callable[..., Mapping[str, float]]]:
        """Return what measures the accuracy of nearest neighbors, too, where the images have classes, which
        the training does not see."""
        more, images = super().validation_measures(config, data), self.validation_images(data)
        if images is None or images.targets.ndim != 1 or len(images.classes) < 2:
            return more
        return [*more, knn_measure(data.train, images)]

    def validation_scores(self, config: Any, model: Any, images: Any, **options: Any) -> Mapping[str, float]:
        found = self.evaluate(model, images, **options)
        return {"validation_loss": found.loss, "validation_explained": found.explained}

    def save(self, run: Run, result: Any, material: Material) -> None:
        run.save_model(result.encoder)

    def held_out_part(self, data: Splits) -> tuple[str | None, Any]:
        return ("validation", data.validation) if data.validation else super().held_out_part(data)

    def evaluate(self, answerer: Any, examples: ImageDataset, **options: Any) -> PretrainingEvaluation:
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
        for alarm in collapse(rows[:1]):  # the last batch may be a single image
            log.warning("%s", alarm.problem)
        return PretrainingEvaluation(
            task=self.name,
            loss=loss,
            trivial=trivial,
            **found.about,
        )

    def report(self, trained: Trained, answerer: Any, evaluation: Any, **more: Any) -> Path:
        from vitreous.inspection.runs.report import write_pretraining_report

        run, images = trained.run, self.held_out_part(trained.data)[1] or trained.data.train
        answerer.cpu()
        return write_pretraining_report(
            run.path,
            encoder=answerer.encoder,
            objective=self.name,
            illustrate=answerer.illustration,
            images=images,
            evaluation=evaluation,
            findings=more["findings"],
        )

    def more(self, trained: Trained) -> dict[str, Any]:
        last = trained.run.metrics()[-1]
        return {
            "objective": self.name,
            "loss": last["loss"],
            "held_out_loss": last.get("validation_loss"),
        }

    def summary(self, result: Mapping[str, Any]) -> list[str]:
        return [f"{self.name}: loss {result['loss']:.4f} in training"]


def self_supervised(objective: nn.Module, batch: Batch | Views, generator: torch.Generator) -> Measured:
    """Return the loss of a self-supervised objective, whose masks and views come from the generator."""
    return objective(batch if isinstance(batch, Views) else batch.images, generator)


DEFINED = tuple(Pretraining(name) for name in OBJECTIVES)
