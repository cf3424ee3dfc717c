"""Labels as targets: class numbers, a weight for each class, or numbers to predict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from vitreous.data.config import TargetKind
from vitreous.data.dataset import ClassTargets, LabelTargets, NumberTargets, Targets, single_class_targets
from vitreous.errors import InputError, Param
from vitreous.outside import finite_number, same_name

Label = str | Mapping[str, float]  # one class, or the weights of several
MANY = 20  # different labels, from which they may be numbers to predict, or captions
LONG = 4  # words of the median label, from which on labels that hardly occur twice are captions
UNLABELED = ("image",)  # the classes of images without labels


def named_targets(
    labels: Sequence[Label], where: str, classes: tuple[str, ...] = ()
) -> ClassTargets | LabelTargets:
    """Return the targets of labels: classes where every image has one, else weights of several.

    Args:
        classes: those that there are; by default those of the labels, in alphabetical order.

    Raises:
        InputError: a label is not one of the classes.
    """
    weighted: list[dict[str, float]] = []  # of each image the weights of its classes
    names: set[str] = set()
    for label in labels:
        weights = {label: 1.0} if isinstance(label, str) else label
        weighted.append({same_name(name): weight for name, weight in weights.items()})
        names.update(weighted[-1])
    if classes and (unknown := sorted(names - set(classes))):
        known = ", ".join(classes[:10])
        raise InputError(f"{where} has the class {unknown[0]!r}, which is not one of {known}")
    classes = classes or tuple(sorted(names))
    place = {name: number for number, name in enumerate(classes)}

    if all(isinstance(label, str) for label in labels):
        numbers: list[int] = []
        for weights in weighted:
            numbers += (place[name] for name in weights)
        return ClassTargets(np.array(numbers, dtype=np.int64), classes)
    rows: list[dict[int, float]] = []
    for weights in weighted:
        positive = {place[name]: weight for name, weight in weights.items() if weight}
        rows.append(positive)
    return LabelTargets.of(rows, classes)


def classes_if_any(
    read: Callable[[], Targets], count: int, kind: TargetKind, known: tuple[str, ...] = ()
) -> Targets:
    """Return the targets that `read` returns; where the images need no labels and these are not classes, one
    class for all `count` images. known: the classes of the training set, in another one."""
    try:
        return read()
    except InputError:
        if kind != "unlabeled" or known not in ((), UNLABELED):
            raise
        return single_class_targets(count, *UNLABELED)


def refuse_captions(labels: Sequence[str], where: str) -> None:
    """Raise InputError for labels that are not classes but texts, hardly two of which are equal."""
    texts = set(labels)
    if len(texts) < MANY or 2 * len(texts) <= len(labels):
        return
    if np.median([len(text.split()) for text in texts]) >= LONG:
        raise InputError(
            f"{where} has {len(texts)} different texts as labels of {len(labels)} images, such as "
            f"{min(texts)!r:.60}: use classes that many images share"
        )


def refuse_numbers(labels: Sequence[str], where: str) -> None:
    """Raise InputError for labels that are not classes but many different numbers."""
    values = set(labels)
    if len(values) < MANY:
        return
    fractions = False
    for text in values:
        number = number_in(text)
        if number is None:
            return
        if not number.is_integer():
            fractions = True
    if fractions or 2 * len(values) > len(labels):
        raise InputError(
            f"{where} has {len(values)} different numbers as labels of {len(labels)} images: add "
            f"{Param('task')} "
            "regression to predict numbers, or write classes as words, as in 'class 12'"
        )


def finite_numbers(values: Sequence[object], where: str) -> NumberTargets:
    """Return values as finite numbers to predict. Raises InputError where one is not."""
    try:
        numbers = np.array(values, dtype=np.float32)
    except (TypeError, ValueError):
        numbers = np.array([np.nan])
    if numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise InputError(f"{where} is to be predicted as a number, but some values are not finite numbers")
    return NumberTargets(numbers)


def number_in(text: str) -> float | None:
    """Return the finite number that a text is, or None."""
    try:
        return finite_number(text)
    except ValueError:
        return None
