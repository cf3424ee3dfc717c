"""Hugging Face's Marian translators (MarianMTModel: Helsinki-NLP/opus-mt-*), and the layers that every
descendant of BART in that library shares.

Theirs: q, k and v apart, positions computed, tied embeddings stored once. Ours: one packed matrix for the
self-attention, one for keys and values of the cross-attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous.checkpoints.building import fill
from vitreous.checkpoints.files import read_json, read_safetensors
from vitreous.errors import InputError, nearest
from vitreous.models.sequence_config import TransformerConfig
from vitreous.models.transformer import Transformer

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu", "gelu_new": "gelu_tanh"}


def load_marian(folder: str | Path) -> Transformer:
    """The Transformer of a Marian checkpoint's folder, in evaluation mode.

    Raises:
        InputError: a file is missing or damaged, or holds something else.
    """
    folder = Path(folder)
    told = read_json(folder / "config.json")
    if told.get("model_type") != "marian":
        raise InputError(f"{folder / 'config.json'} is not of a Marian model: model_type says otherwise")
    tensors = dict(read_safetensors(folder / "model.safetensors"))
    with torch.device("meta"):
        model = Transformer(marian_config(told, generation(folder)))
    fill(model, marian_weights(tensors, model.config), where=str(folder))
    return model.eval()


def generation(folder: Path) -> dict[str, Any]:
    """What the checkpoint says about decoding, where it says it."""
    path = folder / "generation_config.json"
    return read_json(path) if path.is_file() else {}


def marian_config(told: Mapping[str, Any], decoding: Mapping[str, Any]) -> TransformerConfig:
    """Theirs as ours."""
    if told["encoder_attention_heads"] != told["decoder_attention_heads"]:
        raise InputError("Marian models whose encoder and decoder differ in their heads are not supported")
    shared = told.get("share_encoder_decoder_embeddings", True)
    return TransformerConfig(
        vocabulary=told.get("decoder_vocab_size") or told["vocab_size"],
        source_vocabulary=None if shared else told["vocab_size"],
        width=told["d_model"],
        encoder_depth=told["encoder_layers"],
        depth=told["decoder_layers"],
        heads=told["decoder_attention_heads"],
        mlp_dim=told["decoder_ffn_dim"],
        max_length=told["max_position_embeddings"],
        activation=activation(told["activation_function"]),
        position="sinusoidal-halves",
        scale_embedding=told["scale_embedding"],
        logits_bias=True,
        dropout=told["dropout"],
        attention_dropout=told["attention_dropout"],
        mlp_dropout=told["activation_dropout"],
        pad=told["pad_token_id"],
        start=told["decoder_start_token_id"],
        end=told["eos_token_id"],
        never=tuple(words[0] for words in decoding.get("bad_words_ids") or () if len(words) == 1),
        end_at_limit=told.get("forced_eos_token_id") is not None,
    )


def activation(name: str) -> Any:
    """Their name of an activation as ours."""
    if name not in ACTIVATIONS:
        raise InputError(f"unknown activation {name!r}: {nearest(name, list(ACTIVATIONS))}")
    return ACTIVATIONS[name]


def marian_weights(tensors: Mapping[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """Their weights under our names."""
    left = dict(tensors)
    for computed in ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"):
        left.pop(computed, None)
    ours: dict[str, Tensor] = {"text.bias": left.pop("final_logits_bias").flatten()}
    if config.source_vocabulary is None:
        ours["text.tokens.weight"] = left.pop("model.shared.weight")
    else:
        ours["source_tokens.weight"] = left.pop("model.encoder.embed_tokens.weight")
        ours["text.tokens.weight"] = left.pop("model.decoder.embed_tokens.weight")
    for tied in ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"):
        left.pop(tied, None)
    for layer in range(config.encoder_depth):
        take_layer(left, f"model.encoder.layers.{layer}.", ours, f"encoder.blocks.{layer}.")
    for layer in range(config.depth):
        take_decoder_layer(left, f"model.decoder.layers.{layer}.", ours, f"text.decoder.blocks.{layer}.")
    return ours | left  # what is left over is named by `fill`


def take_layer(theirs: dict[str, Tensor], source: str, ours: dict[str, Tensor], target: str) -> None:
    """Self-attention and MLP of one layer, moved from `theirs` to `ours`."""
    rename = {
        "self_attn.out_proj": "attention.out",
        "self_attn_layer_norm": "attention_norm",
        "fc1": "mlp.expand",
        "fc2": "mlp.contract",
        "final_layer_norm": "mlp_norm",
    }
    for kind in ("weight", "bias"):
        for old, new in rename.items():
            ours[f"{target}{new}.{kind}"] = theirs.pop(f"{source}{old}.{kind}")
        packed = [theirs.pop(f"{source}self_attn.{each}_proj.{kind}") for each in "qkv"]
        ours[f"{target}attention.qkv.{kind}"] = torch.cat(packed)


def take_decoder_layer(theirs: dict[str, Tensor], source: str, ours: dict[str, Tensor], target: str) -> None:
    """The same with the attention over the encoder's output."""
    take_layer(theirs, source, ours, target)
    rename = {
        "encoder_attn.q_proj": "cross_attention.query",
        "encoder_attn.out_proj": "cross_attention.out",
        "encoder_attn_layer_norm": "cross_norm",
    }
    for kind in ("weight", "bias"):
        for old, new in rename.items():
            ours[f"{target}{new}.{kind}"] = theirs.pop(f"{source}{old}.{kind}")
        packed = [theirs.pop(f"{source}encoder_attn.{each}_proj.{kind}") for each in "kv"]
        ours[f"{target}cross_attention.key_value.{kind}"] = torch.cat(packed)
