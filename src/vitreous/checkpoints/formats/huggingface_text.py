"""Hugging Face's models that write text: Marian translators (MarianMTModel: Helsinki-NLP/opus-mt-*), and
VisionEncoderDecoderModel of a ViT and TrOCR's decoder (microsoft/trocr-*).

Theirs: q, k and v apart, positions computed, tied embeddings stored once. Ours: one packed matrix for the
self-attention, one for keys and values of the cross-attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from vitreous.checkpoints.files import Tensors, read_json
from vitreous.checkpoints.format import Format, Overrides, Reading, Source, check_no_overrides
from vitreous.checkpoints.formats.huggingface import read_huggingface
from vitreous.checkpoints.weights import Row, concatenated, converted, pair, same
from vitreous.errors import InputError, nearest
from vitreous.models.config import ViTConfig
from vitreous.models.sequence_config import CaptionerConfig, DecoderConfig, TransformerConfig
from vitreous.models.settings import explain

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu", "gelu_new": "gelu_tanh"}
OFFSET = 2  # rows before a learned table of BART's descendants
DECODER = "decoder.model.decoder."  # tied copies are stored outside of it


def read_marian(source: Source, overrides: Overrides) -> Reading:
    check_no_overrides(source, overrides)
    where = f"{source.where}/config.json"
    if source.config.get("model_type") != "marian":
        raise InputError(f"{where} is not of a Marian model: model_type says otherwise")
    # what it says about decoding is in a file of its own
    path = Path(source.where) / "generation_config.json"
    with understood(where):
        config = marian_config(source.config, read_json(path) if path.is_file() else {})
    ignored = [
        name for name in source.tensors if name.endswith(("embed_positions.weight", "embed_tokens.weight"))
    ]
    return Reading(source, config, marian_rows(config), ignored=(*ignored, "lm_head.weight"))


@contextmanager
def understood(path: str) -> Iterator[None]:
    """What is read inside from the description at `path` must be there, and be of a model that can be."""
    try:
        yield
    except KeyError as missing:
        raise InputError(f"{path} does not say {missing}: it is damaged, or of another kind") from None
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error, 'model')}") from None


def marian_config(described: Mapping[str, Any], decoding: Mapping[str, Any]) -> TransformerConfig:
    """Theirs as ours."""
    if described["encoder_attention_heads"] != described["decoder_attention_heads"]:
        raise InputError("Marian models whose encoder and decoder differ in their heads are not supported")
    shared = described.get("share_encoder_decoder_embeddings", True)
    return TransformerConfig(
        vocabulary=described.get("decoder_vocab_size") or described["vocab_size"],
        source_vocabulary=None if shared else described["vocab_size"],
        width=described["d_model"],
        encoder_depth=described["encoder_layers"],
        depth=described["decoder_layers"],
        heads=described["decoder_attention_heads"],
        mlp_dim=described["decoder_ffn_dim"],
        max_length=described["max_position_embeddings"],
        activation=activation_of(described["activation_function"]),
        position="sinusoidal-halves",
        scale_embedding=described["scale_embedding"],
        logits_bias=True,
        dropout=described["dropout"],
        attention_dropout=described["attention_dropout"],
        mlp_dropout=described["activation_dropout"],
        pad=described["pad_token_id"],
        start=described["decoder_start_token_id"],
        end=described["eos_token_id"],
        never=tuple(words[0] for words in decoding.get("bad_words_ids") or () if len(words) == 1),
        end_at_limit=described.get("forced_eos_token_id") is not None,
    )


def activation_of(name: str) -> Any:
    """Their name of an activation as ours."""
    if name not in ACTIVATIONS:
        raise InputError(f"unknown activation {name!r}: {nearest(name, list(ACTIVATIONS))}")
    return ACTIVATIONS[name]


def marian_rows(config: TransformerConfig) -> list[Row]:
    table = [converted("text.bias", "final_logits_bias", Tensor.flatten, lambda bias: bias[None])]
    if config.source_vocabulary is None:
        table += [same("text.tokens.weight", "model.shared.weight")]
    else:
        table += [
            same("source_tokens.weight", "model.encoder.embed_tokens.weight"),
            same("text.tokens.weight", "model.decoder.embed_tokens.weight"),
        ]
    for layer in range(config.encoder_depth):
        table += encoder_layer_rows(f"encoder.blocks.{layer}", f"model.encoder.layers.{layer}")
    for layer in range(config.depth):
        table += decoder_layer_rows(f"text.decoder.blocks.{layer}", f"model.decoder.layers.{layer}")
    return table


def encoder_layer_rows(mine: str, theirs: str) -> list[Row]:
    """Self-attention and MLP of one layer."""
    return [
        *packed_rows(f"{mine}.attention.qkv", f"{theirs}.self_attn", "qkv"),
        *pair(f"{mine}.attention.out", f"{theirs}.self_attn.out_proj"),
        *pair(f"{mine}.attention_norm", f"{theirs}.self_attn_layer_norm"),
        *pair(f"{mine}.mlp.expand", f"{theirs}.fc1"),
        *pair(f"{mine}.mlp.contract", f"{theirs}.fc2"),
        *pair(f"{mine}.mlp_norm", f"{theirs}.final_layer_norm"),
    ]


def decoder_layer_rows(mine: str, theirs: str) -> list[Row]:
    """The same with the attention over the encoder's output."""
    return [
        *encoder_layer_rows(mine, theirs),
        *pair(f"{mine}.cross_attention.query", f"{theirs}.encoder_attn.q_proj"),
        *packed_rows(f"{mine}.cross_attention.key_value", f"{theirs}.encoder_attn", "kv"),
        *pair(f"{mine}.cross_attention.out", f"{theirs}.encoder_attn.out_proj"),
        *pair(f"{mine}.cross_norm", f"{theirs}.encoder_attn_layer_norm"),
    ]


def packed_rows(mine: str, theirs: str, parts: str) -> list[Row]:
    """One matrix (and bias) of ours from those that they keep apart."""
    return [
        concatenated(f"{mine}.{kind}", [f"{theirs}.{each}_proj.{kind}" for each in parts])
        for kind in ("weight", "bias")
    ]


def read_trocr(source: Source, overrides: Overrides) -> Reading:
    check_no_overrides(source, overrides)
    where, described = f"{source.where}/config.json", source.config
    with understood(where):
        if (
            described.get("model_type") != "vision-encoder-decoder"
            or described["decoder"].get("model_type") != "trocr"
        ):
            raise InputError(f"{where} is not of a ViT with TrOCR's decoder: model_type says otherwise")
        decoder, encoder_config = decoder_config(described), dict(described["encoder"])
    # the pooler is not read by the decoder
    encoder = read_huggingface(
        source.with_tensors(
            lambda name: None if name.startswith(("encoder.pooler.", "decoder.")) else name
        )._replace(config=encoder_config),
        {},
    )
    assert isinstance(encoder.config, ViTConfig)  # huggingface reads nothing else
    text = source.with_tensors(lambda name: name if name.startswith(DECODER) else None)
    tensors = Tensors(encoder.source.tensors.entries | text.tensors.entries)
    rows = [
        row._replace(ours=tuple(f"encoder.{name}" for name in row.ours)) for row in encoder.rows
    ] + trocr_decoder_rows(decoder)
    return encoder._replace(
        source=source._replace(tensors=tensors),
        config=CaptionerConfig(encoder=encoder.config, decoder=decoder),
        rows=rows,
        # a trace of computed positions in older files
        ignored=(*encoder.ignored, f"{DECODER}embed_positions._float_tensor"),
        task="captioning",
    )


def decoder_config(described: Mapping[str, Any]) -> DecoderConfig:
    """Theirs as ours."""
    decoder = described["decoder"]
    return DecoderConfig(
        vocabulary=decoder["vocab_size"],
        width=decoder["d_model"],
        depth=decoder["decoder_layers"],
        heads=decoder["decoder_attention_heads"],
        mlp_dim=decoder["decoder_ffn_dim"],
        max_length=decoder["max_position_embeddings"],
        activation=activation_of(decoder["activation_function"]),
        position="learned" if decoder["use_learned_position_embeddings"] else "sinusoidal-fairseq",
        position_offset=OFFSET,
        scale_embedding=decoder["scale_embedding"],
        embedding_norm=decoder["layernorm_embedding"],
        dropout=decoder["dropout"],
        attention_dropout=decoder["attention_dropout"],
        mlp_dropout=decoder["activation_dropout"],
        pad=described.get("pad_token_id", decoder["pad_token_id"]),
        start=described.get("decoder_start_token_id", decoder["decoder_start_token_id"]),
        end=described.get("eos_token_id", decoder["eos_token_id"]),
    )


def trocr_decoder_rows(config: DecoderConfig) -> list[Row]:
    table = [same("text.tokens.weight", f"{DECODER}embed_tokens.weight")]
    if config.position == "learned":
        table += [same("text.decoder.position.table", f"{DECODER}embed_positions.weight")]
    if config.embedding_norm:
        table += pair("text.decoder.embedding_norm", f"{DECODER}layernorm_embedding")
    for layer in range(config.depth):
        table += decoder_layer_rows(f"text.decoder.blocks.{layer}", f"{DECODER}layers.{layer}")
    return table


MARIAN = Format(
    name="marian",
    about="transformers' MarianMTModel: translators, Helsinki-NLP/opus-mt-*",
    entries=(("model_type", "marian"),),
    overridable=None,
    read=read_marian,
)
TROCR = Format(
    name="trocr",
    about="transformers' VisionEncoderDecoderModel of a ViT and TrOCR's decoder: microsoft/trocr-*",
    entries=(("model_type", "vision-encoder-decoder"),),
    overridable=None,
    read=read_trocr,
)
