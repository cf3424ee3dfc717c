"""What a model answers to images: the most probable labels of each; what `vitreous.predict` returns, and the
files that it writes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic_core import to_json

from vitreous.errors import InputError, LazyModule, check_free, require_packages, writing_to
from vitreous.results import Answer, Result, percent, scalars
from vitreous.whole_files import folder_for, whole

if TYPE_CHECKING:
    import pyarrow
    from pyarrow import parquet
else:  # an extra, which takes long to import
    pyarrow, parquet = LazyModule("pyarrow"), LazyModule("pyarrow.parquet")


@dataclass(frozen=True)
class Choice:
    """A label, and what probability the model gives it."""

    label: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The most probable labels of one image, in descending order, and the first of them.

    Attributes:
        labels: all that reach a threshold, where one was given.
    """

    path: str
    label: str
    probability: float
    top: tuple[Choice, ...]
    labels: tuple[str, ...] | None = None

    @classmethod
    def of(cls, path: str, top: tuple[Choice, ...], labels: tuple[str, ...] | None = None) -> Prediction:
        return cls(path, top[0].label, top[0].probability, top, labels)

    def to_json(self) -> dict[str, object]:
        fields = asdict(self)
        if self.labels is None:
            del fields["labels"]
        return fields

    def line(self) -> str:
        """Return the prediction for people, in a line."""
        some = self.top[1:] if self.labels is None else self.top
        others = ", ".join(f"{each.label} {percent(each.probability)}" for each in some)
        if self.labels is not None:
            said = f"{self.path}  {' | '.join(self.labels) or '-'}"
        else:
            said = f"{self.path}  {self.label}  {percent(self.probability)}"
        return f"{said}  ({others})" if others else said


@dataclass(frozen=True)
class Predictions(Result):
    """The answers to images, in order, and the images that could not be read, with the reason.

    Attributes:
        count: how many answers there are.
        out: the file that they are in; then `answers` is empty.
    """

    task: str
    answers: Sequence[Answer]
    failed: Mapping[str, str]
    count: int
    about: Mapping[str, Any] = field(default_factory=dict)
    out: Path | None = None

    def to_json(self) -> dict[str, object]:
        answers = [each.to_json() for each in self.answers]
        given = {"count": self.count, "out": str(self.out)} if self.out else {"predictions": answers}
        failed = [{"path": path, "reason": reason} for path, reason in self.failed.items()]
        return {"task": self.task, **given, "failed": failed, **self.about}

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return iter(self.answers)

    def __getitem__(self, index: int) -> Any:
        return self.answers[index]

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each image."""
        return [scalars(each.to_json()) for each in self.answers]


TOGETHER = 1024  # rows of a Parquet row group

AddAnswer = Callable[[Answer], None]
Columns = dict[str, Any]  # a column's values by its name: a list, or an array with a row for each image


def is_folder(out: str | Path) -> bool:
    """Return whether `out` means a folder: one that is there, or a name without an ending."""
    return Path(out).is_dir() or not Path(out).suffix


def check_for_folder(engine: str | None, actors: int | None) -> None:
    """Raise InputError for options that are of folders alone."""
    if engine is not None or actors is not None:
        raise InputError("`engine` and `actors` are for a folder of answers: give `out` FOLDER")


def check_answer_file(path: Path) -> None:
    """Raise InputError where answers cannot be written to `path`."""
    if path.suffix not in WRITERS:
        raise InputError(
            f"{path}: answers are written as .csv, .jsonl or .parquet, or into a folder: end the name in one "
            "of them, or without an ending"
        )
    check_free(path)
    if path.suffix == ".parquet":
        require_packages("pyarrow", extra="data", what=f"writing {path}")


@contextmanager
def answer_file(path: Path) -> Iterator[AddAnswer]:
    """Yield what adds an answer to a file, in a folder that is made where it is missing. The file has its
    name once the context ends without an error. Raises InputError: it cannot be written."""
    with (
        writing_to(path),
        folder_for(path.parent),
        whole(path, new=True) as partial,
        WRITERS[path.suffix](partial) as add,
    ):
        yield add


@contextmanager
def csv_rows(path: Path) -> Iterator[AddAnswer]:
    """Yield what writes answers as the rows of a CSV, whose columns are those of the first answer."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table: csv.DictWriter[str] | None = None

        def add(answer: Answer) -> None:
            nonlocal table
            row = answer_columns(answer.to_json())
            if table is None:
                table = csv.DictWriter(file, list(row))
                table.writeheader()
            table.writerow(row)

        yield add


@contextmanager
def json_lines(path: Path) -> Iterator[AddAnswer]:
    """Yield what writes an answer as a line of JSON."""
    with path.open("w", encoding="utf-8", newline="") as file:
        yield lambda answer: print(to_json(answer.to_json(), inf_nan_mode="null").decode(), file=file)


@contextmanager
def parquet_rows(path: Path) -> Iterator[AddAnswer]:
    """Yield what writes an answer as a row of a Parquet file."""
    tables = ParquetTables(path)
    yield lambda answer: tables.add(pyarrow.Table.from_pylist([answer_columns(answer.to_json())]))
    tables.close()


WRITERS: Mapping[str, Callable[[Path], AbstractContextManager[AddAnswer]]] = {
    ".csv": csv_rows,
    ".jsonl": json_lines,
    ".parquet": parquet_rows,
}


class ParquetTables:
    """A Parquet file that takes tables as they come, many rows in a group; its columns are those of the
    first rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waiting: list[pyarrow.Table] = []
        self.writer: parquet.ParquetWriter | None = None

    def add(self, table: pyarrow.Table) -> None:
        self.waiting.append(table)
        if sum(map(len, self.waiting)) >= TOGETHER:
            self.flush()

    def flush(self) -> parquet.ParquetWriter:
        """Write the rows that wait; return what writes them."""
        table = pyarrow.concat_tables(self.waiting or [pyarrow.table({})], promote_options="permissive")
        self.waiting.clear()
        self.writer = self.writer or parquet.ParquetWriter(self.path, table.schema)
        self.writer.write_table(table.cast(self.writer.schema).combine_chunks())
        return self.writer

    def close(self, metadata: Mapping[bytes, str] | None = None) -> None:
        """End the file. metadata: of the file."""
        writer = self.flush() if self.waiting or self.writer is None else self.writer
        writer.add_key_value_metadata(metadata or {})
        writer.close()


def answer_columns(answer: Mapping[str, object]) -> Columns:
    """Return an answer as one value for each column: of the labels after the first one `label_2`,
    `probability_2` ...; several labels with a bar between, as manifests have them; shares as JSON."""
    row: Columns = {}
    for name, value in answer.items():
        if name == "top" and isinstance(value, list | tuple):
            for number, each in enumerate(value[1:], start=2):
                row[f"label_{number}"] = each["label"]
                row[f"probability_{number}"] = each["probability"]
        elif isinstance(value, Mapping):
            row[name] = json.dumps(value, ensure_ascii=False)
        else:
            row[name] = "|".join(value) if isinstance(value, list | tuple) else value
    return row


def table_of(columns: Columns) -> pyarrow.Table:
    """Return columns as a pyarrow table; arrays as lists of a fixed length."""
    arrays = {}
    for name, values in columns.items():
        if isinstance(values, np.ndarray) and values.ndim == 2:
            flat = pyarrow.array(values.reshape(-1))
            arrays[name] = pyarrow.FixedSizeListArray.from_arrays(flat, values.shape[1])
        else:
            arrays[name] = pyarrow.array(values)
    return pyarrow.table(arrays)
