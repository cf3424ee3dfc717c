"""A task of your own: grades (0 < 1 < 2 < 3), where a near miss is better than a far one.

    python examples/ordinal.py train grades/ --task ordinal --out runs/grades
    python examples/ordinal.py predict runs/grades image.jpg

`grades/` is a folder with a subfolder for each grade, or a manifest of images with their grades. The task
is a class and a row in the table of tasks, which the last lines of this file add. Every command finds the
task in this table, so resuming, the report, the model card, `inspect`, `export`, and `predict` with an
exported model need no further code. To add a task to the package itself, put the same module into
`src/vitreous/tasks/` and the same row into `src/vitreous/extensions.py`.

The model computes a logit for each grade, as a classifier does. For each grade k except the last, it learns
whether an image is above it: the loss is the binary cross-entropy of P(y > k), the sum of the probabilities
of the grades above k (Frank and Hall, 2001, but with a single model).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from vitreous.__main__ import main
from vitreous.data.findings import Finding
from vitreous.data.image_samples import Batch
from vitreous.errors import InputError
from vitreous.evaluation.classification import ClassificationEvaluation
from vitreous.evaluation.result import Metric
from vitreous.evaluation.scores import quantile_interval
from vitreous.extensions import TASKS, TaskRow
from vitreous.models.config_parts import setting
from vitreous.tasks.classification import Classification
from vitreous.training.config import RunConfig
from vitreous.training.objectives import Measured, Objective
from vitreous.training.settings import configure

RESAMPLES = 1000  # of the bootstrap


class OrdinalConfig(RunConfig):
    """The configuration of an ordinal run."""

    task: Literal["ordinal"] = setting("ordinal", "always ordinal")


@dataclass(frozen=True, kw_only=True)
class OrdinalEvaluation(ClassificationEvaluation):
    """An evaluation of predicted grades; the first metric is the mean distance to the true grade."""

    task = "ordinal"

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        errors = np.abs(np.asarray(self.targets) - np.asarray(self.predictions)).astype(float)
        rows = np.random.default_rng(0).integers(0, len(errors), (RESAMPLES, len(errors)))
        interval = quantile_interval(errors[rows].mean(axis=1).tolist())
        first = Metric(float(errors.mean()), "mean distance to the true grade", interval, rate=False)
        return {"mean_distance": first, **super().metrics}

    @property
    def without_learning(self) -> Any:
        """None: there is no baseline for predictions that ignore the image."""

    def findings(self) -> Iterator[Finding]:
        yield from ()


class Ordinal(Classification):
    """Grades for images."""

    name = "ordinal"
    config = OrdinalConfig
    info = replace(Classification.info, noun="a classifier of grades", source="", compares=False)

    def choose(self, source: str, data: Any, settings: Any, *, recipe: str | None, init: str | None) -> Any:
        grades = data.train.classes
        if all(each.isdecimal() for each in grades) and list(grades) != sorted(grades, key=int):
            raise InputError(
                f"the grades of {source} are in the order {', '.join(grades)}: give them names of one "
                "length, such as 01 and 10"
            )
        choice = super().choose(source, data, settings, recipe=recipe, init=init)
        tree = choice.config.model_dump() | {"task": self.name, "model": choice.config.model}
        tree["augmentation"] |= {"mix": None}  # the mean of two grades is not a grade
        tree["training"] |= {"label_smoothing": 0.0}
        return choice._replace(config=OrdinalConfig(**tree))

    def configured(self, config: Any, data: Any, settings: Any) -> Any:
        return configure(config, settings, {"model": {"num_classes": len(data.train.classes)}})

    def objective(self, config: RunConfig, data: Any) -> Objective:
        def distances(model: nn.Module, batch: Batch, generator: torch.Generator) -> Measured:
            probabilities, grade = model(batch.images).float().softmax(dim=-1), batch.targets
            above = 1 - probabilities.cumsum(dim=-1)[:, :-1]  # P(y > k) of every grade but the last
            wanted = grade[:, None] > torch.arange(above.shape[1], device=grade.device)
            loss = F.binary_cross_entropy(above.clamp(1e-6, 1 - 1e-6), wanted.float())
            return loss, {"accuracy": (probabilities.argmax(dim=-1) == grade).float().mean()}

        return distances

    def evaluate(self, answerer: Any, examples: Any, **options: Any) -> OrdinalEvaluation:
        found = super().evaluate(answerer, examples, **options)
        return OrdinalEvaluation(**{each.name: getattr(found, each.name) for each in fields(found)})

    def extra_fields(self, trained: Any) -> dict[str, Any]:
        """No baselines: they would be compared by accuracy, not by distance."""
        return {"classes": list(trained.data.train.classes), "baselines": [], "candidates": []}


DEFINED = (Ordinal(),)
TASKS["ordinal"] = TaskRow(__name__, outputs="softmax", pipeline="image-classification")

if __name__ == "__main__":
    main()
