"""What `vitreous optimize` has chosen for a model: a file beside its weights, read without PyTorch."""

from __future__ import annotations

import json
import warnings
from functools import partial
from pathlib import Path

from vitreous.addons.optimize.engines import ENGINES, BackendConfig, prepared_module
from vitreous.deployment.programs import Substitute, format_of
from vitreous.errors import is_installed
from vitreous.outside import local_path, read_text, sha256_of

CHOICE = "optimized.json"  # beside the weights


def substitute(spec: object) -> Substitute | None:
    """Return what computes a run or a folder of weights in its place; None where nothing was chosen, not for
    its present weights, or an engine that is not installed here."""
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
            if not is_installed(package := ENGINES[chosen["engine"]]):
                warnings.warn(
                    f"{folder / CHOICE} asks for {package}, which is not installed: PyTorch is used instead",
                    stacklevel=2,
                )
                return None
            candidate = BackendConfig(chosen["engine"], chosen["precision"], int(chosen["merged"]))
            return Substitute(chosen["sentence"], file, partial(prepared_module, candidate=candidate))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def stamp_of(file: Path) -> list[int]:
    """Return the size and the time of a file, which tell sooner than its hash that it is unchanged."""
    found = file.stat()
    return [found.st_size, found.st_mtime_ns]
