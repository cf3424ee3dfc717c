"""A foreign format as a table: each row says which of our weights stand for which of theirs, and the algebra
between them, in both directions. Reading, writing, and the lists of missing and left-over names come from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.checkpoints.building import listing
from vitreous.checkpoints.files import Tensors
from vitreous.errors import InputError

Algebra = Callable[..., tuple[Tensor, ...]]


class Row(NamedTuple):
    """Some of our weights, some of theirs, and the way from one to the other and back."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    read: Algebra  # theirs -> ours
    write: Algebra  # ours -> theirs


class Token(NamedTuple):
    """A learned token of a foreign file, in our order: class, distillation, registers."""

    name: str
    shape: tuple[int, ...]  # (1, 1, D), (1, D) ...
    positioned: bool = True  # whether their position table has rows for it


def read_rows(
    rows: Sequence[Row], tensors: Tensors, *, where: str, ignored: Iterable[str] = ()
) -> dict[str, Tensor]:
    """Our weights from their tensors.

    Raises:
        InputError: a name of the table is missing in the file, or one of the file is not in the table
            (nor among the `ignored`, which are known and not needed); all of them are listed.
    """
    known = [name for row in rows for name in row.theirs]
    if missing := [name for name in known if name not in tensors]:
        raise InputError(f"{where}: missing weights: {listing(missing)}")
    if left := sorted(set(tensors) - set(known) - set(ignored)):
        raise InputError(f"{where}: left over weights that the model has no place for: {listing(left)}")
    weights: dict[str, Tensor] = {}
    for row in rows:
        try:
            ours = row.read(*(number(tensors[name], name, where) for name in row.theirs))
        except (RuntimeError, ValueError, IndexError):
            shapes = ", ".join(f"{name} {tensors.shape(name)}" for name in row.theirs)
            raise InputError(f"{where}: shapes that do not fit together: {shapes}") from None
        # in order at once: a transposed view would keep what was read in memory until the last row
        weights.update(zip(row.ours, (tensor.contiguous() for tensor in ours), strict=True))
    return weights


def number(tensor: Tensor, name: str, where: str) -> Tensor:
    """The tensor as float32; anything but floating-point numbers is no weight."""
    if not tensor.is_floating_point():
        raise InputError(f"{where}: {name} holds {tensor.dtype}, not floating-point numbers")
    return tensor.to(torch.float32)


def write_rows(rows: Sequence[Row], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors from our weights."""
    theirs: dict[str, Tensor] = {}
    for row in rows:
        values = row.write(*(weights[name] for name in row.ours))
        theirs.update(zip(row.theirs, values, strict=True))
    return theirs


def one(ours: str, theirs: str, read: Callable[[Tensor], Tensor], write: Callable[[Tensor], Tensor]) -> Row:
    """One weight for one weight."""
    return Row((ours,), (theirs,), lambda t: (read(t),), lambda t: (write(t),))


def same(ours: str, theirs: str) -> Row:
    """The same numbers in the same order."""
    return Row((ours,), (theirs,), lambda t: (t,), lambda t: (t,))


def pair(ours: str, theirs: str, *, bias: bool = True) -> list[Row]:
    """`weight` and `bias` of a part that both sides lay out alike."""
    names = ("weight", "bias") if bias else ("weight",)
    return [same(f"{ours}.{name}", f"{theirs}.{name}") for name in names]


def fixed(ours: str, value: Tensor, *, part: str) -> Row:
    """A weight of ours that they do not have, because it always has this value there."""

    def write(tensor: Tensor) -> tuple[Tensor, ...]:
        if not torch.equal(tensor, value):
            raise InputError(f"the format cannot hold {part}")
        return ()

    return Row((ours,), (), lambda: (value,), write)


def joined(ours: str, theirs: Sequence[str]) -> Row:
    """One matrix of ours, stacked from several of theirs: q, k and v."""
    return Row((ours,), tuple(theirs), lambda *parts: (torch.cat(parts),), lambda t: t.chunk(len(theirs)))


def tokens_and_positions(
    tokens: Sequence[Token], *, width: int, with_class: int, position: str | None, shape: tuple[int, ...] = ()
) -> Row:
    """The prefix tokens and the position table.

    Ours has a row for each of the first `with_class` tokens (class, distillation) and none for registers.
    Where theirs has none for a token that ours has one for, the row is zero; where theirs has one for a
    register, it is added to the register itself. Backwards likewise.

    Args:
        width: D.
        position: their name of the table; None where positions are computed.
        shape: of their table, with -1 for its rows.
    """
    counts = [token.shape[-2] if len(token.shape) > 1 else 1 for token in tokens]
    positioned = [count if token.positioned else 0 for token, count in zip(tokens, counts, strict=True)]

    def read(*theirs: Tensor) -> tuple[Tensor, ...]:
        values = [tensor.reshape(count, -1) for tensor, count in zip(theirs, counts, strict=False)]
        if position is None:
            return (torch.cat(values),) if values else ()
        table = theirs[-1].reshape(-1, theirs[-1].shape[-1])
        *own, patches = torch.split(table, [*positioned, len(table) - sum(positioned)])
        rows = [
            row if len(row) else table.new_zeros(count, width) for row, count in zip(own, counts, strict=True)
        ]
        for index in range(with_class, len(tokens)):
            values[index] = values[index] + rows[index]
        positions = torch.cat([*rows[:with_class], patches])
        return (torch.cat(values), positions) if values else (positions,)

    def write(*ours: Tensor) -> tuple[Tensor, ...]:
        values = list(torch.split(ours[0], counts)) if tokens else []
        if position is None:
            return tuple(value.reshape(token.shape) for value, token in zip(values, tokens, strict=True))
        table = ours[-1]
        own = list(torch.split(table[:with_class], counts[:with_class])) if with_class else []
        own += [table.new_zeros(count, table.shape[1]) for count in counts[with_class:]]
        rows: list[Tensor] = []
        for index, token in enumerate(tokens):
            if token.positioned:
                rows.append(own[index])
            else:
                values[index] = values[index] + own[index]
        written = [value.reshape(token.shape) for value, token in zip(values, tokens, strict=True)]
        return *written, torch.cat([*rows, table[with_class:]]).reshape(shape)

    names = tuple(token.name for token in tokens)
    prefix = ("prefix",) if tokens else ()
    if position is None:
        return Row(prefix, names, read, write)
    return Row((*prefix, "position.table"), (*names, position), read, write)
