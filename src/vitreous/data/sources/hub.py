"""`hf:NAME`: a dataset of the datasets library: a name on the Hub, a folder saved by `save_to_disk`, or a
folder of Parquet files. `hf:NAME@CONFIG` picks one of several configurations.

The columns are found by their types: the first image and the class label (`label` or `fine_label` if there
are several).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitreous.data.config import DataConfig, Targets
from vitreous.data.dataset import BadImage, ImageDataset
from vitreous.data.decoding import decode
from vitreous.data.sources.manifests import numbers_of, refuse_numbers
from vitreous.data.sources.parquet_stream import open_stream
from vitreous.data.splitting import VALIDATION, with_own_parts
from vitreous.errors import InputError, require_packages

PREFERRED = ("label", "fine_label", "labels")


class HubImages:
    """One split of a dataset, memory-mapped by Arrow; encoded bytes are taken as they are."""

    def __init__(
        self,
        table: Any,
        image: str,
        label: str,
        *,
        name: str,
        kind: Targets = "classes",
        classes: tuple[str, ...] = (),
    ) -> None:
        import datasets

        self.source = name
        self.column = table.cast_column(image, datasets.Image(decode=False))[image]
        self.classes, self.targets = labels(table, label, name, kind, classes)

    def __len__(self) -> int:
        return len(self.targets)

    def name(self, index: int) -> str:
        return f"{self.source}[{index}]"

    def encoded(self, index: int) -> bytes:
        entry = self.column[index]
        if entry and entry["bytes"] is not None:
            data: bytes = entry["bytes"]
            return data
        if not entry or not entry["path"]:
            raise BadImage(self.name(index), "no image in this row")
        try:
            return Path(entry["path"]).read_bytes()
        except OSError as error:
            raise BadImage(self.name(index), error.strerror or str(error)) from error

    def image(self, index: int) -> Image.Image:
        return decode(self.encoded(index), self.name(index))


def open_hub(
    spec: str, config: DataConfig, kind: Targets = "classes"
) -> tuple[ImageDataset, ImageDataset | None, ImageDataset | None]:
    """Return (train, validation, test)."""
    if config.streaming and kind == "numbers":
        raise InputError("data.streaming=true streams classes alone: leave it out for a regression")
    if config.streaming:
        return open_stream(spec, config)
    return open_tables(load_tables(spec), f"hf:{spec}", config, kind)


def open_tables(
    tables: Mapping[str, Any], where: str, config: DataConfig, kind: Targets
) -> tuple[ImageDataset, ImageDataset | None, ImageDataset | None]:
    """Return (train, validation, test) of tables of the datasets library, by name."""
    if "train" not in tables:
        raise InputError(f"{where} has no split 'train', only: {', '.join(tables)}")
    image, label = columns(tables["train"], where)
    train = HubImages(tables["train"], image, label, name=f"{where}/train", kind=kind)
    held_out: dict[str, ImageDataset] = {
        name: HubImages(table, image, label, name=f"{where}/{name}", kind=kind, classes=train.classes)
        for name, table in tables.items()
        if name in ("test", *VALIDATION) and labeled(table, label)
    }
    return with_own_parts(train, held_out, config, where=where)


def load_tables(spec: str) -> dict[str, Any]:
    """Return every split, by name."""
    require_packages("datasets", extra="data", what="hf:")
    import datasets

    name, _, config = spec.partition("@")
    try:
        if any((Path(name) / file).exists() for file in ("dataset_dict.json", "state.json")):
            loaded = datasets.load_from_disk(name)
        else:
            loaded = datasets.load_dataset(name, config or None)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"hf:{spec} cannot be loaded: {reason}") from None
    return dict(loaded) if isinstance(loaded, dict) else {"train": loaded}


def columns(table: Any, where: str) -> tuple[str, str]:
    """(image, label): names of the two columns."""
    import datasets

    kinds = table.features
    images = [name for name, kind in kinds.items() if isinstance(kind, datasets.Image)]
    classes = [name for name, kind in kinds.items() if isinstance(kind, datasets.ClassLabel)]
    plain = [name for name in PREFERRED if name in kinds]
    if not images or not (classes or plain):
        raise InputError(
            f"{where} has no column of {'labels' if images else 'images'}; its columns are: "
            f"{', '.join(kinds)}"
        )
    preferred = [name for name in PREFERRED if name in classes]
    return images[0], (preferred or classes or plain)[0]


def labeled(table: Any, label: str) -> bool:
    """Whether a split has labels: published test splits often hold -1."""
    values = table[label][:1]
    return len(values) > 0 and values[0] not in (-1, None)


def labels(
    table: Any, label: str, name: str, kind: Targets, classes: tuple[str, ...]
) -> tuple[tuple[str, ...], NDArray[Any]]:
    """Return (classes, targets) of a column of class labels, words, or numbers."""
    import datasets

    feature, values = table.features[label], list(table[label])
    if isinstance(feature, datasets.ClassLabel) and kind == "classes":
        return tuple(feature.names), np.array(values, dtype=np.int64)
    if any(isinstance(value, list) or value is None for value in values):
        raise InputError(f"{name}: the column {label!r} has not one label for each image")
    if kind == "numbers":
        return (), numbers_of(values, f"{name}: the column {label!r}")
    refuse_numbers([str(value) for value in values], f"{name}: the column {label!r}")
    names = classes or tuple(map(str, sorted(set(values))))
    number = {value: index for index, value in enumerate(names)}
    if unknown := sorted(set(map(str, values)) - set(names)):
        raise InputError(f"{name} has the class {unknown[0]!r}, which the split 'train' does not have")
    return names, np.array([number[str(value)] for value in values], dtype=np.int64)
