"""What is measured while a classifier learns, on images that it does not learn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from torch import nn

from vitreous.data.dataset import Splits, Subset
from vitreous.errors import InputError
from vitreous.evaluation.features import extract
from vitreous.evaluation.fewshot import draw_order, fewshot
from vitreous.training.config import RunConfig
from vitreous.training.validation import validation

Measure = Callable[[nn.Module], Mapping[str, float]]
SHOTS = (1, 5, 10)


def monitor(splits: Splits, config: RunConfig) -> Measure | None:
    """Loss and accuracy on the validation part, and few-shot accuracy there if `evaluation.fewshot` is set.

    Raises:
        InputError: few-shot accuracy is wanted, but there is no validation part.
    """
    measures = [measure for measure in (validation(splits.validation, config),) if measure]
    if config.evaluation.fewshot:
        measures.append(fewshot_measure(splits, batch_size=config.evaluation.batch_size))
    if not measures:
        return None
    return lambda model: {name: value for measure in measures for name, value in measure(model).items()}


def fewshot_measure(splits: Splits, *, batch_size: int) -> Measure:
    """Closed-form few-shot accuracy on the validation part, from the same few training images each time."""
    if splits.validation is None:
        raise InputError(
            "evaluation.fewshot needs images to judge on: set data.validation_fraction, 0.1 for example"
        )
    if splits.summary.multi_label:
        raise InputError("evaluation.fewshot needs one class for each image: leave it out for several labels")
    validating, classes = splits.validation, len(splits.train.classes)
    order = draw_order(splits.train.targets, classes, seed=0)
    drawn = Subset(splits.train, np.concatenate([indices[: max(SHOTS)] for indices in order]))

    def measure(model: nn.Module) -> Mapping[str, float]:
        device = next(model.parameters()).device
        train, test = (
            extract(model, part, device=device, batch_size=batch_size)  # type: ignore[arg-type]
            for part in (drawn, validating)
        )
        results = fewshot(train, test, classes=classes, shots=SHOTS, seeds=(0,))
        return {f"validation_fewshot_{shots}": result.mean for shots, result in results.items()}

    return measure
