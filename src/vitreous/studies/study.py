"""What a study is: a base configuration, variants of it, and the effects that the paper reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vitreous.languages import words
from vitreous.tasks.pretraining.rules import ObjectiveName
from vitreous.training.config import RunConfig
from vitreous.training.settings import Tree, merged


@dataclass(frozen=True)
class Part:
    """The training images of a trial. The held-out part is always complete, except for classes.

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
    """One training run without its seed.

    Attributes:
        settings: over those of the study.
        start: what it is fine-tuned from; None: from scratch.
        objective: None: supervised; else the self-supervised objective, whose encoder is the result.
        fresh_positions: the positions of `start` are initialized again instead of resized.
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
        paper: the paper's number, as written there; empty where it has none.
        group, x: its curve and its place on it, in a study that draws curves.
    """

    name: str
    trial: Trial
    paper: str = ""
    group: str = ""
    x: float = 0.0


@dataclass(frozen=True)
class Effect:
    """An effect that the paper reports: the first of two variants better than the second, or both alike.

    Attributes:
        name: of the claim among the words of its study.
    """

    name: str
    first: str
    second: str
    alike: bool = False


@dataclass(frozen=True)
class Study:
    """One experiment of the paper.

    Attributes:
        variants: the rows, for a base configuration.
        settings: over those of the data's recipe, for every variant.
        full, quick: epochs of each trial.
    """

    name: str
    variants: Callable[[RunConfig], Sequence[Variant]]
    effects: tuple[Effect, ...]
    settings: Tree = field(default_factory=dict)
    full: int = 40
    quick: int = 6

    @property
    def words(self) -> dict[str, Any]:
        """The study in the catalog: title, place, measure, differs, claims, and the axis of curves."""
        return words(f"studies.{self.name}")


def variant_label(name: str) -> str:
    """Return the name of a variant in the language of the page: each part between commas, without numbers."""
    known = words("study.variants")
    parts = [part.partition(" x") for part in name.split(", ")]
    return ", ".join(known.get(part, part) + sign + number for part, sign, number in parts)


# Every study splits images into plain patches (Eq. 1), whatever stem the data's recipe has.
PLAIN: dict[str, Any] = {"model": {"stem": {"kind": "patch"}}}


def settings_of(study: Study, epochs: int, wanted: Tree) -> Tree:
    """Return the settings that all variants of a study share; those of the user (`wanted`) take
    precedence."""
    shared = merged(PLAIN, merged(study.settings, {"training": {"epochs": epochs}}))
    return merged(shared, wanted)
