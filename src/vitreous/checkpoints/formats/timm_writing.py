"""A model as timm holds it: a folder with model.safetensors and the config.json that `timm.create_model`
reads ("local-dir:PATH" or the hub), or, for a path that ends in .safetensors or .pth, the state dict alone.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from vitreous.checkpoints.canonicalize import (
    PLAIN_VIT,
    FormatLimits,
    held_by_format,
    ratio_for,
    without_key_bias,
    without_patch_bias,
)
from vitreous.checkpoints.format import Format
from vitreous.checkpoints.formats import timm_naflex
from vitreous.checkpoints.formats.timm import BEIT_VIT, CROP_MODES, POOLS, TIMM_VIT, read_timm, timm_rows
from vitreous.checkpoints.formats.timm_facts import check_architecture, registry, timm_facts
from vitreous.checkpoints.native import write_json
from vitreous.checkpoints.torch_files import write_state_dict
from vitreous.checkpoints.weights import write_weight_rows
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import (
    AttentionPoolingConfig,
    AxialRotaryConfig,
    MixedRotaryConfig,
    ResNetStemConfig,
)
from vitreous.models.model import Model
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT

LIMITS = PLAIN_VIT | {
    "edge": ("refuse", "drop"),
    "mlp": ("gelu", "gelu_tanh", "quick_gelu", "relu", "silu", "swiglu"),
    "norm_eps": (1e-6, 1e-5),
    "stem.kind": ("patch", "resnet"),
    "stem.standardization": ("variance",),
    "stem.standardization_eps": (1e-8,),
    "stem.norm_eps": (1e-5,),
    "pooling.kind": tuple(POOLS),
    **dict.fromkeys(("class_token", "registers", "final_norm")),
    "extra_norms": ((), ("tokens",)),
    "qk_norm": ("none", "head"),
}


# AIMv2: what has no bias and RMSNorm, after the patches too.
AIMV2_LIMITS = LIMITS | {
    "stem.kind": ("patch",),
    "stem.norm_after": (True,),
    "norm_kind": ("rms",),
    "norm_eps": (1e-5,),
    "mlp": ("swiglu",),
    "class_token": (False,),
    "registers": (0,),
    "qkv_bias": (False,),
    "pooling.kind": ("mean",),
    "final_norm": ("tokens", "pooled"),
}
# BEiT, whose last norm is where its pooling is.
BEIT_LIMITS: FormatLimits = PLAIN_VIT | {
    "position.kind": ("relative-bias",),
    **dict.fromkeys(("position.shared", "position.absolute")),
    "pooling.kind": ("class", "mean"),
    "final_norm": ("tokens", "pooled"),
}
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
# Arguments of VisionTransformer that Beit and Eva have, too.
SHARED_ARGUMENTS = (
    *("img_size", "patch_size", "in_chans", "num_classes", "global_pool", "embed_dim", "depth", "num_heads"),
    *("mlp_ratio", "qkv_bias", "init_values"),
)


def limits_of(model: Model) -> FormatLimits:
    """Return what VisionTransformer, Beit or Eva can be, whichever the model needs."""
    if isinstance(model, ViT) and model.config.position.kind == "relative-bias":
        return BEIT_LIMITS
    if isinstance(model, ViT) and model.config.norm_kind == "rms":
        return AIMV2_LIMITS
    return EVA_LIMITS if isinstance(model, ViT) and needs_eva(model.config) else LIMITS


STATE_DICTS = (".safetensors", ".pth", ".pt", ".bin")
HYBRIDS = {
    (): "vit_tiny_r_s16_p8_224",
    (2, 2, 2, 2): "vit_small_r26_s32_224",
    (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
}


def write_timm(model: Model, path: Path) -> None:
    """Write a folder, or one file of weights where the path's ending asks for it."""
    eva = isinstance(model, ViT) and needs_eva(model.config)
    config, weights = held_by_format(model, "timm", limits_of(model), keep=("layer_scale", "qkv_bias"))
    if config.pooling.kind.startswith("attention") and config.mlp == "swiglu":
        raise InputError("timm cannot hold attention pooling together with swiglu")
    name, args = "", dict[str, object]()
    if eva:
        config, weights, name, args = eva_form(config, weights, model_args(config))
    elif "tokens" in config.extra_norms:
        config, weights = without_patch_bias(config, weights)
    family = TIMM_VIT._replace(scales=BEIT_VIT.scales) if eva else TIMM_VIT
    if config.position.kind == "relative-bias":
        family, weights = BEIT_VIT, without_key_bias(weights)
        name, args = "beit_base_patch16_224", beit_args(config, model_args(config))
    if eva and "mlp" in config.extra_norms and config.mlp == "swiglu":
        family = family._replace(gates=("mlp.fc1_g", "mlp.fc1_x"))
    if config.norm_kind == "rms":
        family = TIMM_VIT._replace(gates=("mlp.fc1_g", "mlp.fc1_x"), plain=False)
        name = "aimv2_large_patch14_224"
        args = model_args(config) | {"mlp_ratio": ratio_for(config.mlp_dim, config.width)}
    naflex = naflex_architecture(model) if not name and config.stem.kind == "patch" else None
    tensors = write_weight_rows(timm_rows(config, family=family, embedded=not naflex), weights)
    if naflex:
        way = (model.origin and model.origin.interpolation) or "timm"
        name, args = naflex, timm_naflex.arguments(config, model_args(config), way)
        tensors = timm_naflex.naflex_tensors(config, tensors)
    if path.suffix in STATE_DICTS:
        write_state_dict(tensors, path)
        return
    args = args or model_args(config)
    described: dict[str, object] = {
        "architecture": name or architecture(config),
        "num_classes": config.num_classes or 0,
        "num_features": config.width,
        "global_pool": args["global_pool"],
        "model_args": args,
        "pretrained_cfg": pretrained_cfg(config, model.preprocessing),
    }
    described |= {"label_names": model.labels} if model.labels else {}
    path.mkdir(parents=True, exist_ok=True)
    write_state_dict(tensors, path / "model.safetensors")
    write_json(described, path / "config.json")


def naflex_architecture(model: Model) -> str | None:
    """Return the NaFlexViT of timm that the weights are from; None where they are not."""
    named = ((model.origin and model.origin.architecture) or "").split(".")[0]
    return named if named.startswith("naflexvit") and named in registry()["read"] else None


def architecture(config: ViTConfig) -> str:
    """Return the name in timm's registry whose defaults, with our arguments over them, give this model."""
    if config.stem.kind == "resnet":
        stem = config.stem
        plain = ResNetStemConfig(layers=stem.layers)
        usual = stem.width_factor == 1 and stem.output_widths == plain.output_widths
        if stem.layers not in HYBRIDS or not usual:
            raise InputError(
                f"timm has no architecture with a ResNet of {stem.layers} units: write a state dict "
                "(a path that ends in .safetensors)"
            )
        return HYBRIDS[stem.layers]
    special = [config.distillation_token, config.mlp == "swiglu", config.norm_eps != 1e-6]
    if sum(special) > 1:
        raise InputError(
            "timm has no architecture with more than one of distillation, swiglu and norm_eps=1e-5"
        )
    if config.distillation_token:
        return "deit_base_distilled_patch16_224"
    if config.mlp == "swiglu":
        return "vit_giant_patch14_dinov2"
    return "vit_base_patch16_224" if config.norm_eps == 1e-6 else "vit_base_patch16_clip_224"


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


def beit_args(config: ViTConfig, args: dict[str, object]) -> dict[str, object]:
    """Return the keyword arguments of Beit, from those of VisionTransformer. Raises InputError: the last norm
    is not where it is in Beit."""
    if config.final_norm != ("pooled" if config.pooling.kind == "mean" else "tokens"):
        raise InputError(
            f"timm's BEiT cannot hold final_norm={config.final_norm} with pooling={config.pooling.kind}"
        )
    shared = config.position.shared
    flags = {"use_rel_pos_bias": not shared, "use_shared_rel_pos_bias": shared}
    flags["use_abs_pos_emb"] = config.position.absolute
    return {name: args[name] for name in SHARED_ARGUMENTS} | flags


def model_args(config: ViTConfig) -> dict[str, object]:
    """Return the keyword arguments of timm's VisionTransformer, all of them."""
    cell = config.stem.stride if config.stem.kind == "resnet" else 1
    hidden = 2 * config.mlp_dim if config.mlp == "swiglu" else config.mlp_dim
    args: dict[str, object] = {
        "img_size": list(config.image_size),
        "patch_size": [p // cell for p in config.patch_size],
        "in_chans": config.channels,
        "num_classes": config.num_classes or 0,
        "global_pool": POOLS[config.pooling.kind][0],
        "embed_dim": config.width,
        "depth": config.depth,
        "num_heads": config.heads,
        "mlp_ratio": ratio_for(hidden, config.width),
        "qkv_bias": config.qkv_bias,
        "qk_norm": config.qk_norm == "head",
        "init_values": config.layer_scale,
        "class_token": config.class_token,
        "no_embed_class": False,
        "reg_tokens": config.registers,
        "pre_norm": "tokens" in config.extra_norms,
        "final_norm": config.final_norm != "none",
        "fc_norm": config.final_norm == "pooled",
        "pool_include_prefix": POOLS[config.pooling.kind][1],
    }
    return args if config.mlp == "swiglu" else args | {"act_layer": config.mlp}


def pretrained_cfg(config: ViTConfig, preprocessing: Preprocessing) -> dict[str, object]:
    modes = {ours: theirs for theirs, ours in CROP_MODES.items()}
    return {
        "input_size": [config.channels, *config.image_size],
        "fixed_input_size": True,
        "interpolation": preprocessing.interpolation,
        "crop_pct": preprocessing.crop_fraction,
        "crop_mode": modes[preprocessing.resize],
        "mean": list(preprocessing.mean),
        "std": list(preprocessing.std),
        "num_classes": config.num_classes or 0,
        "pool_size": None,
        "first_conv": "patch_embed.proj",
        "classifier": ["head", "head_dist"] if config.distillation_token else "head",
    }


TIMM = Format(
    name="timm",
    about="timm's VisionTransformer, DeiT and hybrids: a folder (config.json) or a state dict",
    families=(
        "ViT",
        "Hybrid ViT",
        "DeiT",
        "MAE, with its decoder",
        "DINOv2",
        "DINOv3",
        "CLIP",
        "SigLIP",
        "NaFlexViT",
        "Perception Encoder",
        "EVA, EVA-02",
        "RoPE-ViT",
        "BEiT, BEiT v2",
        "AIMv2",
    ),
    keys=(
        r"(?:patch_embed|embeds)\.proj\.weight",
        r"blocks\.0\.(in_proj|(attns\.0\.)?attn\.(qkv|q_proj))\.weight",
    ),
    outer_names=("head.weight", "head.bias", "head_dist."),
    read=read_timm,
    gather=timm_facts,
    check_architecture=check_architecture,
    write=write_timm,
    limits=limits_of,
    patch_interpolation="timm",
    bare_suffixes=STATE_DICTS,
    # what config.json tells and the state dict alone does not
    bare_unsaid=("heads", "image_size", "pooling", "mlp", "norm_eps"),
)
