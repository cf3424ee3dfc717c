"""Hugging Face's VisionEncoderDecoderModel of a ViT and TrOCR's decoder (microsoft/trocr-*): images to
text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vitreous.checkpoints import huggingface
from vitreous.checkpoints.algebra import Row, pair, read_rows, same
from vitreous.checkpoints.building import fill, stored
from vitreous.checkpoints.files import read_json
from vitreous.checkpoints.loading import built
from vitreous.checkpoints.marian import activation, decoder_layer_rows, understood
from vitreous.checkpoints.source import Source, open_source
from vitreous.errors import InputError
from vitreous.models.captioner import Captioner
from vitreous.models.sequence_config import CaptionerConfig, DecoderConfig
from vitreous.models.vit import ViT

OFFSET = 2  # rows in front of a learned table of BART's descendants
DECODER = "decoder.model.decoder."  # tied copies are stored outside of it
IGNORED = ("embed_positions._float_tensor",)  # a trace of computed positions in older files: no number


def load_trocr(folder: str | Path) -> Captioner:
    """The captioner of a TrOCR checkpoint's folder, in evaluation mode, with the encoder's preprocessing.

    Raises:
        InputError: a file is missing or damaged, or holds something else.
    """
    folder = Path(folder)
    where = folder / "config.json"
    told = read_json(where)
    with understood(where):
        if told.get("model_type") != "vision-encoder-decoder" or told["decoder"].get("model_type") != "trocr":
            raise InputError(f"{where} is not of a ViT with TrOCR's decoder: model_type says otherwise")
        decoder, encoder_told = decoder_config(told), told["encoder"]
    source = open_source(folder)
    encoder = built(huggingface.read(encoder_part(source, encoder_told), {}))
    assert isinstance(encoder, ViT)  # huggingface reads nothing else
    weights = {f"encoder.{name}": tensor for name, tensor in stored(encoder).items()}
    weights |= read_rows(
        decoder_rows(decoder), source.below(DECODER).tensors, where=str(folder), ignored=IGNORED
    )
    with torch.device("meta"):
        model = Captioner(
            CaptionerConfig(encoder=encoder.config, decoder=decoder),
            preprocessing=encoder.preprocessing,
        )
    model.encoder = encoder  # with its position tables, which are not on the meta device
    fill(model, weights, where=str(folder))
    return model.eval()


def encoder_part(source: Source, told: Mapping[str, Any]) -> Source:
    """The ViT alone; its pooler, which the decoder does not read, is left out."""
    kept = source.with_tensors(
        lambda name: None if name.startswith(("encoder.pooler.", "decoder.")) else name
    )
    return kept._replace(config=dict(told))


def decoder_config(told: Mapping[str, Any]) -> DecoderConfig:
    """Theirs as ours."""
    decoder = told["decoder"]
    return DecoderConfig(
        vocabulary=decoder["vocab_size"],
        width=decoder["d_model"],
        depth=decoder["decoder_layers"],
        heads=decoder["decoder_attention_heads"],
        mlp_dim=decoder["decoder_ffn_dim"],
        max_length=decoder["max_position_embeddings"],
        activation=activation(decoder["activation_function"]),
        position="learned" if decoder["use_learned_position_embeddings"] else "sinusoidal-fairseq",
        position_offset=OFFSET,
        scale_embedding=decoder["scale_embedding"],
        embedding_norm=decoder["layernorm_embedding"],
        dropout=decoder["dropout"],
        attention_dropout=decoder["attention_dropout"],
        mlp_dropout=decoder["activation_dropout"],
        pad=told.get("pad_token_id", decoder["pad_token_id"]),
        start=told.get("decoder_start_token_id", decoder["decoder_start_token_id"]),
        end=told.get("eos_token_id", decoder["eos_token_id"]),
    )


def decoder_rows(config: DecoderConfig) -> list[Row]:
    table = [same("text.tokens.weight", "embed_tokens.weight")]
    if config.position == "learned":
        table += [same("text.decoder.position.table", "embed_positions.weight")]
    if config.embedding_norm:
        table += pair("text.decoder.embedding_norm", "layernorm_embedding")
    for layer in range(config.depth):
        table += decoder_layer_rows(f"text.decoder.blocks.{layer}", f"layers.{layer}")
    return table
