"""Weights of a foreign file as weights of a model, and back.

A format is a table: each row says which of our weights are which of theirs, and the algebra between them,
in both directions. Reading, writing, and the lists of missing and left-over names come from it. In the names,
`{}` is the number of a layer; a row of a part that a model does not have is left out. The model is built on
the meta device, so that no weight is initialized only to be overwritten.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from einops import rearrange
from torch import Tensor, nn

from vitreous.checkpoints.tensors import Entry, Tensors
from vitreous.errors import InputError, Param
from vitreous.layers.initialization import compute_buffers
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config
from vitreous.models.model import Model, is_finite, model_of
from vitreous.models.vit import ViT

DEEPEST = 4096  # layers
LONGEST = 2**22  # tokens
LARGEST_TABLE = 2**28  # numbers
LOOKED_AT = 2**18  # numbers of a weight that is looked at for NaN when a file is read
MOST_NAMES = 12  # of weights, in one sentence
log = logging.getLogger(__name__)
Algebra = Callable[..., tuple[Tensor, ...]]


class WeightRow(NamedTuple):
    """Some of our weights, some of theirs, and the way from one to the other and back."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    read: Algebra  # theirs -> ours
    write: Algebra  # ours -> theirs
    first: int = 0  # their number of the first layer

    def numbered(self, numbers: Sequence[int]) -> WeightRow:
        """Return the row of one layer, or of one unit of a stage."""
        there = [self.first + number for number in numbers]
        return self._replace(
            ours=tuple(name.format(*numbers) for name in self.ours),
            theirs=tuple(name.format(*there) for name in self.theirs),
        )


def converted(
    ours: str, theirs: str, read: Callable[[Tensor], Tensor], write: Callable[[Tensor], Tensor]
) -> WeightRow:
    """Return one weight for one weight."""
    return WeightRow((ours,), (theirs,), lambda t: (read(t),), lambda t: (write(t),))


def same(ours: str, theirs: str) -> WeightRow:
    """Return the same numbers in the same order."""
    return WeightRow((ours,), (theirs,), lambda t: (t,), lambda t: (t,))


def pairs(names: Mapping[str, str], ours: str = "", theirs: str = "") -> list[WeightRow]:
    """Return rows for `weight` and `bias` of parts that both sides lay out alike.

    Args:
        names: our names to theirs, each after the prefix `ours` or `theirs`.
    """
    rows: list[WeightRow] = []
    for mine, other in names.items():
        for kind in ("weight", "bias"):
            rows.append(same(f"{ours}{mine}.{kind}", f"{theirs}{other}.{kind}"))
    return rows


def fixed_weight(ours: str, value: Tensor, *, part: str) -> WeightRow:
    """Return a weight of ours that they do not have, because it always has this value there."""

    def write(tensor: Tensor) -> tuple[Tensor, ...]:
        if not torch.equal(tensor, value):
            raise InputError(f"the format cannot hold {part}")
        return ()

    return WeightRow((ours,), (), lambda: (value.clone(),), write)


def no_head_bias(num_classes: int) -> WeightRow:
    """Return the bias of the head, which a projection of theirs does not have."""
    return fixed_weight(
        "head.bias",
        torch.zeros(num_classes),
        part=f"a bias of the head: leave the head out with {Param('drop')} head",
    )


def stacked(ours: str, theirs: Sequence[str | None]) -> WeightRow:
    """Return one weight of ours whose rows are those of several of theirs; None for one that they do not
    have, because it is zero."""
    stored = tuple(each for each in theirs if each is not None)

    def read(*parts: Tensor) -> tuple[Tensor, ...]:
        # Nothing is copied: a mapped file is read where the weight is used.
        if len(theirs) == 1:
            return parts
        given = iter(parts)
        rows = [torch.zeros_like(parts[0]) if each is None else next(given) for each in theirs]
        return (torch.cat(rows),)

    def write(weight: Tensor) -> tuple[Tensor, ...]:
        kept: list[Tensor] = []
        for name, part in zip(theirs, weight.chunk(len(theirs)), strict=True):
            if name is not None:
                kept.append(part)
            elif part.any():
                raise InputError("the format cannot hold a bias of the keys")
        return tuple(kept)

    return WeightRow((ours,), stored, read, write)


def without_bias(ours: str, theirs: Sequence[str]) -> WeightRow:
    """Return a matrix of ours, stacked from several of theirs, whose bias they do not have because it is
    zero."""

    def read(*parts: Tensor) -> tuple[Tensor, ...]:
        matrix = torch.cat(parts)
        return matrix, matrix.new_zeros(len(matrix))

    def write(matrix: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        if bias.any():
            raise InputError("the format cannot hold biases of attention and MLP")
        return matrix.chunk(len(theirs))

    return WeightRow(
        (f"{ours}.weight", f"{ours}.bias"), tuple(f"{each}.weight" for each in theirs), read, write
    )


def linear_stem(theirs: str, patch: tuple[int, int]) -> WeightRow:
    """Return the projection of flat patches of ours, which is a convolution of theirs."""
    p, q = patch
    return converted(
        "stem.projection.weight",
        theirs,
        lambda kernel: rearrange(kernel, "D C p q -> D (p q C)"),
        lambda matrix: rearrange(matrix, "D (p q C) -> D C p q", p=p, q=q),
    )


def linear_kernel(theirs: str, patch: tuple[int, int], channels: int) -> WeightRow:
    """Return the convolution of patches of ours, which is a matrix on flat patches (row, column, channel) of
    theirs."""
    p, q = patch
    return converted(
        "stem.projection.weight",
        theirs,
        lambda matrix: rearrange(matrix, "D (p q C) -> D C p q", p=p, q=q, C=channels),
        lambda kernel: rearrange(kernel, "D C p q -> D (p q C)").contiguous(),
    )


def packed_rows(ours: str, theirs: Sequence[str]) -> list[WeightRow]:
    """Return rows for weight and bias of one projection of ours, stacked from several of theirs: q, k and
    v."""
    rows: list[WeightRow] = []
    for kind in ("weight", "bias"):
        rows.append(stacked(f"{ours}.{kind}", [f"{each}.{kind}" for each in theirs]))
    return rows


def query_and_key_value(ours: str, theirs: str) -> list[WeightRow]:
    """Return the packed in-projection (rows q, k, v) of torch's MultiheadAttention, of which ours holds q and
    (k, v) apart."""

    def read(packed: Tensor) -> tuple[Tensor, ...]:
        third = len(packed) // 3
        return packed[:third], packed[third:]

    def write(query: Tensor, key_value: Tensor) -> tuple[Tensor, ...]:
        return (torch.cat([query, key_value]),)

    rows: list[WeightRow] = []
    for kind in ("weight", "bias"):
        mine = (f"{ours}.query.{kind}", f"{ours}.key_value.{kind}")
        rows.append(WeightRow(mine, (f"{theirs}.in_proj_{kind}",), read, write))
    return rows


def with_unused(row: WeightRow, unused: Mapping[str, Tensor]) -> WeightRow:
    """Return the row, which also writes tensors that their code wants and no output needs."""

    def write(*ours: Tensor) -> tuple[Tensor, ...]:
        return (*row.write(*ours), *unused.values())

    return row._replace(theirs=(*row.theirs, *unused), write=write)


# A weight that training keeps as two: the mask of a pruned one (torch.nn.utils.prune), length and direction
# of a normalized one (weight_norm). The endings of the two, and how they are joined.
FACTORS: tuple[tuple[str, str, Callable[[Tensor, Tensor], Tensor]], ...] = (
    ("_orig", "_mask", torch.mul),
    ("_g", "_v", lambda length, direction: torch._weight_norm(direction, length, 0)),
)
PARAMETRIZED = re.compile(r"parametrizations\.(\w+)\.original([01])$")


def merged_factors(tensors: Tensors) -> Tensors:
    """Return the tensors with each weight as one that the file has in two."""
    entries: Tensors = {}
    for name, entry in tensors.items():
        entries[PARAMETRIZED.sub(lambda found: f"{found[1]}_{'gv'[int(found[2])]}", name)] = entry
    for name in list(entries):
        for one, other, join in FACTORS:
            weight = name.removesuffix(one)
            if name.endswith(one) and weight + other in entries and weight not in entries:
                entries[weight] = joined_entry(join, entries.pop(name), entries.pop(weight + other))
    return entries


def joined_entry(join: Callable[[Tensor, Tensor], Tensor], one: Entry, other: Entry) -> Entry:
    """Return one weight of two tensors, the second of which has its shape."""
    return Entry(other.shape, lambda: join(one.read().float(), other.read().float()))


def of_model(rows: Iterable[WeightRow], weights: Iterable[str]) -> list[WeightRow]:
    """Return the rows of a model with these weights, in their order.

    Where our names have the number of a layer and theirs has none, theirs holds all layers along its first
    axis.
    """
    order = {name: place for place, name in enumerate(weights)}
    lines = "\n".join(order)
    found: list[WeightRow] = []
    for row in rows:
        ours = row.ours[0] if row.ours else ""
        if "{}" not in ours:
            found += [row] if ours in order else []
            continue
        pattern = re.escape(ours).replace(r"\{\}", r"(\d+)")
        layers: list[WeightRow] = []
        for match in re.finditer(f"(?m)^{pattern}$", lines):
            layers.append(row.numbered([int(number) for number in match.groups()]))
        joined = bool(row.theirs) and "{}" not in row.theirs[0]
        found += [all_layers(layers)] if layers and joined else layers
    return sorted(found, key=lambda row: order[row.ours[0]])


def all_layers(rows: list[WeightRow]) -> WeightRow:
    """Return one row for the same part of all layers, which they keep in one tensor."""
    count = len(rows[0].ours)

    def read(*stacks: Tensor) -> tuple[Tensor, ...]:
        ours: list[Tensor] = []
        for layer, row in enumerate(rows):
            ours += row.read(*(stack[layer] for stack in stacks))
        return tuple(ours)

    def write(*ours: Tensor) -> tuple[Tensor, ...]:
        layers = [row.write(*ours[i * count : (i + 1) * count]) for i, row in enumerate(rows)]
        return tuple(map(torch.stack, zip(*layers, strict=True)))

    return WeightRow(tuple(chain(*(row.ours for row in rows))), rows[0].theirs, read, write)


def read_rows(
    rows: Sequence[WeightRow],
    tensors: Tensors,
    *,
    where: str,
    ignored: Iterable[str],
    dtype: torch.dtype = torch.float32,
) -> dict[str, Tensor]:
    """Return our weights, of type `dtype`, from their tensors. Raises InputError: a name of the table is
    missing in the file, or one of the file is not in the table (nor among the `ignored`, which are known and
    not needed); all of them are listed."""
    theirs = chain.from_iterable(row.theirs for row in rows)
    check_keys(tensors, theirs, where=where, ignored=ignored)
    weights: dict[str, Tensor] = {}
    for row in rows:
        stored: list[Tensor] = []
        for name in row.theirs:
            tensor = tensors[name].read()
            if not tensor.is_floating_point():
                raise InputError(f"{where}: {name} holds {tensor.dtype}, not floating-point numbers")
            stored.append(tensor.to(dtype))
        try:
            ours = row.read(*stored)
        except (RuntimeError, ValueError, IndexError):
            shapes = ", ".join(f"{name} {tensors[name].shape}" for name in row.theirs)
            raise InputError(f"{where}: shapes that do not fit together: {shapes}") from None
        # in order at once: a transposed view would keep what was read in memory until the last row
        weights.update(zip(row.ours, (tensor.contiguous() for tensor in ours), strict=True))
    return weights


def write_weight_rows(rows: Iterable[WeightRow], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return their tensors from our weights."""
    theirs: dict[str, Tensor] = {}
    for row in of_model(rows, weights):
        values = row.write(*(weights[name] for name in row.ours))
        theirs.update(zip(row.theirs, values, strict=True))
    return theirs


def check_keys(
    given: Iterable[str], wanted: Iterable[str], *, where: str, ignored: Iterable[str] = ()
) -> None:
    """Raise an InputError that lists the `wanted` names that are missing, or those that are left over."""
    given, wanted = dict.fromkeys(given), dict.fromkeys(wanted)
    if missing := [name for name in wanted if name not in given]:
        raise InputError(f"{where}: missing weights: {listing(missing)}")
    if left := sorted(given.keys() - wanted.keys() - set(ignored)):
        raise InputError(
            f"{where}: weights left over, for which the model has no place: {listing(left)}; if they form a "
            "head of several layers, pass num_classes=None to load the encoder without it"
        )


def listing(names: Sequence[str]) -> str:
    """Return names in one sentence; of many, the first ones and how many more there are."""
    more = f", and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def meta_model(config: Config, **attributes: object) -> Any:
    """Build the model of a configuration on the meta device: `load_weights` gives it values.

    Args:
        attributes: `preprocessing`, `labels`, `task`, `origin` and `temperature`, where the model has them.

    Raises:
        InputError: the configuration asks for a size that no model has. It may come from a file.
    """
    depth = sum(config.layers) if isinstance(config, BiTConfig) else getattr(config, "depth", 0)
    if depth > DEEPEST:
        raise InputError(f"a model of {depth} layers is refused: at most {DEEPEST} are allowed")
    vit = getattr(config, "encoder", config)  # inside a model around one
    if isinstance(vit, ViTConfig) and vit.sequence_length > LONGEST:
        raise InputError(f"a model of {vit.sequence_length} tokens is refused: at most {LONGEST} are allowed")
    try:
        with torch.device("meta"):
            return model_of(config, **attributes).eval()
    except (RuntimeError, TypeError, OverflowError):
        # On this device nothing but a size can fail.
        raise InputError("the configuration asks for a tensor larger than is possible") from None


def attributes_of(model: Model) -> dict[str, object]:
    """Return what a model of images knows beside its configuration and weights, as `meta_model` takes it."""
    names = ("preprocessing", "labels", "task", "origin", "temperature")
    return {name: getattr(model, name) for name in names}


def compute_positions(model: nn.Module, device: str | torch.device = "cpu") -> None:
    """Compute the position tables that are not stored, which cannot remain on the meta device. Raises
    InputError: they would not fit into memory."""
    for part in model.modules():
        if isinstance(part, ViT):
            config, tokens = part.config, part.config.sequence_length
            pairs_of_tokens = config.position.kind in ("relative", "relative-bias")
            numbers = tokens * (tokens if pairs_of_tokens else config.width)
            computed = pairs_of_tokens or config.rotary is not None or config.position.kind == "sincos-2d"
            if computed and numbers > LARGEST_TABLE:
                raise InputError(f"positions of {tokens} tokens are refused: they would not fit into memory")
    compute_buffers(model, device)


def stored_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return every weight once, by name: what a file has to hold. What layers share has its first name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def load_weights(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    *,
    where: str,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Give a model of `meta_model` exactly these weights, and its buffers values beside them. Tensors that
    are as they should be already are not copied.

    Args:
        where: the weights are from, for messages.
        device, dtype: of the model; by default those of the weights.

    Raises:
        InputError: a weight is missing, left over, or of another shape; the names are listed.
    """
    wanted = stored_weights(model)
    check_keys(weights, wanted, where=where)
    tensors: dict[str, Tensor] = {}
    for name, expected in wanted.items():
        tensor = weights[name]
        if tensor.shape != expected.shape:
            raise InputError(
                f"{where}: {name} has shape {tuple(tensor.shape)}, but the model needs "
                f"{tuple(expected.shape)}"
            )
        tensors[name] = tensor.to(device=device, dtype=dtype).contiguous()
    # Training that diverged shows in biases and norms. The matrices are not looked at: a mapped file would be
    # read whole for it, and each answer is checked anyway.
    small = {name: tensor for name, tensor in tensors.items() if tensor.numel() <= LOOKED_AT}
    if broken := [name for name, tensor in small.items() if not is_finite(tensor)]:
        log.warning("%s: weights are NaN or infinite, and so will outputs be: %s", where, listing(broken))
    model.load_state_dict(tensors, strict=False, assign=True)
    first = next(iter(tensors.values()))
    compute_positions(model, first.device)
    model.to(
        device=first.device, dtype=first.dtype if len({t.dtype for t in tensors.values()}) == 1 else None
    )
