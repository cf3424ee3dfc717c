"""What a checkpoint says of itself: every statement with its place, resolved once.

A statement stands in config.json, at another place in it, in a file beside it, or among what a training
program saved. Its owner's code has an order in which it takes them, and defaults for what none says. Each
format names the function that gathers the statements of its owner (`Format.gather`); its reader takes the
result and looks nowhere else, so that "the file does not say" is true wherever it is printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, SupportsFloat

from vitreous.errors import InputError
from vitreous.extensions import FORMATS

# By the name of a file, or the keys that lead there in a file of weights: what it says.
Documents = Mapping[str, Mapping[str, object]]
CONFIG, OPEN_CLIP = "config.json", "open_clip_config.json"
DESCRIPTIONS = (CONFIG, *(name for row in FORMATS.values() for name in row.sidecars))
CARD = "README.md"  # the model card
ADAPTER = "adapter_config.json"  # of PEFT
TRAINING = "the training program"


class Statements(dict[str, Any]):
    """Names and what is said of them, in the words of one codebase.

    Args:
        where: for messages.
    """

    def __init__(self, values: Mapping[str, object] | None = None, where: object = "") -> None:
        super().__init__(values or {})
        self.where = where

    def over(self, defaults: Mapping[str, object]) -> Statements:
        """Return these statements, and `defaults` for what they leave out."""
        return Statements({**defaults, **self}, self.where)

    def part(self, name: str) -> Statements:
        """Return a description inside this one; empty where it is missing or empty. Raises InputError: it is
        something else."""
        part = self.get(name) or {}
        if not isinstance(part, Mapping):
            raise InputError(f"{self.where}: {name}={part!r:.60} in its description is not an object")
        return Statements(part, self.where)


class NamedSize(NamedTuple):
    """What a name such as vit_base means, where the weights have its width."""

    place: str
    width: int
    heads: int


@dataclass(frozen=True)
class Facts:
    """What a file says, resolved as its owner's code does it.

    Attributes:
        name: of its architecture, or the model_type; "" where it names none.
        model: of the model, in the owner's words, with the owner's defaults.
        arguments: the names of what config.json itself says of the model, without the defaults.
        images: likewise, of the images that it takes; empty where nothing is said of them.
        whole: what is said of a larger model that this one is inside of.
        fields: what is said in the words of our own configuration.
        size: that an architecture's name says.
        image_sizes: that a training program says, of which one may be that of the positions.
        labels: of the classes.
        conflicts: where two places disagree, a sentence that says which one is taken.
        open: a sentence on what had to be left out of these.
    """

    name: str = ""
    model: Statements = field(default_factory=Statements)
    images: Statements = field(default_factory=Statements)
    arguments: frozenset[str] = frozenset()
    whole: Statements = field(default_factory=Statements)
    fields: Mapping[str, object] = field(default_factory=dict)
    size: NamedSize | None = None
    image_sizes: tuple[object, ...] = ()
    labels: list[str] | None = None
    conflicts: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


def number_of(value: object, what: str) -> float:
    """Return a number in a description, also one that is written as text. Raises InputError: something
    else."""
    try:
        if isinstance(value, SupportsFloat | str):
            return float(value)
    except (TypeError, ValueError):  # also of an array
        pass
    raise InputError(f"{what}={value!r:.60} is not a number")


def whole_number_of(value: object, what: str, *, least: int = 1) -> int:
    """Return a whole number in a description, also as 64.0 or as text. Raises InputError: something else, or
    one below `least`."""
    number = number_of(value, what)
    if not number.is_integer() or number < least:
        raise InputError(f"{what}={value!r:.60} is not a whole number of {least} or more")
    return int(number)
