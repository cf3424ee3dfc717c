"""How a model is written in the project's own format: see `vitreous.checkpoints.native`, which reads it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import nn

from vitreous.checkpoints.tensors import write_safetensors
from vitreous.checkpoints.weights import stored
from vitreous.errors import InputError
from vitreous.whole_files import whole


def save_native(model: nn.Module, folder: str | Path, *, beside: Mapping[str, str] | None = None) -> Path:
    """Write `model` into `folder`, which is made where it does not exist. All files are complete under other
    names before the first takes its own.

    Args:
        beside: names and texts of files that belong to the model.

    Raises:
        InputError: the model has not one label for each output; nothing is written then.
    """
    check_labels(model)
    folder, beside = Path(folder), beside or {}
    folder.mkdir(parents=True, exist_ok=True)
    described = description(model)
    described |= {Path(name).stem: fingerprint(text) for name, text in beside.items()}
    with ExitStack() as files:
        config = files.enter_context(whole(folder / "config.json"))
        for name, text in beside.items():
            files.enter_context(whole(folder / name)).write_text(text, encoding="utf-8")
        weights = files.enter_context(whole(folder / "model.safetensors"))
        write_safetensors(
            {name: tensor.contiguous().cpu() for name, tensor in stored(model).items()}, weights
        )
        write_json(described, config)
    return folder


def check_labels(model: Any) -> None:
    """Raise InputError where labels are not as many as the outputs that they name."""
    labels, outputs = getattr(model, "labels", None), getattr(model.config, "num_classes", None)
    if labels is not None and len(labels) != (outputs or 0):
        raise InputError(
            f"the model has {outputs or 0} outputs and {len(labels)} labels: set model.labels to one name "
            "for each output, or to None"
        )


def description(model: Any) -> dict[str, object]:
    """Return what `config.json` says."""
    described: dict[str, object] = {
        "format": "vitreous",
        "kind": type(model).__name__,
        "task": model.task,
        "model": model.config.model_dump(mode="json"),
    }
    if preprocessing := getattr(model, "preprocessing", None):
        described["preprocessing"] = preprocessing.model_dump(mode="json")
    if hasattr(model, "labels"):
        described["labels"] = model.labels
    if origin := getattr(model, "origin", None):
        described["origin"] = origin.model_dump(mode="json")
    if (temperature := getattr(model, "temperature", 1.0)) != 1:
        described["temperature"] = temperature
    return described


def fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(content: Mapping[str, object], path: Path) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
