"""Self-supervised pre-training: a task for each objective, which all learn an encoder from images alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ImageDataset, Splits
from vitreous.data.image_samples import Batch
from vitreous.evaluation.outputs import compute_outputs
from vitreous.evaluation.result import Evaluation, Metric
from vitreous.models.names import build_model
from vitreous.tasks.card import IMAGES, Card
from vitreous.tasks.choose import Choice
from vitreous.tasks.images import INSPECTING, ImageTask
from vitreous.tasks.pretraining.config import (
    OBJECTIVES,
    ObjectiveName,
    PretrainingRunConfig,
    SelfSupervision,
    build_objective,
    by_model,
    open_unlabeled,
    reason,
    rules,
)
from vitreous.tasks.pretraining.dino import DINO
from vitreous.tasks.pretraining.mae import MAE, load_decoder
from vitreous.tasks.task import Material, Plan, Trained, Tree
from vitreous.training.initial_model import starting_model
from vitreous.training.learner import Learner
from vitreous.training.objectives import Objective
from vitreous.training.run import Run
from vitreous.training.settings import configure


@dataclass(frozen=True, kw_only=True)
class PretrainingEvaluation(Evaluation):
    """The objective on held-out images.

    Attributes:
        task: the objective.
        loss: the mean over the images, with masks or views that are the same every time.
    """

    task: str  # type: ignore[misc]
    loss: float

    @property
    def metrics(self) -> dict[str, Metric]:
        return {"loss": Metric(self.loss, "loss", rate=False)}


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
    training_words = "pre-training"
    options: ClassVar = {
        "pretrain": frozenset({"--model", "--init", "--image-size"}),
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
        return Choice(rules(data.summary, self.objective_name), ())

    def plan(
        self, source: Any | None, settings: Tree, *, recipe: str | None = None, init: str | None = None
    ) -> Plan:
        config, reasons, data, name = super().plan(source, settings, recipe=recipe, init=init)
        return Plan(config, (reason(config, data.summary), *reasons), data, f"{name}-{self.name}")

    def configured(self, config: Any, data: Splits, settings: Tree) -> PretrainingRunConfig:
        # A model that is asked for by name sees 224 pixels, as published, unless a size is set too.
        size = {"model": {"image_size": (224, 224)}} if "name" in settings.get("model", {}) else {}
        config = configure(config, size, settings, {"model": {"num_classes": None}})
        config = configure(config, by_model(config, data.summary), settings)
        with torch.device("meta"):  # what does not fit is refused before a run is begun
            build_objective(build_model(config.model), self.objective_name, config.pretraining, steps=1)
        return config

    def build(self, config: PretrainingRunConfig, data: Any, *, steps: int) -> SelfSupervision:
        model = starting_model(config, labels=())
        model.labels, model.task = None, self.name
        objective = build_objective(
            model, self.objective_name, config.pretraining, steps=steps, seed=config.seed
        )
        if config.init and isinstance(objective, MAE):
            load_decoder(objective, config.init)
        return objective

    def begin(self, learner: Learner) -> None:
        if isinstance(learner.model, DINO):
            learner.model.follow_steps_of(learner.optimizers[-1])

    def objective(self, config: PretrainingRunConfig, data: Splits) -> Objective:
        return self_supervised

    def validation_images(self, data: Splits) -> ImageDataset | None:
        return data.validation or data.test

    def validation_scores(self, config: Any, model: Any, images: Any, **options: Any) -> Mapping[str, float]:
        return {"validation_loss": self.evaluate(model, images, **options).loss}

    def save(self, run: Run, result: Any, material: Material) -> None:
        run.save_model(result.encoder)

    def held_out_part(self, data: Splits) -> tuple[str | None, Any]:
        return ("validation", data.validation) if data.validation else super().held_out_part(data)

    def evaluate(self, answerer: Any, examples: ImageDataset, **options: Any) -> PretrainingEvaluation:
        """Measure the objective, always with the same masks or views."""
        generator = torch.Generator().manual_seed(0)

        def losses(batch: Batch) -> Tensor:
            loss, _ = answerer(batch.images, generator)
            return loss.double().expand(len(batch.images))

        shown = answerer.encoder.preprocessing
        found = compute_outputs(answerer, examples, losses, preprocessing=shown, **options)
        return PretrainingEvaluation(
            task=self.name,
            loss=float(found.values.mean()),
            names=found.names,
            failed=found.failed,
            seconds=found.seconds,
        )

    def report(self, trained: Trained, answerer: Any, evaluation: Any, **more: Any) -> Path:
        from vitreous.inspection.run_report import write_pretraining_report

        run, images = trained.run, self.held_out_part(trained.data)[1] or trained.data.train
        return write_pretraining_report(run.path, objective=answerer.cpu(), config=run.config, images=images)

    def more(self, trained: Trained) -> dict[str, Any]:
        last = trained.run.metrics()[-1]
        return {
            "objective": self.name,
            "loss": last["loss"],
            "held_out_loss": last.get("validation_loss"),
        }

    def summary(self, result: Mapping[str, Any]) -> list[str]:
        return [f"{self.name}: loss {result['loss']:.4f} in training"]


def self_supervised(
    objective: nn.Module, batch: Batch, generator: torch.Generator
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return the loss of a self-supervised objective, whose masks and views come from the generator."""
    return objective(batch.images, generator)


DEFINED = tuple(Pretraining(name) for name in OBJECTIVES)
