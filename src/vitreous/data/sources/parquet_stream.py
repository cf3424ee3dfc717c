"""`hf:NAME` with `data.streaming=true`: images fetched while training, a row group at a time.

The Hub keeps every public dataset as Parquet files too. Of these the labels alone are read at first (Parquet
stores columns apart), so that length, classes and order are known; images come when they are needed, and a
few row groups stay in memory. An epoch visits row groups in random order and mixes the images of sixteen of
them: less random than a full shuffle, but as deterministic; a resumed run fetches nothing that it has seen.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitreous.data.config import DataConfig
from vitreous.data.dataset import BadImage, ImageDataset
from vitreous.data.decoding import decode
from vitreous.data.sampling import WINDOW
from vitreous.data.splitting import VALIDATION, with_own_parts
from vitreous.errors import InputError, require_packages

HELD = 2 * WINDOW  # row groups in memory: those being mixed, and the next
PARTS = ("train", "test", *VALIDATION)


class Columns(NamedTuple):
    """Names of the columns, and of the classes if the file tells them."""

    image: str
    label: str
    classes: tuple[str, ...] | None


class StreamedImages:
    """Images in Parquet files that are read by row groups. blocks: (N,) the row group of each image."""

    def __init__(self, system: Any, files: Sequence[str], columns: Columns, *, name: str) -> None:
        self.system = system
        self.source = name
        self.columns = columns
        self.groups: list[tuple[str, int]] = []
        counts: list[int] = []
        labels: list[Any] = []
        for file in files:
            with system.open(file, "rb") as opened:
                table = parquet_file(opened, file)
                for group in range(table.num_row_groups):
                    self.groups.append((file, group))
                    counts.append(table.metadata.row_group(group).num_rows)
                labels += table.read(columns=[columns.label]).column(0).to_pylist()
        self.starts = np.cumsum([0, *counts])
        self.blocks = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        self.classes, self.targets = numbered(labels, columns, name)
        self.held: OrderedDict[int, list[Any]] = OrderedDict()
        self.lock = Lock()
        self.fetching = [Lock() for _ in counts]

    def __len__(self) -> int:
        return len(self.blocks)

    def name(self, index: int) -> str:
        return f"{self.source}[{index}]"

    def encoded(self, index: int) -> bytes:
        block = int(self.blocks[index])
        entry = self.rows(block)[index - int(self.starts[block])]
        if not entry or entry["bytes"] is None:
            path = (entry or {}).get("path")
            reason = f"the Parquet file holds but its path, {path}" if path else "no image in this row"
            raise BadImage(self.name(index), reason)
        data: bytes = entry["bytes"]
        return data

    def image(self, index: int) -> Image.Image:
        return decode(self.encoded(index), self.name(index))

    def rows(self, block: int) -> list[Any]:
        """A row group's images, fetched by the first thread that needs them; the longest unused go."""
        with self.fetching[block]:
            with self.lock:
                if block in self.held:
                    self.held.move_to_end(block)
                    return self.held[block]
            file, group = self.groups[block]
            with self.system.open(file, "rb") as opened:
                table = parquet_file(opened, file)
                rows: list[Any] = table.read_row_group(group, [self.columns.image]).column(0).to_pylist()
            with self.lock:
                self.held[block] = rows
                while len(self.held) > HELD:
                    self.held.popitem(last=False)
            return rows


def open_stream(
    spec: str, config: DataConfig
) -> tuple[ImageDataset, ImageDataset | None, ImageDataset | None]:
    """(train, validation, test) of a folder of Parquet files or a dataset on the Hub."""
    system, files = find_files(spec)
    by_part: dict[str, list[str]] = {}
    for file in sorted(files):
        *folders, last = file.split("/")
        marks = {last.removesuffix(".parquet").partition("-")[0], *folders[-1:]}
        if part := next((name for name in PARTS if name in marks), None):
            by_part.setdefault(part, []).append(file)
    if "train" not in by_part:
        raise InputError(f"hf:{spec} has no Parquet files of a split 'train': stream another, or turn it off")
    with system.open(by_part["train"][0], "rb") as opened:
        columns = find_columns(parquet_file(opened, by_part["train"][0]).schema_arrow, spec)
    parts: dict[str, ImageDataset] = {
        name: StreamedImages(system, files, columns, name=f"hf:{spec}/{name}")
        for name, files in by_part.items()
    }
    return with_own_parts(parts.pop("train"), parts, config, where=f"hf:{spec}")


def find_files(spec: str) -> tuple[Any, list[str]]:
    """(file system, Parquet files): of a local folder, or of the Hub's own conversion of a dataset."""
    if (folder := Path(spec).expanduser()).is_dir():
        from fsspec.implementations.local import LocalFileSystem

        return LocalFileSystem(), [str(path) for path in folder.rglob("*.parquet")]
    require_packages("huggingface_hub", extra="hub", what="streaming")
    from huggingface_hub import HfFileSystem

    system = HfFileSystem()
    name, _, part = spec.partition("@")
    root = f"datasets/{name}@refs%2Fconvert%2Fparquet"
    try:
        return system, list(system.glob(f"{root}/{part or '*'}/**/*.parquet"))
    except OSError as error:
        raise InputError(f"hf:{spec} cannot be reached: {' '.join(str(error).split())}") from None


def parquet_file(opened: Any, name: str) -> Any:
    """A Parquet file of which nothing but the end has been read."""
    require_packages("pyarrow", extra="data", what="streaming")
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(opened)
    except ArrowInvalid as error:
        raise InputError(f"{name} is not a Parquet file: {error}") from None


def find_columns(schema: Any, spec: str) -> Columns:
    """By the types that the datasets library notes in the file, else by the names image and label."""
    noted = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = noted.get("info", {}).get("features", {})
    kinds = {name: feature.get("_type") for name, feature in features.items() if isinstance(feature, dict)}
    images = [name for name in schema.names if kinds.get(name) == "Image" or name == "image"]
    labels = [name for name in schema.names if kinds.get(name) == "ClassLabel" or name == "label"]
    if not images or not labels:
        raise InputError(
            f"hf:{spec} has no column of {'labels' if images else 'images'}; its columns are: "
            f"{', '.join(schema.names)}"
        )
    label = next((name for name in ("label", "fine_label") if name in labels), labels[0])
    names = features.get(label, {}).get("names")
    return Columns(images[0], label, tuple(names) if names else None)


def numbered(labels: list[Any], columns: Columns, name: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """(classes, targets): class numbers as they are if their names are known."""
    if any(label is None or isinstance(label, list) for label in labels):
        raise InputError(f"{name}: the column {columns.label!r} has not one label for each image")
    if columns.classes:
        return columns.classes, np.array(labels, dtype=np.int64)
    values = sorted(set(labels))
    number = {value: index for index, value in enumerate(values)}
    return tuple(map(str, values)), np.array([number[label] for label in labels], dtype=np.int64)
