"""From a path, an address, a name on the hub, a state dict or a live module to a model: open, detect the
format, read, adapt."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import torch
from torch import nn

from vitreous.checkpoints.files import Source, model_folder, open_source
from vitreous.checkpoints.format import Format, Overrides, Reading, as_pair
from vitreous.checkpoints.formats import FORMATS
from vitreous.checkpoints.torch_files import unwrapped
from vitreous.checkpoints.weights import load_weights, of_model, read_rows, stored
from vitreous.errors import InputError, nearest
from vitreous.models.bit import BiT
from vitreous.models.names import Model
from vitreous.models.settings import check_names
from vitreous.models.transformer import Captioner, EncoderDecoder, Transformer
from vitreous.models.vit import ViT

Checkpoint = str | Path | Mapping[str, Any] | nn.Module  # a state dict may be wrapped: {"state_dict": ...}
Device = str | torch.device | None
Dtype = torch.dtype | None
ImageFormat = Literal["timm", "huggingface", "torchvision", "vit-pytorch", "frankzvit", "dinov2"]
Kind = TypeVar("Kind", bound=nn.Module)
log = logging.getLogger(__name__)


@overload
def load(
    source: Checkpoint,
    *,
    format: None = None,
    kind: type[Kind],
    device: Device = ...,
    dtype: Dtype = ...,
    **overrides: Any,
) -> Kind: ...
@overload
def load(
    source: Checkpoint, *, format: Literal["bit"], device: Device = ..., dtype: Dtype = ..., **overrides: Any
) -> BiT: ...
@overload
def load(
    source: Checkpoint, *, format: ImageFormat, device: Device = ..., dtype: Dtype = ..., **overrides: Any
) -> ViT: ...
@overload
def load(
    source: Checkpoint,
    *,
    format: Literal["marian"],
    device: Device = ...,
    dtype: Dtype = ...,
    **overrides: Any,
) -> Transformer: ...
@overload
def load(
    source: Checkpoint,
    *,
    format: Literal["trocr"],
    device: Device = ...,
    dtype: Dtype = ...,
    **overrides: Any,
) -> Captioner: ...
@overload
def load(
    source: Checkpoint,
    *,
    format: Literal["torch-transformer"],
    device: Device = ...,
    dtype: Dtype = ...,
    **overrides: Any,
) -> EncoderDecoder: ...
@overload
def load(
    source: Checkpoint,
    *,
    format: str | None = None,
    device: Device = ...,
    dtype: Dtype = ...,
    **overrides: Any,
) -> Model: ...
def load(
    source: Checkpoint,
    *,
    format: str | None = None,
    kind: type[nn.Module] | None = None,
    device: Device = None,
    dtype: Dtype = None,
    **overrides: Any,
) -> Any:
    """Load a model from a checkpoint of any format, in evaluation mode: a `ViT`, a `BiT` or a `Segmenter`, or
    a model that writes text, a `Transformer` or a `Captioner`.

        load("B_16.npz")
        load("vit.pth", format="torchvision", heads=4, image_size=(96, 64))
        load("hf:google/vit-base-patch16-224", num_classes=10, device="cuda", dtype=torch.bfloat16)
        load(timm.create_model("vit_tiny_patch16_224"))    # or a state dict
        load("runs/numbers", kind=vt.Captioner)            # the kind is checked, and type checkers know it

    A model that writes text takes token ids and gives logits of token ids. A run's own tokenizer comes with
    `vitreous.Translator` and `vitreous.Reader`, those of foreign formats with their own libraries.

    Args:
        source: a file, a folder, a run directory, an `https:` address, `hf:org/name[@revision]`, a state
            dict, or a module of timm, transformers, torchvision, vit-pytorch or `torch.nn.Transformer`, whose
            outputs are then compared.
        format: one of `vitreous.list_formats()`; None detects it from the content.
        kind: the class that the model must have.
        device, dtype: of the weights; by default in memory (or where the state dict is) and float32.
        overrides: fields of the configuration that the file cannot tell (heads), or that are to change:
            `image_size` and `patch_size` resample positions and patches, by the way of the source's own code
            unless `interpolation` names another; `num_classes` gives a new head of zeros, or none for None.

    Raises:
        InputError: nothing there, a damaged file, an unknown format, a question that must be answered,
            weights that are missing or left over (all are listed), a run that was stopped, or a model of
            another kind.
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"unknown format {format!r}: {nearest(format, list(FORMATS))}")
    if interpolation := overrides.pop("interpolation", None):
        from vitreous.checkpoints.resizing import check_interpolation

        check_interpolation(interpolation)
    answers: Overrides = overrides
    if isinstance(source, nn.Module):
        from vitreous.checkpoints.live import open_module

        opened, facts = open_module(source)
        answers = {**facts, **overrides}
    elif isinstance(source, Mapping):
        if not (tensors := unwrapped(source)):
            raise InputError("the mapping is not a state dict: it has no names of tensors")
        opened = Source.of("the state dict", tensors)
    else:
        opened = open_path(source)
    chosen = FORMATS[format] if format else detect(opened)
    if answers and chosen.overridable:
        check_names(answers, chosen.overridable)
    model = read_model(chosen.read(opened, answers), device, dtype)
    if isinstance(source, nn.Module):
        from vitreous.checkpoints.live import check_outputs

        check_outputs(source, model)
    if isinstance(model, Model):
        model = adapted(model, overrides, interpolation or chosen.interpolation)
    if kind is not None and not isinstance(model, kind):
        raise InputError(f"{opened.where} holds a {type(model).__name__}, where a {kind.__name__} is needed")
    return model


def load_image_model(source: Checkpoint, **options: Any) -> Model:
    """Load a model that sees images and writes no text, with the options of `load`.

    Raises:
        InputError: as `load`; or the model writes text.
    """
    model: Any = load(source, **options)
    if not isinstance(model, Model):
        raise InputError(
            f"{source} holds a model that writes text: here, one that sees images alone is needed"
        )
    return model


def open_path(source: str | Path) -> Source:
    """Open what a path, an address or a name on the hub means."""
    if re.match(r"[a-z]+:/|hf:|https:", str(source)):
        from vitreous.checkpoints.download import local_copy

        path = local_copy(str(source))
    else:
        path = Path(source).expanduser()
    if (path / "config.toml").is_file():
        from vitreous.checkpoints.runs import check_finished

        check_finished(path)
    return open_source(model_folder(path))


def detect(source: Source) -> Format:
    """The format of an opened checkpoint, by what its config.json says and by the names of its weights."""
    names = "\n".join(source.tensors)
    for each in FORMATS.values():
        if each.recognizes(source, names):
            return each
    some = ", ".join(list(source.tensors)[:5])
    raise InputError(
        f"{source.where}: no known format has weights like {some}; the formats are {', '.join(FORMATS)}"
    )


def read_model(reading: Reading, device: Device = None, dtype: Dtype = None) -> Any:
    """The model that a reading describes, with its weights."""
    where, config = reading.source.where, reading.config
    classes = getattr(config, "num_classes", None)
    model = reading.make(
        config,
        preprocessing=reading.preprocessing,
        labels=reading.labels if reading.labels is not None and len(reading.labels) == classes else None,
        task=reading.task,
    )
    rows = of_model(reading.rows, stored(model))
    weights = read_rows(rows, reading.source.tensors, where=where, ignored=reading.ignored)
    load_weights(model, weights, where=where, device=device, dtype=dtype)
    if reading.assumed:
        log.warning("%s does not say, so it is assumed: %s", where, "; ".join(reading.assumed))
    return model


def adapted(model: Model, overrides: Overrides, interpolation: Any) -> Model:
    """The model with the image size, patch size and head that the user asked for."""
    sizes = {k: overrides[k] for k in ("image_size", "patch_size") if overrides.get(k) is not None}
    if not sizes and "num_classes" not in overrides:
        return model
    from vitreous.checkpoints.resizing import resize, with_head

    if any(as_pair(size) != getattr(model.config, name, None) for name, size in sizes.items()):
        model = resize(model, **sizes, interpolation=interpolation)
    if "num_classes" in overrides and overrides["num_classes"] != model.config.num_classes:
        model = with_head(model, overrides["num_classes"])
    return model
