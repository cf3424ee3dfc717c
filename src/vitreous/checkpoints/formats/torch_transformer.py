"""`torch.nn.Transformer`'s state dict. The module holds the two stacks alone, without embeddings, positions
or output; it has a final norm after each stack, which the paper has not, even for post-norm layers."""

from __future__ import annotations

import re
from typing import Any

import torch

from vitreous.checkpoints.format import Format, Overrides, Reading, Source, asked_heads
from vitreous.checkpoints.weights import Row, same
from vitreous.models.names import build
from vitreous.models.sequence_config import TransformerConfig
from vitreous.models.transformer import EncoderDecoder

RENAME = {
    "self_attn.in_proj_": "attention.qkv.",
    "self_attn.out_proj.": "attention.out.",
    "multihead_attn.out_proj.": "cross_attention.out.",
    "linear1.": "mlp.expand.",
    "linear2.": "mlp.contract.",
}
NORMS = {
    "encoder": {"norm1.": "attention_norm.", "norm2.": "mlp_norm."},
    "decoder": {"norm1.": "attention_norm.", "norm2.": "cross_norm.", "norm3.": "mlp_norm."},
}


def read_torch_transformer(source: Source, overrides: Overrides) -> Reading:
    """Read the two stacks.

    Args:
        overrides: `heads`, which the weights do not tell, and `norm`, `activation`, `norm_eps`, whose
            defaults are those of the module; it calls norm="pre" norm_first=True.
    """
    first = "encoder.layers.0.linear1.weight"
    fields: dict[str, Any] = {
        "vocabulary": 3,  # none is used: pad, start and end must be tokens
        "width": source.size(first, 1, ndim=2),
        "mlp_dim": source.size(first, 0, ndim=2),
        "heads": asked_heads(source, overrides, source.size(first, 1, ndim=2)),
        "encoder_depth": source.count(lambda i: f"encoder.layers.{i}.linear1.weight"),
        "depth": source.count(lambda i: f"decoder.layers.{i}.linear1.weight"),
        "norm": "post",
        "norm_eps": 1e-5,
        "final_norm": "encoder.norm.weight" in source.tensors,
        "activation": "relu",
        "position": "none",
        "dropout": 0.0,
    }
    config: TransformerConfig = build(TransformerConfig, fields, overrides)
    assumed = tuple(f"{name}={fields[name]}" for name in ("norm", "activation") if name not in overrides)
    rows = [row for name in source.tensors for row in rows_for(name)]
    return Reading(source, config, rows, assumed=assumed, make=meta_encoder_decoder)


def meta_encoder_decoder(config: TransformerConfig, **attributes: Any) -> EncoderDecoder:
    with torch.device("meta"):
        return EncoderDecoder(config).eval()


def rows_for(name: str) -> list[Row]:
    """The row of one of their weights: of the packed rows q, k, v of a cross-attention, those of q are a
    matrix of their own here."""
    ours = re.sub(r"\.layers\.", ".blocks.", name)
    if ".multihead_attn.in_proj_" in name:
        block, kind = ours.split("multihead_attn.in_proj_")
        parts = tuple(f"{block}cross_attention.{part}.{kind}" for part in ("query", "key_value"))
        return [
            Row(
                parts,
                (name,),
                lambda packed: (packed[: len(packed) // 3], packed[len(packed) // 3 :]),
                lambda query, key_value: (torch.cat([query, key_value]),),
            )
        ]
    for theirs, mine in {**RENAME, **NORMS.get(name.split(".")[0], {})}.items():
        ours = ours.replace(f".{theirs}", f".{mine}")
    return [same(ours, name)]


TORCH_TRANSFORMER = Format(
    name="torch-transformer",
    about="torch.nn.Transformer: a state dict of its two stacks; needs heads=",
    keys=(r"encoder\.layers\.0\.linear1\.weight", r"decoder\.layers\.0\.linear1\.weight"),
    read=read_torch_transformer,
    overridable=TransformerConfig,
)
