"""NVIDIA's RADIO as transformers holds it. Its table of positions is that of the largest image; a model is
read for one size, `image_size=` or that of config.json, for which the table is resampled and cut as RADIO
does. Its first token is our class token, its other class tokens and registers are our registers.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from vitreous.checkpoints.files import Source
from vitreous.checkpoints.format import Format, Reading, activation_of, as_pair, configured, shape_fields
from vitreous.checkpoints.tensors import Entry, Tensors
from vitreous.checkpoints.weights import Row, pairs, same
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import Preprocessing

BODY = "radio_model.model."
LAYER = f"{BODY}blocks.{{}}."
PATCHES = f"{BODY}patch_generator.embedder.weight"
TOKENS = f"{BODY}patch_generator.cls_token.token"
POSITIONS = f"{BODY}patch_generator.pos_embed"
LAYER_NAMES = {
    "attention_norm": "norm1",
    "attention.qkv": "attn.qkv",
    "attention.out": "attn.proj",
    "mlp_norm": "norm2",
    "mlp.expand": "mlp.fc1",
    "mlp.contract": "mlp.fc2",
}
ROWS = [
    same("stem.projection.weight", PATCHES),
    same("prefix", TOKENS),
    *pairs(LAYER_NAMES, "blocks.{}.", LAYER),
    same("blocks.{}.attention_branch.scale.gamma", f"{LAYER}layer_scale1.lambda1"),
    same("blocks.{}.mlp_branch.scale.gamma", f"{LAYER}layer_scale2.lambda1"),
]
LEFT = (f"{BODY}patch_generator.video_embedder.weight", "radio_model.summary_idxs")
NORMALIZATION = ("radio_model.input_conditioner.norm_mean", "radio_model.input_conditioner.norm_std")
CHANNELS = 3


def cut_positions(table: Tensor, grid: tuple[int, int]) -> Tensor:
    """A square table (1, n, D) for a grid: resampled to its longer side, then cut."""
    square = rearrange(table, "1 (h w) D -> 1 D h w", h=isqrt(table.shape[1]))
    resampled = F.interpolate(square, size=(max(grid), max(grid)), mode="bilinear", align_corners=False)
    return rearrange(resampled[..., : grid[0], : grid[1]], "1 D h w -> (h w) D")


def read_radio(source: Source) -> Reading:
    described = source.config
    if f"{LAYER.format(0)}mlp.fc1.weight" not in source.tensors:
        raise InputError(f"{source.where}: a RADIO with SwiGLU is not known here")
    patch = isqrt(source.size(PATCHES, 1, ndim=2) // CHANNELS)
    kernel = source.tensors.entries[PATCHES]
    shape = (source.size(PATCHES, 0, ndim=2), CHANNELS, patch, patch)
    convolution = Entry(shape, lambda: kernel.read().reshape(shape))
    source = replace(source, tensors=Tensors(source.tensors.entries | {PATCHES: convolution}))
    size = as_pair(source.overrides.get("image_size", described.get("image_size", 224)))
    fields: dict[str, Any] = shape_fields(source, ROWS) | {
        "image_size": size,
        "heads": described.get("num_attention_heads", 16),
        "mlp": activation_of(source, "hidden_act", described.get("hidden_act", "gelu")),
        "stem": {"kind": "patch", "bias": False},
        "norm_eps": described.get("layer_norm_eps", 1e-6),
        "qkv_bias": f"{LAYER.format(0)}attn.qkv.bias" in source.tensors,
        "registers": source.size(TOKENS, 0, ndim=2) - 1,
        "final_norm": "none",
    }
    config = configured(ViTConfig, source, fields)
    width = config.width

    def read(table: Tensor) -> tuple[Tensor, ...]:
        return (torch.cat([torch.zeros(1, width), cut_positions(table, config.grid)]),)

    def write(table: Tensor) -> tuple[Tensor, ...]:
        raise InputError("RADIO's table of positions cannot be made again of that of one size")

    source.assumed.append("features are the first of its class tokens; the others are among the registers")
    rows = [Row(("position.table",), (POSITIONS,), read, write), *ROWS]
    present = (*LEFT, *NORMALIZATION)
    ignored = tuple(name for name in present if name in source.tensors)
    return Reading(source, config, rows, normalization(source, config), ignored=ignored, task=None)


def normalization(source: Source, config: ViTConfig) -> Preprocessing:
    """What its input conditioner does with values in 0..1; the shape of the image is kept."""
    mean, std = (
        source.tensors[name].flatten().tolist() if name in source.tensors else source.config.get(key)
        for name, key in zip(NORMALIZATION, ("norm_mean", "norm_std"), strict=True)
    )
    if not mean or not std:
        raise InputError(f"{source.where}: it does not say norm_mean and norm_std")
    return Preprocessing(size=config.image_size, mean=tuple(mean), std=tuple(std))


RADIO = Format(
    name="radio",
    about="transformers' RadioModel: nvidia's RADIO, at one size",
    entries=(("model_type", "radio"),),
    keys=(PATCHES.replace(".", r"\."), POSITIONS.replace(".", r"\.")),
    read=read_radio,
    interpolation="timm-npz",
)
