"""The weights of `torch.nn.Transformer`."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn

from vitreous.addons.text.config import TransformerConfig
from vitreous.addons.text.transformer import EncoderDecoder
from vitreous.checkpoints.format import Format, Spec, configured
from vitreous.checkpoints.source import Source
from vitreous.checkpoints.weights import pairs, query_and_key_value, same

log = logging.getLogger(__name__)

# torch.nn.Transformer holds the two stacks alone, without embeddings, positions or output; it has a final
# norm after each stack, which the paper has not, even for post-norm layers.
TRANSFORMER_LAYER_NAMES = {
    "attention.out": "self_attn.out_proj",
    "attention_norm": "norm1",
    "mlp.expand": "linear1",
    "mlp.contract": "linear2",
}
TRANSFORMER_ENCODER_NAMES = TRANSFORMER_LAYER_NAMES | {"mlp_norm": "norm2"}
TRANSFORMER_DECODER_NAMES = TRANSFORMER_LAYER_NAMES | {
    "cross_attention.out": "multihead_attn.out_proj",
    "cross_norm": "norm2",
    "mlp_norm": "norm3",
}
TRANSFORMER_ROWS = [
    *pairs({"encoder.norm": "encoder.norm", "decoder.norm": "decoder.norm"}),
    *pairs(TRANSFORMER_ENCODER_NAMES, "encoder.blocks.{}.", "encoder.layers.{}."),
    *pairs(TRANSFORMER_DECODER_NAMES, "decoder.blocks.{}.", "decoder.layers.{}."),
    same("encoder.blocks.{}.attention.qkv.weight", "encoder.layers.{}.self_attn.in_proj_weight"),
    same("encoder.blocks.{}.attention.qkv.bias", "encoder.layers.{}.self_attn.in_proj_bias"),
    same("decoder.blocks.{}.attention.qkv.weight", "decoder.layers.{}.self_attn.in_proj_weight"),
    same("decoder.blocks.{}.attention.qkv.bias", "decoder.layers.{}.self_attn.in_proj_bias"),
    *query_and_key_value("decoder.blocks.{}.cross_attention", "decoder.layers.{}.multihead_attn"),
]


def read_torch_transformer(source: Source) -> Spec:
    """Read the two stacks.

    Args:
        source: opened with `heads`, which the weights do not tell, and `norm`, `activation`, `norm_eps`,
            whose defaults are those of the module; it calls norm="pre" norm_first=True.
    """
    first = "encoder.layers.0.linear1.weight"
    fields: dict[str, Any] = {
        "vocabulary": 3,  # none is used: pad, start and end must be tokens
        "width": source.size(first, 1, ndim=2),
        "mlp_dim": source.size(first, 0, ndim=2),
        "encoder_depth": source.count("encoder.layers.{}.linear1.weight"),
        "depth": source.count("decoder.layers.{}.linear1.weight"),
        "norm": "post",
        "norm_eps": 1e-5,
        "final_norm": "encoder.norm.weight" in source.tensors,
        "activation": "relu",
        "position": "none",
        "dropout": 0.0,
    }
    config = configured(TransformerConfig, source, fields)
    assumed = [name for name in ("norm", "activation") if name not in source.specified]
    source.assumed.extend(f"{name}={fields[name]}" for name in assumed)
    return Spec(source, config, TRANSFORMER_ROWS, make=meta_encoder_decoder)


def meta_encoder_decoder(config: TransformerConfig, **attributes: object) -> EncoderDecoder:
    with torch.device("meta"):
        return EncoderDecoder(config).eval()


def facts_of(module: nn.Module) -> dict[str, object] | None:
    """Return what the attributes of a `torch.nn.Transformer` tell."""
    if not isinstance(module, nn.Transformer):
        return None
    first: Any = module.encoder.layers[0]
    if not module.batch_first:
        log.warning("the Transformer takes (tokens, batch, width), but its copy takes (batch, tokens, width)")
    return {
        "heads": module.nhead,
        "norm": "pre" if first.norm_first else "post",
        "activation": getattr(first.activation, "__name__", type(first.activation).__name__.lower()),
    }


TORCH_TRANSFORMER = Format(
    name="torch-transformer",
    about="torch.nn.Transformer: a state dict of its encoder and decoder; needs heads=",
    keys=(r"encoder\.layers\.0\.linear1\.weight", r"decoder\.layers\.0\.linear1\.weight"),
    read=read_torch_transformer,
    overridable=TransformerConfig,
    module_facts=facts_of,
)
