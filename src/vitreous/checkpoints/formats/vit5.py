"""ViT-5 (arXiv 2602.08071) as its authors' code stores it (wangf3014/ViT-5): a state dict, with the
frequencies of the rotary positions of patches and of registers. The class token has no position; registers
have a grid of their own, and follow the patches there: attention does not see the order."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from vitreous.checkpoints.canonicalize import PLAIN_VIT, held_by_format
from vitreous.checkpoints.format import Format, Spec, configured, image_size_of, reading_as, shape_fields
from vitreous.checkpoints.formats.timm import TIMM_VIT
from vitreous.checkpoints.source import Source
from vitreous.checkpoints.torch_files import write_torch
from vitreous.checkpoints.weights import write_weight_rows
from vitreous.errors import InputError
from vitreous.layers.rotary import decreasing
from vitreous.models.config import ViTConfig
from vitreous.models.model import Model
from vitreous.models.names import REGISTER_TEMPERATURE, TEMPERATURE, VIT_5
from vitreous.models.preprocessing import IMAGENET_MEAN, IMAGENET_STD

PATCH_WAVES, REGISTER_WAVES = "blocks.{}.attn.rope.freqs", "blocks.{}.attn.rope_reg.freqs"
FAMILY = TIMM_VIT._replace(
    names={"stem.projection": "patch_embed.proj", "norm": "norm", "head": "head"},
    scales=("gamma_1", "gamma_2"),
    tokens={"class_token": "cls_token", "registers": "reg_token"},
    positioned=(),
    limits=PLAIN_VIT
    | {
        "norm_kind": ("rms",),
        "qk_norm": ("head",),
        "registers": None,
        "position.rotary": None,
        "position.rotary.kind": ("axial",),
        "position.rotary.pairs": ("interleaved",),
        "position.rotary.axes": ("yx",),
        "position.rotary.coordinates": ("index",),
        "position.rotary.offset": (0.0,),
        "position.rotary.reference": (None,),
        "position.rotary.periods": (None,),
        "position.rotary.register_temperature": None,
    },
    keep=("layer_scale", "qkv_bias"),
)


def temperature_of(waves: Tensor, usual: float, where: str) -> float:
    """Return the temperature of frequencies; the usual one where there is only one frequency, which is 1."""
    found = usual
    if len(waves) > 1:
        found = float(f"{waves[1].double().item() ** -len(waves):.4g}")
    if not torch.allclose(waves, decreasing(found, len(waves)), rtol=1e-3):
        raise InputError(f"{where}: the frequencies of its rotary positions do not follow from a temperature")
    return found


def read_vit5(source: Source) -> Spec:
    shapes = shape_fields(source, FAMILY.rows())
    waves, of_registers = (
        source.tensors[name.format(0)].read().float() for name in (PATCH_WAVES, REGISTER_WAVES)
    )
    fields = {
        **shapes,
        "image_size": image_size_of(source, shapes["patch_size"], source.positions("pos_embed")),
        "heads": shapes["width"] // (4 * len(waves)),
        "registers": source.size("reg_token", 1, ndim=3),
        "norm_kind": "rms",
        "qkv_bias": "blocks.0.attn.qkv.bias" in source.tensors,
        "position": {
            "kind": "learned",
            "rotary": {
                "axes": "yx",
                "temperature": temperature_of(waves, TEMPERATURE, source.where),
                "register_temperature": temperature_of(of_registers, REGISTER_TEMPERATURE, source.where),
            },
        },
    }
    config = configured(ViTConfig, source, fields)
    look = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD, "crop_fraction": 1.0}
    reading = reading_as("ViT-5", source, config, FAMILY.table(config), **look)
    computed: list[str] = []
    for layer in range(config.depth):
        computed += [PATCH_WAVES.format(layer), REGISTER_WAVES.format(layer)]
    return reading._replace(ignored=tuple(computed))


def write_vit5(model: Model, path: Path) -> None:
    config, weights = held_by_format(model, "vit-5", FAMILY.limits, keep=FAMILY.keep)
    rotary = config.rotary
    assert rotary is not None
    assert rotary.kind == "axial"
    if rotary.register_temperature is None:
        raise InputError(
            "vit-5 cannot hold registers that are not rotated (position.rotary.register_temperature)"
        )
    count = config.resolved_head_dim // 4
    waves = decreasing(rotary.temperature or 100.0, count)
    of_registers = decreasing(rotary.register_temperature, count)
    tensors = write_weight_rows(FAMILY.table(config), weights)
    for layer in range(config.depth):
        tensors[PATCH_WAVES.format(layer)] = waves
        tensors[REGISTER_WAVES.format(layer)] = of_registers
    write_torch(tensors, path)


VIT5 = Format(
    name="vit-5",
    about="wangf3014/ViT-5: a state dict",
    families=("ViT-5",),
    keys=(r"blocks\.0\.attn\.rope_reg\.freqs", "reg_token"),
    read=read_vit5,
    write=write_vit5,
    limits=FAMILY.limits,
    interpolation="huggingface",
    suffixes=(".pth", ".pt"),
    unsaid=("image_size",),
    typical=VIT_5,
)
