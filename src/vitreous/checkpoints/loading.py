"""From a path, an address, a name on the hub, a state dict or a live module to a model: open, detect the
format, read, adapt."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import torch
from torch import nn

from vitreous.checkpoints.adapters import is_adapter, open_adapter
from vitreous.checkpoints.detection import convert
from vitreous.checkpoints.download import DESCRIPTIONS, SUFFIXES, hub_hint, local_copy
from vitreous.checkpoints.files import Source, descriptions, model_folder, open_source
from vitreous.checkpoints.format import Converted, as_pair
from vitreous.checkpoints.formats import formats, timm_registry, torchvision
from vitreous.checkpoints.native import open_state
from vitreous.checkpoints.torch_files import parts_in_memory
from vitreous.checkpoints.training_folders import newest_checkpoint
from vitreous.checkpoints.weights import MOST_NAMES, listing, load_weights, of_model, read_rows, stored
from vitreous.errors import InputError, nearest
from vitreous.models.bit import BiT
from vitreous.models.config import Origin
from vitreous.models.model import Model
from vitreous.models.names import create
from vitreous.models.vit import ViT
from vitreous.outside import local_path, read_text

# A state dict may be wrapped: {"state_dict": ...}; a `Source` is open already.
Checkpoint = str | Path | Mapping[str, object] | nn.Module | Source
Device = str | torch.device | None
Dtype = torch.dtype | None
ImageFormat = Literal[
    "timm", "huggingface", "torchvision", "vit-pytorch", "frankzvit", "dinov2", "dinov3", "open-clip"
]
Kind = TypeVar("Kind")
log = logging.getLogger(__name__)


# Device, dtype and like are among the `overrides` of the first ones.
@overload
def load(source: Checkpoint, *, format: None = None, kind: type[Kind], **overrides: Any) -> Kind: ...
@overload
def load(source: Checkpoint, *, format: Literal["bit"], **overrides: Any) -> BiT: ...
@overload
def load(source: Checkpoint, *, format: ImageFormat, **overrides: Any) -> ViT: ...
@overload
def load(
    source: Checkpoint,
    *,
    format: str | None = None,
    device: Device = ...,
    dtype: Dtype = ...,
    like: str | None = ...,
    key: str | None = ...,
    **overrides: Any,
) -> Model: ...
def load(
    source: Checkpoint,
    *,
    format: str | None = None,
    kind: type[Any] | None = None,
    device: Device = None,
    dtype: Dtype = None,
    like: str | None = None,
    key: str | None = None,
    **overrides: Any,
) -> Any:
    """Load a model from a checkpoint of any format, in evaluation mode: a `ViT`, a `BiT`, or a model of an
    add-on.

        load("B_16.npz")
        load("vit.pth", format="torchvision", heads=4, image_size=(96, 64))
        load("clip.pth", like="timm:vit_base_patch16_clip_224.openai")
        load("hf:google/vit-base-patch16-224", num_classes=10, device="cuda", dtype=torch.bfloat16)
        load(timm.create_model("vit_tiny_patch16_224"))    # or a state dict
        load("runs/mine", kind=vt.BiT)                     # the kind is checked, and type checkers know it
        load("hf:facebook/vit-mae-base", kind=vt.MAE)      # the decoder, too

    Args:
        source: a file, a folder, a run directory, an `https:` address, `hf:org/name[@revision]`,
            `vitreous:small` (see `list_encoders`), a state dict, or a module of timm, transformers,
            torchvision or vit-pytorch, whose outputs are then compared.
        format: one of `vitreous.list_formats()`; None detects it from the content.
        kind: the class that the model must have, or one of more than the model, such as `vitreous.MAE` with
            its decoder.
        like: what describes a file that is only weights: `timm:NAME` of an architecture or a published tag,
            `torchvision:vit_l_16.IMAGENET1K_SWAG_E2E_V1`, or a folder or `hf:org/name` with a config.json,
            whose weights are not read.
        key: which weights to take of a file that holds several: the keys that lead to a state dict
            ("state.model"), or the prefix of its names ("teacher.backbone"). By default the only ones, or
            those that a format recognizes.
        device, dtype: of the weights; by default in memory (or where the state dict is) and float32.
        overrides: fields of the configuration that the file cannot tell (heads), or that are to change:
            `image_size` and `patch_size` resample positions and patches, by the way of the source's own code
            unless `interpolation` names another; `stored_image_size` is that of the images that a file of
            weights alone was made for, where its table of positions is not of a square; `num_classes` gives a
            new head of zeros, or none for None; `scale_after_softmax=False` reads frankzvit's notebook.

    Raises:
        InputError: nothing there, a damaged file, an unknown format, a question that must be answered,
            weights that are missing or left over (all are listed), a run that was stopped, or a model of
            another kind.
    """
    if format is not None and format not in formats():
        raise InputError(f"unknown format {format!r}: {nearest(format, list(formats()))}")
    if kind is not None and (own := getattr(kind, "load", None)):
        options = {"format": format, "device": device, "dtype": dtype, "like": like, "key": key}
        overrides |= {name: value for name, value in options.items() if value is not None}
        return own(source, **overrides)
    check_place(device, dtype)
    if named := overrides.pop("interpolation", None):
        from vitreous.checkpoints.resizing import check_interpolation

        check_interpolation(named)
    opened = open_checkpoint(source)
    opened = replace(opened, overrides={**opened.overrides, **overrides})
    if like is not None:
        opened = described_like(opened, like)
    chosen, converted = convert(opened, format, key)
    model = model_of_checkpoint(converted, device, dtype)
    native = chosen.name == "vitreous" and isinstance(model, Model)
    interpolation = named or converted.interpolation or chosen.interpolation
    # its positions may be resampled in a way that its patches are not
    patches = chosen.patch_interpolation
    if named:
        patches = "timm" if named == "timm" else "flexivit"
    model.origin = (
        converted.origin if native else origin_of(source, converted.source, chosen.name, interpolation)
    )
    if isinstance(source, nn.Module):
        from vitreous.checkpoints.live import check_outputs

        check_outputs(source, model)
    if converted.used_size and overrides.get("image_size") is None:
        overrides["image_size"] = converted.used_size
    if isinstance(model, Model):
        model = adapted(model, overrides, interpolation, patches)
    if kind is not None and not isinstance(model, kind):
        raise InputError(f"{opened.where} holds a {type(model).__name__}, where a {kind.__name__} is needed")
    return model


def check_place(device: Device, dtype: Dtype) -> None:
    """Raise an InputError where weights cannot be on a device, or of a type."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise InputError(f"dtype={dtype!r} is not a floating-point type of torch: pass torch.bfloat16, say")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device={str(device)!r} cannot be used here: {reason}") from None


def load_image_model(source: Checkpoint, **options: Any) -> Model:
    """Load a model of images alone, with the options of `load`. Raises InputError: as `load`; or it is a
    model of another kind."""
    model = load(source, **options)
    if not isinstance(model, Model):
        raise InputError(
            f"{source} holds a {type(model).__name__}: here, a model that sees images alone is needed"
        )
    return model


def open_checkpoint(source: Checkpoint) -> Source:
    """Open whatever `load` takes; what only the attributes of a live module tell are its `overrides`."""
    if isinstance(source, nn.Module):
        from vitreous.checkpoints.live import open_module

        opened, facts = open_module(source)
        return replace(opened, overrides=facts)
    if isinstance(source, Source):
        return source
    if isinstance(source, str | Path):
        return open_path(source)
    if not isinstance(source, Mapping):
        kind = type(source).__name__
        raise InputError(f"a checkpoint is a path, a name, a state dict or a module, not {kind}")
    if not (parts := parts_in_memory(source)):
        raise InputError("the mapping is not a state dict: it has no names of tensors")
    return Source.of_parts("the state dict", parts)


def open_path(source: str | Path) -> Source:
    """Open what a path, an address or a name on the hub means."""
    if re.match(r"[a-z]+:/|hf:|https:|vitreous:", str(source)):
        path = local_copy(str(source))
    else:
        path = local_path(source)
    if (path / "config.toml").is_file():
        from vitreous.checkpoints.runs import check_finished

        check_finished(path)
    if path.suffix == ".shards" and path.is_dir():
        return open_state(path)
    path = model_folder(path)
    newest = newest_checkpoint(path)
    opened = open_adapter(newest) if is_adapter(newest) else open_source(newest)
    if newest == path or opened.place:
        return opened
    for folder in () if opened.config else newest.parents:  # a description above the weights
        if folder.is_relative_to(path) and any(found := descriptions(folder)):
            opened = replace(opened, config=found[0], preprocessor=found[1])
            break
    return replace(opened, place=str(newest))


def described_like(opened: Source, like: str) -> Source:
    """A file of weights alone with the config.json and preprocessor_config.json that `like` names."""
    if like.startswith("timm:"):
        return replace(opened, config=timm_registry.description_of(like.removeprefix("timm:")))
    if like.startswith("torchvision:"):
        return replace(opened, config=torchvision.description_of(like.removeprefix("torchvision:")))
    folder = local_copy(like, DESCRIPTIONS) if like.startswith("hf:") else local_path(like)
    config, preprocessor = descriptions(folder)
    if not config:
        raise InputError(
            f"like={like!r}: give timm:NAME, torchvision:NAME, hf:org/name, or a folder with a config.json"
        )
    return replace(opened, config=config, preprocessor=preprocessor)


def origin_of(source: Checkpoint, opened: Source, format: str, interpolation: str) -> Origin:
    """Where the weights come from, and what had to be assumed of them."""
    described = opened.config
    timm = described.get("pretrained_cfg")
    named = described.get("architecture", described.get("architectures"))
    named = named[0] if isinstance(named, list) and named else named
    folder = Path(opened.where)
    if folder.is_file() and (described or str(source).startswith("hf:")):
        folder = folder.parent
    card = folder / "README.md"
    stated = timm.get("license") if isinstance(timm, dict) else described.get("license")
    if not stated and card.is_file():
        found = re.search(r"(?m)^license: *([\w.-]+) *$", read_text(card, errors="replace"))
        stated = found[1] if found else None
    return Origin(
        source=opened.place or (str(source) if isinstance(source, str | Path) else opened.where),
        format=format,
        architecture=str(named) if named else None,
        license=str(stated) if stated else None,
        interpolation=interpolation,
        assumed=tuple(opened.assumed),
    )


def model_of_checkpoint(converted: Converted, device: Device = None, dtype: Dtype = None) -> Any:
    """The model that was described, with its weights."""
    where, config = converted.source.where, converted.config
    classes = getattr(config, "num_classes", None)
    depth, found = getattr(config, "depth", 0), converted.source.tensors
    if depth > len(found) and not any(found.shape(name)[:1] == (depth,) for name in found):
        raise InputError(
            f"{where}: missing weights: there are {len(found)}, and its description says {depth} layers"
        )
    model: Any = converted.make(
        config,
        preprocessing=converted.preprocessing,
        labels=converted.labels
        if converted.labels is not None and len(converted.labels) == classes
        else None,
        task=converted.task,
    )
    model.temperature = converted.temperature
    rows = of_model(converted.rows, stored(model))
    weights = read_rows(rows, converted.source.tensors, where=where, ignored=converted.ignored)
    load_weights(model, weights, where=where, device=device, dtype=dtype)
    if assumed := converted.source.assumed:
        log.warning("%s does not say, so it is assumed: %s", where, "; ".join(assumed))
    if left := converted.source.left_out:
        parts = Counter(name.split(".")[0] for name in left)
        named = (
            [f"{part} ({count})" for part, count in parts.items()] if len(left) > MOST_NAMES else list(left)
        )
        log.warning("%s: %d weights of other parts are left out: %s", where, len(left), listing(named))
    return model


def adapted(model: Model, overrides: Mapping[str, Any], interpolation: str, patches: str) -> Model:
    """The model with the image size, patch size and head that the user asked for."""
    sizes = {k: overrides[k] for k in ("image_size", "patch_size") if overrides.get(k) is not None}
    if not sizes and "num_classes" not in overrides:
        return model
    from vitreous.checkpoints.resizing import resized, with_head

    if any(as_pair(size) != getattr(model.config, name, None) for name, size in sizes.items()):
        model = resized(model, sizes, positions=interpolation, patches=patches)
    if "num_classes" in overrides:  # a number, or as text
        given = {"num_classes": overrides["num_classes"]}
        wanted = model.config.checked(model.config.model_dump(), given).num_classes
        model = model if wanted == model.config.num_classes else with_head(model, wanted)
    return model


def open_model(spec: str | Path, *, format: str | None = None, **overrides: Any) -> Model:
    """The model that the command line's MODEL means: a run directory, a checkpoint in any format,
    `hf:org/name`, an `https:` address, `vitreous:small`, or a model name such as "ViT-B/16" (with fresh
    weights). Raises InputError: none of these; or what is there cannot be loaded."""
    text = str(spec)
    if re.match(r"(hf|https?|vitreous):", text) or Path(spec).exists():
        return load_image_model(spec, format=format, **overrides)
    if re.match(r"(?i)(r\d*\+)?(vit|bit|seg)-", text) and not text.endswith(SUFFIXES):
        return create(text, **overrides)
    raise InputError(
        f"{text!r} is not an existing file or folder, and not a model name such as ViT-B/16; {hub_hint(text)}"
    )
