"""What a format reads: the weights that it was recognized by, what their file says of them, and what the
user answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from vitreous.checkpoints.facts import Facts
from vitreous.checkpoints.tensors import Entry, Tensors
from vitreous.errors import InputError


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
