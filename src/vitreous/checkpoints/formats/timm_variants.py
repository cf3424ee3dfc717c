"""timm's models that are more than VisionTransformer, and what a state dict alone does not tell of them. Eva
(EVA, EVA-02, Perception Encoder, DINOv3, the ViTs with rotary positions): its rotary positions, norms and
attention pooling are arguments that no weight shows. Hybrids: a ResNetV2 before the patches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from vitreous.checkpoints.canonicalize import PLAIN_VIT, ratio_for, without_patch_bias
from vitreous.checkpoints.format import ShapeFields, as_pair, kind_of
from vitreous.checkpoints.formats.timm_facts import description_of, timm_facts
from vitreous.checkpoints.source import CONFIG, Source, number_of
from vitreous.checkpoints.weights import Row, pairs
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import AttentionPoolingConfig, AxialRotaryConfig, MixedRotaryConfig

# Arguments of VisionTransformer that the weights show, that `timm_facts` has, or that change nothing in use.
VISION_TRANSFORMER_ARGUMENTS = (
    *("img_size", "patch_size", "in_chans", "num_classes", "global_pool", "embed_dim", "depth", "num_heads"),
    *("mlp_ratio", "qkv_bias", "qk_norm", "proj_bias", "init_values", "class_token", "no_embed_class"),
    *("reg_tokens", "pre_norm", "final_norm", "fc_norm", "pool_include_prefix", "act_layer", "weight_init"),
    *("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate"),
    *("dynamic_img_size", "strict_img_size", "fix_init", "use_post_norm"),
)
# Those of them that Beit and Eva have, too.
SHARED_ARGUMENTS = (
    *("img_size", "patch_size", "in_chans", "num_classes", "global_pool", "embed_dim", "depth", "num_heads"),
    *("mlp_ratio", "qkv_bias", "init_values"),
)
# Arguments of Eva beside these.
EVA_ARGUMENTS = (
    *("use_rot_pos_emb", "use_abs_pos_emb", "rope_type", "rope_temperature", "rope_grid_offset"),
    *("rope_grid_indexing", "rope_rotate_half", "rope_shift_coords", "rope_jitter_coords"),
    *("rope_rescale_coords", "ref_feat_shape", "attn_type", "qkv_fused", "swiglu_mlp", "swiglu_align_to"),
    *("scale_mlp", "scale_attn_inner", "num_reg_tokens", "use_post_norm", "use_pre_transformer_norm"),
    *("use_post_transformer_norm", "use_fc_norm", "attn_pool_num_heads", "attn_pool_mlp_ratio"),
    *("dynamic_img_pad", "head_init_scale"),
)
# What Eva's rotary arguments are where neither config.json nor the architecture says.
DEFAULTS = {"rope_type": "cat", "rope_temperature": 10000.0, "rope_grid_indexing": "ij"}
EVA_LIMITS = PLAIN_VIT | {
    "edge": ("refuse", "drop"),
    "mlp": ("gelu", "swiglu"),
    "norm_eps": (1e-6, 1e-5),
    "norm": ("pre", "post-branch"),
    "position.kind": ("learned", "rotary-2d"),
    "pooling.kind": ("class", "mean", "attention", "attention-all"),
    **dict.fromkeys(("class_token", "registers", "extra_norms", "final_norm", "position.rotary")),
    **dict.fromkeys(("pooling.heads", "pooling.mlp_dim")),
    "qk_norm": ("none", "head"),
    "position.rotary.periods": (None,),
    "position.rotary.coordinates": ("index", "centered"),
}


# What EVA-02's own code calls what timm calls otherwise.
EVA_NAMES = {
    ".attn.inner_attn_ln.": ".attn.norm.",
    ".mlp.ffn_ln.": ".mlp.norm.",
    ".mlp.w12.": ".mlp.fc1.",
    ".mlp.w1.": ".mlp.fc1_g.",
    ".mlp.w2.": ".mlp.fc1_x.",
    ".mlp.w3.": ".mlp.fc2.",
}
APART = {".attn.q_bias": ".attn.q_proj.bias", ".attn.v_bias": ".attn.v_proj.bias"}
# The architectures of the image towers of EVA-02-CLIP, by width.
EVA_CLIP = {768: "eva02_base_patch16_clip_224.merged2b", 1024: "eva02_large_patch14_clip_224.merged2b"}


def under_timm_names(source: Source) -> Source:
    """Put a checkpoint of EVA-02's own code under timm's names, without the angles that it stores. The rotary
    positions of EVA-02-CLIP, which no weight shows, are those of timm's architecture of the same width."""
    names = EVA_NAMES | (APART if "blocks.0.attn.q_proj.weight" in source.tensors else {})

    def rename(name: str) -> str | None:
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        return None if "rope.freqs_" in name else name

    named = source.renamed(rename)
    width = source.size("patch_embed.proj.weight", 0, ndim=4)
    if source.facts.name or width not in EVA_CLIP or not source.inside.endswith("visual."):
        return named
    source.assumed.append(f"rotary positions and heads of timm's {EVA_CLIP[width]}")
    return replace(named, facts=timm_facts({CONFIG: description_of(EVA_CLIP[width])}, named))


def rotary_fields(source: Source, known: Mapping[str, object]) -> dict[str, object]:
    """Return the rotary positions that Eva's arguments describe. Raises InputError: an unknown kind."""
    kind, temperature, indexing = (known.get(name, default) for name, default in DEFAULTS.items())
    offset = number_of(known.get("rope_grid_offset") or 0, f"{source.where}: rope_grid_offset")
    if kind not in ("cat", "dinov3", "mixed") or indexing not in ("ij", "xy"):
        raise InputError(f"{source.where}: rope_type={kind!r} of timm is not supported")
    fields: dict[str, object] = {
        "temperature": number_of(temperature, f"{source.where}: rope_temperature"),
        "pairs": "halves" if known.get("rope_rotate_half") else "interleaved",
        "axes": "yx" if indexing == "ij" else "xy",
    }
    if kind == "dinov3" and offset:
        raise InputError(
            f"{source.where}: rope_grid_offset={offset} with rope_type='dinov3' is not supported"
        )
    if kind == "dinov3":
        return fields | {"coordinates": "centered"}
    if kind == "mixed":
        return fields | {"kind": "mixed"}
    reference = as_pair(known.get("ref_feat_shape"))
    return fields | {"offset": offset, "reference": reference}


def frequencies_row(depth: int) -> Row:
    """Return the learned frequencies of all layers, which timm keeps in one tensor (2, L, K, D_h / 2)."""

    def write(*layers: Tensor) -> tuple[Tensor, ...]:
        return (torch.stack(layers, dim=1),)

    ours = tuple(f"blocks.{layer}.attention.position.frequencies" for layer in range(depth))
    return Row(ours, ("rope.freqs",), lambda t: tuple(t.unbind(1)), write)


def needs_eva(config: ViTConfig) -> bool:
    """Return whether a model has parts that VisionTransformer has not."""
    inner = "attention" in config.extra_norms or "mlp" in config.extra_norms
    own_pooling = isinstance(config.pooling, AttentionPoolingConfig) and (
        config.pooling.heads or config.pooling.mlp_dim
    )
    return config.rotary is not None or inner or bool(own_pooling) or config.norm == "post-branch"


def eva_form(
    config: ViTConfig, weights: dict[str, Tensor], args: dict[str, object]
) -> tuple[ViTConfig, dict[str, Tensor], str, dict[str, object]]:
    """Return the form that Eva holds of a model.

    Args:
        args: those of VisionTransformer.

    Returns:
        Configuration, weights, an architecture of timm's registry with its LayerNorm eps, and the arguments.

    Raises:
        InputError: parts that Eva cannot hold together.
    """
    learned = config.position.kind == "learned"
    if config.norm == "post-branch" and (config.qk_norm != "none" or config.layer_scale is not None):
        raise InputError("timm cannot hold norm=post-branch together with qk_norm or LayerScale")
    if config.pooling.kind == "attention" and config.num_prefix_tokens:
        raise InputError("timm's Eva cannot hold pooling=attention, only attention-all, with prefix tokens")
    if config.pooling.kind.startswith("attention") and "mlp" in config.extra_norms:
        raise InputError("timm cannot hold attention pooling together with extra_norms in the MLP")
    if "tokens" in config.extra_norms and learned:
        config, weights = without_patch_bias(config, weights)
    elif "tokens" in config.extra_norms and weights.pop("stem.projection.bias").any():
        raise InputError(
            "timm cannot hold extra_norms on the tokens with a patch bias unless positions are learned"
        )
    pooling = (
        config.pooling if isinstance(config.pooling, AttentionPoolingConfig) else AttentionPoolingConfig()
    )
    pool_dim = pooling.mlp_dim or config.mlp_dim
    args = {name: args[name] for name in SHARED_ARGUMENTS} | {
        "mlp_ratio": ratio_for(config.mlp_dim, config.width),
        "qkv_fused": True,
        "qk_norm": config.qk_norm == "head",
        "attn_type": "rope",
        "swiglu_mlp": config.mlp == "swiglu",
        "swiglu_align_to": 0,
        "scale_mlp": "mlp" in config.extra_norms,
        "scale_attn_inner": "attention" in config.extra_norms,
        "class_token": config.class_token,
        "num_reg_tokens": config.registers,
        "no_embed_class": False,
        "use_abs_pos_emb": learned,
        "use_post_norm": config.norm == "post-branch",
        "use_pre_transformer_norm": "tokens" in config.extra_norms,
        "use_post_transformer_norm": config.final_norm == "tokens",
        "use_fc_norm": config.final_norm == "pooled",
        "attn_pool_num_heads": pooling.heads or config.heads,
        "attn_pool_mlp_ratio": (pool_dim + (0.5 if pool_dim % config.width else 0)) / config.width,
    }
    name = "eva02_base_patch14_224"
    if config.norm_eps != 1e-6:
        name = "vit_pe_spatial_base_patch16_512" if learned else "vit_base_patch16_dinov3"
    return config, weights, name, args | rope_args(config.rotary)


def rope_args(rotary: AxialRotaryConfig | MixedRotaryConfig | None) -> dict[str, object]:
    """Return Eva's arguments for rotary positions. Raises InputError: Eva cannot hold them."""
    if rotary is None:
        return {"use_rot_pos_emb": False}
    args = {
        "use_rot_pos_emb": True,
        "rope_temperature": rotary.temperature or 100.0,
        "rope_grid_indexing": "ij" if rotary.axes == "yx" else "xy",
        "rope_rotate_half": rotary.pairs == "halves",
        "rope_grid_offset": rotary.offset,
    }
    if rotary.kind == "mixed":
        if rotary.pairs == "halves" or rotary.offset:
            raise InputError(
                "timm cannot hold learned frequencies together with rotary.offset or pairs=halves"
            )
        return args | {"rope_type": "mixed", "ref_feat_shape": None}
    centered = rotary.coordinates == "centered"
    reference = list(rotary.reference) if rotary.reference else None
    return args | {"rope_type": "dinov3" if centered else "cat", "ref_feat_shape": reference}


def check_not_eva(source: Source, *, named: bool) -> None:
    """Refuse a state dict alone that is of an Eva, or of a Perception Encoder.

    Args:
        named: whether its encoder layers have names that VisionTransformer's have not.

    Raises:
        InputError: such a model has rotary positions, which no weight shows.
    """
    tensors = source.tensors
    inner = any(f"blocks.0.{each}.norm.weight" in tensors for each in ("attn", "mlp"))
    ended = "norm.weight" in tensors or "fc_norm.weight" in tensors
    encoder = "norm_pre.weight" in tensors and (not ended or "attn_pool.latent" in tensors)
    if named or inner or encoder or "pos_embed" not in tensors:
        raise InputError(
            f"{source.where}: a state dict of timm's Eva does not store its rotary positions: pass "
            "like='timm:NAME' with the architecture's name (such as timm:deit3_base_patch16_224)"
        )


def assume(source: Source, shapes: ShapeFields, fields: Mapping[str, object]) -> None:
    """Note what a state dict alone leaves open. Raises InputError: the activation of a CLIP, of which there
    are two kinds.

    Args:
        shapes: what the weights show; `fields`: all that is read.
    """
    if "tokens" in shapes["extra_norms"] and fields["mlp"] != "swiglu" and "mlp" not in source.specified:
        raise InputError(
            f"{source.where}: a state dict of a CLIP does not store its activation: pass mlp='gelu' or "
            "mlp='quick_gelu', or like='timm:NAME' with the architecture's name"
        )
    open_questions = [name for name in ("mlp", "norm_eps", "pooling") if name not in source.specified]
    if guessed := ", ".join(f"{name}={kind_of(fields[name])}" for name in open_questions):
        source.assumed.append(f"{guessed} (or pass like='timm:NAME' with the architecture's name)")


# The ResNetV2 of a hybrid.
RESNET_NAMES = {name: name for name in ("conv1", "conv2", "conv3", "norm1", "norm2", "norm3")} | {
    "shortcut.0": "downsample.conv",
    "shortcut.1": "downsample.norm",
}
# Its root; a ResNet that is its root alone has no `stem` in the name.
RESNET_ROOTS = ("patch_embed.backbone.stem", "patch_embed.backbone")


def resnet_root(layers: tuple[int, ...]) -> str:
    return RESNET_ROOTS[0] if layers else RESNET_ROOTS[1]


def hybrid_rows(layers: tuple[int, ...]) -> list[Row]:
    """Return the table of a ResNet with so many units in each stage."""
    root, units = resnet_root(layers), "patch_embed.backbone.stages.{}.blocks.{}."
    return [
        *pairs({"root": f"{root}.conv", "root_norm": f"{root}.norm"}, "stem.backbone."),
        *pairs(RESNET_NAMES, "stem.backbone.stages.{}.{}.", units),
    ]


def resnet_stem(source: Source) -> tuple[Mapping[str, object], int, int]:
    """Return the ResNetV2 of a hybrid, the channels of its images, and its stride in pixels."""
    stages = "patch_embed.backbone.stages.{}.blocks.{}.conv3.weight"
    layers = source.units(stages, first=0)
    root, channels = (source.size(f"{resnet_root(layers)}.conv.weight", axis, ndim=4) for axis in (0, 1))
    stem = {
        "kind": "resnet",
        "layers": layers,
        "widths": tuple(source.size(stages.format(i, 0), 0, ndim=4) for i in range(len(layers))),
        "width_factor": root / 64,
        "standardization": "variance",
        "standardization_eps": 1e-8,
        "norm_eps": 1e-5,
    }
    return stem, channels, 4 * 2 ** max(len(layers) - 1, 0)
