"""timm: VisionTransformer, its distilled form (DeiT) and its hybrids, as a folder (model.safetensors and
config.json) or a plain state dict. Norms are on the tokens (`norm`) or after the pooling (`fc_norm`);
registers and the class token have position rows unless `no_embed_class`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isqrt
from typing import Any

from vitreous.checkpoints.files import Source
from vitreous.checkpoints.format import (
    Overrides,
    Reading,
    activation_of,
    as_pair,
    asked_heads,
    assumed_preprocessing,
    configured,
    shape_fields,
    square_grid,
    tokens_and_positions,
    usual_heads,
)
from vitreous.checkpoints.weights import Row, packed, pairs, same
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import Preprocessing

ROWS = pairs(
    {
        "stem.projection": "patch_embed.proj",
        "embedding_norm": "norm_pre",
        "norm": "norm",
        "head": "head",
        "head.classes": "head",
        "head.distillation": "head_dist",
    }
)
# Both sides call their encoder layers blocks.N.
BLOCK = "blocks.{}."
BLOCK_NAMES = {
    "attention_norm": "norm1",
    "attention.qkv": "attn.qkv",
    "attention.out": "attn.proj",
    "attention.query_norm": "attn.q_norm",
    "attention.key_norm": "attn.k_norm",
    "mlp_norm": "norm2",
    "mlp.expand": "mlp.fc1",
}
ATTENTION_POOL = {
    "attention.query": "q",
    "attention.key_value": "kv",
    "attention.out": "proj",
    "norm": "norm",
    "mlp.expand": "mlp.fc1",
    "mlp.contract": "mlp.fc2",
}
# The ResNetV2 of a hybrid.
RESNET_NAMES = {name: name for name in ("conv1", "conv2", "conv3", "norm1", "norm2", "norm3")} | {
    "shortcut.0": "downsample.conv",
    "shortcut.1": "downsample.norm",
}
# The root of a hybrid's ResNet; a ResNet that is its root alone has no `stem` in the name.
ROOTS = ("patch_embed.backbone.stem", "patch_embed.backbone")


def root_of(layers: tuple[int, ...]) -> str:
    return ROOTS[0] if layers else ROOTS[1]


CROP_MODES = {"center": "crop", "squash": "squash", "border": "fit"}  # theirs: ours
# SigLIP 2, whose activation is the tanh form; that of the first SigLIP is exact in timm.
SIGLIP_2 = re.compile(r"patch32_siglip|so400m_patch16_siglip|giantopt|large_patch16_siglip(_gap)?_512")
# Prefixes under which other code keeps a timm tower.
PREFIXES = ("", "visual.trunk.", "trunk.", "vision_model.", "encoder.", "backbone.")


def read_timm(source: Source, overrides: Overrides) -> Reading:
    source = source.below(source.prefix("a timm checkpoint", PREFIXES, "patch_embed.proj.weight"))
    fields, embedded = timm_fields(source, overrides)
    from_name, assumed = conventions(source, fields["width"])
    if fields["mlp"] == "swiglu":
        from_name.pop("mlp", None)
    fields |= from_name
    if "heads" not in fields:
        fields["heads"] = asked_heads(source, overrides, fields["width"])
    config = configured(ViTConfig, fields, overrides)
    preprocessing, assumed_too = timm_preprocessing(source, config)
    rows = timm_rows(config, embedded=embedded, gates=gates_of(source))
    return Reading(source, config, rows, preprocessing, timm_labels(source), (*assumed, *assumed_too))


def arguments(source: Source) -> dict[str, Any]:
    """The keyword arguments that config.json says the model was made with."""
    described = source.config.get("model_args")
    return described if isinstance(described, dict) else {}


def conventions(source: Source, width: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What an architecture's name stands for and no weight shows: heads, activation, LayerNorm eps."""
    name, args = str(source.config.get("architecture", "")), arguments(source)
    fields: dict[str, Any] = {}
    assumed: list[str] = []
    if "_clip_" in name or "beit3" in name:
        fields["norm_eps"] = 1e-5
    if "quickgelu" in name:
        fields["mlp"] = "quick_gelu"
    elif SIGLIP_2.search(name):
        fields["mlp"] = "gelu_tanh"
    if "act_layer" in args:
        fields["mlp"] = activation_of(source, "act_layer", args["act_layer"])
    if isinstance(args.get("num_heads"), int):
        fields["heads"] = args["num_heads"]
    elif name:
        special = {"test_vit": 2, "test_vit2": 2, "test_vit3": 3, "vit_base_patch16_gap_224": 16}
        default = 16 if "giantopt" in name else usual_heads(width)
        fields["heads"] = special.get(name, default)
        assumed.append(f"{fields['heads']} heads, as timm's models of this width have")
    return fields, tuple(assumed)


def timm_fields(source: Source, overrides: Overrides) -> tuple[dict[str, Any], bool]:
    """What the weights' names and shapes (and config.json) tell, and whether the prefix tokens have rows
    among the positions."""
    tensors, args = source.tensors, arguments(source)
    fields = shape_fields(source, [*ROWS, *block_rows(gates_of(source))])
    stem: dict[str, Any] = {"kind": "patch", "bias": "patch_embed.proj.bias" in tensors}
    if any(f"{root}.conv.weight" in tensors for root in ROOTS):
        stem = resnet_stem(source)
        stride = 4 * 2 ** max(len(stem["layers"]) - 1, 0)
        fields["patch_size"] = tuple(stride * cells for cells in fields["patch_size"])
        fields["channels"] = source.size(f"{root_of(stem['layers'])}.conv.weight", 1, ndim=4)
    class_token, distilled = "cls_token" in tensors, "dist_token" in tensors
    registers = source.size_if_there("reg_token", 1, ndim=3) or 0
    positions = source.size("pos_embed", 1, ndim=3)
    prefix = int(class_token) + int(distilled) + registers
    embedded = not no_embed_class(args, positions, prefix)
    patches, patch = positions - prefix * embedded, fields["patch_size"]
    rows, columns = as_pair(args.get("img_size") or input_size(source)) or (0, 0)
    fits = (rows // patch[0]) * (columns // patch[1]) == patches
    last_norms = {"tokens": "norm.weight", "pooled": "fc_norm.weight"}
    fields |= {
        "image_size": (rows, columns) if fits else square_grid(source, patches, overrides, patch),
        "stem": stem,
        "qkv_bias": "blocks.0.attn.qkv.bias" in tensors,
        "class_token": class_token,
        "distillation_token": distilled,
        "registers": registers,
        "head_bias": "head.bias" in tensors,
        "final_norm": next((where for where, name in last_norms.items() if name in tensors), "none"),
        "pooling": timm_pooling(source, class_token=class_token, distilled=distilled),
    }
    return fields, embedded


def gates_of(source: Source) -> tuple[str, ...]:
    """The matrices of SwiGLU's gate and expansion: two, or both in one."""
    return ("fc1_g", "fc1_x") if "blocks.0.mlp.fc1_g.weight" in source.tensors else ("fc1",)


def no_embed_class(args: dict[str, Any], positions: int, prefix: int) -> bool:
    """Whether the prefix tokens have no position: as config.json says, or as leaves a square grid."""
    if isinstance(args.get("no_embed_class"), bool):
        return bool(args["no_embed_class"])
    without, square = (n > 0 and isqrt(n) ** 2 == n for n in (positions - prefix, positions))
    return square and not without


def input_size(source: Source) -> Any:
    described = source.config.get("pretrained_cfg", source.config)
    size = described.get("input_size") if isinstance(described, dict) else None
    return size[1:] if isinstance(size, list) and len(size) == 3 else None


def timm_pooling(source: Source, *, class_token: bool, distilled: bool) -> str:
    """The pooling: as config.json says, or as the weights suggest."""
    args = arguments(source)
    if distilled:
        return "class+distillation"
    if "attn_pool.latent" in source.tensors:
        return "attention"
    said = args.get("global_pool") or source.config.get("global_pool")
    average = said == "avg" if said else not class_token or "fc_norm.weight" in source.tensors
    if not average:
        return "class"
    return "mean-all" if args.get("pool_include_prefix") else "mean"


def resnet_stem(source: Source) -> dict[str, Any]:
    """The ResNetV2 of a hybrid."""
    stages = "patch_embed.backbone.stages.{}.blocks.{}.conv3.weight"
    layers = source.units(stages, first=0)
    root = source.size(f"{root_of(layers)}.conv.weight", 0, ndim=4)
    return {
        "kind": "resnet",
        "layers": layers,
        "widths": tuple(source.size(stages.format(i, 0), 0, ndim=4) for i in range(len(layers))),
        "width_factor": root / 64,
        "standardization": "variance",
        "standardization_eps": 1e-8,
        "norm_eps": 1e-5,
    }


def timm_preprocessing(source: Source, config: ViTConfig) -> tuple[Preprocessing, tuple[str, ...]]:
    """From config.json's pretrained_cfg."""
    described = source.config.get("pretrained_cfg", source.config)
    if not isinstance(described, dict) or not {"mean", "std", "interpolation"} <= set(described):
        return assumed_preprocessing(config, "timm's ViT", crop_fraction=0.9)
    try:
        preprocessing = Preprocessing(
            size=config.image_size,
            channels=config.channels,
            resize=CROP_MODES.get(described.get("crop_mode", "center"), "crop"),
            crop_fraction=described.get("crop_pct", 0.875),
            interpolation="bicubic" if described["interpolation"] == "random" else described["interpolation"],
            mean=tuple(described["mean"]),
            std=tuple(described["std"]),
        )
    except (ValueError, TypeError):
        raise InputError(f"{source.where}: pretrained_cfg of config.json is not understood") from None
    return preprocessing, ()


def timm_labels(source: Source) -> list[str] | None:
    names = source.config.get("label_names")
    return [str(name) for name in names] if isinstance(names, list) else None


def timm_rows(config: ViTConfig, *, embedded: bool = True, gates: Sequence[str] = ("fc1",)) -> list[Row]:
    """The whole table.

    Args:
        embedded: the class token (and the registers) have rows among the positions.
        gates: as in `block_rows`.
    """
    attention_pool = "pool.pool." if config.final_norm == "pooled" else "pool."
    prefix = {"class_token": "cls_token", "distillation_token": "dist_token", "registers": "reg_token"}
    rows = [
        tokens_and_positions(config, prefix, "pos_embed", positioned=prefix if embedded else ()),
        *ROWS,
        *block_rows(gates),
    ]
    if config.stem.kind == "resnet":
        root = root_of(config.stem.layers)
        rows += pairs({"root": f"{root}.conv", "root_norm": f"{root}.norm"}, "stem.backbone.")
        rows += pairs(
            RESNET_NAMES, "stem.backbone.stages.{}.{}.", "patch_embed.backbone.stages.{}.blocks.{}."
        )
    if config.final_norm == "pooled":
        rows += pairs({"pool.norm": "fc_norm"})
    if config.pooling == "attention":
        rows += [
            same(f"{attention_pool}probe", "attn_pool.latent"),
            *pairs(ATTENTION_POOL, attention_pool, "attn_pool."),
        ]
    return rows


def block_rows(gates: Sequence[str] = ("fc1",), contract: str = "fc2") -> list[Row]:
    """The encoder layers.

    Args:
        gates: their names of SwiGLU's first matrix; two where gate and expansion are apart.
        contract: their name of the last matrix of the MLP.
    """
    return [
        *pairs(BLOCK_NAMES | {"mlp.contract": f"mlp.{contract}"}, BLOCK, BLOCK),
        *packed(f"{BLOCK}mlp.gate_expand", [f"{BLOCK}mlp.{each}" for each in gates]),
        same(f"{BLOCK}attention_branch.scale.gamma", f"{BLOCK}ls1.gamma"),
        same(f"{BLOCK}mlp_branch.scale.gamma", f"{BLOCK}ls2.gamma"),
    ]
