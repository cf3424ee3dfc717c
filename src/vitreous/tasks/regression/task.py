"""Image regression: a number for each image, from a manifest whose label is a number."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import BaseModel, Field, model_validator
from torch import Tensor, nn

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ImageDataset, Splits, Subset, sampled
from vitreous.data.image_samples import Batch, evaluation_loader
from vitreous.data.loading import worker_count
from vitreous.data.sources import open_data
from vitreous.deployment.serving.classifying import Classifier
from vitreous.deployment.serving.endpoints import (
    Answer,
    Endpoint,
    Limits,
    NoParameters,
    Question,
    Served,
    Words,
)
from vitreous.errors import InputError
from vitreous.evaluation.result import Evaluation, Metric, TextTable
from vitreous.evaluation.scores import Interval
from vitreous.models.config import Config
from vitreous.tasks.choose import choose_fine_tuning, choose_recipe
from vitreous.tasks.classification import train_loader
from vitreous.tasks.images import INSPECTING, Base, ImageTask
from vitreous.tasks.task import Card, Material, Measure, Progress, Tree
from vitreous.training.config import RunConfig, TrainingConfig
from vitreous.training.distributed import World
from vitreous.training.initial_model import trainable_model
from vitreous.training.objectives import Objective
from vitreous.training.recipes import recipe as recipe_named
from vitreous.training.run import Run
from vitreous.training.settings import configure

RESAMPLES = 1000  # of the bootstrap


class RegressionSettings(Config):
    """How numbers are learned. The model learns (number - center) / scale; its saved head undoes that."""

    loss: Literal["mse", "huber"] = Field(default="mse", description="mean squared error, or Huber's")
    huber_delta: float = Field(default=1.0, gt=0, description="where Huber's loss becomes linear")
    center: float = Field(default=0.0, description="mean of the training numbers")
    scale: float = Field(default=1.0, gt=0, description="their standard deviation")


class RegressionConfig(RunConfig):
    """All of a regression run."""

    task: Literal["regression"] = "regression"
    regression: RegressionSettings = RegressionSettings()

    @model_validator(mode="after")
    def _nothing_ignored(self) -> RegressionConfig:
        default = TrainingConfig()
        for name in ("loss", "label_smoothing", "distillation"):
            if getattr(self.training, name) != getattr(default, name):
                raise ValueError(f"training.{name} is for classes, not for numbers: leave it out")
        for name, used in (
            ("augmentation.mixup", self.augmentation.mixup > 0),
            ("augmentation.cutmix", self.augmentation.cutmix > 0),
            ("evaluation.fewshot", self.evaluation.fewshot),
            ("data.class_balance", self.data.class_balance),
        ):
            if used:
                raise ValueError(f"{name} is for classes, not for numbers: leave it out")
        if self.regression.loss != "huber" and self.regression.huber_delta != 1:
            raise ValueError("regression.huber_delta has no effect: set regression.loss=huber too")
        return self


@dataclass(frozen=True)
class RegressionEvaluation(Evaluation):
    """What a model predicts for each image.

    Attributes:
        names: of the images that could be read.
        targets, predictions: the true numbers and the model's.
    """

    task = "regression"

    names: tuple[str, ...]
    targets: Float[np.ndarray, " N"]
    predictions: Float[np.ndarray, " N"]
    failed: Mapping[str, str]
    seconds: float

    @property
    def count(self) -> int:
        return len(self.targets)

    @property
    def metrics(self) -> dict[str, Metric]:
        rng = np.random.default_rng(0)
        rows = rng.integers(0, self.count, (RESAMPLES, self.count))
        samples = [scores_of(self.targets[row], self.predictions[row]) for row in rows]
        found = {}
        for number, (name, label) in enumerate(
            (("r2", "R2"), ("mean_absolute_error", "mean absolute error"), ("rmse", "RMSE"))
        ):
            low, high = np.nanquantile([each[number] for each in samples], (0.025, 0.975))
            value = scores_of(self.targets, self.predictions)[number]
            found[name] = Metric(value, label, Interval(float(low), float(high)), rate=False)
        return found

    def details(self) -> dict[str, Any]:
        worst = np.argsort(-np.abs(self.targets - self.predictions), kind="stable")[:12]
        return {
            "mistakes": [
                {
                    "name": self.names[row],
                    "actual": float(self.targets[row]),
                    "predicted": float(self.predictions[row]),
                }
                for row in worst
            ]
        }

    def tables(self) -> list[TextTable]:
        rows = [
            (each["name"], f"{each['predicted']:.4g}", f"{each['actual']:.4g}")
            for each in self.details()["mistakes"][:5]
        ]
        return [TextTable("largest errors", ("image", "predicted", "true"), rows)]


def scores_of(
    targets: Float[np.ndarray, " N"], predictions: Float[np.ndarray, " N"]
) -> tuple[float, float, float]:
    """Return R2 = 1 - sum (t - p)^2 / sum (t - mean t)^2 (NaN where all targets are equal), the mean absolute
    error, and the root of the mean squared error."""
    errors = (targets - predictions).astype(float)
    spread = float(((targets - targets.mean()) ** 2).sum())
    r2 = 1 - float((errors**2).sum()) / spread if spread else float("nan")
    return r2, float(np.abs(errors).mean()), float(np.sqrt((errors**2).mean()))


@dataclass(frozen=True)
class PredictedNumber:
    """The number of an image."""

    path: str
    value: float

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "value": self.value}

    def line(self) -> str:
        return f"{self.path}  {self.value:.6g}"


class NumberAnswer(BaseModel):
    """As of `vitreous predict --json`."""

    path: str
    value: float = Field(description="the predicted number, in the unit of the training labels")


class Regressor(Classifier):
    """Answers with a number."""

    task = "regression"
    words = Words(
        "Image regression",
        "Upload an image to get the predicted number.",
        "The predicted number will appear here.",
        "Or try a held-out image",
    )

    def offered(self) -> list[Endpoint]:
        summary = "The number of each image, as vitreous predict --json gives it"
        number = Endpoint("predict", "predictions", summary, NoParameters, NumberAnswer, self.predict)
        return [number, *(each for each in super().offered() if each.name != "predict")]

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"labels": []}  # the output is a number, not a class

    @torch.inference_mode()
    def predict(self, questions: Sequence[Question]) -> list[Answer]:
        values = self.model(self.images(questions)).float().flatten().tolist()
        return [PredictedNumber(each.name, v).to_json() for each, v in zip(questions, values, strict=True)]


@dataclass(frozen=True)
class Numbers:
    """What a loader of images yields, run through a model."""

    indices: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


class Regression(ImageTask):
    """Numbers for images."""

    name = "regression"
    noun = "a regression model"
    config = RegressionConfig
    default_source = ""
    options: ClassVar[Mapping[str, frozenset[str]]] = {
        "train": frozenset(
            {"--model", "--init", "--recipe", "--image-size", "--minutes", "--workers", "--strict"}
        ),
        "evaluate": frozenset({"--image-size", "--set", "--config", "--workers"}),
        "predict": frozenset({"--image-size", "--set", "--workers"}),
        "inspect": INSPECTING,
        "serve": frozenset({"--image-size", "--set"}),
    }

    def open_source(self, source: Any, config: DataConfig, **options: Any) -> Splits:
        if not source:
            raise InputError("--task regression needs DATA: a manifest whose label is a number")
        return open_data(source, config, "numbers")

    def base(
        self, source: Any, data: Splits, settings: Tree, *, recipe: str | None, init: str | None
    ) -> Base:
        if recipe:
            named = recipe_named(recipe)
            config, imposed = named.config, tuple(named.imposed)
            reasons: tuple[str, ...] = (f"{recipe}, as asked",)
        else:
            summary = data.summary._replace(classes=1)
            choice = choose_fine_tuning(summary) if init else choose_recipe(str(source), summary)
            config, imposed = choice.config, ()
            reasons = tuple(each for each in choice.reasons if "Mixup" not in each)
        numbers = np.asarray(data.train.targets, dtype=float)
        tree = config.model_dump()
        tree["augmentation"] |= {"mixup": 0.0, "cutmix": 0.0}
        tree["training"] |= {"loss": "softmax", "label_smoothing": 0.0}
        tree["task"] = self.name
        tree["regression"] = {"center": float(numbers.mean()), "scale": float(numbers.std()) or 1.0}
        return Base(RegressionConfig(**{**tree, "model": config.model}), reasons, imposed)

    def configured(self, config: Any, data: Splits, settings: Tree) -> RegressionConfig:
        found: RegressionConfig = configure(config, settings, {"model": {"num_classes": 1}})
        return found

    def prepare(
        self, config: RegressionConfig, data: Splits, *, device: torch.device, world: World
    ) -> Material:
        loader = train_loader(config, data, device, world)
        return Material(loader, len(data.train), loader.bad)

    def some_of(self, data: Splits, count: int) -> Splits:
        few = np.array(sampled(data.train, min(count, len(data.train))))
        return data._replace(train=Subset(data.train, few))

    def build(self, config: RegressionConfig, data: Splits, *, steps: int) -> nn.Module:
        model = trainable_model(config, ())
        model.labels, model.task = None, self.name
        return model

    def objective(self, config: RegressionConfig, data: Splits) -> Objective:
        return regression_loss(config.regression)

    def validation(self, config: RegressionConfig, data: Splits) -> Measure | None:
        images = data.validation
        if images is None:
            return None
        numbers = config.regression

        def measure(model: nn.Module) -> Mapping[str, float]:
            found = answers_of(
                model,
                images,
                config.preprocessing,
                batch_size=config.evaluation.batch_size,
                workers=worker_count(config.data.workers),
            )
            values = np.array(found.values) * numbers.scale + numbers.center
            r2, error, _ = scores_of(np.asarray(images.targets)[found.indices], values)
            return {"validation_r2": r2, "validation_mean_error": error}

        return measure

    def save(self, run: Run, result: Any, material: Material) -> None:
        """Write the model, whose head gives numbers in the unit of the labels."""
        unstandardize(result, run.config.regression)
        run.save_model(result)

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
    ) -> RegressionEvaluation:
        began = time.perf_counter()
        found = answers_of(
            answerer.to(device),
            examples,
            answerer.preprocessing,
            batch_size=batch_size,
            workers=workers,
            progress=progress,
        )
        if not found.indices:
            raise InputError("none of the images could be decoded: there is nothing to evaluate")
        return RegressionEvaluation(
            tuple(examples.name(index) for index in found.indices),
            np.asarray(examples.targets, dtype=float)[found.indices],
            np.array(found.values),
            found.failed,
            time.perf_counter() - began,
        )

    def report(
        self, run: Run, answerer: Any, evaluation: Evaluation | None, examples: Any, data: Splits, **more: Any
    ) -> Path | None:
        if not isinstance(evaluation, RegressionEvaluation):
            return None
        from vitreous.tasks.regression.report import write_regression_report

        return write_regression_report(run, answerer, evaluation, examples)

    def card(self, config: RegressionConfig, result: Mapping[str, Any]) -> Card:
        height, width = config.model.image_size
        return Card(
            "An image regression model: a Vision Transformer that gives each image a number",
            {"Images": f"{height}x{width}, {config.model.channels} channels"},
            "predict RUN image.jpg",
            "number = model(model.preprocessing([image]))  # (1, 1), in the unit of the training labels",
            "The errors hold for images like those it was measured on; numbers outside the range of the "
            "training labels are extrapolated.",
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
    ) -> Iterator[PredictedNumber]:
        """Yield the number of each image."""
        found = answers_of(answerer, images, answerer.preprocessing, batch_size=batch_size, workers=workers)
        failed |= found.failed
        for index, value in zip(found.indices, found.values, strict=True):
            yield PredictedNumber(images.name(index), value)

    def serve(self, answerer: Any, device: torch.device, limits: Limits) -> Served:
        return Regressor(answerer, device, most_pixels=limits.pixels)


def regression_loss(settings: RegressionSettings) -> Objective:
    """Return the loss of standardized numbers, and the mean absolute error in the unit of the labels."""

    def objective(
        model: nn.Module, batch: Batch, generator: torch.Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        predicted = model(batch.images).float().flatten()
        wanted = (batch.targets.float().flatten() - settings.center) / settings.scale
        if settings.loss == "huber":
            loss = F.huber_loss(predicted, wanted, delta=settings.huber_delta)
        else:
            loss = F.mse_loss(predicted, wanted)
        return loss, {"mean_error": (predicted.detach() - wanted).abs().mean() * settings.scale}

    return objective


@torch.no_grad()
def unstandardize(model: nn.Module, settings: RegressionSettings) -> None:
    """Change the head so that the model gives scale * y + center instead of y."""
    last = [each for each in model.get_submodule("head").modules() if getattr(each, "bias", None) is not None]
    if not last:
        raise InputError("a regression needs a head with a bias: leave out model.head_bias=false")
    weight, bias = last[-1].weight, last[-1].bias
    weight.mul_(settings.scale)  # type: ignore[operator]
    bias.mul_(settings.scale).add_(settings.center)  # type: ignore[operator]


@torch.inference_mode()
def answers_of(
    model: nn.Module,
    images: ImageDataset,
    preprocessing: Any,
    *,
    batch_size: int,
    workers: int,
    progress: Callable[[int, int], None] | None = None,
) -> Numbers:
    """Return the model's output for every image that can be read, in order."""
    device = next(model.parameters()).device
    loader = evaluation_loader(
        images, preprocessing=preprocessing, batch_size=batch_size, workers=workers, device=device
    )
    found, training = Numbers(), model.training
    model.eval()
    for batch in loader:
        found.values.extend(model(batch.images).float().flatten().tolist())
        found.indices.extend(batch.indices.tolist())
        if progress:
            progress(len(found.indices), len(images))
    model.train(training)
    found.failed.update(dict(loader.bad))
    return found


DEFINED = (Regression(),)
