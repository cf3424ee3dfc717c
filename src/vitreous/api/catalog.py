"""`vitreous.describe`, the lists of what there is, and the cache."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import (
    ImageSize,
    Settings,
    is_fresh,
    model_fields,
    resolve_model,
    settings_tree,
)
from vitreous.errors import InputError, nearest
from vitreous.results import Result

if TYPE_CHECKING:
    from vitreous.models.description import Description

KINDS = {
    "features": "features of frozen models, kept for probes",
    "studies": "runs of studies",
    "data": "images and labels that were given in memory",
}


@dataclass(frozen=True)
class CacheUse(Result):
    """The cache's folder, and the bytes of each kind of content."""

    folder: Path
    bytes: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "bytes": self.bytes, "total_bytes": sum(self.bytes.values())}

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each kind of content."""
        return [{"kind": kind, "what": KINDS[kind], "bytes": size} for kind, size in self.bytes.items()]


def cache_use() -> CacheUse:
    """Measure what the cache ($VITREOUS_CACHE, or ~/.cache/vitreous) holds."""
    from vitreous.evaluation.features import cache_folder

    folder = cache_folder()
    files = {kind: [file for file in (folder / kind).rglob("*") if file.is_file()] for kind in KINDS}
    return CacheUse(folder, {kind: sum(file.stat().st_size for file in files[kind]) for kind in KINDS})


def clear_cache(kind: str | None = None) -> CacheUse:
    """Delete what the cache holds, or one kind of it. Returns what was deleted.

    Args:
        kind: "features", "studies" or "data".

    Raises:
        InputError: there is no such kind, or a file cannot be deleted.
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"unknown kind {kind!r}: {nearest(kind, list(KINDS))}")
    use = cache_use()
    deleted = {name: size for name, size in use.bytes.items() if kind in (None, name)}
    for name in deleted:
        try:
            if (use.folder / name).exists():
                shutil.rmtree(use.folder / name)
        except OSError as error:
            raise InputError(f"cannot delete {use.folder / name}: {error.strerror}") from error
    return CacheUse(use.folder, deleted)


def list_recipes() -> dict[str, str]:
    """Return the first line of each recipe's description, by the recipe's name."""
    from vitreous.training.recipes import NAMES, recipe

    return {name: recipe(name).text.splitlines()[0] for name in NAMES}


def describe(
    model: Any,
    *,
    image_size: ImageSize | None = None,
    batch_size: int = 1,
    settings: Settings | None = None,
    config: str | Path | None = None,
) -> Description:
    """Describe each stage of a forward pass: shape, parameters, operations, equation; and the memory.

    Args:
        model: a name such as ViT-B/16, which needs no weights; a run, a checkpoint in any format, or a model.
        batch_size: of the memory.
        settings, config: fields of the model's configuration, {"model.heads": 12}; and a TOML file of them.

    Raises:
        InputError: no such model, or values that do not fit together.
    """
    from vitreous.models.description import describe as describe_model
    from vitreous.models.names import change, config_of

    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}: give at least 1")
    fields = model_fields(settings_tree(settings, config), image_size)
    if is_fresh(model):
        return describe_model(config_of(model, **fields), batch_size=batch_size)
    opened = resolve_model(model)
    return describe_model(change(opened.config, fields) if fields else opened, batch_size=batch_size)
