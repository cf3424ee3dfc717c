"""Another resolution, patch size or head for an existing model: positions and patches are resampled.

Codebases resample positions differently, by 10-15% on a 14 to 24 grid; each way has the name of its code.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitreous.checkpoints.weights import attributes_of, load_weights, meta_model, stored_weights
from vitreous.errors import InputError, Param, nearest
from vitreous.extensions import outputs_of
from vitreous.models.config import ViTConfig
from vitreous.models.model import Model, WithEncoder
from vitreous.models.vit import ViT

SizeLike = int | tuple[int, int]
Resized = TypeVar("Resized", bound=Model)
log = logging.getLogger(__name__)


# Weights that are tables of positions, of a ViT or of the one inside a model.
POSITION_TABLE = re.compile(r"(encoder\.)?(blocks\.\d+\.)?position\.")
BIAS_TABLE = re.compile(r"attention\.position\.table$")


def interpolate_as_dinov2(
    grid: Float[Tensor, "B D h w"], size: tuple[int, int]
) -> Float[Tensor, "B D H2 W2"]:
    """Resample as Meta's code, with a scale that is 0.1 cells too large and moves the sample points a
    little."""
    scale = tuple((new + 0.1) / old for new, old in zip(size, grid.shape[-2:], strict=True))
    return F.interpolate(grid, scale_factor=scale, mode="bicubic", align_corners=False)


def interpolate_as_beit(grid: Float[Tensor, "B D h w"], size: tuple[int, int]) -> Float[Tensor, "B D H2 W2"]:
    """Return tables of relative positions as unilm's BEiT resamples them, linearly as timm does: the old
    offsets lie at distances from the center that grow geometrically until they span the new ones."""
    height, width = grid.shape[-2:]
    rows = torch.from_numpy(beit_matrix(height, size[0])).to(grid)
    columns = torch.from_numpy(beit_matrix(width, size[1])).to(grid)
    return rows @ grid @ columns.T


def beit_matrix(old: int, new: int) -> np.ndarray:
    """Return (new, old): what each of the `old` offsets of one axis, -n ... n, gives to each of the `new`
    ones."""
    low, high = 1.01, 1.5
    while high - low > 1e-6:  # timm's `resize_rel_pos_bias_table`
        ratio = (low + high) / 2
        low, high = (low, ratio) if (1 - ratio ** (old // 2)) / (1 - ratio) > new // 2 else (ratio, high)
    distances = np.cumsum([1.0, *(ratio**step for step in range(1, old // 2))])[: old // 2]
    places = np.concatenate([-distances[::-1], [0.0], distances]).astype(np.float32)
    wanted = np.arange(-(new // 2), new // 2 + 1, dtype=np.float32)
    return np.stack([np.interp(wanted, places, unit) for unit in np.eye(old)], axis=1)


def of_a_square(interpolate: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Resample for a square of the longer side, whose upper left part is taken: NaFlexViT keeps the
    aspect ratio of its positions so."""

    def resample(grid: Float[Tensor, "B D h w"], size: tuple[int, int]) -> Float[Tensor, "B D H2 W2"]:
        side = max(size)
        return interpolate(grid, (side, side))[..., : size[0], : size[1]]

    return resample


# From the numbers of flat patches to those of another size. FlexiViT's own code, which is the only one that
# most codebases could take, is bilinear without antialiasing.
PATCH_INTERPOLATIONS: Mapping[str, Callable[..., Tensor]] = {
    "flexivit": partial(F.interpolate, mode="bilinear", align_corners=False),
    "timm": partial(F.interpolate, mode="bicubic", antialias=True, align_corners=False),
}
SQUARE = "-square"  # the ending of the names of these
# From maps (B, D, h, w) and a size to the maps of that size.
PLAIN_INTERPOLATIONS: Mapping[str, Callable[..., Tensor]] = {
    # vit_jax, big_vision: scipy.ndimage.zoom(order=1)
    "google": partial(F.interpolate, mode="bilinear", align_corners=True),
    "timm-npz": partial(F.interpolate, mode="bilinear"),  # timm, when it reads Google's .npz
    "timm": partial(F.interpolate, mode="bicubic", antialias=True),
    "torchvision": partial(F.interpolate, mode="bicubic", align_corners=True),
    "huggingface": partial(F.interpolate, mode="bicubic"),
    "dinov2": interpolate_as_dinov2,
    "beit": interpolate_as_beit,
    # jax.image.resize(..., "linear")
    "flexivit": partial(F.interpolate, mode="bilinear", antialias=True),
}
INTERPOLATIONS = dict(PLAIN_INTERPOLATIONS)
for name in ("google", "timm-npz", "timm", "torchvision", "huggingface", "flexivit"):
    INTERPOLATIONS[f"{name}{SQUARE}"] = of_a_square(PLAIN_INTERPOLATIONS[name])


def resize(
    model: Resized,
    image_size: SizeLike | None = None,
    patch_size: SizeLike | None = None,
    interpolation: str = "timm",
) -> Resized:
    """Return the same model for images of another size, or cut into other patches.

    Weights that do not change are shared with `model`. The class token's position and the registers stay.

    Example:
        >>> model = vt.create("ViT-Ti/16", num_classes=10, image_size=32)
        >>> larger = vt.resize(model, image_size=(48, 64))
        >>> larger(torch.randn(1, 3, 48, 64)).shape
        torch.Size([1, 10])

    Args:
        model: the model to resize; it is not changed.
        image_size: pixels, one number for a square or (H, W).
        patch_size: the projection is resized by the pseudo-inverse (FlexiViT, arXiv 2212.08013, section 3.4).
        interpolation: how learned positions are resampled, by the name of the code that does it this way.
            Patches are resampled as in timm for "timm", and as in FlexiViT's own code otherwise.

    Raises:
        InputError: the sizes contradict each other, or a part cannot be resized.
    """
    wished = {"image_size": image_size, "patch_size": patch_size}
    sizes = {name: size for name, size in wished.items() if size is not None}
    patches = "timm" if interpolation == "timm" else "flexivit"
    return resized(model, sizes, positions=interpolation, patches=patches)


def resized(model: Resized, sizes: Mapping[str, SizeLike], *, positions: str, patches: str) -> Resized:
    """Return the same model with other sizes. Raises InputError if `resize` does.

    Args:
        positions, patches: how each is resampled.
    """
    check_interpolation(positions)
    if not isinstance(model, ViT | WithEncoder) and "patch_size" in sizes:
        raise InputError("a BiT has no patches: leave patch_size out")
    config = model.config.checked(model.config.model_dump(), sizes)
    preprocessing = model.preprocessing.model_copy(update={"size": config.image_size})
    other = meta_model(config, **attributes_of(model) | {"preprocessing": preprocessing})
    weights = stored_weights(model)
    if isinstance(model, ViT | WithEncoder) and isinstance(config, ViTConfig):
        tables = resized_positions(weights, model.config, config, positions)
        weights |= tables | resized_patches(model, config, patches)
    load_weights(other, weights, where="resize")
    other.train(model.training)
    return other


def check_interpolation(name: str) -> None:
    if name not in INTERPOLATIONS:
        raise InputError(f"unknown interpolation {name!r}: {nearest(name, list(INTERPOLATIONS))}")


def with_head(model: Model, num_classes: int | None) -> Model:
    """Return the same body under a new head of zeros for `num_classes` classes, as the paper fine-tunes
    (section 3.2); None for no head."""
    if isinstance(model, WithEncoder):
        raise InputError(
            f"the classes of a {type(model).__name__} cannot be changed: train it again, on other data, with "
            f"{Param('init')}"
        )
    config = model.config.checked(model.config.model_dump(), {"num_classes": num_classes})
    # Outputs that only their task can read are not those of a head of zeros: it is a classifier's.
    named = (model.task if outputs_of(model) != "own" else None) or "classification"
    task = None if num_classes is None else named
    changed: Model = meta_model(config, preprocessing=model.preprocessing, task=task, origin=model.origin)
    weights = {name: weight for name, weight in stored_weights(model).items() if not name.startswith("head.")}
    like = next(iter(weights.values()))
    for name, weight in stored_weights(changed).items():
        if name.startswith("head."):
            weights[name] = torch.zeros(weight.shape, device=like.device, dtype=like.dtype)
    load_weights(changed, weights, where="with_head")
    if num_classes is not None:
        log.warning("a new head of zeros for %d classes instead of %s", num_classes, model.config.num_classes)
    return changed.train(model.training)


def resized_positions(
    weights: Mapping[str, Tensor], old: ViTConfig, config: ViTConfig, interpolation: str
) -> dict[str, Tensor]:
    """Return those of a model's weights that are learned position tables, for the grid of `config`."""
    if config.grid == old.grid:
        return {}
    resized: dict[str, Tensor] = {}
    match config.position.kind:
        case "relative":
            raise InputError("relative positions of a sequence cannot be resized: keep the size")
        case "learned" if interpolation == "beit":
            raise InputError("interpolation='beit' is for tables of relative positions: choose another")
        case "learned":
            for name, tensor in weights.items():
                if POSITION_TABLE.match(name):
                    resized[name] = resize_table(tensor, old.grid, config.grid, interpolation)
        case "relative-bias":
            one, other = ((2 * rows - 1, 2 * columns - 1) for rows, columns in (old.grid, config.grid))
            for name, tensor in weights.items():
                if BIAS_TABLE.search(name):
                    resized[name] = resize_bias(tensor, one, other, interpolation)
                elif POSITION_TABLE.match(name):  # beside the biases
                    way = BESIDE_BIASES.get(interpolation, interpolation)
                    resized[name] = resize_table(tensor, old.grid, config.grid, way)
        case "learned-2d":  # (n, D) for each axis, linearly with aligned ends
            axes = {"x": config.grid[1], "y": config.grid[0]}
            for name, tensor in weights.items():
                if POSITION_TABLE.match(name) and name[-1] in axes:
                    length = axes[name[-1]]
                    moved = F.interpolate(tensor.T[None], size=length, mode="linear", align_corners=True)
                    resized[name] = moved[0].T.contiguous()
        case _:  # computed from the grid
            pass
    return resized


# How the codebases that resample biases so resample positions: timm's Beit, and that of transformers.
BESIDE_BIASES = {"beit": "timm", "timm-npz": "huggingface"}


def resize_table(
    table: Float[Tensor, "rows D"], old: tuple[int, int], new: tuple[int, int], interpolation: str
) -> Float[Tensor, "rows2 D"]:
    """Return a position table for the grid `new`; the rows before the patches are kept as they are."""
    patches = old[0] * old[1]
    extra, rows = table[: len(table) - patches], table[len(table) - patches :]
    grid = rearrange(rows, "(h w) D -> 1 D h w", h=old[0])
    resampled = INTERPOLATIONS[interpolation](grid.double(), new).to(table.dtype)
    return torch.cat([extra, rearrange(resampled, "1 D h w -> (h w) D")])


def resize_bias(
    table: Float[Tensor, "rows K"], old: tuple[int, int], new: tuple[int, int], interpolation: str
) -> Float[Tensor, "rows2 K"]:
    """Return a table of relative position biases for the spans `new` of offsets; the rows after them, for
    prefix tokens, are kept as they are."""
    count = old[0] * old[1]
    extra = table[count:]
    moved = torch.cat([extra, table[:count]])
    resized = resize_table(moved, old, new, interpolation)
    return torch.cat([resized[len(extra) :], extra])


def resized_patches(model: ViT | WithEncoder, config: ViTConfig, interpolation: str) -> dict[str, Tensor]:
    """Return the patch projection for the patch size of `config`, by name."""
    if config.patch_size == model.config.patch_size:
        return {}
    stem = config.stem
    if not stem.resizes:
        part = "a LayerNorm on the flat patch" if stem.kind == "patch" else f"a stem of kind {stem.kind}"
        raise InputError(f"patch_size cannot change here: {part} has no resized form")
    cell = stem.cell
    old = tuple(p // cell for p in model.config.patch_size)
    new = config.patch_size[0] // cell, config.patch_size[1] // cell
    name, weight = next(
        each for each in stored_weights(model).items() if each[0].endswith("stem.projection.weight")
    )
    if weight.ndim == 4:
        return {name: resize_patch(weight, new, interpolation)}
    kernel = rearrange(weight, "D (p q C) -> D C p q", p=old[0], q=old[1])
    resized = resize_patch(kernel, new, interpolation)
    return {name: rearrange(resized, "D C p q -> D (p q C)")}


def resize_patch(
    kernel: Float[Tensor, "D C p q"], size: tuple[int, int], interpolation: str = "flexivit"
) -> Float[Tensor, "D C r s"]:
    """Return the PI-resized kernel, whose product with a resized patch is nearest to that of the old kernel
    with the old patch (FlexiViT, Eq. 4): pinv(B^T) w, where B resizes a flat patch.

    Args:
        interpolation: how B resizes: "flexivit" bilinearly, "timm" bicubically with antialiasing.
    """
    p, q = kernel.shape[-2:]
    if (p, q) == size:
        return kernel
    basis = torch.eye(p * q, dtype=torch.float64, device=kernel.device).view(p * q, 1, p, q)
    resize = PATCH_INTERPOLATIONS[interpolation](basis, size=size).flatten(1)  # B^T
    flat = kernel.double().flatten(2) @ torch.linalg.pinv(resize).T
    return flat.view(*kernel.shape[:2], *size).to(kernel.dtype)
