"""NVIDIA's RADIO as transformers holds it. Its table of positions is that of the largest image; a model is
read for one size, `image_size=` or that of config.json, for which the table is resampled and cut as RADIO
does. Its first token is our class token, its other class tokens and registers are our registers. Written is
a RADIO of that one size, whose only class token is the first one.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt
from pathlib import Path

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from vitreous.checkpoints.canonicalize import held, ratio_for, without_patch_bias
from vitreous.checkpoints.family import Family
from vitreous.checkpoints.format import (
    ACTIVATION_NAMES,
    PLAIN_VIT,
    Format,
    Spec,
    activation_of,
    as_pair,
    configured,
    shape_fields,
)
from vitreous.checkpoints.formats.huggingface_configs import transformers_facts
from vitreous.checkpoints.formats.huggingface_preprocessing import preprocessing_of, preprocessor_config
from vitreous.checkpoints.formats.huggingface_writing import write_folder
from vitreous.checkpoints.source import Source
from vitreous.checkpoints.tensors import Entry, Tensors
from vitreous.checkpoints.weights import Row, write_rows
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.model import Model
from vitreous.models.preprocessing import Preprocessing

BODY = "radio_model.model."
LAYER = f"{BODY}blocks.{{}}."
PATCHES = f"{BODY}patch_generator.embedder.weight"
TOKENS = f"{BODY}patch_generator.cls_token.token"
POSITIONS = f"{BODY}patch_generator.pos_embed"
NORMALIZATION = ("radio_model.input_conditioner.norm_mean", "radio_model.input_conditioner.norm_std")
SUMMARY = "radio_model.summary_idxs"
LEFT = (f"{BODY}patch_generator.video_embedder.weight", SUMMARY)
CHANNELS = 3
FAMILY = Family(
    names={"stem.projection": PATCHES.removesuffix(".weight")},
    layer=LAYER,
    layer_names={
        "attention_norm": "norm1",
        "attention.out": "attn.proj",
        "mlp_norm": "norm2",
        "mlp.expand": "mlp.fc1",
        "mlp.contract": "mlp.fc2",
    },
    attention=("attn.qkv.",),
    scales=("layer_scale1.lambda1", "layer_scale2.lambda1"),
    limits=PLAIN_VIT
    | {
        **dict.fromkeys(("norm_eps", "registers")),
        "edge": ("refuse", "drop"),
        "mlp": tuple(dict.fromkeys(ACTIVATION_NAMES.values())),
        "channels": (CHANNELS,),
        "final_norm": ("none",),
        "num_classes": (None,),
    },
    keep=("layer_scale", "qkv_bias"),
)


def read_radio(source: Source) -> Spec:
    described = source.facts.model
    if f"{LAYER.format(0)}mlp.fc1.weight" not in source.tensors:
        raise InputError(f"{source.where}: a RADIO with SwiGLU is not known here")
    patch = isqrt(source.size(PATCHES, 1, ndim=2) // CHANNELS)
    kernel = source.tensors.entries[PATCHES]
    shape = (source.size(PATCHES, 0, ndim=2), CHANNELS, patch, patch)
    convolution = Entry(shape, lambda: kernel.read().reshape(shape))
    source = replace(source, tensors=Tensors(source.tensors.entries | {PATCHES: convolution}))
    size = as_pair(source.specified.get("image_size", described.get("image_size", 224)))
    fields = {
        **shape_fields(source, FAMILY.rows()),
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
    if described.get("num_cls_tokens", 3) not in (0, 1):
        source.assumed.append(
            "features are the first of its class tokens; the others are among the registers"
        )
    present = (*LEFT, *NORMALIZATION)
    ignored = tuple(name for name in present if name in source.tensors)
    look = normalization(source, config)
    return Spec(source, config, radio_rows(config), look, ignored=ignored, task=None)


def radio_rows(config: ViTConfig) -> list[Row]:
    rows, columns = config.grid
    side = max(rows, columns)

    def read(tokens: Tensor, table: Tensor) -> tuple[Tensor, ...]:
        """The square table (1, n, D) is resampled to the longer side of the grid, then cut."""
        square = rearrange(table, "1 (h w) D -> 1 D h w", h=isqrt(table.shape[1]))
        resampled = F.interpolate(square, size=(side, side), mode="bilinear", align_corners=False)
        positions = rearrange(resampled[..., :rows, :columns], "1 D h w -> (h w) D")
        return tokens, torch.cat([torch.zeros(1, config.width), positions])

    def write(tokens: Tensor, table: Tensor) -> tuple[Tensor, ...]:
        """The class token has no position: it is in the token."""
        return torch.cat([tokens[:1] + table[:1], tokens[1:]]), table[None, 1:]

    return [Row(("prefix", "position.table"), (TOKENS, POSITIONS), read, write), *FAMILY.rows()]


def normalization(source: Source, config: ViTConfig) -> Preprocessing:
    """What its input conditioner does with values in 0..1, after what its preprocessor does."""
    found: dict[str, tuple[float, ...]] = {}
    for name, field in zip(NORMALIZATION, ("mean", "std"), strict=True):
        stored = name in source.tensors
        numbers = (
            source.tensors[name].flatten().tolist() if stored else source.facts.model.get(f"norm_{field}")
        )
        if (
            not isinstance(numbers, list)
            or len(numbers) != CHANNELS
            or not all(isinstance(number, int | float) for number in numbers)
        ):
            raise InputError(
                f"{source.where}: it does not say norm_mean and norm_std, a number for each of {CHANNELS} "
                "channels"
            )
        found[field] = tuple(numbers)
    look = preprocessing_of(source, config) if source.facts.images else Preprocessing(size=config.image_size)
    return look.model_copy(update=found)


def write_radio(model: Model, path: Path) -> None:
    config, weights = held(model, "radio", FAMILY.limits, keep=FAMILY.keep)
    config, weights = without_patch_bias(config, weights)
    side, (patch, other) = config.image_size[0], config.patch_size
    if patch != other or config.image_size != (side, side):
        raise InputError("radio cannot hold images or patches that are not square")
    tensors, look = write_rows(radio_rows(config), weights), model.preprocessing
    tensors[PATCHES] = tensors[PATCHES].flatten(1)
    for name, values in zip(NORMALIZATION, (look.mean, look.std), strict=True):
        tensors[name] = torch.tensor(values).reshape(-1, 1, 1)
    described = {
        "model_type": "radio",
        "architectures": ["RadioModel"],
        "mlp_ratio": ratio_for(config.mlp_dim, config.width),
        "qkv_bias": config.qkv_bias,
        "max_img_size": side,
        "num_cls_tokens": 1,
        "num_registers": config.registers,
        "summary_idxs": [0],
        "norm_mean": list(look.mean),
        "norm_std": list(look.std),
    }
    # the model itself normalizes
    preprocessor = preprocessor_config(look) | {"do_normalize": False}
    write_folder(path, tensors | {SUMMARY: torch.tensor([0])}, described, config, preprocessor)


RADIO = Format(
    name="radio",
    about="transformers' RadioModel: nvidia's RADIO, at one size",
    entries=(("model_type", "radio"),),
    keys=(PATCHES.replace(".", r"\."), POSITIONS.replace(".", r"\.")),
    read=read_radio,
    gather=transformers_facts,
    write=write_radio,
    limits=FAMILY.limits,
    interpolation="timm-npz",
)
