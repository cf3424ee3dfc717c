"""timm's NaFlexViT, for images of any aspect ratio: its parts under the names of VisionTransformer, and how
it resamples its grid of positions for each image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isqrt, prod
from typing import Any

from einops import rearrange
from torch import Tensor

from vitreous.checkpoints.canonicalize import ratio_for
from vitreous.checkpoints.format import as_pair, kernel_of
from vitreous.checkpoints.resizing import SQUARE
from vitreous.checkpoints.source import Source, whole_number_of
from vitreous.checkpoints.tensors import Entry
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig

PROJECTION = "embeds.proj.weight"
# Arguments of NaFlexVitCfg that are read, that the weights show, or that change nothing in use.
ARGUMENTS = (
    *("patch_size", "embed_dim", "depth", "num_heads", "mlp_ratio", "qkv_bias", "qk_norm", "init_values"),
    *("class_token", "reg_tokens", "pos_embed", "pos_embed_grid_size", "pos_embed_interp_mode"),
    *("pos_embed_ar_preserving", "pos_embed_antialias", "pos_embed_align_corners", "pre_norm", "final_norm"),
    *("fc_norm", "global_pool", "pool_include_prefix", "attn_pool_num_heads", "attn_pool_mlp_ratio"),
    *("embed_proj_type", "act_layer", "in_chans", "num_classes", "img_size", "use_key_only_attn_mask"),
    *("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate"),
    *("weight_init", "fix_init", "qkv_fused", "proj_bias", "swiglu_align_to", "rope_temperature"),
    *("patchify_channels_last", "enable_patch_interpolator", "norm_eps"),
)
# How positions are resampled: (mode, antialias, corners aligned) by our name.
WAYS = {
    ("bicubic", True, False): "timm",
    ("bicubic", False, False): "huggingface",
    ("bicubic", False, True): "torchvision",
    ("bilinear", True, False): "flexivit",
    ("bilinear", False, False): "timm-npz",
    ("bilinear", False, True): "google",
}


def interpolation_of(known: Mapping[str, object], where: str) -> str:
    """Return how a NaFlexViT with these arguments resamples its positions, by our name. Raises InputError: a
    way that is not supported."""
    antialias, aligned = known.get("pos_embed_antialias", True), known.get("pos_embed_align_corners", False)
    way = known.get("pos_embed_interp_mode", "bicubic"), antialias, aligned
    if known.get("pos_embed") == "factorized":  # each axis linearly: their sum is resampled bilinearly
        way = ("bilinear", False, False)
    name = next((name for known_way, name in WAYS.items() if known_way == way), None)
    if name is None:
        raise InputError(
            f"{where}: pos_embed_interp_mode={way[0]!r} of timm is not supported (with pos_embed_antialias="
            f"{antialias!r} and pos_embed_align_corners={aligned!r})"
        )
    return f"{name}{SQUARE}" if known.get("pos_embed_ar_preserving") else name


def as_vision_transformer(source: Source, known: Mapping[str, object]) -> Source:
    """Return the checkpoint under the names of VisionTransformer, for images that its grid of positions fits.

    Args:
        known: its arguments.
    """
    if known.get("patchify_channels_last", True) is not True:
        raise InputError(f"{source.where}: patchify_channels_last=False of timm is not supported")
    if "embeds.norm.weight" in source.tensors:
        raise InputError(f"{source.where}: embed_norm_layer of timm's NaFlexViT is not supported")
    entries = dict(source.tensors)
    patch = as_pair(known.get("patch_size"))
    if len(shape := source.shape(PROJECTION)) == 2:
        channels = whole_number_of(known.get("in_chans", 3), f"{source.where}: in_chans")
        side = isqrt(shape[1] // channels)
        p, q = patch or (side, side)
        if p * q * channels != shape[1]:
            raise InputError(
                f"{source.where}: {PROJECTION} has shape {shape}, which does not fit patches of {p}x{q}"
            )
        entries[PROJECTION] = kernel_of(entries[PROJECTION], channels, (p, q))
    else:
        p, q = (source.size(PROJECTION, axis, ndim=4) for axis in (2, 3))
    rows, columns, table = naflex_positions(source)
    renamed = {"pos_embed": table}
    for name, entry in entries.items():
        if not name.startswith("embeds.pos_embed"):
            new = name.replace("embeds.proj.", "patch_embed.proj.").removeprefix("embeds.")
            renamed[new] = entry
    stated = source.stating({"stored_image_size": (rows * p, columns * q)})
    return replace(stated, tensors=renamed)


def used_size(source: Source, config: ViTConfig, described: Sequence[object]) -> tuple[int, int] | None:
    """Return the size of the images that it is used with, unless the user gives one: that of its positions,
    or a smaller one that its description states; None for the first."""
    if "image_size" in source.specified:
        return None
    stated = next((size for each in described if (size := as_pair(each))), config.image_size)
    size = min(config.image_size, stated, key=prod)
    fits = not any(side % patch for side, patch in zip(size, config.patch_size, strict=True))
    size = size if fits else config.image_size
    source.assumed.append(
        f"images of {size[0]}x{size[1]} (or pass image_size=, or take each image in its own aspect ratio: "
        "vitreous.NativeAspect)"
    )
    return None if size == config.image_size else size


def naflex_positions(source: Source) -> tuple[int, int, Entry]:
    """Return the rows and columns of the grid of positions, and its table (1, N, D)."""
    if "embeds.pos_embed" in source.tensors:
        rows, columns, width = (source.size("embeds.pos_embed", axis, ndim=4) for axis in (1, 2, 3))
        grid = source.tensors["embeds.pos_embed"]
        return rows, columns, Entry((1, rows * columns, width), lambda: grid.read().flatten(1, 2))
    if "embeds.pos_embed_y" not in source.tensors:
        raise InputError(f"{source.where}: a NaFlexViT of timm without learned positions is not supported")
    rows, columns = (source.size(f"embeds.pos_embed_{axis}", 1, ndim=3) for axis in "yx")
    width = source.size("embeds.pos_embed_y", 2, ndim=3)
    y, x = (source.tensors[f"embeds.pos_embed_{axis}"] for axis in "yx")

    def read() -> Tensor:
        return (y.read().unsqueeze(2) + x.read().unsqueeze(1)).flatten(1, 2)

    return rows, columns, Entry((1, rows * columns, width), read)


def arguments_of_module(embeds: Any) -> dict[str, object]:
    """Return the arguments that the patches and positions of a live NaFlexViT tell."""
    names = ("interp_mode", "ar_preserving", "antialias", "align_corners")
    return {
        "patch_size": list(embeds.patch_size),
        "in_chans": embeds.in_chans,
        "patchify_channels_last": embeds.channels_last,
        "pos_embed": embeds.pos_embed_type,
        **{f"pos_embed_{name}": getattr(embeds, f"pos_embed_{name}") for name in names},
    }


def naflex_tensors(config: ViTConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a VisionTransformer under the names of NaFlexViT."""
    found = {}
    for name, tensor in tensors.items():
        if name == "patch_embed.proj.weight":
            tensor = rearrange(tensor, "D C p q -> D (p q C)").contiguous()
        if name == "pos_embed":
            tensor = tensor.reshape(1, *config.grid, -1)
        own = name in ("cls_token", "reg_token", "pos_embed")
        found[f"embeds.{name}" if own else name.replace("patch_embed.proj.", "embeds.proj.")] = tensor
    return found


def arguments(config: ViTConfig, args: Mapping[str, object], interpolation: str) -> dict[str, object]:
    """Return the arguments of NaFlexVitCfg.

    Args:
        args: those of VisionTransformer.
        interpolation: how positions are resampled.
    """
    ways = {name: way for way, name in WAYS.items()}
    mode, antialias, aligned = ways[interpolation.removesuffix(SQUARE)]
    shared = {name: value for name, value in args.items() if name in ARGUMENTS and name != "img_size"}
    return shared | {
        "mlp_ratio": ratio_for(config.mlp_dim, config.width),
        "embed_proj_type": "linear",
        "pos_embed": "learned",
        "pos_embed_grid_size": list(config.grid),
        "pos_embed_interp_mode": mode,
        "pos_embed_antialias": antialias,
        "pos_embed_align_corners": aligned,
        "pos_embed_ar_preserving": interpolation.endswith(SQUARE),
    }
