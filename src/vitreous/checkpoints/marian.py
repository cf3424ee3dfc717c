"""Hugging Face's Marian translators (MarianMTModel: Helsinki-NLP/opus-mt-*), and the layers that every
descendant of BART in that library shares.

Theirs: q, k and v apart, positions computed, tied embeddings stored once. Ours: one packed matrix for the
self-attention, one for keys and values of the cross-attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from vitreous.checkpoints.algebra import Row, joined, one, pair, read_rows, same
from vitreous.checkpoints.building import fill
from vitreous.checkpoints.files import read_json, read_safetensors
from vitreous.errors import InputError, nearest
from vitreous.models.sequence_config import TransformerConfig
from vitreous.models.settings import explain
from vitreous.models.transformer import Transformer

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu", "gelu_new": "gelu_tanh"}


def load_marian(folder: str | Path) -> Transformer:
    """The Transformer of a Marian checkpoint's folder, in evaluation mode.

    Raises:
        InputError: a file is missing or damaged, or holds something else.
    """
    folder = Path(folder)
    where = folder / "config.json"
    told = read_json(where)
    if told.get("model_type") != "marian":
        raise InputError(f"{where} is not of a Marian model: model_type says otherwise")
    with understood(where):
        config = marian_config(told, generation(folder))
    tensors = read_safetensors(folder / "model.safetensors")
    with torch.device("meta"):
        model = Transformer(config)
    weights = read_rows(marian_rows(config), tensors, where=str(folder), ignored=IGNORED)
    fill(model, weights, where=str(folder))
    return model.eval()


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """What is read inside from the description at `path` must be there, and be of a model that can be."""
    try:
        yield
    except KeyError as missing:
        raise InputError(f"{path} does not say {missing}: it is damaged, or of another kind") from None
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error, 'model')}") from None


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


# Known, and not needed: computed positions, and the embeddings again under other names.
IGNORED = (
    "model.encoder.embed_positions.weight",
    "model.decoder.embed_positions.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)


def marian_rows(config: TransformerConfig) -> list[Row]:
    table = [one("text.bias", "final_logits_bias", Tensor.flatten, lambda bias: bias[None])]
    if config.source_vocabulary is None:
        table += [same("text.tokens.weight", "model.shared.weight")]
    else:
        table += [
            same("source_tokens.weight", "model.encoder.embed_tokens.weight"),
            same("text.tokens.weight", "model.decoder.embed_tokens.weight"),
        ]
    for layer in range(config.encoder_depth):
        table += layer_rows(f"encoder.blocks.{layer}", f"model.encoder.layers.{layer}")
    for layer in range(config.depth):
        table += decoder_layer_rows(f"text.decoder.blocks.{layer}", f"model.decoder.layers.{layer}")
    return table


def layer_rows(mine: str, theirs: str) -> list[Row]:
    """Self-attention and MLP of one layer."""
    return [
        *packed(f"{mine}.attention.qkv", f"{theirs}.self_attn", "qkv"),
        *pair(f"{mine}.attention.out", f"{theirs}.self_attn.out_proj"),
        *pair(f"{mine}.attention_norm", f"{theirs}.self_attn_layer_norm"),
        *pair(f"{mine}.mlp.expand", f"{theirs}.fc1"),
        *pair(f"{mine}.mlp.contract", f"{theirs}.fc2"),
        *pair(f"{mine}.mlp_norm", f"{theirs}.final_layer_norm"),
    ]


def decoder_layer_rows(mine: str, theirs: str) -> list[Row]:
    """The same with the attention over the encoder's output."""
    return [
        *layer_rows(mine, theirs),
        *pair(f"{mine}.cross_attention.query", f"{theirs}.encoder_attn.q_proj"),
        *packed(f"{mine}.cross_attention.key_value", f"{theirs}.encoder_attn", "kv"),
        *pair(f"{mine}.cross_attention.out", f"{theirs}.encoder_attn.out_proj"),
        *pair(f"{mine}.cross_norm", f"{theirs}.encoder_attn_layer_norm"),
    ]


def packed(mine: str, theirs: str, parts: str) -> list[Row]:
    """One matrix (and bias) of ours from those that they keep apart."""
    return [
        joined(f"{mine}.{kind}", [f"{theirs}.{each}_proj.{kind}" for each in parts])
        for kind in ("weight", "bias")
    ]
