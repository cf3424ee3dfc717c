"""Answers as the rows of a file: .csv, .jsonl or .parquet, written as they come."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from vitreous.checkpoints.whole_files import whole
from vitreous.errors import InputError, check_free, require_packages, writing_to
from vitreous.results import Answer

ENDINGS = (".csv", ".jsonl", ".parquet")
TOGETHER = 1024  # rows of a Parquet row group

AddRow = Callable[[Answer], None]
AddTable = Callable[[Any], None]


def check_table(path: Path) -> None:
    """Raise InputError where answers cannot be written to `path`."""
    if path.suffix not in ENDINGS:
        raise InputError(
            f"{path}: answers are written as .csv, .jsonl or .parquet, or into a folder: end the name in one "
            "of them, or without an ending"
        )
    check_free(path)
    if path.suffix == ".parquet":
        require_packages("pyarrow", extra="data", what=f"writing {path}")


@contextmanager
def answer_table(path: Path) -> Iterator[AddRow]:
    """Yield what adds an answer to a file, which has its name once the context ends without an error. Raises
    InputError: it cannot be written."""
    with ExitStack() as files:
        files.enter_context(writing_to(path))
        partial = files.enter_context(whole(path))
        if path.suffix == ".parquet":
            import pyarrow

            add_table = files.enter_context(parquet_tables(partial))
            yield lambda answer: add_table(pyarrow.Table.from_pylist([answer_columns(answer.to_json())]))
            return
        file = files.enter_context(partial.open("w", encoding="utf-8", newline=""))
        if path.suffix == ".jsonl":
            yield lambda answer: print(to_json(answer.to_json(), inf_nan_mode="null").decode(), file=file)
            return
        rows: list[csv.DictWriter[str]] = []

        def add(answer: Answer) -> None:
            row = answer_columns(answer.to_json())
            if not rows:
                rows.append(csv.DictWriter(file, list(row)))
                rows[0].writeheader()
            rows[0].writerow(row)

        yield add


@contextmanager
def parquet_tables(path: Path, metadata: Callable[[], Mapping[bytes, str]] = dict) -> Iterator[AddTable]:
    """Yield what adds a pyarrow table to a Parquet file, whose columns are those of the first rows. metadata:
    of the file, asked for at its end."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    waiting, writers = list[Any](), list[Any]()
    with ExitStack() as files:

        def flush() -> None:
            table = pyarrow.concat_tables(waiting or [pyarrow.table({})], promote_options="permissive")
            waiting.clear()
            if not writers:
                writers.append(files.enter_context(ParquetWriter(path, table.schema)))
            writers[0].write_table(table.cast(writers[0].schema).combine_chunks())

        def add(table: Any) -> None:
            waiting.append(table)
            if sum(map(len, waiting)) >= TOGETHER:
                flush()

        yield add
        if waiting or not writers:
            flush()
        writers[0].add_key_value_metadata(metadata())


def answer_columns(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer as one value for each column: of the labels after the first one `label_2`,
    `probability_2` ...; several labels with a bar between, as manifests have them; shares as JSON."""
    row: dict[str, Any] = {}
    for name, value in answer.items():
        if name == "top":
            for number, each in enumerate(value[1:], start=2):
                row |= {f"{field}_{number}": inner for field, inner in each.items()}
        elif isinstance(value, Mapping):
            row[name] = json.dumps(value, ensure_ascii=False)
        else:
            row[name] = "|".join(value) if isinstance(value, list | tuple) else value
    return row
