"""From a path, an address or a name on the hub to a model: open, detect the format, read, adapt."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from vitreous.checkpoints import bit, dinov2, frankzvit, google, huggingface, timm, torchvision, vit_pytorch
from vitreous.checkpoints.algebra import read_rows
from vitreous.checkpoints.building import empty_model, fill, stored
from vitreous.checkpoints.native import load_native, native_folder
from vitreous.checkpoints.places import local_copy
from vitreous.checkpoints.reading import Reading, Told
from vitreous.checkpoints.resizing import resize
from vitreous.checkpoints.runs import check_finished
from vitreous.checkpoints.source import Source, open_source
from vitreous.errors import InputError, nearest
from vitreous.models.captioner import Captioner
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model, build
from vitreous.models.segmenter import Segmenter
from vitreous.models.settings import check_names
from vitreous.models.transformer import Transformer

log = logging.getLogger(__name__)


class Reader(NamedTuple):
    """How a foreign format is recognized and read, and how its own code resizes positions."""

    recognizes: Callable[[Source], bool]
    read: Callable[[Source, Told], Reading]
    interpolation: str


# In the order of detection: DINOv2's keys are timm's and one more.
READERS = {
    "google": Reader(google.recognizes, google.read, google.INTERPOLATION),
    "bit": Reader(bit.recognizes, bit.read, bit.INTERPOLATION),
    "torchvision": Reader(torchvision.recognizes, torchvision.read, torchvision.INTERPOLATION),
    "vit-pytorch": Reader(vit_pytorch.recognizes, vit_pytorch.read, vit_pytorch.INTERPOLATION),
    "frankzvit": Reader(frankzvit.recognizes, frankzvit.read, frankzvit.INTERPOLATION),
    "huggingface": Reader(huggingface.recognizes, huggingface.read, huggingface.INTERPOLATION),
    "dinov2": Reader(dinov2.recognizes, dinov2.read, dinov2.INTERPOLATION),
    "timm": Reader(timm.recognizes, timm.read, timm.INTERPOLATION),
}
HEADED = ("classification", "multilabel", "regression")  # tasks whose head may be replaced
FORMATS = (*READERS, "vitreous")


def load(source: str | Path, *, format: str | None = None, **overrides: Any) -> Model:
    """A model of images from a checkpoint of any format, in evaluation mode.

        load("B_16.npz")
        load("vit.pth", format="torchvision", heads=4, image_size=(96, 64))
        load("hf:google/vit-base-patch16-224", num_classes=10)

    Args:
        source: a file, a folder, a run directory, an `https:` address, or `hf:org/name[@revision]`.
        format: one of `FORMATS`; None detects it from the content.
        overrides: fields of the configuration that the file cannot tell (heads), or that are to change:
            `image_size` and `patch_size` resample positions and patches, by the way of the source's own code
            unless `interpolation` names another; `num_classes` gives a new head of zeros, or none for None.

    Raises:
        InputError: nothing there, a damaged file, an unknown format, a question that must be answered,
            weights that are missing or left over (all are listed), or a run that was stopped.
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"unknown format {format!r}: {nearest(format, FORMATS)}")
    path = local_copy(source)
    interpolation = overrides.pop("interpolation", None)
    if (folder := native_folder(path)) and format in (None, "vitreous"):
        found = load_native(folder)
        if isinstance(found, Transformer | Captioner):
            raise InputError(
                f"{folder} holds a model that writes text: here, one that sees images alone is needed"
            )
        model = reconfigured(found, overrides)
        return adapted(model, overrides, interpolation or "timm")
    if format == "vitreous":
        raise InputError(f"{path} is no model folder of vitreous: it has no config.json that says so")
    check_finished(path)
    opened = open_source(path)
    name = format or detect(opened)
    check_overrides(overrides)
    model = built(READERS[name].read(opened, overrides))
    return adapted(model, overrides, interpolation or READERS[name].interpolation)


def detect(source: Source) -> str:
    """The format of an opened checkpoint, by the names of its weights."""
    for name, reader in READERS.items():
        if reader.recognizes(source):
            return name
    some = ", ".join(list(source.tensors)[:5])
    raise InputError(
        f"{source.where}: no known format has weights like {some}; the formats are {', '.join(FORMATS)}"
    )


def check_overrides(overrides: Told) -> None:
    if problem := check_names(overrides, ViTConfig):
        raise InputError(problem)


def built(reading: Reading) -> Model:
    """The model that a reading describes, filled with its weights."""
    where = reading.source.where
    model = empty_model(
        reading.config,
        preprocessing=reading.preprocessing,
        labels=checked_labels(reading),
        task=reading.task if reading.config.num_classes is not None else None,
    )
    weights = read_rows(reading.rows, reading.source.tensors, where=where, ignored=reading.ignored)
    fill(model, weights, where=where)
    if reading.assumed:
        log.warning("%s does not say, so it is assumed: %s", where, "; ".join(reading.assumed))
    return model


def checked_labels(reading: Reading) -> list[str] | None:
    """The labels, if there is one for each class."""
    labels = reading.labels
    return labels if labels is not None and len(labels) == reading.config.num_classes else None


def reconfigured(model: Model, overrides: Told) -> Model:
    """A native model with fields changed that touch no weight: dropout, drop_path, an activation."""
    changes = {k: v for k, v in overrides.items() if k not in ("image_size", "patch_size", "num_classes")}
    if not changes:
        return model
    config = build(type(model.config), model.config.model_dump(), changes)
    changed = empty_model(config, preprocessing=model.preprocessing, labels=model.labels, task=model.task)
    fill(changed, stored(model), where="with " + ", ".join(changes))
    return changed


def adapted(model: Model, overrides: Told, interpolation: Any) -> Model:
    """The model with the image size, patch size and head that the user asked for."""
    sizes = {k: overrides[k] for k in ("image_size", "patch_size") if overrides.get(k) is not None}
    if any(as_pair(size) != getattr(model.config, name, None) for name, size in sizes.items()):
        model = resize(model, **sizes, interpolation=interpolation)
    if "num_classes" in overrides and overrides["num_classes"] != model.config.num_classes:
        model = with_head(model, overrides["num_classes"])
    return model


def as_pair(size: Any) -> Any:
    return (size, size) if isinstance(size, int) else tuple(size)


def with_head(model: Model, num_classes: int | None) -> Model:
    """The same body under a new head of zeros for `num_classes` classes, as the paper fine-tunes (section
    3.2); None for no head."""
    if isinstance(model, Segmenter):
        raise InputError("a segmenter's classes cannot be changed: train it anew with --init, on other masks")
    config = build(type(model.config), model.config.model_dump(), {"num_classes": num_classes})
    task = None if num_classes is None else model.task if model.task in HEADED else "classification"
    changed = empty_model(config, preprocessing=model.preprocessing, task=task)
    weights = {name: weight for name, weight in stored(model).items() if not name.startswith("head.")}
    for name, weight in stored(changed).items():
        if name.startswith("head."):
            weights[name] = torch.zeros(weight.shape)
    fill(changed, weights, where="with_head")
    if num_classes is not None:
        log.warning("a new head of zeros for %d classes instead of %s", num_classes, model.config.num_classes)
    return changed.train(model.training)
