"""The project's own format for models that write text: a folder with `model.safetensors`, `config.json` and
`tokenizer.json`, which belong together and say so."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import ValidationError

from vitreous.checkpoints.building import compute_positions, fill, stored
from vitreous.checkpoints.files import read_json, read_safetensors
from vitreous.checkpoints.tensor_files import write_safetensors
from vitreous.checkpoints.whole_files import whole
from vitreous.errors import InputError
from vitreous.models.captioner import Captioner
from vitreous.models.legacy import with_current_names
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.sequence_config import CaptionerConfig, TransformerConfig
from vitreous.models.settings import explain
from vitreous.models.transformer import Transformer

SequenceModel = Transformer | Captioner


class Saved(NamedTuple):
    """A model and the tokenizer that it was trained with, in the tokenizers library's format."""

    model: SequenceModel
    tokenizer: str


def save_sequence_model(model: SequenceModel, folder: str | Path, *, tokenizer: str) -> Path:
    """Write the model and its tokenizer into `folder`, which is made where it does not exist. All files are
    complete beside their places before the first takes its name."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        whole(folder / "config.json") as config,
        whole(folder / "tokenizer.json") as words,
        whole(folder / "model.safetensors") as weights,
    ):
        tensors = {name: tensor.contiguous().cpu() for name, tensor in stored(model).items()}
        write_safetensors(tensors, weights)
        words.write_text(tokenizer, encoding="utf-8")
        told = json.dumps(description(model, tokenizer), indent=2, ensure_ascii=False)
        config.write_text(told + "\n", encoding="utf-8")
    return folder


def description(model: SequenceModel, tokenizer: str) -> dict[str, Any]:
    """What `config.json` says."""
    told = {
        "format": "vitreous",
        "kind": type(model).__name__,
        "model": model.config.model_dump(mode="json"),
        "tokenizer": fingerprint(tokenizer),
    }
    if isinstance(model, Captioner):
        told["preprocessing"] = model.preprocessing.model_dump(mode="json")
    return told


def fingerprint(tokenizer: str) -> str:
    return hashlib.sha256(tokenizer.encode()).hexdigest()


def load_sequence_model(folder: str | Path) -> Saved:
    """What `save_sequence_model` wrote, the model in evaluation mode. A run directory loads by its `model/`.

    Raises:
        InputError: a file is missing or damaged, the weights are not those of the configuration, or the
            tokenizer is not the one that the model was trained with.
    """
    folder = Path(folder)
    if (folder / "model" / "config.json").is_file():
        folder = folder / "model"
    where = folder / "config.json"
    told = with_current_names(read_json(where))
    if told.get("format") != "vitreous" or told.get("kind") not in ("Transformer", "Captioner"):
        raise InputError(f"{where} describes no model that writes text: it was made by another command")
    tokenizer = read_tokenizer(folder / "tokenizer.json", told)
    model = empty_sequence_model(told, where)
    fill(model, dict(read_safetensors(folder / "model.safetensors")), where=str(folder))
    return Saved(model.eval(), tokenizer)


def read_tokenizer(path: Path, told: dict[str, Any]) -> str:
    """The tokenizer's file, if it is the one that the description names."""
    try:
        tokenizer = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot read the tokenizer {path}: {error.strerror}; it belongs to the model: put it back"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"the tokenizer {path} is damaged: it is no UTF-8 text") from None
    if fingerprint(tokenizer) != told.get("tokenizer"):
        raise InputError(
            f"{path} is not the tokenizer that this model was trained with, so its tokens would mean other "
            "words: put the original tokenizer.json back"
        )
    return tokenizer


def empty_sequence_model(told: dict[str, Any], where: Path) -> SequenceModel:
    """The model of a description, its weights on the meta device."""
    try:
        if told["kind"] == "Transformer":
            config = TransformerConfig.model_validate(told.get("model"))
            with torch.device("meta"):
                return Transformer(config)
        captioner = CaptionerConfig.model_validate(told.get("model"))
        preprocessing = Preprocessing.model_validate(told.get("preprocessing"))
    except ValidationError as error:
        raise InputError(f"{where}: {explain(error, 'model')}") from None
    with torch.device("meta"):
        model = Captioner(captioner, preprocessing=preprocessing)
    compute_positions(model.encoder)
    return model
