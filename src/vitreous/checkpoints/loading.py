"""From a path, an address, a name on the hub, a state dict or a live module to a model: open, detect the
format, read, adapt."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitreous.checkpoints.download import DESCRIBING, SUFFIXES, hub_hint, local_copy
from vitreous.checkpoints.files import (
    documents_in,
    is_adapter,
    model_folder,
    newest_checkpoint,
    read_checkpoint,
)
from vitreous.checkpoints.format import Changes, Spec, as_pair
from vitreous.checkpoints.native import open_state
from vitreous.checkpoints.pretrained_encoders import INSTALLED_ENCODERS
from vitreous.checkpoints.recognition import recognize
from vitreous.checkpoints.source import CARD, CONFIG, DESCRIPTIONS, TRAINING, Documents, File
from vitreous.checkpoints.torch_files import documents_of, parts_in_memory
from vitreous.checkpoints.weights import (
    MOST_NAMES,
    listing,
    load_weights,
    of_model,
    read_rows,
    stored_weights,
)
from vitreous.errors import InputError, is_installed
from vitreous.extensions import imported
from vitreous.models.model import Model
from vitreous.models.names import create
from vitreous.outside import Bundled, Hub, Local, Location, parse_place, read_text

# A state dict may be wrapped: {"state_dict": ...}; a `File` is open already.
Checkpoint = str | Path | Mapping[str, object] | nn.Module | File
DeviceLike = str | torch.device | None
Dtype = torch.dtype | None
log = logging.getLogger(__name__)


def load(
    source: Checkpoint,
    *,
    format: str | None = None,
    like: str | Path | None = None,
    key: str | None = None,
    device: DeviceLike = None,
    dtype: Dtype = None,
    **overrides: Any,
) -> Model:
    """Load a model from a checkpoint of any format, in evaluation mode: a `ViT`, a `BiT`, or a model of an
    add-on.

        load("B_16.npz")
        load("vit.pth", format="torchvision", heads=4, image_size=(96, 64))
        load("clip.pth", like="timm:vit_base_patch16_clip_224.openai")
        load("hf:google/vit-base-patch16-224", num_classes=10, device="cuda", dtype=torch.bfloat16)
        load(timm.create_model("vit_tiny_patch16_224"))    # or a state dict
        MAE.load("hf:facebook/vit-mae-base")               # the decoder, too

    Example:
        >>> model = vt.load("vitreous:small")
        >>> model.config.image_size, model.config.width
        ((64, 64), 128)
        >>> model = vt.load("runs/photos", image_size=48, num_classes=5)
        >>> model(torch.randn(1, 3, 48, 48)).shape
        torch.Size([1, 5])

    Args:
        source: a file, a folder, a run directory, an `https:` address, `hf:org/name[@revision]`,
            `vitreous:small` (see `list_encoders`), a state dict, or a module of timm, transformers,
            torchvision or vit-pytorch, whose outputs are compared with those of the loaded model.
        format: one of `vitreous.list_formats()`; None detects it from the content.
        like: a description for a file of bare weights: `timm:NAME` of an architecture or a published tag,
            `torchvision:vit_l_16.IMAGENET1K_SWAG_E2E_V1`, or a folder or `hf:org/name` with a config.json,
            whose weights are not read.
        key: which weights to load from a file that contains several models: the keys that lead to a state
            dict ("state.model"), or the prefix of its names ("teacher.backbone"). By default, the only ones,
            or those that a format recognizes.
        device, dtype: device and type of the weights; by default the CPU (or the state dict's device) and
            float32.
        overrides: fields of the configuration that the file does not store (heads), or that you want to
            change. `image_size` and `patch_size` resample positions and patches, in the same way as the code
            that the weights come from, unless `interpolation` names another method. `stored_image_size` is
            the image size that a file of bare weights was made for, if its position table is not square.
            `num_classes` adds a new head of zeros, or no head if it is None. `scale_after_softmax=False` is
            for frankzvit's notebook.

    Raises:
        InputError: the path does not exist, the file is damaged, the format is unknown, a required field is
            not specified, weights are missing or left over (all are listed), or a run was stopped.
    """
    check_place(device, dtype)
    file = open_checkpoint(source, like)
    spec = recognize(file, format, key).read(overrides)
    model = model_from_spec(spec, device, dtype)
    if isinstance(source, nn.Module):
        from vitreous.checkpoints.live import check_outputs

        check_outputs(source, model)
    changed_model: Model = with_requested_changes(model, spec)  # or a model of an add-on
    return changed_model


def configuration(source: Checkpoint) -> Spec:
    """Return what `load` would return, as a specification: its configuration, preprocessing, labels and task,
    of which no weight is read."""
    spec = recognize(open_checkpoint(source)).read({})
    config = with_changes(spec.config, spec.changes)
    images = spec.preprocessing
    if images is not None:
        images = images.model_copy(update={"size": getattr(config, "image_size", images.size)})
    return spec._replace(config=config, preprocessing=images)


def check_place(device: DeviceLike, dtype: Dtype) -> None:
    """Raise an InputError where weights cannot be on a device, or of a type."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise InputError(
            f"dtype={dtype!r} is not a floating-point type of torch: pass torch.bfloat16, for example"
        )
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device={str(device)!r} cannot be used here: {reason}") from None


def load_image_model(source: Checkpoint, **options: Any) -> Model:
    """Load a model of images alone, with the options of `load`. Raises InputError if `load` does, or if it is
    a model of another kind."""
    model = load(source, **options)
    if not isinstance(model, Model):
        raise InputError(
            f"{source} holds a {type(model).__name__}: a model that takes only images is needed here"
        )
    return model


def open_checkpoint(source: Checkpoint, like: str | Path | None = None) -> File:
    """Open whatever `load` takes. like: what describes it instead of what is beside it."""
    if isinstance(source, nn.Module):
        from vitreous.checkpoints.live import open_module

        file = open_module(source)
    elif isinstance(source, File):
        file = source
    elif isinstance(source, str | Path):
        file = open_file(parse_place(source))
        file = with_module(file if file.place else replace(file, place=str(source)))
        if like is None and Path(file.where).is_file():
            warn_of_descriptions(Path(file.where), file.documents)
    elif not isinstance(source, Mapping):
        kind = type(source).__name__
        raise InputError(f"a checkpoint is a path, a name, a state dict or a module, not {kind}")
    elif parts := parts_in_memory(source):
        file = File("the state dict", parts, documents_of(source))
    else:
        raise InputError("the mapping is not a state dict: it has no names of tensors")
    return file if like is None else described_like(file, like)


def warn_of_descriptions(path: Path, documents: Documents) -> None:
    """Log which descriptions beside a file of weights are not among the `documents` that were read, as they
    may be those of another file."""
    beside = [name for name in DESCRIPTIONS if (path.parent / name).is_file()]
    if unread := [name for name in beside if name not in documents]:
        log.warning(
            "%s: descriptions beside it are not read, since they may be of another file (%s): pass like=%s "
            "if they are its own",
            *(path, ", ".join(unread), path.parent),
        )


def open_file(place: Location) -> File:
    """Open the checkpoint at a place: a file, a folder, a run, or the output of a training program. Raises
    InputError: nothing is there, or it is not a known kind of checkpoint."""
    path = place.path if isinstance(place, Local) else local_copy(place)
    if (path / "config.toml").is_file():
        from vitreous.checkpoints.runs import check_finished

        check_finished(path)
    if path.suffix == ".shards" and path.is_dir():
        return open_state(path)
    path = model_folder(path)
    if isinstance(place, Bundled) and (known := INSTALLED_ENCODERS.get(place.name)):
        described = {"license": known.license, "architecture": known.architecture}
        return replace(
            read_checkpoint(path), documents={CONFIG: described}
        )  # the file says nothing of whose it is
    newest = newest_checkpoint(path)
    if is_adapter(newest):
        from vitreous.checkpoints.adapters import open_adapter

        opened = open_adapter(newest)
    else:
        opened = read_checkpoint(newest)
    folder = newest if newest.is_dir() else newest.parent
    documents = dict(opened.documents)
    for above in () if CONFIG in documents or opened.place else newest.parents:  # what describes the weights
        if above.is_relative_to(path) and (found := documents_in(above)):
            documents |= found
            break
    if CONFIG in documents or newest.is_dir() or isinstance(place, Hub):
        documents |= card_in(folder)
    if CONFIG not in documents and TRAINING in documents:
        documents[TRAINING] = {**settings_of_training(folder), **documents[TRAINING]}
    moved = newest != path and not opened.place
    return replace(opened, documents=documents, place=str(newest) if moved else opened.place)


# What training programs write beside their checkpoints, or in the folder above: timm's train.py, Lightning.
SETTINGS = ("args.yaml", "hparams.yaml")


def settings_of_training(folder: Path) -> dict[str, object]:
    """Return what a training program has written of its settings beside its checkpoints."""
    for file in (each / name for each in (folder, folder.parent) for name in SETTINGS):
        if file.is_file() and is_installed("yaml"):
            import yaml

            # Objects of Python are not made: they are errors of YAML.
            try:
                found = yaml.safe_load(read_text(file))
            except (OSError, UnicodeDecodeError, yaml.YAMLError):
                continue
            return {str(name): value for name, value in found.items()} if isinstance(found, dict) else {}
    return {}


def card_in(folder: Path) -> Documents:
    """Return what the model card in a folder says of the license."""
    card = folder / CARD
    text = read_text(card, errors="replace") if card.is_file() else ""
    found = re.search(r"(?m)^license: *([\w.-]+) *$", text)
    return {CARD: {"license": found[1]}} if found else {}


def with_module(file: File) -> File:
    """Return the file, with what the attributes of a module tell that was stored whole in it."""
    if file.module is None or CONFIG in file.documents:
        return file
    from vitreous.checkpoints.live import facts_of_module

    documents, stated = facts_of_module(file.module)
    return replace(file, documents={**file.documents, **documents}, stated={**file.stated, **stated})


def described_like(file: File, like: str | Path) -> File:
    """Return a file of weights alone with the descriptions that `like` names."""
    codebase, _, name = str(like).partition(":")
    if codebase in DESCRIBED:
        documents: Documents = {CONFIG: imported(DESCRIBED[codebase])(name)}
    else:
        documents = documents_in(local_copy(parse_place(like), DESCRIBING))
    if not documents:
        raise InputError(
            f"like={str(like)!r}: pass timm:NAME, torchvision:NAME, hf:org/name, or a folder with a "
            "config.json"
        )
    return replace(file, documents=documents)


# By the codebase that `like` names: the address of what describes its models by their names.
DESCRIBED = {
    "timm": "vitreous.checkpoints.formats.timm_facts:description_of",
    "torchvision": "vitreous.checkpoints.formats.torchvision:description_of",
}


def model_from_spec(spec: Spec, device: DeviceLike = None, dtype: Dtype = None) -> Any:
    """Return the model of a specification, with its weights."""
    where, config = spec.source.where, spec.config
    classes = getattr(config, "num_classes", None)
    depth, found = getattr(config, "depth", 0), spec.source.tensors
    if depth > len(found) and not any(entry.shape[:1] == (depth,) for entry in found.values()):
        raise InputError(
            f"{where}: missing weights: there are {len(found)}, but its description says {depth} layers"
        )
    if spec.labels is not None and classes is not None and len(spec.labels) != classes:
        log.warning(
            "%s: its labels are %d, and its head has %d outputs: they are left out",
            where,
            len(spec.labels),
            classes,
        )
    model: Any = spec.make(
        config,
        preprocessing=spec.preprocessing,
        labels=spec.labels if spec.labels is not None and len(spec.labels) == classes else None,
        task=spec.task,
    )
    model.temperature = spec.temperature
    rows = of_model(spec.rows, stored_weights(model))
    widest = torch.float64 if dtype == torch.float64 else torch.float32  # in which rows are put together
    weights = read_rows(rows, spec.source.tensors, where=where, ignored=spec.ignored, dtype=widest)
    load_weights(model, weights, where=where, device=device, dtype=dtype)
    if hasattr(model, "origin"):
        model.origin = spec.origin if isinstance(model, Model) else spec.read_from
    if assumed := spec.source.assumed:
        log.warning("%s does not say, so it is assumed: %s", where, "; ".join(assumed))
    if left := spec.source.left_out:
        parts = Counter(name.split(".")[0] for name in left)
        named = (
            [f"{part} ({count})" for part, count in parts.items()] if len(left) > MOST_NAMES else list(left)
        )
        log.warning("%s: %d weights of other parts are left out: %s", where, len(left), listing(named))
    return model


def with_changes(config: Any, changes: Changes) -> Any:
    """Return the configuration after its changes. Raises InputError: sizes that do not fit together."""
    fields = {
        name: size for name, size in changes.sizes.items() if as_pair(size) != getattr(config, name, None)
    }
    if changes.num_classes != "":
        fields["num_classes"] = changes.num_classes  # a number, or as text
    return config.checked(config.model_dump(), fields) if fields else config


def with_requested_changes(model: Any, spec: Spec) -> Any:
    """Return the model with the image size, patch size and head that the user asked for."""
    config = with_changes(model.config, spec.changes) if isinstance(model, Model) else None
    if config is None or config is model.config:
        return model
    from vitreous.checkpoints.resizing import resized, with_head

    sizes = {name: getattr(config, name, size) for name, size in spec.changes.sizes.items()}
    if any(size != getattr(model.config, name, None) for name, size in sizes.items()):
        positions, patches = spec.changes.positions, spec.changes.patches
        model = resized(model, sizes, positions=positions, patches=patches)
    return model if config.num_classes == model.config.num_classes else with_head(model, config.num_classes)


def open_model(spec: str | Path, *, format: str | None = None, **overrides: Any) -> Model:
    """Return the model that the command line's MODEL means: a run directory, a checkpoint in any format,
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
