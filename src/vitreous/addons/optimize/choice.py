"""What `vitreous optimize` has chosen for a model: a file beside its weights, read without PyTorch."""

from __future__ import annotations

import json
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vitreous.addons.optimize.engines import ENGINES, BackendConfig, prepared_module
from vitreous.deployment.programs import Substitute, format_of
from vitreous.errors import is_installed
from vitreous.outside import local_path, read_text, sha256_of

if TYPE_CHECKING:
    from torch import nn

    from vitreous.models.vit import ViT

CHOICE = "optimized.json"  # beside the weights


class Optimized(NamedTuple):
    """What `vitreous optimize` has chosen for a model.

    Attributes:
        file: what computes it; None where PyTorch does.
        sentence: about it.
    """

    file: Path | None
    engine: str
    precision: str
    merged: int
    sentence: str


def substitute(spec: object) -> Substitute | None:
    """Return what computes a run or a folder of weights in its place; None where nothing was chosen."""
    chosen = optimized(spec)
    if chosen is None:
        return None
    return Substitute(chosen.sentence, chosen.file, partial(open_chosen, chosen=chosen))


def open_chosen(model: ViT, chosen: Optimized) -> nn.Module:
    """Return a model as PyTorch computes it by a choice without a file."""
    from vitreous.addons.optimize.token_merging import with_merged_tokens

    candidate = BackendConfig(chosen.engine, chosen.precision, chosen.merged)
    return prepared_module(with_merged_tokens(model, chosen.merged) if chosen.merged else model, candidate)


def optimized(spec: object) -> Optimized | None:
    """Return what was chosen for a run or a folder of weights; None where nothing was, not for its present
    weights, or an engine that is not installed here."""
    if not isinstance(spec, str | Path):
        return None
    path = local_path(spec)
    for folder in (path, path / "model"):
        try:
            chosen = json.loads(read_text(folder / CHOICE))
            weights = folder / "model.safetensors"
            if chosen["stamp"] != stamp_of(weights) and chosen["weights"] != sha256_of(weights):
                return None
            file: Path | None = folder / chosen["file"] if chosen["file"] else None
            if file is not None and format_of(file) is None:
                return None
            if not is_installed(package := ENGINES[chosen["engine"]].package):
                warnings.warn(
                    f"{folder / CHOICE} asks for {package}, which is not installed: PyTorch is used instead",
                    stacklevel=2,
                )
                return None
            return Optimized(
                file, chosen["engine"], chosen["precision"], int(chosen["merged"]), chosen["sentence"]
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def stamp_of(file: Path) -> list[int]:
    """Return the size and the time of a file, which tell sooner than its hash that it is unchanged."""
    found = file.stat()
    return [found.st_size, found.st_mtime_ns]
