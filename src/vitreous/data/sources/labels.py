"""Labels as targets: class numbers, a weight for each class, or numbers to predict."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.errors import InputError

MANY_NUMBERS = 20  # different labels, all of them numbers, from which they may be numbers to predict


def number_classes(labels: Collection[str], classes: Sequence[str], where: str) -> dict[str, int]:
    """Return the number of each class by its name. Raises InputError for a label that is not a class."""
    if unknown := sorted(set(labels) - set(classes)):
        known = ", ".join(classes[:10])
        raise InputError(f"{where} has the class {unknown[0]!r}, which is not one of {known}")
    return {name: index for index, name in enumerate(classes)}


def class_weights(
    labels: Sequence[Mapping[Any, float]], number: Mapping[Any, int], classes: int
) -> NDArray[np.float32]:
    """Return a row of weights for each label, (N, classes), given the weights by class and the classes'
    numbers."""
    rows = np.zeros((len(labels), classes), dtype=np.float32)
    for row, label in zip(rows, labels, strict=True):
        for name, weight in label.items():
            row[number[name]] = weight
    return rows


def refuse_numbers(labels: Sequence[str], where: str) -> None:
    """Raise InputError for labels that are not classes but many different numbers."""
    values = set(labels)
    if len(values) < MANY_NUMBERS or any(number_in(text) is None for text in values):
        return
    fractions = any(not float(text).is_integer() for text in values)
    if fractions or 2 * len(values) > len(labels):
        raise InputError(
            f"{where} has {len(values)} different numbers as labels of {len(labels)} images: add --task "
            "regression to predict numbers, or write classes as words, as in 'class 12'"
        )


def numbers_of(values: Sequence[Any], where: str) -> NDArray[np.float32]:
    """Return values as finite numbers, (N,). Raises InputError where one is not."""
    try:
        numbers = np.array(values, dtype=np.float32)
    except (TypeError, ValueError):
        numbers = np.array([np.nan])
    if numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise InputError(f"{where} is to be predicted as numbers, but not every value is a finite number")
    return numbers


def number_in(text: str) -> float | None:
    """Return the finite number that a text is, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
