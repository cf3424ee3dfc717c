"""Image regression: a number for each image, from a manifest whose label is a number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import BaseModel, Field, model_validator
from torch import Tensor, nn

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ImageDataset, Splits
from vitreous.data.findings import Finding, finding
from vitreous.data.image_samples import Batch
from vitreous.data.sources import open_data
from vitreous.errors import InputError, LazyModule, Param
from vitreous.evaluation.classical import Baseline
from vitreous.evaluation.outputs import (
    Batching,
    ImageAnswerer,
    ModelOutputs,
    compute_outputs,
    number_outputs,
)
from vitreous.evaluation.result import FEWEST, Answers, Evaluation, Metric, TextTable
from vitreous.evaluation.scores import ExampleScores, quantile_interval, r2
from vitreous.languages import phrase
from vitreous.languages.terminal import said, word
from vitreous.models.config_parts import Config, setting
from vitreous.models.model import Model, check_finite
from vitreous.tasks.candidates import compared_fields
from vitreous.tasks.images import INSPECTING, READING, TRAINING, ImageTask
from vitreous.tasks.recipe_choice import RecipeChoice, choose
from vitreous.tasks.task import (
    IMAGES,
    Card,
    RunResult,
    TaskInfo,
    Trained,
    TrainingBatches,
    Tree,
    get_held_out,
)
from vitreous.training.config import RunConfig
from vitreous.training.initial_model import starting_model
from vitreous.training.objectives import Measured, Objective
from vitreous.training.run import RunDirectory
from vitreous.training.settings import configure

if TYPE_CHECKING:
    from vitreous.inspection import charts, model_figures, page, run_figures, run_report
else:  # they import matplotlib, which is not installed everywhere
    charts = LazyModule("vitreous.inspection.charts")
    model_figures = LazyModule("vitreous.inspection.model_figures")
    page = LazyModule("vitreous.inspection.page")
    run_figures = LazyModule("vitreous.inspection.run_figures")
    run_report = LazyModule("vitreous.inspection.run_report")

RESAMPLES = 1000  # of the bootstrap
CONSTANT = 0.05  # of the spread of the true numbers, below which predicted ones are all about the same
FOR_CLASSES = {
    "training": ("loss", "label_smoothing", "distillation"),
    "augmentation": ("mix",),
    "evaluation": ("fewshot", "calibrate"),
    "data": ("class_balance",),
}


class RegressionSettings(Config):
    """How numbers are learned. The model learns (number - center) / scale; its saved head undoes that."""

    loss: Literal["mse", "huber"] = setting("mse", "mean squared error, or the Huber loss")
    huber_delta: float = setting(1.0, "error at which the Huber loss becomes linear", gt=0)
    center: float = setting(0.0, "mean of the training numbers")
    scale: float = setting(1.0, "standard deviation of the training numbers", gt=0)


class RegressionConfig(RunConfig):
    """The complete configuration of a regression run."""

    task: Literal["regression"] = setting("regression", "always regression")
    regression: RegressionSettings = RegressionSettings()

    @model_validator(mode="after")
    def _nothing_ignored(self) -> RegressionConfig:
        for group, names in FOR_CLASSES.items():
            self.check_defaults(group, names, "is for classes, not for numbers: leave it out")
        if self.regression.loss != "huber" and self.regression.huber_delta != 1:
            raise ValueError("regression.huber_delta has no effect: set regression.loss=huber too")
        return self


@dataclass(frozen=True, kw_only=True)
class RegressionEvaluation(Evaluation):
    """What a model predicts for each image.

    Attributes:
        targets, predictions: the true numbers and the model's.
    """

    task, per_example = "regression", ("targets", "predictions")
    gap = ("gap-error", "mean_error", "mean_absolute_error")

    targets: Float[np.ndarray, " N"]
    predictions: Float[np.ndarray, " N"]

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        rng = np.random.default_rng(0)
        rows = rng.integers(0, self.count, (RESAMPLES, self.count))
        values = scores_of(self.targets, self.predictions)
        samples = [scores_of(self.targets[row], self.predictions[row]) for row in rows]
        intervals = [quantile_interval(sample) for sample in zip(*samples, strict=True)]
        labels = {"r2": "R2", "mean_absolute_error": "mean absolute error", "rmse": "RMSE"}
        found = {}
        for (name, label), value, interval in zip(labels.items(), values, intervals, strict=True):
            found[name] = Metric(value, label, interval, rate=False)
        return found

    def findings(self) -> Iterator[Finding]:
        """Yield a finding where the predicted numbers are all about the same, or explain nothing of the true
        ones."""
        spread, true = float(np.std(self.predictions)), float(np.std(self.targets))
        r2 = self.metrics["r2"]
        if self.count < FEWEST or not true:
            return
        seen: dict[str, Any] = {"r2": r2.value, "spread": spread, "true": true, "count": self.count}
        if spread < CONSTANT * true:
            yield from finding("constant answers.numbers", **seen)
        elif r2.interval is None or r2.interval.low <= 0:
            yield from finding("explains nothing", **seen)

    def scores(self) -> ExampleScores:
        errors = np.abs(self.targets - self.predictions)
        return ExampleScores("absolute_error", errors, rate=False, lower=True)

    def answers(self) -> Answers:
        errors = np.abs(self.targets - self.predictions)
        true, given = self.targets.tolist(), self.predictions.tolist()
        return Answers((), true, given, errors, loss_name="absolute_error")

    @property
    def without_learning(self) -> tuple[str, Mapping[str, float]]:
        error = np.abs(self.targets - self.targets.mean()).mean()
        return "mean", {"error": float(error)}

    def details(self) -> dict[str, Any]:
        worst = np.argsort(-np.abs(self.targets - self.predictions), kind="stable")[:12]
        targets, predictions = self.targets.tolist(), self.predictions.tolist()
        mistakes = []
        for row in worst:
            numbers = {"actual": targets[row], "predicted": predictions[row]}
            mistakes.append({"name": self.names[row], **numbers})
        return {"mistakes": mistakes}

    def tables(self) -> list[TextTable]:
        rows = []
        for each in self.details()["mistakes"][:5]:
            rows.append((each["name"], f"{each['predicted']:.4g}", f"{each['actual']:.4g}"))
        headers = tuple(map(word, ("image", "predicted", "true")))
        return [TextTable(said("largest errors"), headers, rows)]


def scores_of(
    targets: Float[np.ndarray, " N"], predictions: Float[np.ndarray, " N"]
) -> tuple[float, float, float]:
    """Return R2, the mean absolute error, and the root of the mean squared error."""
    errors = (targets - predictions).astype(float)
    return r2(targets, predictions), float(np.abs(errors).mean()), float(np.sqrt((errors**2).mean()))


class PredictedNumber(BaseModel):
    """The number of an image, as `vitreous predict --json` gives it."""

    path: str
    value: float = Field(description="the predicted number, in the unit of the training labels")

    def to_json(self) -> dict[str, object]:
        return self.model_dump()

    def line(self) -> str:
        return f"{self.path}  {self.value:.6g}"


class Regression(ImageTask[RegressionConfig, Splits, ImageAnswerer]):
    """Numbers for images."""

    name, config = "regression", RegressionConfig
    info = TaskInfo(
        noun="a regression model",
        card=Card(
            "An image regression model: a Vision Transformer that gives each image a number",
            IMAGES,
            "predict RUN image.jpg",
            "number = model(model.preprocessing([image]))  # (1, 1), in the unit of the training labels",
            "The errors apply to images like those it was measured on; numbers outside the range of the "
            "training labels are extrapolated.",
        ),
        targets="numbers",
        panels="regression",
        has_classes=False,
        compares=True,
        options={
            "train": TRAINING | {"recipe"},
            "evaluate": READING | {"tta"},
            "predict": READING | {"out", "tta"},
            "inspect": INSPECTING,
        },
    )

    def answerer_of(self, model: Any, files: Mapping[str, str] | None = None) -> ImageAnswerer:
        outputs = getattr(getattr(model, "config", None), "num_classes", None) or 1
        if outputs > 1:
            raise InputError(
                f"the model predicts {outputs} numbers for each image, but regression supports one: "
                "vt.load(MODEL)(images) gives all of them"
            )
        found: ImageAnswerer = super().answerer_of(model, files)
        return found

    def open_source(self, source: str, config: DataConfig, model: ImageAnswerer | None = None) -> Splits:
        if not source:
            raise InputError(f"{Param('task')} regression needs DATA: a manifest whose label is a number")
        return open_data(source, config, "numbers")

    def choose(
        self, source: str, data: Splits, settings: Tree, *, recipe: str | None, init: str | None
    ) -> RecipeChoice[RegressionConfig]:
        model = settings.get("model", {}).get("name")
        choice = choose(source, data.summary, name=recipe, init=init, model=model)
        numbers = data.train.targets.tensor().numpy().astype(float)
        tree = choice.config.model_dump()
        tree["augmentation"] |= {"mix": None}
        tree["training"] |= {"loss": "softmax", "label_smoothing": 0.0}
        tree |= {"task": self.name, "model": choice.config.model}
        tree["regression"] = {"center": float(numbers.mean()), "scale": float(numbers.std()) or 1.0}
        return RecipeChoice(RegressionConfig(**tree), choice.reasons, choice.imposed)

    def configured(self, config: RegressionConfig, data: Splits, settings: Tree) -> RegressionConfig:
        return configure(config, settings, {"model": {"num_classes": 1}})

    def build(self, config: RegressionConfig, data: Splits, *, steps: int) -> nn.Module:
        model = starting_model(config, ())
        model.labels, model.task = None, self.name
        return model

    def objective(self, config: RegressionConfig, data: Splits) -> Objective:
        return regression_loss(config.regression)

    def validation_scores(
        self, config: RegressionConfig, model: nn.Module, images: ImageDataset, **options: Unpack[Batching]
    ) -> Mapping[str, float]:
        found, numbers = predicted_numbers(model, images, **options), config.regression
        values = found.values.flatten().numpy() * numbers.scale + numbers.center
        targets = images.targets.tensor(found.indices).numpy()
        share, error, _ = scores_of(targets, values)
        # Where all numbers are the same there is no R2 in any validation: the error says which is the best.
        return ({"validation_r2": share} if np.ptp(targets) else {}) | {"validation_mean_error": error}

    def save(self, run: RunDirectory[RegressionConfig], result: nn.Module, batches: TrainingBatches) -> None:
        """Write the model, whose head gives numbers in the unit of the labels."""
        unstandardize(result, run.config.regression)
        run.save_model(result)

    def evaluate(
        self, answerer: ImageAnswerer, examples: ImageDataset, **options: Unpack[Batching]
    ) -> RegressionEvaluation:
        found = predicted_numbers(answerer, examples, **options)
        return RegressionEvaluation(
            targets=examples.targets.tensor(found.indices).numpy().astype(float),
            predictions=found.values.flatten().numpy().astype(float),
            **found.evaluation_fields,
        )

    def report(self, trained: Trained[RegressionConfig, Splits], result: RunResult) -> Path | None:
        path, images = trained.run.path, get_held_out(self, trained.data)[1]
        answerer, evaluation = result.answerer, result.evaluation
        if images is None or not isinstance(answerer, Model):
            return None
        assert isinstance(evaluation, RegressionEvaluation)
        baselines = [Baseline(**each) for each in result.extra["baselines"]]
        network = model_figures.network_to_show(answerer)
        return run_report.write_run_report(
            path,
            answerer,
            [
                scatter_figure(evaluation),
                run_figures.baselines_figure(evaluation, baselines),
                *([run_figures.candidates_table(result.candidates)] if result.candidates else []),
                run_figures.curves_figure(path, "regression"),
                run_report.every_prediction(path, answerer, evaluation, images),
                *model_figures.model_exhibits(network, *run_report.sample_batch(network, images)),
            ],
            kind="regression",
            evaluation=evaluation,
            findings=result.findings,
            best_baseline=run_report.baseline_ahead(evaluation, baselines),
            candidates=result.candidates,
        )

    def extra_fields(self, trained: Trained[RegressionConfig, Splits]) -> dict[str, Any]:
        return compared_fields(self, trained)

    def answer_function(
        self, answerer: ImageAnswerer, device: torch.device, **options: object
    ) -> Callable[[Sequence[str], Tensor], Iterable[PredictedNumber]]:
        @torch.inference_mode()
        def numbers(names: Sequence[str], images: Tensor) -> list[PredictedNumber]:
            values = check_finite(number_outputs(answerer, images)).flatten().tolist()
            return [PredictedNumber(path=name, value=each) for name, each in zip(names, values, strict=True)]

        return numbers


MOST_ROWS = 60  # of the table of the plot


def scatter_figure(evaluation: RegressionEvaluation) -> page.Exhibit:
    """Plot the predicted number over the true one."""
    both = np.concatenate([evaluation.targets, evaluation.predictions])
    ends = [both.min(), both.max()]
    with charts.canvas(4.2, 4.0) as (figure, (axes,)):
        axes.plot(ends, ends, color=charts.MUTED, linewidth=1, linestyle=(0, (4, 3)))
        axes.plot(
            evaluation.targets, evaluation.predictions, "o", color=charts.FIRST, markersize=3, alpha=0.6
        )
        axes.set_xlabel(phrase("charts.true-number"))
        axes.set_ylabel(phrase("charts.predicted-number"))
    header = [phrase("charts.true-number"), phrase("charts.predicted-number")]
    pairs = zip(evaluation.targets[:MOST_ROWS], evaluation.predictions[:MOST_ROWS], strict=True)
    numbers = [[f"{true:.4g}", f"{predicted:.4g}"] for true, predicted in pairs]
    return page.exhibit("scatter", charts.Chart(figure, [header, *numbers]))


def predicted_numbers(model: nn.Module, images: ImageDataset, **options: Unpack[Batching]) -> ModelOutputs:
    """Return the model's number for every image."""
    return compute_outputs(model, images, lambda batch: number_outputs(model, batch.images), **options)


def regression_loss(settings: RegressionSettings) -> Objective:
    """Return the loss of standardized numbers, and the mean absolute error in the unit of the labels."""

    def objective(model: nn.Module, batch: Batch, generator: torch.Generator) -> Measured:
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
    for layer in model.get_submodule("head").modules():
        # With a distillation token there are two layers, and their mean is the number.
        if isinstance(layer, nn.Linear):
            layer.weight.mul_(settings.scale)
            layer.bias.mul_(settings.scale).add_(settings.center)


DEFINED = (Regression(),)
