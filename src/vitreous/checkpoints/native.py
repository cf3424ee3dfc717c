"""The project's own format: a folder with `model.safetensors` (the weights under the model's own names) and
`config.json` (kind, task, model, preprocessing, labels), enough to build the model again. A model that writes
text has its `tokenizer.json` there, too, and `config.json` the fingerprint of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel, ValidationError

from vitreous.checkpoints.building import empty_model, fill, stored
from vitreous.checkpoints.files import read_json, read_safetensors
from vitreous.checkpoints.runs import read_tree
from vitreous.checkpoints.tensor_files import write_safetensors
from vitreous.checkpoints.whole_files import whole
from vitreous.errors import InputError
from vitreous.models.bit import BiTConfig
from vitreous.models.captioner import Captioner
from vitreous.models.config import ViTConfig
from vitreous.models.legacy import current_weights, with_current_names
from vitreous.models.names import Model
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.segmenter import SegmenterConfig
from vitreous.models.sequence_config import CaptionerConfig, TransformerConfig
from vitreous.models.settings import explain
from vitreous.models.transformer import Transformer

SequenceModel = Transformer | Captioner
AnyModel = Model | SequenceModel


class Kind(NamedTuple):
    """A class of models: its configuration, and what its files hold beside the weights."""

    config: type[BaseModel]
    images: bool = True  # has preprocessing
    text: bool = False  # has a tokenizer


KINDS = {
    "ViT": Kind(ViTConfig),
    "BiT": Kind(BiTConfig),
    "Segmenter": Kind(SegmenterConfig),
    "Captioner": Kind(CaptionerConfig, text=True),
    "Transformer": Kind(TransformerConfig, images=False, text=True),
}
# Of a folder written by version 0.1, which did not store the task.
TASKS = {"Segmenter": "segmentation", "Captioner": "captioning", "Transformer": "translation"}


def save_native(model: AnyModel, folder: str | Path, *, tokenizer: str | None = None) -> Path:
    """Write `model` into `folder`, which is made where it does not exist. All files are complete under other
    names before the first takes its own.

    Args:
        tokenizer: of a model that writes text, in the format of the tokenizers library.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    described = description(model)
    if tokenizer is not None:
        described["tokenizer"] = fingerprint(tokenizer)
    with ExitStack() as files:
        config = files.enter_context(whole(folder / "config.json"))
        if tokenizer is not None:
            words = files.enter_context(whole(folder / "tokenizer.json"))
            words.write_text(tokenizer, encoding="utf-8")
        weights = files.enter_context(whole(folder / "model.safetensors"))
        write_safetensors(
            {name: tensor.contiguous().cpu() for name, tensor in stored(model).items()}, weights
        )
        config.write_text(json.dumps(described, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return folder


def description(model: AnyModel) -> dict[str, Any]:
    """What `config.json` says."""
    described: dict[str, Any] = {
        "format": "vitreous",
        "kind": type(model).__name__,
        "task": model.task,
        "model": model.config.model_dump(mode="json"),
    }
    if not isinstance(model, Transformer):
        described["preprocessing"] = model.preprocessing.model_dump(mode="json")
    if not isinstance(model, Transformer | Captioner):
        described["labels"] = model.labels
    return described


def fingerprint(tokenizer: str) -> str:
    return hashlib.sha256(tokenizer.encode()).hexdigest()


def native_folder(path: Path) -> Path | None:
    """The folder of a native model: `path`, the `model` folder of a run, or that of the file at `path`."""
    for folder in (path, path / "model", path.parent if path.name == "model.safetensors" else path):
        config = folder / "config.json"
        if config.is_file() and read_json(config).get("format") == "vitreous":
            return folder
    return None


def load_native(folder: str | Path) -> AnyModel:
    """Read the model that `save_native` wrote, in evaluation mode. A run directory loads by its `model/`.

    Raises:
        InputError: a file is missing or damaged, or the weights are not those of the configuration.
    """
    folder = native_folder(Path(folder)) or Path(folder)
    where = folder / "config.json"
    described = with_current_names(read_json(where))
    kind = KINDS.get(str(described.get("kind")))
    if described.get("format") != "vitreous" or kind is None:
        raise InputError(f"{where} is not the description of a vitreous model: it lacks format and kind")
    try:
        config = kind.config.model_validate(described.get("model"))
        preprocessing = Preprocessing.model_validate(described.get("preprocessing")) if kind.images else None
    except ValidationError as error:
        raise InputError(f"{where}: {explain(error, 'model')}") from None
    labels = described.get("labels")
    if labels is not None and not (
        isinstance(labels, list) and all(isinstance(each, str) for each in labels)
    ):
        raise InputError(f"{where}: labels must be a list of names")
    model: AnyModel
    if isinstance(config, TransformerConfig | CaptionerConfig):
        with torch.device("meta"):
            model = (
                Transformer(config)
                if isinstance(config, TransformerConfig)
                else Captioner(config, preprocessing=preprocessing)
            ).eval()
    else:
        assert isinstance(config, ViTConfig | BiTConfig)  # as in KINDS
        task = stored_task(folder, described)
        model = empty_model(config, preprocessing=preprocessing, labels=labels, task=task)
    weights = dict(read_safetensors(folder / "model.safetensors").items())
    fill(model, current_weights(weights, stored(model)), where=str(folder))
    return model


def stored_task(folder: Path, described: Mapping[str, Any]) -> str | None:
    """The task in a model's description. One by version 0.1 has none: then what the run around it was trained
    for, or what the kind of model and its head can only mean.

    Raises:
        InputError: the task is not a name.
    """
    if "task" in described:
        task = described["task"]
        if task is not None and not isinstance(task, str):
            raise InputError(f"{folder / 'config.json'}: task must be a name such as classification, or null")
        return task
    tree: dict[str, Any] = {}
    if folder.name == "model" and (folder.parent / "config.toml").is_file():
        tree = read_tree(folder.parent)
    if "pretraining" in tree:
        return str(tree["pretraining"].get("objective", "mae"))
    if tree.get("training", {}).get("loss") == "sigmoid":
        return "multilabel"
    headed = described["model"].get("num_classes") is not None
    return TASKS.get(described["kind"], "classification" if headed else None)


def read_tokenizer(folder: str | Path) -> str:
    """Read the tokenizer of a native model that writes text, in the format of the tokenizers library.

    Raises:
        InputError: it is missing or damaged, or not the one that the model was trained with.
    """
    folder = native_folder(Path(folder)) or Path(folder)
    path = folder / "tokenizer.json"
    try:
        tokenizer = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cannot read the tokenizer {path}: {error.strerror}; it belongs to the model: put it back"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"the tokenizer {path} is damaged: it is not UTF-8 text") from None
    described = with_current_names(read_json(folder / "config.json"))
    if fingerprint(tokenizer) != described.get("tokenizer"):
        raise InputError(
            f"{path} is not the tokenizer that this model was trained with, so its tokens would mean other "
            "words: put the original tokenizer.json back"
        )
    return tokenizer
