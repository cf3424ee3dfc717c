"""Models that write text, from any place and format that is known: a run, Marian, TrOCR."""

from __future__ import annotations

from pathlib import Path

from vitreous.checkpoints.files import read_json
from vitreous.checkpoints.marian import load_marian
from vitreous.checkpoints.places import local_copy
from vitreous.checkpoints.sequences import SequenceModel, load_sequence_model
from vitreous.checkpoints.trocr import load_trocr


def load_text_model(source: str | Path) -> SequenceModel:
    """A Transformer or a Captioner, in evaluation mode.

        load_text_model("runs/numbers")                      # vitreous translate train
        load_text_model("hf:Helsinki-NLP/opus-mt-en-de")     # Marian
        load_text_model("hf:microsoft/trocr-base-handwritten")

    Tokens come in and go out as ids: the tokenisers of foreign formats are left to their own libraries.

    Args:
        source: a run directory or its `model/`, a folder of a foreign format, or `hf:org/name`.

    Raises:
        InputError: nothing there, a damaged file, or a model that writes no text.
    """
    path = local_copy(source)
    config = path / "config.json"
    kind = read_json(config).get("model_type") if config.is_file() else None
    if kind == "marian":
        return load_marian(path)
    if kind == "vision-encoder-decoder":
        return load_trocr(path)
    return load_sequence_model(path).model
