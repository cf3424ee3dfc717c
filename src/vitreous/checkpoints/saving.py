"""A model into any format that can hold it. What was written is read back, both models see the same images,
and only then does the file take its name."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.checkpoints import (
    bit,
    dinov2,
    frankzvit,
    google,
    huggingface_writing,
    timm,
    timm_writing,
    torchvision,
    vit_pytorch,
)
from vitreous.checkpoints.absorbing import Limits, dropped
from vitreous.checkpoints.building import empty_model, fill, stored
from vitreous.checkpoints.loading import FORMATS, load
from vitreous.checkpoints.native import save_native
from vitreous.errors import InputError, nearest
from vitreous.models.bit import BiT
from vitreous.models.names import Model
from vitreous.models.segmenter import Segmenter

TOLERANCE = 2e-5  # of the largest output, and of 1 where all are smaller
log = logging.getLogger(__name__)


class Writer(NamedTuple):
    """How a format is written."""

    write: Callable[[Model, Path], None]
    limits: Callable[[Model], Limits]
    endings: tuple[str, ...]  # of its files; empty for a folder
    untold: tuple[str, ...] = ()  # fields that its files do not tell and the reader must


def native(model: Model, path: Path) -> None:
    save_native(model, path)


PLAIN = ("heads", "image_size")
WRITERS = {
    "google": Writer(google.write, google.limits_of, google.SUFFIXES, ("image_size",)),
    "timm": Writer(timm_writing.write, lambda model: timm.LIMITS, ()),
    "huggingface": Writer(huggingface_writing.write, huggingface_writing.limits_of, ()),
    "torchvision": Writer(torchvision.write, lambda model: torchvision.LIMITS, torchvision.SUFFIXES, PLAIN),
    "vit-pytorch": Writer(
        vit_pytorch.write,
        lambda model: vit_pytorch.LIMITS,
        vit_pytorch.SUFFIXES,
        (*PLAIN, "patch_size", "channels"),
    ),
    "frankzvit": Writer(frankzvit.write, lambda model: frankzvit.LIMITS, frankzvit.SUFFIXES, PLAIN),
    "dinov2": Writer(dinov2.write, lambda model: dinov2.LIMITS, dinov2.SUFFIXES, PLAIN),
    "bit": Writer(bit.write, bit.limits_of, bit.SUFFIXES),
    "vitreous": Writer(native, lambda model: {}, ()),
}
# What timm's config.json tells and its state dict alone does not.
STATE_DICT = (*PLAIN, "pooling", "mlp", "norm_eps")


def save(model: Model, path: str | Path, *, format: str = "vitreous", drop: Sequence[str] = ()) -> float:
    """Write `model` in a format, read it back, compare. What is at `path` already is replaced: a file, or the
    files of the same names in a folder (`vitreous convert` refuses instead).

        save(model, "out.npz", format="google")
        save(model, "folder", format="huggingface", drop=("representation_size",))

    Args:
        path: a folder for vitreous, timm and huggingface (for timm also a file, the state dict alone); a file
            for the others.
        format: one of `FORMATS`.
        drop: parts that the format cannot hold and that are left out: "representation_size" (with its head),
            "head", or an approximation: "mlp", "norm_eps", "stem.standardization" become the format's own.

    Returns:
        The largest absolute difference between the outputs of `model` (without what was dropped) and those of
        what was read back, for two random images.

    Raises:
        InputError: the format cannot hold a part (it is named), the path has a wrong ending or cannot be
            written, or the difference is too large; then nothing is left behind.
    """
    if format not in WRITERS:
        raise InputError(f"unknown format {format!r}: {nearest(format, FORMATS)}")
    if isinstance(model, Segmenter) and format != "vitreous":
        raise InputError(
            f"format {format} has no place for a segmenter's maps: save its encoder, model.encoder, or use "
            "format vitreous"
        )
    writer, path = WRITERS[format], Path(path)
    if writer.endings and path.suffix not in writer.endings:
        raise InputError(f"{path}: a file of format {format} ends in {' or '.join(writer.endings)}")
    model = dropped(in_memory(model), drop, writer.limits(model))
    unfinished = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer.write(model, unfinished)
        alone = format == "timm" and path.suffix in timm_writing.STATE_DICTS
        untold = STATE_DICT if alone else writer.untold
        difference = checked(model, unfinished, format, told_by(model, untold))
        put(unfinished, path)
    except FileExistsError as error:  # a file where a folder is needed
        raise InputError(f"{error.filename} is a file and no folder: choose another path") from error
    except OSError as error:
        reason = f"{error.strerror}; make room, or choose another path"
        raise InputError(f"cannot write {path}: {reason}") from error
    finally:
        remove(unfinished)
    if writer.endings and model.labels:
        log.warning("%s: a file of format %s holds no labels and no preprocessing", path, format)
    return difference


def in_memory(model: Model) -> Model:
    """The model itself, or a float32 copy on the CPU where it is elsewhere or in another precision."""
    weights = stored(model)
    if all(w.device.type == "cpu" and w.dtype == torch.float32 for w in weights.values()):
        return model
    copy = empty_model(model.config, preprocessing=model.preprocessing, labels=model.labels, task=model.task)
    fill(copy, {name: weight.cpu() for name, weight in weights.items()}, where="save")
    return copy


def told_by(model: Model, fields: Sequence[str]) -> dict[str, Any]:
    """What a reader of the file must be told, from the model."""
    if isinstance(model, BiT):
        return {"image_size": model.config.image_size}
    return {field: getattr(model.config, field) for field in fields}


@torch.no_grad()
def checked(model: Model, path: Path, format: str, told: dict[str, Any]) -> float:
    """The largest difference between `model` and what is read back from `path`.

    Raises:
        InputError: it is above the tolerance.
    """
    quiet = logging.getLogger("vitreous.checkpoints")
    level, training = quiet.level, model.training
    quiet.setLevel(logging.ERROR)  # nothing is assumed here: the model that was written is known
    try:
        again = load(path, format=format, **told)
    finally:
        quiet.setLevel(level)
    random = torch.Generator().manual_seed(0)
    images = torch.randn(2, model.config.channels, *model.config.image_size, generator=random)
    model.eval()
    outputs = [seen(model, images), seen(again, images)]
    model.train(training)
    difference = max((one - other).abs().max().item() for one, other in zip(*outputs, strict=True))
    scale = max(1.0, *(output.abs().max().item() for output in outputs[0]))
    if not difference <= TOLERANCE * scale:
        raise InputError(
            f"{format}: the model that was read back differs by {difference:.1e} (tolerance "
            f"{TOLERANCE * scale:.1e}): nothing is written"
        )
    return difference


def seen(model: Model, images: Tensor) -> tuple[Tensor, Tensor]:
    """What a model makes of images: logits, and tokens, which tell models with a head of zeros apart."""
    return model(images), model.tokens(images)


def put(unfinished: Path, path: Path) -> None:
    """Give what was written its name; a folder that exists gets the files one by one."""
    if unfinished.is_file() or not path.exists():
        os.replace(unfinished, path)
        return
    if not path.is_dir():
        raise InputError(f"{path} is a file; the format is a folder: give another path")
    for file in unfinished.iterdir():
        os.replace(file, path / file.name)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
