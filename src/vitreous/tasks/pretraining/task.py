"""Self-supervised pre-training: a task for each objective, which all learn an encoder from images alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ImageDataset
from vitreous.data.image_samples import Batch, evaluation_loader
from vitreous.data.loading import worker_count
from vitreous.data.sources import Splits
from vitreous.evaluation.monitor import fewshot_measure
from vitreous.evaluation.result import Evaluation, Metric
from vitreous.models.names import build_model
from vitreous.tasks.classification import train_loader
from vitreous.tasks.images import INSPECTING, Base, ImageTask
from vitreous.tasks.pretraining.config import OBJECTIVES, ObjectiveName, PretrainingRunConfig
from vitreous.tasks.pretraining.dino import DINO
from vitreous.tasks.pretraining.objectives import SelfSupervision, build_objective
from vitreous.tasks.pretraining.plan import by_model, open_unlabeled, published_size, reason, rules
from vitreous.tasks.task import Card, Material, Measure, Progress, Tree
from vitreous.training.distributed import World
from vitreous.training.initial_model import starting_model
from vitreous.training.learner import Learner
from vitreous.training.objectives import Objective
from vitreous.training.run import Run
from vitreous.training.settings import configure


@dataclass(frozen=True)
class PretrainingEvaluation(Evaluation):
    """The objective on held-out images.

    Attributes:
        task: the objective.
        loss: the mean over the images, with masks or views that are the same every time.
    """

    task: str  # type: ignore[misc]
    loss: float
    images: int
    failed: Mapping[str, str]
    seconds: float

    @property
    def count(self) -> int:
        return self.images

    @property
    def metrics(self) -> dict[str, Metric]:
        return {"loss": Metric(self.loss, "loss", rate=False)}


class Pretraining(ImageTask):
    """An encoder without labels."""

    noun = "a pre-trained encoder without classes"
    config = PretrainingRunConfig
    default_source = "digits"
    training_words = "pre-training"
    options: ClassVar[Mapping[str, frozenset[str]]] = {
        "pretrain": frozenset({"--model", "--init", "--image-size"}),
        "inspect": INSPECTING,
    }

    def __init__(self, name: ObjectiveName) -> None:
        self.name = name
        self.objective_name = name

    def open_source(self, source: Any, config: DataConfig, **options: Any) -> Splits:
        return open_unlabeled(source, config)

    def base(
        self, source: Any, data: Splits, settings: Tree, *, recipe: str | None, init: str | None
    ) -> Base:
        return Base(rules(data.summary, self.objective_name), ())

    def reasons(self, config: PretrainingRunConfig, data: Splits) -> tuple[str, ...]:
        return (reason(config, data.summary),)

    def run_name(self, data: Splits) -> str:
        return f"{data.name}-{self.name}"

    def configured(self, config: Any, data: Splits, settings: Tree) -> PretrainingRunConfig:
        headless = {"model": {"num_classes": None}}
        config = configure(config, published_size(settings), settings, headless)
        config = configure(config, by_model(config, data.summary), settings)
        with torch.device("meta"):  # what does not fit is refused before a run is begun
            build_objective(build_model(config.model), self.objective_name, config.pretraining, steps=1)
        return config

    def prepare(
        self, config: PretrainingRunConfig, data: Splits, *, device: torch.device, world: World
    ) -> Material:
        loader = train_loader(config, data, device, world)
        return Material(loader, len(data.train), loader.bad)

    def build(self, config: PretrainingRunConfig, data: Splits, *, steps: int) -> SelfSupervision:
        model = starting_model(config, labels=())
        model.labels, model.task = None, self.name
        return build_objective(model, self.objective_name, config.pretraining, steps=steps, seed=config.seed)

    def begin(self, learner: Learner) -> None:
        if isinstance(learner.model, DINO):
            learner.model.follow_steps_of(learner.optimizers[-1])

    def objective(self, config: PretrainingRunConfig, data: Splits) -> Objective:
        return self_supervised

    def validation(self, config: PretrainingRunConfig, data: Splits) -> Measure | None:
        """Return what measures the objective on held-out images, and the encoder's few-shot accuracy if
        `evaluation.fewshot` is set."""
        held_out = held_out_loss(data.validation or data.test, config)
        if not config.evaluation.fewshot:
            return held_out
        few = fewshot_measure(data, batch_size=config.evaluation.batch_size)

        def measure(objective: Any) -> Mapping[str, float]:
            loss = held_out(objective) if held_out else {}
            return {**loss, **few(objective.encoder)}

        return measure

    def save(self, run: Run, result: Any, material: Material) -> None:
        run.save_model(result.encoder)

    def held_out_part(self, data: Splits) -> tuple[str, ImageDataset] | None:
        if data.validation:
            return "validation", data.validation
        return ("test", data.test) if data.test else None

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
    ) -> PretrainingEvaluation:
        answerer.to(device)
        return objective_loss(answerer, examples, self.name, batch_size=batch_size, workers=workers)

    def report(
        self, run: Run, answerer: Any, evaluation: Evaluation | None, examples: Any, data: Splits, **more: Any
    ) -> Path:
        images = examples or data.train
        answerer.cpu()
        from vitreous.inspection.run_report import write_pretraining_report

        return write_pretraining_report(run.path, objective=answerer, config=run.config, images=images)

    def more(self, run: Run, answerer: Any, material: Material, data: Splits) -> dict[str, Any]:
        last = run.metrics()[-1]
        return {
            "objective": self.name,
            "loss": last["loss"],
            "held_out_loss": last.get("validation_loss"),
        }

    def card(self, config: PretrainingRunConfig, result: Mapping[str, Any]) -> Card:
        height, width = config.model.image_size
        return Card(
            f"An encoder that was pre-trained without labels ({self.name}), to be fine-tuned or probed",
            {"Images": f"{height}x{width}, {config.model.channels} channels"},
            "train DATA --init RUN",
            "features = model.features(model.preprocessing([image]))",
            "A lower loss is not always a better encoder: probe it on labels, with vitreous probe.",
        )

    def summary(self, result: Mapping[str, Any]) -> list[str]:
        return [f"{self.name}: loss {result['loss']:.4f} in training"]


def self_supervised(
    objective: nn.Module, batch: Batch, generator: torch.Generator
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return the loss of a self-supervised objective, whose masks and views come from the generator."""
    return objective(batch.images, generator)


def held_out_loss(
    images: ImageDataset | None, config: PretrainingRunConfig
) -> Callable[[nn.Module], Mapping[str, float]] | None:
    """Return what measures the objective on `images`; None without images."""
    if not images:
        return None

    def measure(objective: Any) -> Mapping[str, float]:
        found = objective_loss(
            objective,
            images,
            config.task,
            batch_size=config.evaluation.batch_size,
            workers=worker_count(config.data.workers),
        )
        return {"validation_loss": found.loss}

    return measure


def objective_loss(
    objective: Any, images: ImageDataset, task: str, *, batch_size: int, workers: int
) -> PretrainingEvaluation:
    """Measure an objective on images, always with the same masks."""
    began = time.perf_counter()
    device = next(objective.parameters()).device
    loader = evaluation_loader(
        images,
        preprocessing=objective.encoder.preprocessing,
        batch_size=batch_size,
        workers=workers,
        device=device,
    )
    was_training, total, count = objective.training, 0.0, 0
    generator = torch.Generator().manual_seed(0)
    objective.eval()
    with torch.no_grad():
        for batch in loader:
            loss, _ = objective(batch.images, generator)
            total += float(loss) * len(batch.images)
            count += len(batch.images)
    objective.train(was_training)
    return PretrainingEvaluation(
        task, total / max(count, 1), count, dict(loader.bad), time.perf_counter() - began
    )


DEFINED = tuple(Pretraining(name) for name in OBJECTIVES)
