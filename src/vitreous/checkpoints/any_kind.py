"""`vitreous.load`: a model of any kind, from any place and format that is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from vitreous.checkpoints import loading
from vitreous.checkpoints.files import read_json
from vitreous.checkpoints.marian import load_marian
from vitreous.checkpoints.native import SequenceModel, load_native
from vitreous.checkpoints.places import local_copy
from vitreous.checkpoints.trocr import load_trocr
from vitreous.errors import InputError

# By what config.json says of itself: `kind` in our own format, `model_type` in that of Hugging Face.
WRITERS: Mapping[str, Callable[[Path], SequenceModel]] = {
    "Transformer": load_native,  # type: ignore[dict-item]
    "Captioner": load_native,  # type: ignore[dict-item]
    "marian": load_marian,
    "vision-encoder-decoder": load_trocr,
}


def load(source: str | Path, *, format: str | None = None, **overrides: Any) -> Any:
    """A model from a checkpoint of any format, in evaluation mode: a `ViT`, a `BiT` or a `Segmenter`, or what
    writes text, a `Transformer` or a `Captioner`.

        load("B_16.npz")
        load("vit.pth", format="torchvision", heads=4, image_size=(96, 64))
        load("hf:google/vit-base-patch16-224", num_classes=10)
        load("runs/numbers")                      # vitreous translate train, or any other run
        load("hf:Helsinki-NLP/opus-mt-en-de")     # Marian
        load("hf:microsoft/trocr-base-handwritten")

    What writes text takes token ids and gives logits of token ids. A run's own tokenizer comes with
    `vitreous.Translator` and `vitreous.Reader`, those of foreign formats with their own libraries.

    Args:
        source: a file, a folder, a run directory, an `https:` address, or `hf:org/name[@revision]`.
        format: one of `checkpoints.loading.FORMATS`; None detects it from the content.
        overrides: as in `checkpoints.load`; models that write text have none.

    Raises:
        InputError: nothing there, a damaged file, an unknown format, a question that must be answered,
            weights that are missing or left over (all are listed), or a run that was stopped.
    """
    path = local_copy(source)
    writer = find_writer(path)
    if writer is None:
        return loading.load(path, format=format, **overrides)
    if format not in (None, "vitreous") or overrides:
        given = ", ".join([*overrides, *(["format"] if format else [])])
        raise InputError(f"{source} writes text, and its kind of model is loaded as it is: leave out {given}")
    return writer()


def find_writer(path: Path) -> Callable[[], SequenceModel] | None:
    """What loads the model that writes text at `path`: a folder, a run, or the weights in it; None where
    there is something else."""
    for folder in (path.parent if path.name == "model.safetensors" else path, path / "model"):
        if (folder / "config.json").is_file():
            told = read_json(folder / "config.json")
            kind = str(told.get("kind", told.get("model_type")))
            return partial(WRITERS[kind], folder) if kind in WRITERS else None
    return None
