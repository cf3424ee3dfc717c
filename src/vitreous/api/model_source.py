"""What MODEL means: a run, a checkpoint, a name, an exported file or a module; and where it is computed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeGuard

import torch
from torch import nn

from vitreous.api.arguments import check_batch_size, check_whole, path_of_run, say
from vitreous.checkpoints.loading import load
from vitreous.data.workers import loading_workers
from vitreous.deployment.programs import is_program, open_image_model, open_program, substitute
from vitreous.errors import InputError, LazyModule, Param
from vitreous.models.model import Runnable
from vitreous.training.machine import keep_freed_memory, pick_device
from vitreous.training.options import ModelLike

if TYPE_CHECKING:
    from vitreous.evaluation import native_aspect as aspect
else:  # seldom asked for
    aspect = LazyModule("vitreous.evaluation.native_aspect")

BATCH = {"cpu": 16, "cuda": 64}  # images that are computed together by default


def resolve_model(model: ModelLike, **fields: Any) -> Runnable:
    """Return the model that MODEL means, in evaluation mode.

    Args:
        model: a run directory, a checkpoint in any format, `hf:org/name`, a model name such as "ViT-B/16", an
            exported program, a `Run`, or a module of vitreous, timm, transformers ...
        fields: of the model's configuration, to be changed.

    Raises:
        InputError: MODEL is none of these, or its run has not finished; or fields for a module.
    """
    model = path_of_run(model)
    if isinstance(model, nn.Module):
        if any(each.is_meta for each in model.parameters()):
            raise InputError("a model on the meta device has no weights: load it with vitreous.load")
        if not is_runnable(model):
            return load(model, **fields)
        if fields:
            raise InputError(
                f"{next(iter(fields))} cannot be given with a model that is already loaded: use "
                "vitreous.resize, or give it to vitreous.load"
            )
        return model
    if not isinstance(model, str | Path):
        raise InputError(
            f"a model is a path, a name such as ViT-B/16, a Run or a PyTorch module, not {model!r:.60}"
        )
    return open_image_model(model, **fields)


def is_runnable(model: nn.Module) -> TypeGuard[Runnable]:
    """Return whether a module knows its architecture and how its images are prepared, as ours do."""
    return hasattr(model, "preprocessing") and hasattr(model, "config")


def known_module(model: object) -> Any:
    """Return a module of another library as a model of this one, and anything else as it is. Raises
    InputError: it is none that is known."""
    if isinstance(model, nn.Module) and not hasattr(model, "config"):
        return resolve_model(model)
    return model


def native_aspect(model: ModelLike, patches: int, fields: Mapping[str, object]) -> aspect.NativeAspect:
    """Return what MODEL means as a model that takes each image in its own aspect ratio. Raises InputError if
    `resolve_model` does, or if the model cannot do this."""
    check_whole("patches", patches)
    if patches < 1:
        raise InputError(f"{Param('patches')} {patches} leaves nothing of the image: use 1 or more")
    return aspect.NativeAspect(resolve_model(model, **fields), patches=patches)


def program_of(model: ModelLike) -> ModelLike:
    """Return the module that an exported file means, which says its task; any other MODEL as it is."""
    return open_program(Path(model)) if is_program(model) else model


class Computation(TypedDict):
    """Where and how images are computed."""

    device: torch.device
    batch_size: int
    workers: int


def computation(device: str, batch_size: int | None, workers: int | None) -> Computation:
    """Return where and how images are computed: the device, as many threads that decode as it has cores where
    `workers` is None, and batches of 16 on a CPU and 64 on a GPU where `batch_size` is None. Memory that a
    batch has freed is kept for the next one."""
    check_batch_size(batch_size)
    keep_freed_memory()
    here = pick_device(device)
    return {"device": here, "batch_size": batch_size or BATCH[here.type], "workers": loading_workers(workers)}


def fastest(model: ModelLike, precision: str, device: str, fields: Mapping[str, object]) -> object:
    """Return what computes MODEL fastest: what an add-on has chosen for it, where nothing else is asked for,
    and said on stderr; or MODEL itself."""
    plain = precision == "auto" and device in ("auto", "cpu") and not fields
    chosen = substitute(model) if plain else None
    if chosen is None:
        return model
    say(chosen.sentence)
    return chosen.open(resolve_model(model)) if chosen.file is None else chosen.file
