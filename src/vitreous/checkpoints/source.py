"""What a format reads: an opened checkpoint (`File`), the weights of one model in it (`Source`), and what is
said of that model (`Facts`): every statement with its place, resolved once.

A statement stands in config.json, at another place in it, in a file beside it, or among what a training
program saved. Its owner's code has an order in which it takes them, and defaults for what none says. Each
format names the function that gathers the statements of its owner (`Format.gather`); its reader takes the
result and looks nowhere else, so that "the file does not say" is true wherever it is printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, SupportsFloat

from vitreous.checkpoints.pickles import StoredModule
from vitreous.checkpoints.tensors import Entry, Tensors
from vitreous.errors import InputError
from vitreous.extensions import FORMATS

# By the name of a file, or the keys that lead there in a file of weights: what it says.
Documents = Mapping[str, Mapping[str, object]]
CONFIG, OPEN_CLIP_CONFIG = "config.json", "open_clip_config.json"
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


# Where training code puts the weights among the rest of its state, the likelier first: averages of them, then
# the model itself, then what is trained beside an average. Of MoCo, ALBEF and BLIP the momentum encoder only
# gives the keys, and their own code goes on with the other.
LIKELIER = (
    re.compile(r"ema|averag|swa|teacher|target", re.IGNORECASE),
    re.compile(r"^$|state_dict|model|net|module|weights|params|encoder|backbone", re.IGNORECASE),
)


def likelihood(name: str) -> int:
    """Return the place of a state dict, or of a prefix, in `LIKELIER`; less for a likelier one."""
    if re.search(r"optim|student|online|discriminator|sched|momentum|encoder_k|_m\b", name, re.IGNORECASE):
        return len(LIKELIER) + 1
    return next((i for i, pattern in enumerate(LIKELIER) if pattern.search(name)), len(LIKELIER))


@dataclass(frozen=True)
class File:
    """An opened checkpoint, of a format that is not known yet.

    Attributes:
        parts: its state dicts, by the keys that lead to each.
        documents: what is said of it, by the place where that is.
        stated: what the attributes of a module tell, in the words of our configuration.
        module: that was stored whole, which is not run.
        place: where it was found, for `model.origin`, where that is not what the user gave.
    """

    where: str
    parts: Mapping[str, Tensors]
    documents: Documents = field(default_factory=dict)
    stated: Mapping[str, object] = field(default_factory=dict)
    module: StoredModule | None = None
    place: str = ""

    @property
    def description(self) -> Statements:
        """What its config.json says, as it stands there."""
        return Statements(self.documents.get(CONFIG), self.where)

    @property
    def tensors(self) -> Tensors:
        """Those of the most probable state dict."""
        return self.parts[min(self.parts, key=likelihood)]

    def source(self, key: str | None = None) -> Source:
        """Return one of its state dicts, the most probable by default."""
        key = min(self.parts, key=likelihood) if key is None else key
        return Source(self.where, self.parts[key], inside=f"{key}." if key else "")


@dataclass(frozen=True)
class Source:
    """The weights of one model in an opened file.

    Attributes:
        facts: what the file says, in the words of its owner, and in ours what its training code says.
        answers: what the user gave by keyword.
        assumed: what none of these says and a reader had to assume, in words.
        left_out: the weights that belong to something else, by name.
        inside: what was before their names in the file, with the keys that lead to them.
    """

    where: str
    tensors: Tensors
    facts: Facts = field(default_factory=Facts)
    answers: Mapping[str, object] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    left_out: Mapping[str, Entry] = field(default_factory=dict)
    inside: str = ""

    @property
    def specified(self) -> dict[str, object]:
        """What was said of the fields of our configuration: by the file, and over it by the user."""
        return {**self.facts.fields, **self.answers}

    def stating(self, fields: Mapping[str, object]) -> Source:
        """Return the same, of whose codebase these fields of our configuration are known, where nothing else
        says them."""
        return replace(self, facts=replace(self.facts, fields={**fields, **self.facts.fields}))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor. Raises InputError: there is no tensor of this name."""
        if name not in self.tensors:
            raise InputError(f"{self.where}: missing weights: {name}")
        return self.tensors[name].shape

    def size(self, name: str, axis: int, *, ndim: int) -> int:
        """Return the length of one axis of a tensor that must have `ndim` of them."""
        shape = self.shape(name)
        if len(shape) != ndim or 0 in shape:
            raise InputError(f"{self.where}: {name} has shape {shape}, but should have {ndim} axes")
        return shape[axis]

    def size_if_there(self, name: str, axis: int, *, ndim: int) -> int | None:
        """Return the same; None where there is no such tensor."""
        return self.size(name, axis, ndim=ndim) if name in self.tensors else None

    def positions(self, name: str) -> int:
        """Return the rows of a position table (n, D) or (1, n, D); 0 for another shape."""
        shape = self.shape(name)
        return shape[-2] if len(shape) in (2, 3) else 0

    def count(self, name: str, *stage: int, first: int = 0) -> int:
        """Return how many layers, or units of a stage, there are: `name` with their number in the last
        braces. Raises InputError: there is not one."""
        number = first
        while name.format(*stage, number) in self.tensors:
            number += 1
        after = number + 1
        if number > first and name.format(*stage, after) in self.tensors:
            raise InputError(
                f"{self.where}: layer {number - first} has no weights, though layer {after - first} has: it "
                "was removed or replaced (by nn.Identity, say); models whose layers differ are not supported"
            )
        if number == first:
            raise InputError(f"{self.where}: missing weights: {name.format(*stage, first)}")
        return number - first

    def units(self, name: str, first: int) -> tuple[int, ...]:
        """Return how many units each stage of a ResNet has: `name` with the numbers of stage and unit, which
        count from `first`."""
        layers: list[int] = []
        while name.format(stage := first + len(layers), first) in self.tensors:
            layers.append(self.count(name, stage, first=first))
        return tuple(layers)

    def prefix(self, what: str, prefixes: Iterable[str], *names: str) -> str:
        """Return the first of `prefixes` that is before one of `names` in this file. Raises InputError: none
        is, so the file is not `what` it should be."""
        for prefix in prefixes:
            if any(prefix + name in self.tensors for name in names):
                return prefix
        raise InputError(f"{self.where} is not {what}: it has no {' or '.join(names)}")

    def renamed(self, rename: Callable[[str], str | None]) -> Source:
        """Return the same tensors under other names; those whose new name is None are left out."""
        named = ((rename(name), entry) for name, entry in self.tensors.items())
        return replace(self, tensors={name: entry for name, entry in named if name is not None})

    def under(self, names: Mapping[str, str]) -> Source:
        """Return the same tensors under the names of another codebase: each regular expression is replaced,
        in this order."""

        def rename(name: str) -> str:
            for theirs, ours in names.items():
                name = re.sub(theirs, ours, name)
            return name

        return self.renamed(rename)

    def without(self, names: Iterable[str]) -> Source:
        """Return the same, but for tensors that belong to something else."""
        out = set(names)
        left = {name: entry for name, entry in self.tensors.items() if name in out}
        rest = self.renamed(lambda name: None if name in out else name)
        return replace(rest, left_out={**self.left_out, **left})

    def below(self, prefix: str, *kept: str) -> Source:
        """Return the tensors whose names begin with `prefix`, without it, and those whose names begin with
        one of `kept`; others are left out."""
        within = self.without(name for name in self.tensors if not name.startswith((prefix, *kept)))
        return replace(within.renamed(lambda name: name.removeprefix(prefix)), inside=self.inside + prefix)


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
