"""A table of images: CSV, TSV or Parquet with the columns path, label and, if wanted, split.

A label is a class name; several, separated by `data.label_separator` ("|"), make the task multi-label, in
which an image may have none; a number after a colon makes one soft: `cat:0.7|dog:0.3`. Paths are absolute,
or relative to the manifest's folder. split is train, val (also valid, validation) or test; without it the
images are split class by class.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.config import DataConfig, Targets
from vitreous.data.dataset import ImageDataset
from vitreous.data.sources.files import FileImages, FileTable
from vitreous.data.splitting import by_name, split
from vitreous.errors import InputError, require_packages

SUFFIXES = (".csv", ".tsv", ".parquet")
MANY_NUMBERS = 20  # different labels, all of them numbers, from which they may be numbers to predict
COLUMNS = "the columns path, label and, if wanted, split"


class Rows(NamedTuple):
    """A manifest's columns, of equal length; splits is empty if there is no such column. lines: where each
    row stands in the file, in words."""

    paths: list[str]
    labels: list[str]
    splits: list[str]
    lines: list[str]


def open_manifest(
    path: Path, config: DataConfig, labels: Targets = "classes"
) -> tuple[ImageDataset, ImageDataset | None, ImageDataset | None]:
    """Return (train, validation, test).

    Args:
        labels: whether the column label holds classes, or numbers to predict.

    Raises:
        InputError: which names the line.
    """
    rows = read_parquet(path) if path.suffix == ".parquet" else read_text(path)
    if not rows.paths:
        raise InputError(f"{path} lists no image: write {COLUMNS}, a line for each image")
    classes: tuple[str, ...] = ()
    if labels == "numbers":
        targets: NDArray[Any] = read_numbers(rows, path)
    else:
        refuse_numbers(rows.labels, str(path))
        targets, classes = read_labels(rows, config.label_separator, path)
    images = FileImages(path.parent, FileTable.of(rows.paths), targets, classes)
    if not rows.splits:
        return split(images, config)
    return by_name(images, rows.splits, config, where=str(path))


def read_text(path: Path) -> Rows:
    """CSV, or TSV with tabs; with semicolons where the first line has them, as spreadsheets write where the
    comma is a decimal point. UTF-8 with or without a byte-order mark."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            delimiter = delimiter_of(file.readline(), "\t" if path.suffix == ".tsv" else ",")
            file.seek(0)
            table = list(csv.reader(file, delimiter=delimiter))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error.reason}): save it as UTF-8") from None
    header = [name.strip().lower() for name in table[0]] if table else []
    check_columns(header, path)
    lines = [(number, line) for number, line in enumerate(table[1:], start=2) if line]
    for number, line in lines:
        if len(line) != len(header):
            raise InputError(
                f"{path}, line {number} has {len(line)} fields and not {len(header)}: quote fields that hold "
                "the separator"
            )
    fields = [line for _, line in lines]
    paths, labels, splits = (column(fields, header, name) for name in ("path", "label", "split"))
    return Rows(paths, labels, splits, [f"line {number}" for number, _ in lines])


def delimiter_of(line: str, usual: str) -> str:
    """What stands between the columns of a first line: the first sign by which it names path and label."""
    for sign in (usual, ";", ",", "\t"):
        names = [name.strip().lower() for name in next(csv.reader([line], delimiter=sign), [])]
        if {"path", "label"} <= set(names):
            return sign
    return usual


def column(lines: Sequence[Sequence[str]], header: Sequence[str], name: str) -> list[str]:
    """One column's fields; none if there is no such column."""
    if name not in header:
        return []
    place = header.index(name)
    return [line[place].strip() for line in lines]


def read_parquet(path: Path) -> Rows:
    """Parquet, by pyarrow."""
    require_packages("pyarrow", extra="data", what=str(path))
    from pyarrow import ArrowInvalid, parquet

    try:
        table = parquet.read_table(path)
    except ArrowInvalid as error:
        raise InputError(f"{path} is not a Parquet file: {error}") from None
    check_columns(table.column_names, path)
    paths, labels, splits = (
        ["" if value is None else str(value) for value in table.column(name).to_pylist()]
        if name in table.column_names
        else []
        for name in ("path", "label", "split")
    )
    return Rows(paths, labels, splits, [f"row {number}" for number in range(1, len(table) + 1)])


def check_columns(header: Sequence[str], path: Path) -> None:
    """Path and label must be there."""
    for name in ("path", "label"):
        if name not in header:
            raise InputError(
                f"{path} has no column {name!r} (it has: {', '.join(header) or 'none'}): write {COLUMNS} in "
                "its first line"
            )


def read_labels(rows: Rows, separator: str, path: Path) -> tuple[NDArray[Any], tuple[str, ...]]:
    """(targets, classes): numbers where every image has one plain label, else a row for each image."""
    parsed = [parse_label(text, separator, path) for text in rows.labels]
    classes = tuple(sorted({name for label in parsed for name in label}))
    if len(classes) < 2:
        raise InputError(
            f"{path} names a single class, {classes[0]!r}: a classifier needs two or more"
            if classes
            else f"{path} names no class: fill its column label"
        )
    number = {name: index for index, name in enumerate(classes)}
    if all(len(label) == 1 and 1.0 in label.values() for label in parsed if label):
        if not all(parsed):
            raise InputError(
                f"{rows.lines[parsed.index({})]} of {path} has no label: write its class, or remove the line "
                f"(none at all is for manifests that give some image several, as in 'cat{separator}dog')"
            )
        return np.array([number[next(iter(label))] for label in parsed], dtype=np.int64), classes
    targets = np.zeros((len(parsed), len(classes)), dtype=np.float32)
    for row, label in zip(targets, parsed, strict=True):
        for name, weight in label.items():
            row[number[name]] = weight
    return targets, classes


def refuse_numbers(labels: Sequence[str], where: str) -> None:
    """Raise InputError for labels that are not classes but many different numbers."""
    values = set(labels)
    if len(values) < MANY_NUMBERS or any(number_in(text) is None for text in values):
        return
    fractions = any(not float(text).is_integer() for text in values)
    if fractions or 2 * len(values) > len(labels):
        raise InputError(
            f"{where} has {len(values)} different numbers as labels of {len(labels)} images: add --task "
            "regression to predict numbers, or write classes as words, as in 'class 12'"
        )


def read_numbers(rows: Rows, path: Path) -> NDArray[np.float32]:
    """Return the numbers of the column label. Raises InputError that names a line without one."""
    numbers = [number_in(text) for text in rows.labels]
    if None in numbers:
        row = numbers.index(None)
        raise InputError(
            f"{rows.lines[row]} of {path} has the label {rows.labels[row]!r}, which is not a finite number: "
            "write one, as in 12.5, or remove the line"
        )
    return np.array(numbers, dtype=np.float32)


def numbers_of(values: Sequence[Any], where: str) -> NDArray[np.float32]:
    """Return values as finite numbers, (N,). Raises InputError where one is not."""
    try:
        numbers = np.array(values, dtype=np.float32)
    except (TypeError, ValueError):
        numbers = np.array([np.nan])
    if numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise InputError(f"{where} is to be predicted as numbers, but not every value is a finite number")
    return numbers


def number_in(text: str) -> float | None:
    """Return the finite number that a text is, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def parse_label(text: str, separator: str, path: Path) -> dict[str, float]:
    """ "cat:0.7|dog:0.3" as {"cat": 0.7, "dog": 0.3}; "cat" as {"cat": 1}. An empty label is no class."""
    label: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(separator))):
        name, colon, number = part.rpartition(":")
        try:
            weight = float(number) if colon else 1.0
        except ValueError:
            name, colon, weight = part, "", 1.0  # a colon in the class's name
        if not 0 <= weight <= 1:
            raise InputError(f"{path}: the label {part!r} has a weight outside 0 ... 1")
        label[name if colon else part] = weight
    return label
