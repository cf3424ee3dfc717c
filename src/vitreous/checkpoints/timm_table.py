"""The tables of timm's VisionTransformer: which of its weights is which of ours."""

from __future__ import annotations

from typing import NamedTuple

from vitreous.checkpoints.algebra import Row, Token, joined, pair, same, tokens_and_positions
from vitreous.checkpoints.dinov2 import block_rows
from vitreous.models.config import ViTConfig

# The root of a hybrid's ResNet; a ResNet that is its root alone has no `stem` in the name.
ROOTS = ("patch_embed.backbone.stem", "patch_embed.backbone")


def root_of(layers: tuple[int, ...]) -> str:
    return ROOTS[0] if layers else ROOTS[1]


class Names(NamedTuple):
    """How one file lays its prefix tokens and its MLP out."""

    embedded: bool  # the class token (and registers) have rows among the positions
    unpacked: bool = False  # gate and expansion of SwiGLU are two matrices


def rows(config: ViTConfig, names: Names) -> list[Row]:
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
        table += timm_block(f"blocks.{layer}", config, names)
    return table + end_rows(config)


def stem_bias(config: ViTConfig) -> bool:
    return config.stem.kind == "patch" and config.stem.bias


def timm_block(block: str, config: ViTConfig, names: Names) -> list[Row]:
    """One encoder layer: DINOv2's names, but fc1 and fc2 for SwiGLU too, and norms of q and k."""
    packed = {"mlp.w12": "mlp.fc1", "mlp.w3": "mlp.fc2"}
    table = []
    for row in block_rows(block, config):
        theirs = row.theirs[0]
        for old, new in packed.items():
            theirs = theirs.replace(old, new)
        if names.unpacked and ".mlp.fc1." in theirs:
            parts = [theirs.replace("fc1", part) for part in ("fc1_g", "fc1_x")]
            table.append(joined(row.ours[0], parts))
        else:
            table.append(row._replace(theirs=(theirs,)))
    if config.qk_norm:
        table += pair(f"{block}.attention.query_norm", f"{block}.attn.q_norm")
        table += pair(f"{block}.attention.key_norm", f"{block}.attn.k_norm")
    return table


def end_rows(config: ViTConfig) -> list[Row]:
    """Everything behind the last layer."""
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
