"""The project's own format: a folder with `model.safetensors` (the weights under the model's own names) and
`config.json` (model, preprocessing, labels), enough to build the model again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vitreous.checkpoints.building import empty_model, fill, stored
from vitreous.checkpoints.files import read_json, read_safetensors
from vitreous.checkpoints.tensor_files import write_safetensors
from vitreous.checkpoints.whole_files import whole
from vitreous.errors import InputError
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.legacy import with_current_names
from vitreous.models.names import Model
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.segmenter import SegmenterConfig
from vitreous.models.settings import explain

KINDS: dict[str, type[ViTConfig] | type[BiTConfig]] = {
    "ViT": ViTConfig,
    "BiT": BiTConfig,
    "Segmenter": SegmenterConfig,
}


def save_native(model: Model, folder: str | Path) -> Path:
    """Write `model` into `folder`, which is made where it does not exist. Both files are complete under
    other names before either takes its own."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights, config = folder / "model.safetensors", folder / "config.json"
    with whole(config) as new_config, whole(weights) as new_weights:
        tensors = {name: tensor.contiguous().cpu() for name, tensor in stored(model).items()}
        write_safetensors(tensors, new_weights)
        new_config.write_text(json.dumps(description(model), indent=2, ensure_ascii=False) + "\n", "utf-8")
    return folder


def description(model: Model) -> dict[str, Any]:
    """What `config.json` says."""
    return {
        "format": "vitreous",
        "kind": type(model).__name__,
        "model": model.config.model_dump(mode="json"),
        "preprocessing": model.preprocessing.model_dump(mode="json"),
        "labels": model.labels,
    }


def load_native(folder: str | Path) -> Model:
    """The model that `save_native` wrote, in evaluation mode.

    Raises:
        InputError: a file is missing or damaged, or the weights are not those of the configuration.
    """
    folder = Path(folder)
    where = folder / "config.json"
    told = with_current_names(read_json(where))
    if told.get("kind") in ("Transformer", "Captioner"):
        raise InputError(
            f"{folder} holds a model that writes text: here, one that sees images alone is needed"
        )
    if told.get("format") != "vitreous" or told.get("kind") not in KINDS:
        raise InputError(f"{where} is no description of a vitreous model: it lacks format and kind")
    try:
        config = KINDS[told["kind"]].model_validate(told.get("model"))
        preprocessing = Preprocessing.model_validate(told.get("preprocessing"))
    except ValidationError as error:
        raise InputError(f"{where}: {explain(error, 'model')}") from None
    labels = told.get("labels")
    if labels is not None and not (
        isinstance(labels, list) and all(isinstance(each, str) for each in labels)
    ):
        raise InputError(f"{where}: labels must be a list of names")
    tensors = read_safetensors(folder / "model.safetensors")
    model = empty_model(config, preprocessing=preprocessing, labels=labels)
    fill(model, dict(tensors.items()), where=str(folder))
    return model
