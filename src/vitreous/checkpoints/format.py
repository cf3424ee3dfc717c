"""How a codebase stores its models (`Format`) and what it calls their parts (`Family`), what is read of an
opened checkpoint before any weight (`Spec`), and the questions that several formats must ask."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import isqrt, prod
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar

import torch
from einops import rearrange
from pydantic import BaseModel
from torch import Tensor, nn

from vitreous.checkpoints.canonicalize import PLAIN_VIT, FormatLimits, held_by_format
from vitreous.checkpoints.source import Documents, Facts, File, Source, whole_number_of
from vitreous.checkpoints.tensors import Entry
from vitreous.checkpoints.training_facts import plain_facts
from vitreous.checkpoints.weights import (
    WeightRow,
    linear_stem,
    meta_model,
    packed_rows,
    pairs,
    same,
    stacked,
    without_bias,
    write_weight_rows,
)
from vitreous.errors import InputError, Param, nearest
from vitreous.extensions import FORMATS, contributed, imported
from vitreous.layers.block import GATES
from vitreous.models.bit import BiTConfig
from vitreous.models.config import Origin, ViTConfig
from vitreous.models.config_parts import Config
from vitreous.models.model import Model
from vitreous.models.preprocessing import Preprocessing

log = logging.getLogger(__name__)
AConfig = TypeVar("AConfig", bound=Config)

# Overrides that change the model after it was read, where every other one answers what the file leaves open.
AFTERWARDS = ("image_size", "stored_image_size", "patch_size", "num_classes", "scale_after_softmax")
# Of these, what is not a field of the configuration.
OF_THE_FILE = ("stored_image_size", "scale_after_softmax")


class Changes(NamedTuple):
    """What is changed of a model after it was read.

    Attributes:
        sizes: image_size and patch_size, where they are given.
        positions, patches: how each is resampled.
        num_classes: of a new head, as it was given; "" for the head that it has.
    """

    sizes: Mapping[str, Any]
    positions: str
    patches: str
    num_classes: object = ""


class Spec(NamedTuple):
    """What a checkpoint holds, before any of its weights is read: configuration, table of weights,
    preprocessing and labels. A reader leaves the last fields to `Found.read`."""

    source: Source  # its tensors under the names that the rows use
    config: Config
    rows: list[WeightRow]
    preprocessing: Preprocessing | None = None
    labels: list[str] | None = None
    ignored: tuple[str, ...] = ()  # tensors that are known and not needed
    task: str | None = "classification"  # what the head's outputs mean, where there is a head
    origin: Origin | None = None  # of the weights before they came into this file
    interpolation: str | None = None  # where the model's own code differs from its format's
    patch_interpolation: str | None = None  # likewise
    used_size: tuple[int, int] | None = None  # of images, where not that of its table
    temperature: float = 1.0  # that the head's logits are divided by, for calibration
    make: Callable[..., nn.Module] = meta_model  # from the configuration to the model without weights
    read_from: Origin | None = None  # the file
    changes: Changes = Changes({}, "timm", "flexivit")  # that the user wants


@dataclass(frozen=True)
class Format:
    """How one codebase stores its models.

    Attributes:
        name, about: for `--format`, and in one line.
        families: of the models that are published in it: a row each of the table of the documentation, which
            shows what `benchmarks/checkpoint_families.py` measured.
        read: from an opened checkpoint to what it holds.
        keys: regular expressions; a file is of this format if each matches the whole name of some weight.
        entries: of config.json, each of which means this format whatever the weights are called.
        overridable: the fields that a user may override; None where `read` checks them itself.
        write: a model to a path; None where the format is only read.
        limits: what a model can be to be written; a function where that depends on the model.
        interpolation: how the codebase resamples positions, by the name that `resize` knows.
        patch_interpolation: the same of the patches; FlexiViT's where the codebase has no way of its own.
        suffixes: of its files; none for a folder.
        bare_suffixes: with which a format that is a folder is written as a state dict alone.
        gather: what the documents of a file say, as the codebase itself takes them: a function (documents,
            source).
        module_facts: of a live module of this codebase the fields that no weight tells; None for another
            module.
        outer_names: how names of weights begin that are its own where the others have a prefix, as those of
            heads.
        check_architecture: a function (file, known) that raises an InputError where config.json names a model
            of this codebase that is not read; with `known` also where it names one that is not known.
        unsaid: fields that its files do not tell and that the reader must be given; `bare_unsaid` likewise.
        typical: of the models that it is made for, the fields that are not those of the paper's.
        without: regular expressions of our weights that its models do not have: zero in what it holds.
    """

    name: str
    about: str
    read: Callable[[Source], Spec]
    families: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    entries: tuple[tuple[str, str], ...] = ()
    overridable: type[BaseModel] | None = ViTConfig
    write: Callable[[Model, Path], object] | None = None
    limits: FormatLimits | Callable[[Model], FormatLimits] = field(default_factory=dict)
    interpolation: str = "timm"
    patch_interpolation: str = "flexivit"
    suffixes: tuple[str, ...] = ()
    bare_suffixes: tuple[str, ...] = ()
    gather: Callable[[Documents, Source], Facts] = plain_facts
    module_facts: Callable[[nn.Module], dict[str, object] | None] | None = None
    unsaid: tuple[str, ...] = ()
    bare_unsaid: tuple[str, ...] = ()
    outer_names: tuple[str, ...] = ()
    typical: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    check_architecture: Callable[[File, bool], object] | None = None

    def recognizes(self, config: Mapping[str, object], names: str) -> bool:
        """Return whether a checkpoint with this config.json, the names of whose weights are the lines of
        `names`, is of this format."""
        if any(config.get(key) == value for key, value in self.entries):
            return True
        return bool(self.keys) and all(re.search(rf"(?m)^{key}$", names) for key in self.keys)

    def prefixes(self, names: str) -> list[str]:
        """Return the prefixes below which weights, whose names are the lines of `names`, are of this
        format."""
        first, *others = self.keys or ("$^",)
        found = dict.fromkeys(m[1] for m in re.finditer(rf"(?m)^((?:[^\n]*\.)?)(?:{first})$", names))
        prefixes: list[str] = []
        for prefix in found:
            start = rf"(?m)^{re.escape(prefix)}"
            if prefix and all(re.search(rf"{start}(?:{key})$", names) for key in others):
                prefixes.append(prefix)
        return prefixes

    def limits_of(self, model: Model) -> FormatLimits:
        return self.limits(model) if callable(self.limits) else self.limits

    def unsaid_at(self, path: Path) -> tuple[str, ...]:
        """Return the fields that a reader of what is written at `path` must be given."""
        return self.bare_unsaid if path.suffix in self.bare_suffixes else self.unsaid


@cache
def checkpoint_formats() -> Mapping[str, Format]:
    """Return every format by its name, in the order of detection."""
    return {each.name: each for each in (*formats_of_images(), *formats_of_addons())}


def formats_of_images() -> Iterator[Format]:
    """Yield the formats of the core, in the order of detection. Each is imported when it is asked: a model of
    this package is recognized by the first, and needs no other."""
    for row in FORMATS.values():
        yield imported(row.address)


def formats_of_addons() -> Sequence[Format]:
    """Return the formats of add-ons, which are imported here."""
    return tuple(contributed("formats"))


def configured(kind: type[AConfig], source: Source, fields: Mapping[str, object]) -> AConfig:
    """Return the configuration that a file describes; what the user gave wins. Heads that are not among the
    `fields` are asked for."""
    overrides = {name: value for name, value in source.specified.items() if name not in AFTERWARDS}
    size, patch = as_pair(fields.get("image_size")), as_pair(fields.get("patch_size"))
    if size and patch and (size[0] % patch[0] or size[1] % patch[1]):
        fields = {"edge": "drop", **fields}
    for name in ("heads", "mlp", "pooling"):
        given, stated = part_kind(source.answers.get(name)), part_kind(fields.get(name))
        if source.facts.whole and None not in (given, stated) and given != stated:
            message = "%s=%s is used as specified, instead of %s=%s from %s"
            log.warning(message, name, given, name, stated, source.where)
    width = fields.get("width")
    if "heads" not in fields and "heads" in kind.model_fields and isinstance(width, int):
        overrides["heads"] = asked_heads(source, width)
    config: AConfig = kind.checked(fields, overrides)
    return config


def part_kind(part: object) -> object:
    """Return the kind of a part that is given with its settings, or by its kind alone."""
    return part.get("kind") if isinstance(part, Mapping) else getattr(part, "kind", part)


class ShapeFields(TypedDict):
    """What the names and shapes of weights tell of a `ViTConfig`."""

    width: int
    channels: int
    patch_size: tuple[int, int]
    depth: int
    mlp_dim: int
    mlp: str
    qk_norm: str
    layer_scale: float | None
    extra_norms: tuple[str, ...]
    representation_size: int | None
    num_classes: int | None


def shape_fields(source: Source, rows: Sequence[WeightRow]) -> ShapeFields:
    """Return what the names and shapes of its weights tell of a ViT that is laid out as ours.

    Args:
        rows: the table of the format, which says where each of our weights is.
    """
    theirs = {row.ours[0]: row.theirs[0] for row in rows if row.theirs}

    def first(ours: str) -> str:
        """Return their name, of layer 0; empty where it is not in the file."""
        name = theirs.get(ours, "").replace("{}", "0")
        return name if name in source.tensors else ""

    patches = theirs["stem.projection.weight"]
    if len(source.shape(patches)) == 5:
        raise InputError(
            f"{source.where}: {patches} has patches of several images (a video) or of volumes, which are "
            "not supported"
        )
    width, channels, p, q = (source.size(patches, axis, ndim=4) for axis in range(4))
    if q in (1, 3) and channels == p != q:
        raise InputError(
            f"{source.where}: {patches} has shape {source.shape(patches)}, with the colors last, as in MLX "
            "and TensorFlow: it should be (width, colors, rows, columns)"
        )
    stated = source.facts.model.get("num_channels", channels)
    if type(stated) is int and stated != channels:
        raise InputError(
            f"{source.where}: {patches} is for images of {channels} channels, but config.json says "
            f"num_channels={stated}"
        )
    mlp_dim = source.size(theirs["blocks.{}.mlp.contract.weight"].replace("{}", "0"), 1, ndim=2)
    expand, gate = (first(f"blocks.{{}}.mlp.{name}.weight") for name in ("expand", "gate_expand"))
    swiglu = bool(gate) and (gate != expand or source.size(gate, 0, ndim=2) == 2 * mlp_dim)
    return {
        "width": width,
        "channels": channels,
        "patch_size": (p, q),
        "depth": source.count(theirs["blocks.{}.attention_norm.weight"]),
        "mlp_dim": mlp_dim,
        "mlp": "swiglu" if swiglu else "gelu",
        "qk_norm": "head" if first("blocks.{}.attention.query_norm.weight") else "none",
        "layer_scale": 1.0 if first("blocks.{}.attention_branch.scale.gamma") else None,
        "extra_norms": ("tokens",) if first("embedding_norm.weight") else (),
        "representation_size": source.size_if_there(first("representation.linear.weight"), 0, ndim=2),
        "num_classes": source.size_if_there(first("head.weight") or first("head.classes.weight"), 0, ndim=2),
    }


# What timm, transformers and PyTorch's classes (in small letters) call the activation of an MLP: ours.
ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_erf": "gelu",
    "gelu_tanh": "gelu_tanh",
    "gelutanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "quickgelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


# The gated MLP of an activation.
GATED = {activation: name for name, activation in GATES.items()}


def hidden_act_of(mlp: str) -> str:
    """Return what transformers calls the activation of our MLP, or of its gate."""
    activation = GATES.get(mlp, mlp)
    return "gelu_pytorch_tanh" if activation == "gelu_tanh" else activation


def activation_of(source: Source, field: str, name: object) -> str:
    """Return the activation that a field of config.json names, by our name."""
    if not isinstance(name, str) or name not in ACTIVATION_NAMES:
        hint = nearest(str(name), list(ACTIVATION_NAMES))
        raise InputError(f"{source.where}: unknown {field} {name!r} in config.json: {hint}")
    return ACTIVATION_NAMES[name]


# Of published models where heads are not 64 wide: SigLIP's So400m, ViT-H, ViT-g, ViT-G.
USUAL_HEADS = {1152: 16, 1280: 16, 1408: 16, 1664: 16}


def asked_heads(source: Source, width: int) -> int:
    """Return the number of heads, which no state dict tells. Raises InputError: the user has not said it; the
    likely value is given."""
    if "heads" in source.specified:
        return given_number(source, "heads", 0)
    size = source.facts.size
    if size and size.width == width:
        log.info("%s: %d heads, according to %s", source.where, size.heads, size.place)
        return size.heads
    likely = USUAL_HEADS.get(width, max(width // 64, 1))
    raise InputError(
        f"{source.where}: a state dict does not store the number of heads: pass heads={likely} "
        f"(width {width} / {width // likely}; {Param('settings')} model.heads={likely}), or the "
        "number that it was made with"
    )


def given_number(source: Source, name: str, usual: int) -> int:
    """Return a whole number that the user gives by keyword. Raises InputError: something else."""
    return whole_number_of(source.specified.get(name, usual), name)


def asked_image_size(source: Source) -> object:
    """Return the image size, where positions are computed."""
    if "image_size" not in source.specified:
        raise InputError(
            f"{source.where}: positions are computed, so the file does not store the image size: pass "
            f"image_size=224 or what the model was made with"
        )
    return source.specified["image_size"]


def as_pair(size: object) -> tuple[int, int] | None:
    """Return a size that a file or the user gives, one number for a square or two; None for anything else."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, list | tuple) and len(size) == 2 and all(isinstance(n, int) for n in size):
        return size[0], size[1]
    return None


def image_size_of(
    source: Source, patch: tuple[int, int], *positions: int, described: Sequence[object] = (), stride: int = 1
) -> tuple[int, int]:
    """Return the size of the images that a file was made for, from its number of positions of patches.

    What is stated comes first: `stored_image_size`, then what the file's description says (`described`),
    where it has as many patches. Of a file that says nothing the user's `image_size` is the size, if it has
    exactly as many patches as there are positions, since its owner would build the model for it; only then a
    square.

    Args:
        positions: their number; of several, the first that fits.
        stride: of a ResNet before the patches, whose convolutions pad; other patches drop what is left over.

    Raises:
        InputError: nothing fits, or not the `stored_image_size`.
    """
    stored, wished = (as_pair(source.specified.get(n)) for n in ("stored_image_size", "image_size"))
    if stored and prod(grid_of(stored, patch, stride)) not in positions:
        raise InputError(
            f"{source.where}: stored_image_size={stored} has {prod(grid_of(stored, patch, stride))} patches "
            f"of {patch[0]}x{patch[1]} pixels, but the file has {positions[0]} positions"
        )
    wished_fits = wished is not None and 0 < prod(grid_of(wished, patch, stride)) in positions
    for size in (stored, *map(as_pair, [*source.facts.image_sizes, *described])):
        if size and 0 < prod(grid := grid_of(size, patch, stride)) in positions:
            # pixels that fill no patch are not a part of the table
            same_grid = wished_fits and wished and grid == grid_of(wished, patch, stride)
            return wished if same_grid and wished else size
    side = next((isqrt(n) for n in positions if 0 < n == isqrt(n) ** 2), None)
    if wished and wished_fits:
        if side and grid_of(wished, patch, stride) != (side, side):
            source.assumed.append(
                f"images of {wished[0]}x{wished[1]}, which have as many patches as it has positions (a "
                f"square would be {side * patch[0]}x{side * patch[1]}: pass that as stored_image_size=, and "
                "the positions are resampled)"
            )
        return wished
    if side is None:
        raise InputError(
            f"{source.where}: {positions[0]} positions are not a square grid: pass "
            f"stored_image_size=(height, width) of the images it was made for, in patches of "
            f"{patch[0]}x{patch[1]} pixels"
        )
    return assumed_square(source, side, patch)


def assumed_square(source: Source, side: int, patch: tuple[int, int]) -> tuple[int, int]:
    """Return the size of images with so many patches on each side, which is then said to be assumed."""
    height, width = side * patch[0], side * patch[1]
    source.assumed.append(f"images of {height}x{width}, a square of patches (or pass stored_image_size=)")
    return height, width


def flat_patch_size(source: Source, patch_dim: int, channels: int) -> tuple[int, int]:
    """Return the sides of a flat patch of `patch_dim` numbers: a square, unless the user says otherwise."""
    p, q = as_pair(source.specified.get("patch_size")) or (0, 0)
    if p * q * channels == patch_dim:
        return p, q
    side = isqrt(patch_dim // channels)
    if side * side * channels != patch_dim or not side:
        raise InputError(
            f"{source.where}: a patch of {patch_dim} numbers is not a square of {channels} channels: pass "
            "patch_size=(rows, columns), or channels="
        )
    return side, side


def kernel_of(flat: Entry, channels: int, patch: tuple[int, int]) -> Entry:
    """Return a projection of flat patches (row, column, channel) as a convolution."""

    def read() -> Tensor:
        return rearrange(flat.read(), "D (p q C) -> D C p q", p=patch[0], q=patch[1])

    return Entry((flat.shape[0], channels, *patch), read)


def grid_of(size: tuple[int, int], patch: tuple[int, int], stride: int) -> tuple[int, int]:
    """Return the rows and columns of patches of an image; `stride` as in `image_size_of`."""
    rows, columns = (-(-side // stride) // (p // stride) for side, p in zip(size, patch, strict=True))
    return rows, columns


def check_no_overrides(source: Source) -> None:
    if source.answers:
        raise InputError(
            f"{source.where} is a model that writes text, and is loaded unchanged: leave out "
            f"{', '.join(source.answers)}"
        )


POSITIONED = ("class_token", "distillation_token")  # the prefix tokens that usually have positions


def tokens_and_positions(
    config: ViTConfig,
    tokens: Mapping[str, str],
    position: str,
    *,
    axes: int = 3,
    table_axes: int = 3,
    positioned: Collection[str],
) -> WeightRow:
    """Return the prefix tokens and the position table, where positions are learned.

    Ours has a row for the class and the distillation token and none for registers. Where theirs has none for
    a token that ours has one for, the row is zero; where theirs has one for a register, it is added to the
    register itself. Backwards likewise.

    Args:
        tokens: their names by ours: class_token, distillation_token, registers.
        position: their name of the table.
        axes, table_axes: of their tokens and of their table: (1, n, D), (n, D) or, for one token, (D,).
        positioned: the tokens for which their table has rows.
    """
    width = config.width
    learned = config.position.kind == "learned" or config.position.absolute
    counts = {name: int(getattr(config, name)) for name in tokens if getattr(config, name)}
    their_rows = [n if name in positioned else 0 for name, n in counts.items()]
    our_rows = [0 if name == "registers" else n for name, n in counts.items()]

    def moved(values: list[Tensor], table: Tensor, old: list[int], new: list[int]) -> list[Tensor]:
        """Return the tokens and the table, with the rows for each token that the other side has."""
        table = table.reshape(-1, width)
        *rows, patches = torch.split(table, [*old, len(table) - sum(old)])
        for i, count in enumerate(new):
            if len(rows[i]) and not count:
                values[i] = values[i] + rows[i]
            rows[i] = rows[i] if len(rows[i]) == count else patches.new_zeros(count, width)
        return [*values, torch.cat([*rows, patches])]

    def read(*theirs: Tensor) -> tuple[Tensor, ...]:
        values = [tensor.reshape(-1, width) for tensor in theirs[: len(counts)]]
        values = moved(values, theirs[-1], their_rows, our_rows) if learned else values
        return (torch.cat(values[: len(counts)]), *values[len(counts) :]) if counts else tuple(values)

    def write(*ours: Tensor) -> tuple[Tensor, ...]:
        values = list(torch.split(ours[0], list(counts.values()))) if counts else []
        values = moved(values, ours[-1], our_rows, their_rows) if learned else values
        found: list[Tensor] = []
        for value, n in zip(values, [axes] * len(counts) + [table_axes] * learned, strict=True):
            found.append(value.flatten() if n == 1 else value.reshape((1,) * (n - 2) + (-1, width)))
        return tuple(found)

    ours = ["prefix"] if counts else []
    theirs = [tokens[name] for name in counts]
    if learned:
        ours, theirs = [*ours, "position.table"], [*theirs, position]
    return WeightRow(tuple(ours), tuple(theirs), read, write)


class Family(NamedTuple):
    """What a codebase calls the parts of a ViT that is laid out as ours: names, and from them the one table
    that reads and writes.

    Attributes:
        names: of the parts outside of the layers, by ours.
        layer: how the names of a layer begin, with braces for its number.
        layer_names: of the parts in it.
        attention: how the names of q, k and v begin, or of all in one; empty where they lie otherwise.
        biases: of these, where they are not called as the weights are; None for one that is zero and not
            stored.
        gates: SwiGLU's first matrix; two where gate and expansion are apart.
        after_gates: the last matrix of a gated MLP, where it is not that of other MLPs.
        scales: of LayerScale on the two branches.
        plain: whether the attention's projection and the MLP have biases, as all but AIMv2 have.
        tokens: before the patches, by ours; those `positioned` have a row among the positions; None for all.
        token_axes, table_axes: of the tokens and of the table of positions, as in `tokens_and_positions`.
        eps, activation: where there is no config.json.
        limits: what a model can be to be written as one of it.
        keep: parts that it knows, as in `canonical`.
        square: whether its own code knows only square images.
    """

    names: Mapping[str, str]
    layer: str
    layer_names: Mapping[str, str]
    attention: tuple[str, ...]
    biases: tuple[str | None, ...] | None = None
    gates: tuple[str, ...] = ()
    after_gates: str = ""
    scales: tuple[str, ...] = ()
    plain: bool = True
    tokens: Mapping[str, str] = {"class_token": "cls_token"}
    positions: str = "pos_embed"
    positioned: Collection[str] | None = None
    token_axes: int = 3
    table_axes: int = 3
    eps: float = 1e-6
    activation: str = "gelu"
    limits: FormatLimits = PLAIN_VIT
    keep: tuple[str, ...] = ("qkv_bias",)
    square: bool = False

    def rows(self, *, gated: bool = False) -> list[WeightRow]:
        """Return the table but for tokens and positions.

        Args:
            gated: whether the MLP is, where its matrices have other names then.
        """
        ours, theirs, names = "blocks.{}.", self.layer, dict(self.layer_names)
        if gated and self.after_gates:
            names["mlp.contract"] = self.after_gates
        gates = [theirs + each for each in self.gates if gated or not self.after_gates]
        biases = self.biases or [f"{each}bias" for each in self.attention]
        rows: list[WeightRow] = []
        if not self.plain:
            rows.append(without_bias(f"{ours}mlp.gate_expand", gates))
            for last in ("attention.out", "mlp.contract"):
                rows.append(without_bias(ours + last, [theirs + names.pop(last)]))
        elif gates:
            rows += packed_rows(f"{ours}mlp.gate_expand", gates)
        for branch, scale in zip(("attention", "mlp"), self.scales, strict=False):
            rows.append(same(f"{ours}{branch}_branch.scale.gamma", theirs + scale))
        if self.attention:
            weights = [f"{theirs}{each}weight" for each in self.attention]
            rows.append(stacked(f"{ours}attention.qkv.weight", weights))
            rows.append(stacked(f"{ours}attention.qkv.bias", [each and theirs + each for each in biases]))
        return [*pairs(self.names), *pairs(names, ours, theirs), *rows]

    def table(self, config: ViTConfig) -> list[WeightRow]:
        """Return the whole table of a model."""
        positioned = self.tokens if self.positioned is None else self.positioned
        tokens = tokens_and_positions(
            config,
            self.tokens,
            self.positions,
            axes=self.token_axes,
            table_axes=self.table_axes,
            positioned=positioned,
        )
        rows = self.rows(gated=config.gated_mlp)
        if config.stem.kind == "patch" and config.stem.form == "linear":
            patches = f"{self.names['stem.projection']}.weight"
            rows = [linear_stem(patches, config.patch_size) if patches in row.theirs else row for row in rows]
        return [tokens, *rows]

    def write(self, model: Model, format: str, *, headless: bool = True) -> dict[str, Tensor]:
        """Return a model's weights under these names. Raises InputError: the family cannot hold it."""
        config, weights = held_by_format(model, format, self.limits, keep=self.keep, headless=headless)
        return write_weight_rows(self.table(config), weights)


def reading_as(
    family: str, source: Source, config: ViTConfig | BiTConfig, rows: list[WeightRow], **fields: object
) -> Spec:
    """Return a reading of a format that stores no preprocessing: `fields` are those of the family."""
    return Spec(source, config, rows, assumed_preprocessing(source, config, family, **fields))


def assumed_preprocessing(
    source: Source, config: ViTConfig | BiTConfig, family: str, **fields: Any
) -> Preprocessing:
    """Return the preprocessing that a family of models is used with."""
    if config.channels != 3:
        fields |= dict.fromkeys(("mean", "std"), (0.5,) * config.channels)
    preprocessing = Preprocessing(size=config.image_size, channels=config.channels, **fields)
    source.assumed.append(
        f"preprocessing as {family}: {preprocessing.resize}, {preprocessing.interpolation}, mean "
        f"{preprocessing.mean}, std {preprocessing.std}"
    )
    return preprocessing
