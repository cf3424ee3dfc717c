"""What a model answers to images: the most probable labels of each; what `vitreous.predict` returns, and the
files that it writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from vitreous.errors import InputError, LazyModule, check_free, require_packages, writing_to
from vitreous.results import Answer, Result, failures, percent, scalars
from vitreous.whole_files import folder_for, whole, write_csv_rows

if TYPE_CHECKING:
    import pyarrow
    from pyarrow import parquet

    from vitreous.data.image_list import ImageRows
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
class Unreadable:
    """The row of an image that cannot be read, in the place of an answer.

    Attributes:
        error: why.
        label, probability, value, text, score: None, whatever the task would have answered.
        top, labels: empty.
    """

    path: str
    error: str
    label = probability = value = text = score = None
    top: ClassVar[tuple[Choice, ...]] = ()
    labels: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    def line(self) -> str:
        return f"{self.path}  {self.error}"


@dataclass(frozen=True)
class Damaged:
    """The answer to what is left of an image, of which the attributes are those of the answer.

    Attributes:
        answer: itself.
        damaged: what is missing of the image.
    """

    answer: Answer
    damaged: str

    def __getattr__(self, name: str) -> Any:
        # The attribute is not there yet while the answers are copied or unpickled.
        if name.startswith("__") or name == "answer":
            raise AttributeError(name)
        return getattr(self.answer, name)

    @property
    def path(self) -> str:
        return self.answer.path

    def to_json(self) -> dict[str, object]:
        return {**self.answer.to_json(), "damaged": self.damaged}

    def line(self) -> str:
        return f"{self.answer.line()}  [{self.damaged}]"


def with_unreadable(rows: ImageRows, answers: Iterable[Answer]) -> Iterator[Answer]:
    """Yield an answer for each row, given those to the images that could be read."""
    found = iter(answers)
    for place, name in enumerate(rows.names):
        if place in rows.failed:
            yield Unreadable(name, rows.failed[place])
            continue
        answer = next(found)
        yield Damaged(answer, rows.damaged[place]) if place in rows.damaged else answer


@dataclass(frozen=True)
class Predictions(Result):
    """The answers to images, one for each that was asked about and in this order. Of an image that cannot be
    read it is an `Unreadable`, which says why; of a damaged one it says what is missing.

    Attributes:
        failed: the images that could not be read, with the reason.
        count: how many images there are.
        out: the file or folder that the answers are in; then `answers` is empty.
        damaged: the images of which a part is missing, with what that is.
    """

    task: str
    answers: Sequence[Answer]
    failed: Mapping[str, str]
    count: int
    about: Mapping[str, Any] = field(default_factory=dict)
    out: Path | None = None
    damaged: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        answers = [*in_one_form(each.to_json() for each in self.answers)]
        given = {"count": self.count, "out": str(self.out)} if self.out else {"predictions": answers}
        wrong = {"failed": failures(self.failed), "damaged": failures(self.damaged)}
        return {"task": self.task, **given, **wrong, **self.about}

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return iter(self.answers)

    def __getitem__(self, index: int) -> Any:
        return self.answers[index]

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each image, with what is wrong with it in the columns damaged and error."""
        rows = []
        for each in self.answers:
            rows.append({"path": each.path, **scalars(each.to_json())})
        columns = dict.fromkeys(name for row in rows for name in row)
        wrong = {"damaged": columns.pop("damaged", None), "error": columns.pop("error", None)}
        return [{**columns, **wrong, **row} for row in rows]


def in_one_form(answers: Iterable[dict[str, object]]) -> Iterator[dict[str, object]]:
    """Yield answers, those without an answer with the names that the others have: null, or an empty list."""
    waiting: list[dict[str, object]] = []
    blank: dict[str, object] | None = None
    for answer in answers:
        if "error" in answer and blank is None:
            waiting.append(answer)
            continue
        if blank is None:
            blank = {name: blank_like(value) for name, value in answer.items() if name != "damaged"}
            for each in waiting:
                yield {**blank, **each}
            waiting.clear()
        yield {**blank, **answer} if "error" in answer else answer
    yield from waiting


def blank_like(value: object) -> object:
    """Return what stands for a value that there is not."""
    if isinstance(value, list | tuple):
        return []
    return {} if isinstance(value, Mapping) else None


TOGETHER = 1024  # rows of a Parquet row group

WRONG = ("damaged", "error")  # columns: what is missing of an image, and why it cannot be read
AnswerColumns = dict[str, Any]  # a column's values by its name: a list, or an array with a row for each image


def is_folder(out: str | Path) -> bool:
    """Return whether `out` means a folder: one that is there, or a name without an ending."""
    return Path(out).is_dir() or not Path(out).suffix


def check_answer_file(path: Path) -> None:
    """Raise InputError where answers cannot be written to `path`."""
    if path.suffix not in WRITERS:
        raise InputError(
            f"{path}: predictions are written as .csv, .jsonl or .parquet, or to a folder: use a name with "
            "one of these extensions, or with none"
        )
    check_free(path)
    if path.suffix == ".parquet":
        require_packages("pyarrow", extra="data", what=f"writing {path}")


def write_answers(answers: Iterable[Answer], path: Path) -> None:
    """Write answers into a file as they come, a row for each image, in a folder that is made where it is
    missing. The file has its name once all are there. Raises InputError: it cannot be written."""
    rows = in_one_form(each.to_json() for each in answers)
    with writing_to(path), folder_for(path.parent), whole(path, new=True) as partial:
        WRITERS[path.suffix](rows, partial)


def write_answers_csv(rows: Iterable[Mapping[str, object]], path: Path) -> None:
    """Write the rows of a CSV, whose columns are those of the first one."""

    def lines() -> Iterator[Sequence[object]]:
        header: list[str] = []
        for row in map(answer_columns, rows):
            if not header:
                header = list(row)
                yield header
            yield [row.get(name) for name in header]

    with path.open("w", encoding="utf-8", newline="") as file:
        write_csv_rows(file, lines())


def write_json_lines(rows: Iterable[Mapping[str, object]], path: Path) -> None:
    """Write each row as a line of JSON."""
    with path.open("w", encoding="utf-8", newline="") as file:
        for row in rows:
            print(to_json(row, inf_nan_mode="null").decode(), file=file)


def write_parquet(rows: Iterable[Mapping[str, object]], path: Path) -> None:
    """Write the rows of a Parquet file."""
    tables = ParquetTables(path)
    for row in map(answer_columns, rows):
        tables.add(arrow_table({name: [value] for name, value in row.items()}))
    tables.close()


WRITERS: Mapping[str, Callable[[Iterable[Mapping[str, object]], Path], None]] = {
    ".csv": write_answers_csv,
    ".jsonl": write_json_lines,
    ".parquet": write_parquet,
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
        known = [self.writer.schema.empty_table()] if self.writer else []  # those without answers have less
        table = pyarrow.concat_tables(
            [*known, *self.waiting] or [pyarrow.table({})], promote_options="permissive"
        )
        self.waiting.clear()
        self.writer = self.writer or parquet.ParquetWriter(self.path, table.schema)
        self.writer.write_table(table.cast(self.writer.schema).combine_chunks())
        return self.writer

    def close(self, metadata: Mapping[bytes, str] | None = None) -> None:
        """End the file. metadata: of the file."""
        writer = self.flush() if self.waiting or self.writer is None else self.writer
        writer.add_key_value_metadata(metadata or {})
        writer.close()


def answer_columns(answer: Mapping[str, object]) -> AnswerColumns:
    """Return an answer as one value for each column: of the labels after the first one `label_2`,
    `probability_2` ...; several labels with a bar between, as manifests have them; shares as JSON; and at
    last what is wrong with the image."""
    row: AnswerColumns = {}
    for name, value in answer.items():
        if name == "top" and isinstance(value, list | tuple):
            for number, each in enumerate(value[1:], start=2):
                row[f"label_{number}"] = each["label"]
                row[f"probability_{number}"] = each["probability"]
        elif isinstance(value, Mapping):
            row[name] = json.dumps(value, ensure_ascii=False)
        else:
            row[name] = "|".join(value) if isinstance(value, list | tuple) else value
    return row | {name: row.pop(name, None) for name in WRONG}


def columns_of(answers: Iterable[Answer]) -> AnswerColumns:
    """Return answers as columns, but for what is wrong with their images."""
    rows = [answer_columns(each.to_json()) for each in answers]
    return {name: [row.get(name) for row in rows] for name in rows[0] if name not in WRONG}


def probability_columns(probabilities: NDArray[np.float32], labels: Sequence[str]) -> AnswerColumns:
    """Return the most probable label of each image, its probability, and those of all."""
    best = probabilities.argmax(axis=1)
    return {
        "label": [labels[number] for number in best],
        "probability": probabilities[np.arange(len(best)), best],
        "probabilities": probabilities,
    }


def with_failed_rows(rows: ImageRows, columns: AnswerColumns) -> AnswerColumns:
    """Return a row for each image, given those of the images that could be read: its path, its answer, or
    None in every column of it, and what is wrong with the image."""
    whole: AnswerColumns = {"path": rows.names}
    places = range(len(rows.names))
    for name, values in columns.items():
        if name == "path":
            continue
        whole[name] = values
        if rows.failed:
            found = dict(zip(rows.readable, values, strict=True))
            whole[name] = [found.get(place) for place in places]
    whole["damaged"] = [rows.damaged.get(place) for place in places]
    whole["error"] = [rows.failed.get(place) for place in places]
    return whole


def arrow_table(columns: AnswerColumns) -> pyarrow.Table:
    """Return columns as a pyarrow table; arrays, and lists of arrays or None, as lists of a fixed length."""
    arrays = {}
    for name, values in columns.items():
        first = next((each for each in values if each is not None), None)
        if name in WRONG:
            arrays[name] = pyarrow.array(values, pyarrow.string())
        elif isinstance(values, np.ndarray) and values.ndim == 2:
            flat = pyarrow.array(values.reshape(-1))
            arrays[name] = pyarrow.FixedSizeListArray.from_arrays(flat, values.shape[1])
        elif isinstance(first, np.ndarray):
            kind = pyarrow.list_(pyarrow.from_numpy_dtype(first.dtype), len(first))
            arrays[name] = pyarrow.array(values, kind)
        else:
            arrays[name] = pyarrow.array(values)
    return pyarrow.table(arrays)
