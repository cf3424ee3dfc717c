"""What a study is: a base, variants of it, and what the paper saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vitreous.pretraining.config import ObjectiveName
from vitreous.training.config import RunConfig
from vitreous.training.settings import merged

Tree = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """Which of the data's images a trial learns from. The held-out part is always whole, but for classes.

    Attributes:
        classes: all, or one half of them, in their order.
        fraction: of the training images of each class.
        per_class: at most so many training images of each class.
    """

    classes: Literal["all", "first half", "second half"] = "all"
    fraction: float = 1.0
    per_class: int | None = None


@dataclass(frozen=True)
class Trial:
    """One training run but for its seed.

    Attributes:
        settings: over those of the study.
        start: what it is fine-tuned from; None: from scratch.
        objective: None: the labels are learned; else this is self-supervised and its encoder is the result.
        fresh_positions: the positions of `start` are drawn anew instead of resized.
    """

    settings: Tree = field(default_factory=dict)
    part: Part = Part()
    start: Trial | None = None
    objective: ObjectiveName | None = None
    fresh_positions: bool = False


@dataclass(frozen=True)
class Variant:
    """A row of the table.

    Attributes:
        paper: what the paper has for it, as written there; empty where it has nothing.
        group, x: its curve and its place on it, in a study that draws curves.
    """

    name: str
    trial: Trial
    paper: str = ""
    group: str = ""
    x: float | None = None


@dataclass(frozen=True)
class Effect:
    """Something that the paper saw: the first of two variants better than the second, or both alike."""

    claim: str
    first: str
    second: str
    alike: bool = False


@dataclass(frozen=True)
class Scale:
    """How long each run learns, and how often it is repeated."""

    epochs: int
    seeds: int


@dataclass(frozen=True)
class Study:
    """One experiment of the paper.

    Attributes:
        title: what is asked.
        place: where it stands in the paper.
        measure: what the paper measured there.
        differs: what is not as in the paper, beside the size of everything.
        variants: the rows, for a base configuration.
        settings: over those of the data's recipe, for every variant.
        axis: what `Variant.x` is, where curves are drawn.
    """

    name: str
    title: str
    place: str
    measure: str
    differs: str
    variants: Callable[[RunConfig], Sequence[Variant]]
    effects: tuple[Effect, ...]
    settings: Tree = field(default_factory=dict)
    full: Scale = Scale(epochs=40, seeds=3)
    quick: Scale = Scale(epochs=6, seeds=3)
    axis: str | None = None


# Every study cuts images into plain patches (Eq. 1), whatever stem the data's recipe has.
PLAIN: dict[str, Any] = {"model": {"stem": {"kind": "patch"}}}


def settings_of(study: Study, scale: Scale, wanted: Tree) -> Tree:
    """What all variants of a study share; what the user wants wins."""
    shared = merged(PLAIN, merged(study.settings, {"training": {"epochs": scale.epochs}}))
    return merged(shared, wanted)
