"""Hugging Face's models that write text: Marian translators (MarianMTModel: Helsinki-NLP/opus-mt-*), and
VisionEncoderDecoderModel of a ViT and TrOCR's decoder (microsoft/trocr-*).

Theirs: q, k and v apart, positions computed, tied embeddings stored once. Ours: one packed matrix for the
self-attention, one for keys and values of the cross-attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from vitreous.addons.text.config import CaptionerConfig, DecoderConfig, TransformerConfig
from vitreous.checkpoints.files import read_json
from vitreous.checkpoints.format import Format, Spec, activation_of, check_no_overrides
from vitreous.checkpoints.formats.huggingface import read_huggingface
from vitreous.checkpoints.formats.huggingface_configs import transformers_facts
from vitreous.checkpoints.source import CONFIG, Documents, Facts, Source
from vitreous.checkpoints.training_facts import plain_facts
from vitreous.checkpoints.weights import WeightRow, converted, packed_rows, pairs, same
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.settings import explain

OFFSET = 2  # rows before a learned table of BART's descendants
DECODER = "decoder.model.decoder."  # tied copies are stored outside of it


def read_marian(source: Source) -> Spec:
    check_no_overrides(source)
    where = f"{source.where}/config.json"
    if source.facts.whole.get("model_type") != "marian":
        raise InputError(f"{where} does not describe a Marian model: its model_type is a different one")
    # what it says about decoding is in a file of its own
    path = Path(source.where) / "generation_config.json"
    with refusing_unknown_description(where):
        config = marian_config(source, read_json(path) if path.is_file() else {})
    tables = ("embed_positions.weight", "embed_tokens.weight")
    ignored = [name for name in source.tensors if name.endswith(tables)]
    return Spec(source, config, marian_rows(config), ignored=(*ignored, "lm_head.weight"))


@contextmanager
def refusing_unknown_description(path: str) -> Iterator[None]:
    """Raise InputError where what is read within this context is not in the description at `path`, or is of a
    model that cannot be."""
    try:
        yield
    except KeyError as missing:
        raise InputError(
            f"{path} lacks {missing}: it is damaged, or describes another kind of model"
        ) from None
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error, 'model')}") from None


def decoder_fields(source: Source, decoder: Mapping[str, object]) -> dict[str, object]:
    """Return what the decoders of BART's descendants have in common: theirs as ours."""
    return {
        "width": decoder["d_model"],
        "depth": decoder["decoder_layers"],
        "heads": decoder["decoder_attention_heads"],
        "mlp_dim": decoder["decoder_ffn_dim"],
        "max_length": decoder["max_position_embeddings"],
        "activation": activation_of(source, "activation_function", decoder["activation_function"]),
        "scale_embedding": decoder["scale_embedding"],
        "dropout": decoder["dropout"],
        "attention_dropout": decoder["attention_dropout"],
        "mlp_dropout": decoder["activation_dropout"],
    }


def marian_config(source: Source, decoding: Mapping[str, Any]) -> TransformerConfig:
    described: Mapping[str, Any] = source.facts.whole
    decoding = decoding or described  # where older files have it
    sizes: dict[str, Any] = {}  # of the encoder, where they are not those of the decoder
    for ours, theirs in (("encoder_heads", "attention_heads"), ("encoder_mlp_dim", "ffn_dim")):
        if described[f"encoder_{theirs}"] != described[f"decoder_{theirs}"]:
            sizes[ours] = described[f"encoder_{theirs}"]
    shared = described.get("share_encoder_decoder_embeddings", True)
    return TransformerConfig(
        vocabulary=described.get("decoder_vocab_size") or described["vocab_size"],
        source_vocabulary=None if shared else described["vocab_size"],
        encoder_depth=described["encoder_layers"],
        **sizes,
        position="sinusoidal-halves",
        logits_bias=True,
        pad=described["pad_token_id"],
        start=described["decoder_start_token_id"],
        end=described["eos_token_id"],
        never=tuple(words[0] for words in decoding.get("bad_words_ids") or () if len(words) == 1),
        end_at_limit=described.get("forced_eos_token_id") is not None,
        **decoder_fields(source, described),
    )


def marian_rows(config: TransformerConfig) -> list[WeightRow]:
    tokens = {"text.tokens.weight": "model.shared.weight"}
    if config.source_vocabulary is not None:
        tokens = {
            "source_tokens.weight": "model.encoder.embed_tokens.weight",
            "text.tokens.weight": "model.decoder.embed_tokens.weight",
        }
    return [
        converted("text.bias", "final_logits_bias", Tensor.flatten, lambda bias: bias[None]),
        *(same(ours, theirs) for ours, theirs in tokens.items()),
        *layer_rows("encoder.blocks.{}.", "model.encoder.layers.{}."),
        *layer_rows("text.decoder.blocks.{}.", "model.decoder.layers.{}."),
    ]


LAYER_NAMES = {
    "attention.out": "self_attn.out_proj",
    "attention_norm": "self_attn_layer_norm",
    "mlp.expand": "fc1",
    "mlp.contract": "fc2",
    "mlp_norm": "final_layer_norm",
    "cross_attention.query": "encoder_attn.q_proj",
    "cross_attention.out": "encoder_attn.out_proj",
    "cross_norm": "encoder_attn_layer_norm",
}


def layer_rows(ours: str, theirs: str) -> list[WeightRow]:
    """Return the layers of an encoder or a decoder, of BART's descendants."""
    return [
        *pairs(LAYER_NAMES, ours, theirs),
        *packed_rows(f"{ours}attention.qkv", [f"{theirs}self_attn.{each}_proj" for each in "qkv"]),
        *packed_rows(
            f"{ours}cross_attention.key_value", [f"{theirs}encoder_attn.{each}_proj" for each in "kv"]
        ),
    ]


def trocr_facts(documents: Documents, source: Source) -> Facts:
    """Return what is said of the encoder, and the whole description beside it."""
    plain = plain_facts(documents, source)
    inner = documents.get(CONFIG, {}).get("encoder")
    if not isinstance(inner, dict):
        return plain
    return replace(transformers_facts({**documents, CONFIG: inner}, source), whole=plain.whole)


def read_trocr(source: Source) -> Spec:
    check_no_overrides(source)
    where, described = f"{source.where}/config.json", source.facts.whole
    with refusing_unknown_description(where):
        theirs: Mapping[str, Any] = described.part("decoder")
        if described.get("model_type") != "vision-encoder-decoder" or theirs.get("model_type") != "trocr":
            raise InputError(
                f"{where} is not of a ViT with TrOCR's decoder: model_type says otherwise; pass "
                "format='huggingface' for the encoder alone"
            )
        decoder = DecoderConfig(
            vocabulary=theirs["vocab_size"],
            position="learned" if theirs["use_learned_position_embeddings"] else "sinusoidal-fairseq",
            position_offset=OFFSET,
            embedding_norm=theirs["layernorm_embedding"],
            pad=described.get("pad_token_id", theirs["pad_token_id"]),
            start=described.get("decoder_start_token_id", theirs["decoder_start_token_id"]),
            end=described.get("eos_token_id", theirs["eos_token_id"]),
            **decoder_fields(source, theirs),
        )
        encoder_config = described.part("encoder")
        if not encoder_config:
            raise KeyError("encoder")
    # the pooler is not read by the decoder
    images = source.renamed(
        lambda name: (
            name.removeprefix("encoder.")
            if name.startswith("encoder.") and not name.startswith("encoder.pooler.")
            else None
        )
    )
    encoder = read_huggingface(images)
    assert isinstance(encoder.config, ViTConfig)  # huggingface reads nothing else
    text = source.renamed(lambda name: name if name.startswith(DECODER) else None)
    tensors = encoder.source.tensors | text.tensors
    rows = [row._replace(ours=tuple(f"encoder.{name}" for name in row.ours)) for row in encoder.rows]
    return encoder._replace(
        source=replace(source, tensors=tensors),
        config=CaptionerConfig(encoder=encoder.config, decoder=decoder),
        rows=rows + TROCR_DECODER_ROWS,
        # a trace of computed positions in older files
        ignored=(*encoder.ignored, f"{DECODER}embed_positions._float_tensor"),
        task="captioning",
    )


TROCR_DECODER_ROWS = [
    same("text.tokens.weight", f"{DECODER}embed_tokens.weight"),
    same("text.decoder.position.table", f"{DECODER}embed_positions.weight"),
    *pairs({"text.decoder.embedding_norm": f"{DECODER}layernorm_embedding"}),
    *layer_rows("text.decoder.blocks.{}.", f"{DECODER}layers.{{}}."),
]


MARIAN = Format(
    name="marian",
    about="transformers' MarianMTModel: translation models, such as Helsinki-NLP/opus-mt-*",
    entries=(("model_type", "marian"),),
    overridable=None,
    read=read_marian,
)
TROCR = Format(
    name="trocr",
    about="transformers' VisionEncoderDecoderModel with a ViT and TrOCR's decoder, such as microsoft/trocr-*",
    keys=(r"decoder\.model\.decoder\.layers\.0\.encoder_attn\.k_proj\.weight", r"encoder\..+"),
    overridable=None,
    gather=trocr_facts,
    read=read_trocr,
)
