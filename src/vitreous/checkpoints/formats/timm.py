"""timm: VisionTransformer, its distilled form (DeiT) and its hybrids, as a folder (model.safetensors and
config.json) or a plain state dict. Norms are on the tokens (`norm`) or after the pooling (`fc_norm`);
registers and the class token have position rows unless `no_embed_class`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from vitreous.checkpoints.format import (
    Overrides,
    Reading,
    Source,
    asked_heads,
    assumed_preprocessing,
    square_grid,
    usual_heads,
    vit_config,
)
from vitreous.checkpoints.weights import Row, Token, concatenated, pair, same, tokens_and_positions
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import Preprocessing

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
# The root of a hybrid's ResNet; a ResNet that is its root alone has no `stem` in the name.
ROOTS = ("patch_embed.backbone.stem", "patch_embed.backbone")


def root_of(layers: tuple[int, ...]) -> str:
    return ROOTS[0] if layers else ROOTS[1]


class Names(NamedTuple):
    """How one file lays its prefix tokens and its MLP out."""

    embedded: bool  # the class token (and registers) have rows among the positions
    mlp: tuple[str, ...] = ("fc1", "fc2")  # its matrices


# SigLIP 2, whose activation is the tanh form; that of the first SigLIP is exact in timm.
SIGLIP_2 = re.compile(r"patch32_siglip|so400m_patch16_siglip|giantopt|large_patch16_siglip(_gap)?_512")
# Prefixes under which other code keeps a timm tower.
PREFIXES = ("", "visual.trunk.", "trunk.", "vision_model.", "encoder.", "backbone.")


def prefix_of(source: Source) -> str | None:
    names = ("patch_embed.proj.weight", "blocks.0.attn.qkv.weight")
    return next((p for p in PREFIXES if all(p + name in source.tensors for name in names)), None)


def read_timm(source: Source, overrides: Overrides) -> Reading:
    prefix = prefix_of(source)
    if prefix is None:
        raise InputError(f"{source.where} is not a timm checkpoint: it has no patch_embed.proj.weight")
    source = source.below(prefix)
    names, fields = timm_fields(source, overrides)
    from_name, assumed = conventions(source, fields["width"])
    fields = from_name | fields
    if "heads" not in fields:
        fields["heads"] = asked_heads(source, overrides, fields["width"])
    config = vit_config(fields, overrides)
    preprocessing, assumed_too = preprocessing_of(source, config)
    labels = labels_of(source)
    return Reading(source, config, timm_rows(config, names), preprocessing, labels, (*assumed, *assumed_too))


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


def timm_fields(source: Source, overrides: Overrides) -> tuple[Names, dict[str, Any]]:
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
    mlp, matrices = mlp_fields(source)
    fields: dict[str, Any] = {
        "width": width,
        "channels": channels,
        "patch_size": (p, q),
        "image_size": fitting(own, patches, (p, q)) or square_grid(source, patches, overrides, (p, q)),
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
    return Names(embedded, matrices), fields


def no_embed_class(args: dict[str, Any], positions: int, prefix: int) -> bool:
    """Whether the prefix tokens have no position: as config.json says, or as leaves a square grid."""
    if isinstance(args.get("no_embed_class"), bool):
        return bool(args["no_embed_class"])
    return not is_square(positions - prefix) and is_square(positions)


def is_square(number: int) -> bool:
    return number > 0 and round(number**0.5) ** 2 == number


def input_size(source: Source) -> Any:
    described = source.config.get("pretrained_cfg", source.config)
    size = described.get("input_size") if isinstance(described, dict) else None
    return size[1:] if isinstance(size, list) and len(size) == 3 else None


def fitting(size: Any, patches: int, patch: tuple[int, int]) -> tuple[int, int] | None:
    """The image size that config.json tells, if the positions are for it."""
    if isinstance(size, int):
        size = (size, size)
    if not isinstance(size, list | tuple) or len(size) != 2 or not all(isinstance(n, int) for n in size):
        return None
    height, width = size
    return (height, width) if (height // patch[0]) * (width // patch[1]) == patches else None


def mlp_fields(source: Source) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Activation (as far as shapes tell) and hidden width; the names of the matrices."""
    if "blocks.0.mlp.fc1_g.weight" in source.tensors:
        hidden = source.size("blocks.0.mlp.fc1_g.weight", 0, ndim=2)
        return {"mlp": "swiglu", "mlp_dim": hidden}, ("fc1_g", "fc1_x", "fc2")
    expanded = source.size("blocks.0.mlp.fc1.weight", 0, ndim=2)
    hidden = source.size("blocks.0.mlp.fc2.weight", 1, ndim=2)
    activation = {"mlp": "swiglu"} if expanded == 2 * hidden else {}
    return {**activation, "mlp_dim": hidden}, ("fc1", "fc2")


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
    described = source.config.get("pretrained_cfg", source.config)
    if not isinstance(described, dict) or not {"mean", "std", "interpolation"} <= set(described):
        return assumed_preprocessing(config, "timm's ViT", crop_fraction=0.9)
    modes = {"center": "crop", "squash": "squash", "border": "fit"}
    try:
        preprocessing = Preprocessing(
            size=config.image_size,
            channels=config.channels,
            resize=modes.get(described.get("crop_mode", "center"), "crop"),
            crop_fraction=described.get("crop_pct", 0.875),
            interpolation="bicubic" if described["interpolation"] == "random" else described["interpolation"],
            mean=tuple(described["mean"]),
            std=tuple(described["std"]),
        )
    except (ValueError, TypeError):
        raise InputError(f"{source.where}: pretrained_cfg of config.json is not understood") from None
    return preprocessing, ()


def labels_of(source: Source) -> list[str] | None:
    names = source.config.get("label_names")
    return [str(name) for name in names] if isinstance(names, list) else None


def timm_rows(config: ViTConfig, names: Names) -> list[Row]:
    """The whole table."""
    table = pair(
        "stem.projection", "patch_embed.proj", bias=config.stem.kind == "resnet" or stem_bias(config)
    )
    if config.stem.kind == "resnet":
        table += resnet_rows(config.stem.layers)
    counts = {
        "cls_token": config.class_token,
        "dist_token": config.distillation_token,
        "reg_token": config.registers,
    }
    tokens = [
        Token(name, (1, int(count), config.width), positioned=names.embedded)
        for name, count in counts.items()
        if count
    ]
    table.append(
        tokens_and_positions(
            tokens,
            width=config.width,
            with_class=config.num_class_tokens,
            position="pos_embed",
            shape=(1, -1, config.width),
        )
    )
    if config.embedding_norm:
        table += pair("embedding_norm", "norm_pre")
    for layer in range(config.depth):
        table += timm_block(f"blocks.{layer}", config, names.mlp)
    return table + end_rows(config)


def stem_bias(config: ViTConfig) -> bool:
    return config.stem.kind == "patch" and config.stem.bias


def timm_block(block: str, config: ViTConfig, mlp: tuple[str, ...]) -> list[Row]:
    """One encoder layer; both sides call it blocks.N.

    Args:
        mlp: their names of its matrices; three where gate and expansion of SwiGLU are apart.
    """
    expand, contract = ("gate_expand" if config.mlp == "swiglu" else "expand"), mlp[-1]
    table = [
        *pair(f"{block}.attention_norm", f"{block}.norm1"),
        *pair(f"{block}.attention.qkv", f"{block}.attn.qkv", bias=config.qkv_bias),
        *pair(f"{block}.attention.out", f"{block}.attn.proj"),
        *pair(f"{block}.mlp_norm", f"{block}.norm2"),
        *(
            concatenated(f"{block}.mlp.{expand}.{kind}", [f"{block}.mlp.{each}.{kind}" for each in mlp[:-1]])
            for kind in ("weight", "bias")
        ),
        *pair(f"{block}.mlp.contract", f"{block}.mlp.{contract}"),
    ]
    if config.layer_scale is not None:
        table.append(same(f"{block}.attention_branch.scale.gamma", f"{block}.ls1.gamma"))
        table.append(same(f"{block}.mlp_branch.scale.gamma", f"{block}.ls2.gamma"))
    if config.qk_norm:
        table += pair(f"{block}.attention.query_norm", f"{block}.attn.q_norm")
        table += pair(f"{block}.attention.key_norm", f"{block}.attn.k_norm")
    return table


def end_rows(config: ViTConfig) -> list[Row]:
    """Everything after the last layer."""
    table: list[Row] = []
    pool = "pool.pool" if config.final_norm == "pooled" else "pool"
    if config.final_norm != "none":
        table += pair("norm", "norm") if config.final_norm == "tokens" else pair("pool.norm", "fc_norm")
    if config.pooling == "attention":
        table.append(same(f"{pool}.probe", "attn_pool.latent"))
        for mine, theirs in (
            ("attention.query", "q"),
            ("attention.key_value", "kv"),
            ("attention.out", "proj"),
            ("norm", "norm"),
            ("mlp.expand", "mlp.fc1"),
            ("mlp.contract", "mlp.fc2"),
        ):
            table += pair(f"{pool}.{mine}", f"attn_pool.{theirs}")
    if config.num_classes is not None and config.distillation_token:
        table += pair("head.classes", "head") + pair("head.distillation", "head_dist")
    elif config.num_classes is not None:
        table += pair("head", "head", bias=config.head_bias)
    return table


def resnet_rows(layers: tuple[int, ...]) -> list[Row]:
    """The ResNetV2 of a hybrid."""
    ours, theirs = "stem.backbone", "patch_embed.backbone"
    root = root_of(layers)
    table = [same(f"{ours}.root.weight", f"{root}.conv.weight"), *pair(f"{ours}.root_norm", f"{root}.norm")]
    for stage, units in enumerate(layers):
        for unit in range(units):
            mine, other = f"{ours}.stages.{stage}.{unit}", f"{theirs}.stages.{stage}.blocks.{unit}"
            for part in (1, 2, 3):
                table.append(same(f"{mine}.conv{part}.weight", f"{other}.conv{part}.weight"))
                table += pair(f"{mine}.norm{part}", f"{other}.norm{part}")
            if unit == 0:
                table.append(same(f"{mine}.shortcut.0.weight", f"{other}.downsample.conv.weight"))
                table += pair(f"{mine}.shortcut.1", f"{other}.downsample.norm")
    return table
