"""From a path, an address, a name on the hub, a state dict or a live module to a model: open, detect the
format, read, adapt."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import torch
from torch import nn

from vitreous.checkpoints.adapters import is_adapter, open_adapter
from vitreous.checkpoints.download import DESCRIPTIONS, SUFFIXES, hub_hint, local_copy
from vitreous.checkpoints.facts import CONFIG, OPEN_CLIP, TASK
from vitreous.checkpoints.files import File, documents_in, model_folder, read_file
from vitreous.checkpoints.format import Spec, as_pair
from vitreous.checkpoints.formats import formats, sidecars, timm_registry, torchvision
from vitreous.checkpoints.installed_encoders import INSTALLED_ENCODERS
from vitreous.checkpoints.native import open_state
from vitreous.checkpoints.recognition import recognize
from vitreous.checkpoints.resizing import check_interpolation, resized, with_head
from vitreous.checkpoints.torch_files import documents_of, parts_in_memory
from vitreous.checkpoints.training_folders import newest_checkpoint
from vitreous.checkpoints.weights import MOST_NAMES, listing, load_weights, of_model, read_rows, stored
from vitreous.errors import InputError, nearest
from vitreous.models.bit import BiT
from vitreous.models.config import Origin
from vitreous.models.model import Model
from vitreous.models.names import create
from vitreous.models.vit import ViT
from vitreous.outside import Bundled, Local, Place, parse_place, read_text

# A state dict may be wrapped: {"state_dict": ...}; a `File` is open already.
Checkpoint = str | Path | Mapping[str, object] | nn.Module | File
Device = str | torch.device | None
Dtype = torch.dtype | None
ImageFormat = Literal[
    "timm",
    "huggingface",
    "torchvision",
    "vit-pytorch",
    "frankzvit",
    "dinov2",
    "dinov3",
    "open-clip",
    "vit-5",
    "aimv2",
    "radio",
    "perception-encoder",
    "pytorch-pretrained-vit",
    "jeonsworld",
    "monai",
    "openmmlab",
    "keras-hub",
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
        return own(source, **overrides, **{name: each for name, each in options.items() if each is not None})
    check_place(device, dtype)
    spec, changes = read_specification(source, format=format, like=like, key=key, **overrides)
    model = build(spec, device, dtype)
    if not isinstance(model, Model) and hasattr(model, "origin"):  # what is beside the file belongs to it
        model.origin = changes.read_from
    if isinstance(source, nn.Module):
        from vitreous.checkpoints.live import check_outputs

        check_outputs(source, model)
    model = change(model, changes)
    if kind is not None and not isinstance(model, kind):
        where = spec.source.where
        raise InputError(f"{where} holds a {type(model).__name__}, where a {kind.__name__} is needed")
    return model


@dataclass(frozen=True)
class Changes:
    """What is changed of a model after it was read.

    Attributes:
        sizes: image_size and patch_size, where they are given.
        positions, patches: how each is resampled.
        num_classes: of a new head, as it was given; "" for the head that it has.
        read_from: the file, for models that keep no other origin.
    """

    sizes: Mapping[str, Any]
    positions: str
    patches: str
    num_classes: object = ""
    read_from: Origin | None = None


def read_specification(
    source: Checkpoint,
    *,
    format: str | None = None,
    like: str | None = None,
    key: str | None = None,
    **overrides: Any,
) -> tuple[Spec, Changes]:
    """Return what a checkpoint holds, before any of its weights is read, and how it is to be changed: the
    road of `load` but for the weights, with its arguments.

    A file is opened, its format recognized, its facts gathered, and the format's reader makes a
    specification of them and of what the user answers.
    """
    named = overrides.pop("interpolation", None)
    if named:
        check_interpolation(named)
    file = open_checkpoint(source)
    if like is not None:
        file = described_like(file, like)
    found = recognize(file, format, key)
    spec = found.read(overrides)
    for conflict in spec.source.facts.conflicts:
        log.warning("%s: %s", file.where, conflict)
    positions = named or spec.interpolation or found.format.interpolation
    patches = spec.patch_interpolation or found.format.patch_interpolation
    if named:
        patches = "timm" if named == "timm" else "flexivit"
    read_from = origin_of(source, file, spec, positions)
    if found.format.name != "vitreous":
        spec = spec._replace(origin=read_from)
    sizes = {
        name: overrides[name] for name in ("image_size", "patch_size") if overrides.get(name) is not None
    }
    if spec.used_size and "image_size" not in sizes:
        sizes["image_size"] = spec.used_size
    return spec, Changes(sizes, positions, patches, overrides.get("num_classes", ""), read_from)


def configuration(source: Checkpoint, **options: Any) -> Spec:
    """Return what `load` would return, with the same options, as a specification: its configuration,
    preprocessing, labels and task, of which no weight is read."""
    spec, changes = read_specification(source, **options)
    config = changed(spec.config, changes)
    images = spec.preprocessing
    if images is not None:
        images = images.model_copy(update={"size": getattr(config, "image_size", images.size)})
    return spec._replace(config=config, preprocessing=images)


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


def open_checkpoint(source: Checkpoint) -> File:
    """Open whatever `load` takes."""
    if isinstance(source, nn.Module):
        from vitreous.checkpoints.live import open_module

        return open_module(source)
    if isinstance(source, File):
        return source
    if isinstance(source, str | Path):
        return with_module(open_file(parse_place(source)))
    if not isinstance(source, Mapping):
        kind = type(source).__name__
        raise InputError(f"a checkpoint is a path, a name, a state dict or a module, not {kind}")
    if not (parts := parts_in_memory(source)):
        raise InputError("the mapping is not a state dict: it has no names of tensors")
    return File("the state dict", parts, documents_of(source))


def open_file(place: Place) -> File:
    """Open the checkpoint at a place: a file, a folder, a run, or the output of a training program. Raises
    InputError: nothing is there, or it is not a checkpoint that is known."""
    path = local_copy(place, more=sidecars())
    if (path / "config.toml").is_file():
        from vitreous.checkpoints.runs import check_finished

        check_finished(path)
    if path.suffix == ".shards" and path.is_dir():
        return open_state(path)
    path = model_folder(path)
    if isinstance(place, Bundled) and (known := INSTALLED_ENCODERS.get(place.name)):
        described = {"license": known.license, "architecture": known.architecture}
        return replace(read_file(path), documents={CONFIG: described})  # the file says nothing of whose it is
    newest = newest_checkpoint(path)
    opened = open_adapter(newest) if is_adapter(newest) else read_file(newest)
    own = documents_in(newest if newest.is_dir() else newest.parent, sidecars())
    opened = replace(opened, documents={**own, **opened.documents}) if own else opened
    if newest == path or opened.place:
        return opened
    for folder in () if CONFIG in opened.documents else newest.parents:  # a description above the weights
        if folder.is_relative_to(path) and (found := documents_in(folder)):
            opened = replace(opened, documents={**opened.documents, **found})
            break
    return replace(opened, place=str(newest))


def with_module(file: File) -> File:
    """The file, with what the attributes of a module tell that was stored whole in it."""
    if file.module is None or CONFIG in file.documents:
        return file
    from vitreous.checkpoints.live import facts_of_module

    documents, stated = facts_of_module(file.module)
    return replace(file, documents={**file.documents, **documents}, stated={**file.stated, **stated})


def described_like(file: File, like: str) -> File:
    """A file of weights alone with the descriptions that `like` names."""
    if like.startswith("timm:"):
        return replace(file, documents={CONFIG: timm_registry.description_of(like.removeprefix("timm:"))})
    if like.startswith("torchvision:"):
        described = torchvision.description_of(like.removeprefix("torchvision:"))
        return replace(file, documents={CONFIG: described})
    documents = documents_in(local_copy(parse_place(like), DESCRIPTIONS))
    if not documents.keys() & {CONFIG, OPEN_CLIP, TASK}:
        raise InputError(
            f"like={like!r}: give timm:NAME, torchvision:NAME, hf:org/name, or a folder with a config.json"
        )
    return replace(file, documents=documents)


def origin_of(source: Checkpoint, file: File, spec: Spec, interpolation: str) -> Origin:
    """Where the weights come from, and what had to be assumed of them."""
    described = file.description
    timm = described.get("pretrained_cfg")
    named = described.get("architecture", described.get("architectures"))
    named = named[0] if isinstance(named, list) and named else named or spec.source.facts.name
    folder = Path(file.where)
    if folder.is_file() and (described or str(source).startswith("hf:")):
        folder = folder.parent
    card = folder / "README.md"
    stated = timm.get("license") if isinstance(timm, dict) else described.get("license")
    if not stated and card.is_file():
        found = re.search(r"(?m)^license: *([\w.-]+) *$", read_text(card, errors="replace"))
        stated = found[1] if found else None
    assert spec.format
    return Origin(
        source=file.place or (str(source) if isinstance(source, str | Path) else file.where),
        format=spec.format.name,
        architecture=str(named) if named else None,
        license=str(stated) if stated else None,
        interpolation=interpolation,
        assumed=tuple(spec.source.assumed),
    )


def build(spec: Spec, device: Device = None, dtype: Dtype = None) -> Any:
    """The model of a specification, with its weights."""
    where, config = spec.source.where, spec.config
    classes = getattr(config, "num_classes", None)
    depth, found = getattr(config, "depth", 0), spec.source.tensors
    if depth > len(found) and not any(found.shape(name)[:1] == (depth,) for name in found):
        raise InputError(
            f"{where}: missing weights: there are {len(found)}, and its description says {depth} layers"
        )
    model: Any = spec.make(
        config,
        preprocessing=spec.preprocessing,
        labels=spec.labels if spec.labels is not None and len(spec.labels) == classes else None,
        task=spec.task,
    )
    model.temperature = spec.temperature
    rows = of_model(spec.rows, stored(model))
    weights = read_rows(rows, spec.source.tensors, where=where, ignored=spec.ignored)
    load_weights(model, weights, where=where, device=device, dtype=dtype)
    if hasattr(model, "origin"):
        model.origin = spec.origin
    if assumed := spec.source.assumed:
        log.warning("%s does not say, so it is assumed: %s", where, "; ".join(assumed))
    if left := spec.source.left_out:
        parts = Counter(name.split(".")[0] for name in left)
        named = (
            [f"{part} ({count})" for part, count in parts.items()] if len(left) > MOST_NAMES else list(left)
        )
        log.warning("%s: %d weights of other parts are left out: %s", where, len(left), listing(named))
    return model


def changed(config: Any, changes: Changes) -> Any:
    """The configuration after its changes. Raises InputError: sizes that do not fit together."""
    fields = {
        name: size for name, size in changes.sizes.items() if as_pair(size) != getattr(config, name, None)
    }
    if changes.num_classes != "":
        fields["num_classes"] = changes.num_classes  # a number, or as text
    return config.checked(config.model_dump(), fields) if fields else config


def change(model: Any, changes: Changes) -> Any:
    """The model with the image size, patch size and head that the user asked for."""
    if not isinstance(model, Model):
        return model
    config = changed(model.config, changes)
    if config is model.config:
        return model
    sizes = {name: getattr(config, name, size) for name, size in changes.sizes.items()}
    if any(size != getattr(model.config, name, None) for name, size in sizes.items()):
        model = resized(model, sizes, positions=changes.positions, patches=changes.patches)
    return model if config.num_classes == model.config.num_classes else with_head(model, config.num_classes)


def open_model(spec: str | Path, *, format: str | None = None, **overrides: Any) -> Model:
    """The model that the command line's MODEL means: a run directory, a checkpoint in any format,
    `hf:org/name`, an `https:` address, `vitreous:small`, or a model name such as "ViT-B/16" (with fresh
    weights). Raises InputError: none of these; or what is there cannot be loaded."""
    text = str(spec)
    place = parse_place(spec)
    if not isinstance(place, Local) or place.path.exists():
        return load_image_model(spec, format=format, **overrides)
    if re.match(r"(?i)(\w+\+)?(vit|bit|seg)-", text) and not text.endswith(SUFFIXES):
        return create(text, **overrides)
    raise InputError(
        f"{text!r} is not an existing file or folder, and not a model name such as ViT-B/16; {hub_hint(text)}"
    )
