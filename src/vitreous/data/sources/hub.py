"""`hf:NAME`: a dataset of the datasets library: a name on the Hub, a folder saved by `save_to_disk`, or a
folder of Parquet files. `hf:NAME@CONFIG` picks one of several configurations.

The columns are found by their types: the first image and the class label.

With `data.form.streaming=true` images are fetched while training, a row group at a time, from the Parquet
files that the Hub keeps of every public dataset; their labels alone are read at first. An epoch visits row
groups in random order and mixes the images of sixteen of them; a resumed run fetches nothing that it has
seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.config import DataConfig, HubForm, TargetKind
from vitreous.data.dataset import PARTS, ClassTargets, ImageDataset, SourceParts, Targets
from vitreous.data.sampling import WINDOW
from vitreous.data.sources.labels import (
    classes_if_any,
    finite_numbers,
    named_targets,
    refuse_captions,
    refuse_numbers,
)
from vitreous.errors import InputError, LazyModule, require_packages
from vitreous.models.stored import BadImage, bytes_of_file
from vitreous.outside import local_path

if TYPE_CHECKING:
    import datasets
    from datasets import Dataset
    from fsspec import AbstractFileSystem
    from pyarrow.parquet import ParquetFile
else:  # an extra, which takes long to import
    datasets = LazyModule("datasets")

PREFERRED = ("label", "fine_label", "labels")
HELD = 2 * WINDOW  # row groups in memory: those being mixed, and the next


class HubColumns(NamedTuple):
    """Names of the columns, and of the classes if the dataset knows them."""

    image: str
    label: str | None  # None: there are no labels, and none are needed
    classes: tuple[str, ...] | None


class HubImages(ImageDataset):
    """One split of a dataset, memory-mapped by Arrow; encoded bytes are taken as they are."""

    def __init__(
        self,
        table: Dataset,
        columns: HubColumns,
        *,
        name: str,
        kind: TargetKind,
        classes: tuple[str, ...] = (),
    ) -> None:
        self.source = name
        self.column = table.cast_column(columns.image, datasets.Image(decode=False))[columns.image]
        labels = list(table[columns.label]) if columns.label else [None] * len(table)
        self.targets = column_labels(labels, columns, name, kind, classes)

    def digest(self, index: int) -> str:
        return ""  # a whole image would be read

    def encoded(self, index: int) -> bytes:
        entry = self.column[index]
        if entry and entry["bytes"] is None and entry["path"]:
            return bytes_of_file(entry["path"])
        return stored_bytes(entry, self.name(index))


class StreamedImages(ImageDataset):
    """Images in Parquet files that are read by row groups, which are the blocks."""

    blocks: NDArray[np.int32]

    def __init__(
        self,
        system: AbstractFileSystem,
        files: Sequence[str],
        columns: HubColumns,
        *,
        name: str,
        kind: TargetKind,
        classes: tuple[str, ...] = (),
    ) -> None:
        self.system, self.source, self.columns = system, name, columns
        self.row_groups: list[tuple[str, int]] = []
        counts: list[int] = []
        labels: list[object] = []
        for file in files:
            with system.open(file, "rb") as opened:
                table = parquet_file(opened, file)
                for group in range(table.num_row_groups):
                    self.row_groups.append((file, group))
                    counts.append(table.metadata.row_group(group).num_rows)
                if columns.label:
                    labels += table.read(columns=[columns.label]).column(0).to_pylist()
                else:
                    labels += [None] * table.metadata.num_rows
        self.starts = np.cumsum([0, *counts])
        self.blocks = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        self.targets = column_labels(labels, columns, name, kind, classes)
        self.fetched = lru_cache(maxsize=HELD)(self.fetch)
        self.fetching = [Lock() for _ in counts]

    def encoded(self, index: int) -> bytes:
        block = int(self.blocks[index])
        # The first thread that needs a row group fetches it.
        with self.fetching[block]:
            rows = self.fetched(block)
        return stored_bytes(rows[index - int(self.starts[block])], self.name(index))

    def digest(self, index: int) -> str:
        return ""  # the image would be fetched

    def fetch(self, block: int) -> list[object]:
        """Read a row group's images."""
        file, group = self.row_groups[block]
        with self.system.open(file, "rb") as opened:
            table = parquet_file(opened, file)
            return table.read_row_group(group, [self.columns.image]).column(0).to_pylist()


def stored_bytes(entry: object, name: str) -> bytes:
    """Return the image that a row of a Parquet file holds: bytes, or {"bytes": ..., "path": ...}. Raises
    BadImage: there is none."""
    data, path = entry, None
    if isinstance(entry, dict):
        data, path = entry.get("bytes"), entry.get("path")
    if isinstance(data, bytes) and data:
        return data
    raise BadImage(name, f"the Parquet file has only its path, {path}" if path else "no image in this row")


def open_hub(spec: str, config: DataConfig, kind: TargetKind) -> SourceParts:
    """Return the parts of what is written after `hf:`."""
    streaming = config.settings_of(HubForm).streaming
    if streaming and kind == "numbers":
        raise InputError("data.form.streaming=true is only for classes: leave it out for regression")
    if streaming:
        return open_stream(spec, kind)
    return open_tables(load_tables(spec), f"hf:{spec}", kind)


def open_tables(tables: Mapping[str, Dataset], where: str, kind: TargetKind) -> SourceParts:
    """Return the parts of tables of the datasets library, which are given by name."""
    if "train" not in tables:
        raise InputError(f"{where} has no split 'train', only: {', '.join(tables)}")
    columns = hub_columns(tables["train"].features, where, kind)
    train = HubImages(tables["train"], columns, name=f"{where}/train", kind=kind)
    found = {"train": train}
    for name, table in tables.items():
        if PARTS.get(name, "train") == "train":
            continue
        if columns.label is None or labeled(table, columns.label):
            found[name] = HubImages(table, columns, name=f"{where}/{name}", kind=kind, classes=train.classes)
    return found


def load_tables(spec: str) -> dict[str, Dataset]:
    """Return every split, by name."""
    require_packages("datasets", extra="data", what="hf:")
    name, _, config = spec.partition("@")
    if not name:
        raise InputError(f"hf:{spec} names no dataset: write hf:NAME, or hf:FOLDER")
    if (folder := local_path(name)).is_dir():
        name = str(folder)
        # The library would look through all below it.
        if not is_saved(folder) and not any(parquet_below(folder)):
            raise InputError(
                f"hf:{spec} is a folder without Parquet files or a dataset of the datasets library: for a "
                "folder of images, leave out hf:"
            )
    try:
        if is_saved(Path(name)):
            loaded = datasets.load_from_disk(name)
        else:
            loaded = datasets.load_dataset(name, config or None)
    except Exception as error:
        # The library may stumble on anything.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"hf:{spec} cannot be loaded: {reason}") from None
    return dict(loaded) if isinstance(loaded, dict) else {"train": loaded}


def is_saved(folder: Path) -> bool:
    """Return whether a folder was written by `save_to_disk`."""
    return (folder / "dataset_dict.json").exists() or (folder / "state.json").exists()


def parquet_below(folder: Path) -> Iterator[Path]:
    """Yield the Parquet files of a folder as deep as the Hub has them, CONFIG/PART/0000.parquet.
    All that is below it may be a whole machine."""
    for pattern in ("*.parquet", "*/*.parquet", "*/*/*.parquet"):
        yield from folder.glob(pattern)


def hub_columns(features: Mapping[str, object], where: str, kind: TargetKind) -> HubColumns:
    """Return the columns by their types, or else by their names. Raises InputError: there are none."""
    images: list[str] = []
    labels: list[str] = []
    for name, feature in features.items():
        if isinstance(feature, datasets.Image) or name == "image":
            images.append(name)
        if isinstance(feature, datasets.ClassLabel):
            labels.append(name)
    labels = labels or [name for name in PREFERRED if name in features]
    if images and not labels and kind == "unlabeled":
        return HubColumns(images[0], None, None)
    if not images or not labels:
        raise InputError(
            f"{where} has no column of {'labels' if images else 'images'}; its columns are: "
            f"{', '.join(features)}"
        )
    label = next((name for name in PREFERRED if name in labels), labels[0])
    names = getattr(features[label], "names", None)
    return HubColumns(images[0], label, tuple(names) if names else None)


def labeled(table: Dataset, label: str) -> bool:
    """Return whether a split has labels: published test splits often hold -1."""
    values = table[label][:1]
    return len(values) > 0 and values[0] not in (-1, None)


def column_labels(
    values: Sequence[Any],  # of the types of Arrow
    columns: HubColumns,
    name: str,
    kind: TargetKind,
    classes: tuple[str, ...],
) -> Targets:
    """Return the targets of a column of class numbers, words, or numbers to predict; of images that
    need no labels, of one class where these are not classes. classes: those of the training set, where this
    is another one."""

    def read() -> Targets:
        """Raise InputError for labels that are not classes, or numbers."""
        where = f"{name}: the column {columns.label!r}"
        if any(isinstance(value, list) or value is None for value in values):
            raise InputError(f"{where} does not have one label for each image")
        if kind == "numbers":
            return finite_numbers(values, where)
        if columns.classes:
            return ClassTargets(np.array(values, dtype=np.int64), columns.classes)
        words = [str(value) for value in values]
        refuse_numbers(words, where)
        if not classes:
            refuse_captions(words, where)
        return named_targets(words, name, classes or tuple(map(str, sorted(set(values)))))

    return classes_if_any(read, len(values), kind, classes)


def open_stream(spec: str, kind: TargetKind) -> SourceParts:
    """Return the parts of a folder of Parquet files or a dataset on the Hub."""
    require_packages("datasets", "pyarrow", extra="data", what="streaming")
    system, files = find_files(spec)
    by_part: dict[str, list[str]] = {}
    for file in sorted(files):
        *folders, last = file.split("/")
        marks = {last.removesuffix(".parquet").partition("-")[0], *folders[-1:]}
        named = [name for name in PARTS if name in marks]
        if named:
            by_part.setdefault(named[0], []).append(file)
    if "train" not in by_part:
        raise InputError(
            f"hf:{spec} has no Parquet files of a split 'train': stream another dataset, or turn streaming "
            "off"
        )
    with system.open(by_part["train"][0], "rb") as opened:
        schema = parquet_file(opened, by_part["train"][0]).schema_arrow
    columns = hub_columns(datasets.Features.from_arrow_schema(schema), f"hf:{spec}", kind)
    train = StreamedImages(system, by_part.pop("train"), columns, name=f"hf:{spec}/train", kind=kind)
    found = {"train": train}
    for name, files in by_part.items():
        found[name] = StreamedImages(
            system, files, columns, name=f"hf:{spec}/{name}", kind=kind, classes=train.classes
        )
    return found


def find_files(spec: str) -> tuple[AbstractFileSystem, list[str]]:
    """Return (file system, Parquet files): of a local folder, or of the Hub's own conversion of a dataset.
    Raises InputError: it cannot be reached, or has several configurations of which none is named."""
    if (folder := local_path(spec)).is_dir():
        from fsspec.implementations.local import LocalFileSystem

        return LocalFileSystem(), list(map(str, parquet_below(folder)))
    require_packages("huggingface_hub", extra="hub", what="streaming")
    from huggingface_hub import HfFileSystem

    system: AbstractFileSystem = HfFileSystem()
    name, _, part = spec.partition("@")
    root = f"datasets/{name}@refs%2Fconvert%2Fparquet"
    try:
        if not part:
            folders = [each["name"] for each in system.ls(root, detail=True) if each["type"] == "directory"]
            configs = sorted(folder.rpartition("/")[2] for folder in folders)
            if len(configs) > 1 and "default" not in configs:
                raise InputError(
                    f"hf:{name} has several configurations ({', '.join(configs)}): name one, as in "
                    f"hf:{name}@{configs[0]}"
                )
            part = configs[0] if len(configs) == 1 else "default"
        return system, list(system.glob(f"{root}/{part}/**/*.parquet"))
    except OSError as error:
        raise InputError(f"hf:{spec} cannot be reached: {' '.join(str(error).split())}") from None


def parquet_file(opened: BinaryIO, name: str) -> ParquetFile:
    """Return a Parquet file of which nothing but the end has been read."""
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(opened)
    except ArrowInvalid as error:
        raise InputError(f"{name} is not a Parquet file: {error}") from None
