"""timm: VisionTransformer, its distilled form (DeiT) and its hybrids, as a folder (model.safetensors and
config.json) or a plain state dict. Norms stand on the tokens (`norm`) or behind the pooling (`fc_norm`);
registers and the class token have position rows unless `no_embed_class`.
"""

from __future__ import annotations

import re
from typing import Any

from vitreous.checkpoints.absorbing import Limits
from vitreous.checkpoints.reading import (
    Reading,
    Told,
    asked_heads,
    assumed_preprocessing,
    usual_heads,
    vit_config,
)
from vitreous.checkpoints.source import Source, square_grid
from vitreous.checkpoints.timm_table import ROOTS, Names, root_of, rows
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import Preprocessing

INTERPOLATION = "timm"
LIMITS: Limits = {
    "representation_size": (None,),
    "mlp": ("gelu", "gelu_tanh", "quick_gelu", "relu", "silu", "swiglu"),
    "norm_eps": (1e-6, 1e-5),
    "norm": ("pre",),
    "position.where": ("stem",),
    "position.kind": ("learned",),
    "stem.kind": ("patch", "resnet"),
    "stem.norm_before": (False,),
    "stem.norm_after": (False,),
    "stem.standardization": ("variance",),
    "stem.standardization_eps": (1e-8,),
    "stem.norm_eps": (1e-5,),
    "pad": (False,),
    "pooling": ("class", "mean", "mean-all", "attention", "class+distillation"),
    "head_dim": (None,),
}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_tanh",
    "gelu_erf": "gelu",
    "quick_gelu": "quick_gelu",
    "quickgelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
# SigLIP 2, whose activation is the tanh form; that of the first SigLIP is exact in timm.
SIGLIP_2 = re.compile(r"patch32_siglip|so400m_patch16_siglip|giantopt|large_patch16_siglip(_gap)?_512")
# Prefixes under which other code keeps a timm tower.
PREFIXES = ("", "visual.trunk.", "trunk.", "vision_model.", "encoder.", "backbone.")


def prefix_of(source: Source) -> str | None:
    names = ("patch_embed.proj.weight", "blocks.0.attn.qkv.weight")
    return next((p for p in PREFIXES if all(p + name in source.tensors for name in names)), None)


def recognizes(source: Source) -> bool:
    return prefix_of(source) is not None


def read(source: Source, told: Told) -> Reading:
    prefix = prefix_of(source)
    if prefix is None:
        raise InputError(f"{source.where} is no timm checkpoint: it has no patch_embed.proj.weight")
    source = source.below(prefix)
    names, fields = describe(source, told)
    from_name, assumed = conventions(source, fields["width"])
    fields = from_name | fields
    if "heads" not in fields:
        fields["heads"] = asked_heads(source, told, fields["width"])
    config = vit_config(fields, told)
    preprocessing, assumed_too = preprocessing_of(source, config)
    labels = labels_of(source)
    return Reading(source, config, rows(config, names), preprocessing, labels, (*assumed, *assumed_too))


def arguments(source: Source) -> dict[str, Any]:
    """The keyword arguments that config.json says the model was made with."""
    told = source.config.get("model_args")
    return told if isinstance(told, dict) else {}


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
        if str(args["act_layer"]) not in ACTIVATIONS:
            raise InputError(f"{source.where}: unknown act_layer {args['act_layer']!r} in config.json")
        fields["mlp"] = ACTIVATIONS[str(args["act_layer"])]
    if isinstance(args.get("num_heads"), int):
        fields["heads"] = args["num_heads"]
    elif name:
        special = {"test_vit": 2, "test_vit2": 2, "test_vit3": 3, "vit_base_patch16_gap_224": 16}
        default = 16 if "giantopt" in name else usual_heads(width)
        fields["heads"] = special.get(name, default)
        assumed.append(f"{fields['heads']} heads, as timm's models of this width have")
    return fields, tuple(assumed)


def describe(source: Source, told: Told) -> tuple[Names, dict[str, Any]]:
    """What the weights' names and shapes (and config.json) tell."""
    tensors, args = source.tensors, arguments(source)
    width, channels, p, q = (source.size("patch_embed.proj.weight", axis, ndim=4) for axis in range(4))
    hybrid = any(f"{root}.conv.weight" in tensors for root in ROOTS)
    stem: dict[str, Any] = (
        resnet_stem(source) if hybrid else {"kind": "patch", "bias": "patch_embed.proj.bias" in tensors}
    )
    if hybrid:
        stride = 4 * 2 ** max(len(stem["layers"]) - 1, 0)
        p, q = p * stride, q * stride
        channels = source.size(f"{root_of(stem['layers'])}.conv.weight", 1, ndim=4)
    class_token, distilled = "cls_token" in tensors, "dist_token" in tensors
    registers = source.size("reg_token", 1, ndim=3) if "reg_token" in tensors else 0
    positions = source.size("pos_embed", 1, ndim=3)
    prefix = int(class_token) + int(distilled) + registers
    embedded = not no_embed_class(args, positions, prefix)
    own = args.get("img_size") or input_size(source)
    patches = positions - prefix * embedded
    mlp, unpacked = mlp_fields(source)
    fields: dict[str, Any] = {
        "width": width,
        "channels": channels,
        "patch_size": (p, q),
        "image_size": fitting(own, patches, (p, q)) or square_grid(source, patches, told, (p, q)),
        "stem": stem,
        "depth": source.count(lambda i: f"blocks.{i}.norm1.weight"),
        **mlp,
        "qkv_bias": "blocks.0.attn.qkv.bias" in tensors,
        "qk_norm": "blocks.0.attn.q_norm.weight" in tensors,
        "layer_scale": 1.0 if "blocks.0.ls1.gamma" in tensors else None,
        "class_token": class_token,
        "distillation_token": distilled,
        "registers": registers,
        "embedding_norm": "norm_pre.weight" in tensors,
        "num_classes": source.size("head.weight", 0, ndim=2) if "head.weight" in tensors else None,
        "head_bias": "head.bias" in tensors,
        "final_norm": "tokens"
        if "norm.weight" in tensors
        else "pooled"
        if "fc_norm.weight" in tensors
        else "none",
        "pooling": pooling_of(source, class_token=class_token, distilled=distilled),
    }
    return Names(embedded, unpacked), fields


def no_embed_class(args: dict[str, Any], positions: int, prefix: int) -> bool:
    """Whether the prefix tokens have no position: said, or told by which of the two leaves a square grid."""
    if isinstance(args.get("no_embed_class"), bool):
        return bool(args["no_embed_class"])
    return not is_square(positions - prefix) and is_square(positions)


def is_square(number: int) -> bool:
    return number > 0 and round(number**0.5) ** 2 == number


def input_size(source: Source) -> Any:
    told = source.config.get("pretrained_cfg", source.config)
    size = told.get("input_size") if isinstance(told, dict) else None
    return size[1:] if isinstance(size, list) and len(size) == 3 else None


def fitting(size: Any, patches: int, patch: tuple[int, int]) -> tuple[int, int] | None:
    """The image size that config.json tells, if the positions are for it."""
    if isinstance(size, int):
        size = (size, size)
    if not isinstance(size, list | tuple) or len(size) != 2 or not all(isinstance(n, int) for n in size):
        return None
    height, width = size
    return (height, width) if (height // patch[0]) * (width // patch[1]) == patches else None


def mlp_fields(source: Source) -> tuple[dict[str, Any], bool]:
    """Activation (as far as shapes tell) and hidden width; whether SwiGLU's two matrices are apart."""
    if "blocks.0.mlp.fc1_g.weight" in source.tensors:
        return {"mlp": "swiglu", "mlp_dim": source.size("blocks.0.mlp.fc1_g.weight", 0, ndim=2)}, True
    expanded = source.size("blocks.0.mlp.fc1.weight", 0, ndim=2)
    hidden = source.size("blocks.0.mlp.fc2.weight", 1, ndim=2)
    return ({"mlp": "swiglu", "mlp_dim": hidden} if expanded == 2 * hidden else {"mlp_dim": hidden}), False


def pooling_of(source: Source, *, class_token: bool, distilled: bool) -> str:
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
    layers: list[int] = []
    while stages.format(len(layers), 0) in source.tensors:
        layers.append(source.count(lambda i: stages.format(len(layers), i)))
    root = source.size(f"{root_of(tuple(layers))}.conv.weight", 0, ndim=4)
    return {
        "kind": "resnet",
        "layers": tuple(layers),
        "widths": tuple(source.size(stages.format(i, 0), 0, ndim=4) for i in range(len(layers))),
        "width_factor": root / 64,
        "standardization": "variance",
        "standardization_eps": 1e-8,
        "norm_eps": 1e-5,
    }


def preprocessing_of(source: Source, config: ViTConfig) -> tuple[Preprocessing, tuple[str, ...]]:
    """From config.json's pretrained_cfg."""
    told = source.config.get("pretrained_cfg", source.config)
    if not isinstance(told, dict) or not {"mean", "std", "interpolation"} <= set(told):
        return assumed_preprocessing(config, "timm's ViT", crop_fraction=0.9)
    modes = {"center": "crop", "squash": "squash", "border": "fit"}
    try:
        preprocessing = Preprocessing(
            size=config.image_size,
            channels=config.channels,
            resize=modes.get(told.get("crop_mode", "center"), "crop"),
            crop_fraction=told.get("crop_pct", 0.875),
            interpolation="bicubic" if told["interpolation"] == "random" else told["interpolation"],
            mean=tuple(told["mean"]),
            std=tuple(told["std"]),
        )
    except (ValueError, TypeError):
        raise InputError(f"{source.where}: pretrained_cfg of config.json is not understood") from None
    return preprocessing, ()


def labels_of(source: Source) -> list[str] | None:
    names = source.config.get("label_names")
    return [str(name) for name in names] if isinstance(names, list) else None
