"""`torch.nn.Transformer`'s state dict. The module holds the two stacks alone, without embeddings, positions
or output; it has a final norm behind each stack, which the paper has not, even for post-norm layers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from vitreous.checkpoints.building import fill
from vitreous.errors import InputError
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


def load_torch_transformer(
    state: Mapping[str, Tensor],
    *,
    heads: int,
    norm: Literal["pre", "post"] = "post",
    activation: Any = "relu",
    norm_eps: float = 1e-5,
) -> EncoderDecoder:
    """The two stacks of a `torch.nn.Transformer`, in evaluation mode.

    Args:
        state: its state dict.
        heads, norm, activation, norm_eps: what the weights cannot tell; the defaults are those of the module,
            which calls `norm` norm_first=False.

    Raises:
        InputError: weights are missing or left over.
    """
    try:
        width = state["encoder.layers.0.linear1.weight"].shape[1]
        mlp_dim = state["encoder.layers.0.linear1.weight"].shape[0]
        state["decoder.layers.0.linear1.weight"]
    except KeyError as error:
        raise InputError(f"this is no state dict of torch.nn.Transformer: {error} is missing") from None
    config = TransformerConfig(
        vocabulary=3,  # none is used: pad, start and end must be tokens
        width=width,
        heads=heads,
        mlp_dim=mlp_dim,
        encoder_depth=layers(state, "encoder"),
        depth=layers(state, "decoder"),
        norm=norm,
        norm_eps=norm_eps,
        final_norm="encoder.norm.weight" in state,
        activation=activation,
        position="none",
        dropout=0.0,
    )
    with torch.device("meta"):
        model = EncoderDecoder(config)
    fill(
        model, dict(item for name, tensor in state.items() for item in ours(name, tensor)), where="the state"
    )
    return model.eval()


def layers(state: Mapping[str, Tensor], stack: str) -> int:
    return len({name.split(".")[2] for name in state if name.startswith(f"{stack}.layers.")})


def ours(name: str, tensor: Tensor) -> list[tuple[str, Tensor]]:
    """One of their weights as one or two of ours: of the packed rows q, k, v of a cross-attention, those of q
    stand by themselves here."""
    stack = name.split(".")[0]
    name = re.sub(r"\.layers\.", ".blocks.", name)
    if ".multihead_attn.in_proj_" in name:
        block, kind = name.split("multihead_attn.in_proj_")
        width = tensor.shape[0] // 3
        return [
            (f"{block}cross_attention.query.{kind}", tensor[:width]),
            (f"{block}cross_attention.key_value.{kind}", tensor[width:]),
        ]
    for old, new in {**RENAME, **NORMS.get(stack, {})}.items():
        name = name.replace(f".{old}", f".{new}")
    return [(name, tensor)]
