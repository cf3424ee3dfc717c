"""timm's Beit: tables of relative positions, of a layer or of all, and the last norm where its pooling is."""

from __future__ import annotations

from typing import Any

from vitreous.checkpoints.format import PLAIN_VIT, Limits
from vitreous.checkpoints.formats.timm_layers import FUSED
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig

BIAS = "blocks.{}.attn.relative_position_bias_table"
SHARED_BIAS = "rel_pos_bias.relative_position_bias_table"
LAYERS = FUSED._replace(biases=("q_bias", None, "v_bias"), scales=("gamma_1", "gamma_2"))
# Its arguments besides those of VisionTransformer, which the weights show.
ARGUMENTS = ("use_abs_pos_emb", "use_rel_pos_bias", "use_shared_rel_pos_bias", "head_init_scale")
SHARED_ARGUMENTS = (
    *("img_size", "patch_size", "in_chans", "num_classes", "global_pool", "embed_dim", "depth", "num_heads"),
    *("mlp_ratio", "qkv_bias", "init_values"),
)
LIMITS: Limits = PLAIN_VIT | {
    "position.kind": ("relative-bias",),
    "position.where": ("every-layer", "every-layer-shared"),
    "pooling": ("class", "mean"),
    "final_norm": ("tokens", "pooled"),
}


def needs_beit(config: ViTConfig) -> bool:
    """Whether a model has Beit's positions."""
    return config.position.kind == "relative-bias"


def beit_args(config: ViTConfig, args: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of Beit, from those of VisionTransformer.

    Raises:
        InputError: the last norm is not where it is in Beit.
    """
    if config.final_norm != ("pooled" if config.pooling == "mean" else "tokens"):
        raise InputError(
            f"timm's BEiT cannot hold final_norm={config.final_norm} with pooling={config.pooling}"
        )
    shared = config.position.where == "every-layer-shared"
    flags = {"use_rel_pos_bias": not shared, "use_shared_rel_pos_bias": shared}
    return {name: args[name] for name in SHARED_ARGUMENTS} | flags
