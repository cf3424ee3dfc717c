"""The project's own format: a folder with `model.safetensors` (the weights under the model's own names) and
`config.json` (kind, task, model, preprocessing, labels), enough to build the model again. Other files may
belong to a model, such as a vocabulary: they are there, too, and `config.json` has the fingerprint of
each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import nn

from vitreous.checkpoints.files import model_folder, read_checkpoint, read_json
from vitreous.checkpoints.format import AFTERWARDS, Format, Spec, check_no_overrides
from vitreous.checkpoints.runs import run_folder
from vitreous.checkpoints.source import CONFIG, File, Source
from vitreous.checkpoints.tensors import write_safetensors
from vitreous.checkpoints.weights import same, stored_weights
from vitreous.errors import InputError
from vitreous.extensions import imported, kinds
from vitreous.models.bit import BiTConfig
from vitreous.models.config import Origin, ViTConfig
from vitreous.models.config_parts import Config
from vitreous.models.ensemble import EnsembleConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.settings import explain
from vitreous.whole_files import whole

CONFIGS: dict[str, type[Config]] = {"ViT": ViTConfig, "BiT": BiTConfig, "Ensemble": EnsembleConfig}


def open_state(path: Path) -> File:
    """Open the model in a checkpoint of a run, RUN/checkpoints/step-N.shards: with the averaged weights where
    there are some. Raises InputError: the run has no model yet, whose description this one shares."""
    described = run_folder(path) / "model" / "config.json"
    if not described.is_file():
        raise InputError(f"{path} is a checkpoint of a run, which has no {described} yet to describe it")
    file = read_checkpoint(path)
    averaged = any(name.startswith("average/") for name in file.tensors)
    prefix = "average/" if averaged else "model/"
    named = file.source().renamed(lambda name: name.removeprefix(prefix) if name.startswith(prefix) else None)
    # The temperature is a part of the head's weights, and not of these.
    stated = {name: value for name, value in read_json(described).items() if name != "temperature"}
    return File(file.where, {"": named.tensors}, {CONFIG: stated})


def read_native(source: Source) -> Spec:
    """Read what `save_native` wrote. Overrides that touch no weight, such as dropout, are applied."""
    where = f"{source.where}: config.json"
    described = source.facts.whole
    name = str(described.get("kind"))
    kind = kinds().get(name)
    known: type[Config] | None = imported(kind.config) if kind else CONFIGS.get(name)
    if described.get("format") != "vitreous" or known is None:
        raise InputError(
            f"{source.where} is not a model folder of vitreous: it has no config.json that says so"
        )
    if kind and not kind.overridable:
        check_no_overrides(source)
    try:
        config = known.model_validate(described.get("model"))
        images = described.get("preprocessing")
        preprocessing = None if kind and not kind.sees else Preprocessing.model_validate(images)
        origin = Origin.model_validate(described["origin"]) if described.get("origin") else None
    except ValidationError as error:
        raise InputError(f"{where}: {explain(error, 'model', known)}") from None
    labels = described.get("labels")
    if labels is not None and not (
        isinstance(labels, list) and all(isinstance(each, str) for each in labels)
    ):
        raise InputError(f"{where}: labels must be a list of names")
    if changes := {name: value for name, value in source.answers.items() if name not in AFTERWARDS}:
        config = known.checked(config.model_dump(), changes)
    task = described.get("task")
    if task is not None and not isinstance(task, str):
        raise InputError(f"{where}: task must be a name such as classification, or null")
    rows = [same(name, name) for name in source.tensors]
    temperature = described.get("temperature", 1.0)
    if not isinstance(temperature, int | float) or not temperature > 0:
        raise InputError(f"{where}: temperature must be a number above 0, not {temperature!r}")
    return Spec(
        source, config, rows, preprocessing, labels, task=task, origin=origin, temperature=temperature
    )


def save_native(model: nn.Module, folder: str | Path, *, files: Mapping[str, str] | None = None) -> Path:
    """Write `model` into `folder`, which is made where it does not exist. All files are complete under other
    names before the first takes its own.

    Args:
        files: names and texts of files that belong to the model.

    Raises:
        InputError: the model has not one label for each output; nothing is written then.
    """
    check_labels(model)
    folder, files = Path(folder), files or {}
    folder.mkdir(parents=True, exist_ok=True)
    described = description(model)
    described |= {Path(name).stem: text_hash(text) for name, text in files.items()}
    with ExitStack() as opened:
        config = opened.enter_context(whole(folder / "config.json"))
        for name, text in files.items():
            opened.enter_context(whole(folder / name)).write_text(text, encoding="utf-8")
        weights = opened.enter_context(whole(folder / "model.safetensors"))
        write_safetensors(
            {name: tensor.contiguous().cpu() for name, tensor in stored_weights(model).items()}, weights
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


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(content: Mapping[str, object], path: Path) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def is_native(path: str | Path) -> bool:
    """Return whether a run directory or a folder holds a model of the native format."""
    described = model_folder(Path(path)) / "config.json"
    return described.is_file() and read_json(described).get("format") == "vitreous"


VITREOUS = Format(
    name="vitreous",
    about="vitreous's own format: a folder with weights, configuration, task, preprocessing and labels",
    read=read_native,
    write=save_native,
    entries=(("format", "vitreous"),),
    overridable=None,
)
