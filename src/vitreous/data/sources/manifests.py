"""A table of images: CSV, TSV or Parquet with the columns path, label and, if wanted, split.

A label is a class name; several, separated by `data.form.label_separator` ("|"), make the task multi-label,
in which an image may have none; a number after a colon makes one soft: `cat:0.7|dog:0.3`. Pre-training needs
no labels. Paths are absolute, or relative to the manifest's folder. split is train, val (also valid,
validation) or test; without it the images are split class by class.
"""

from __future__ import annotations

import codecs
import csv
import io
import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.config import DataConfig, ManifestForm, SplitByTime, TargetKind
from vitreous.data.dataset import NumberTargets, Parts, Targets
from vitreous.data.held_out import by_name, split
from vitreous.data.sources.folders import FileImages, path_array
from vitreous.data.sources.labels import (
    classes_if_any,
    named_targets,
    number_in,
    refuse_captions,
    refuse_numbers,
)
from vitreous.errors import InputError, check_utf8, require_packages
from vitreous.outside import finite_number, read_regular

COLUMNS = "the columns path, label and, if wanted, split"
log = logging.getLogger(__name__)


class ManifestRows(NamedTuple):
    """A manifest's columns, of equal length; splits, groups and times are empty if there is no such column.
    lines: where each row is in the file, in words."""

    paths: list[str]
    labels: list[str]
    splits: list[str]
    groups: list[str]
    times: list[str]
    lines: list[str]


def open_manifest(path: Path, config: DataConfig, labels: TargetKind = "classes") -> Parts:
    """Return (train, validation, test). Raises InputError, which names the line.

    Args:
        labels: whether the column label holds classes, or numbers to predict, or need not be there.
    """
    needed = ("path",) if labels == "unlabeled" else ("path", "label")
    time = config.split.time if isinstance(config.split, SplitByTime) else None
    rows = read_manifest(path, config.group_by, time, needed)
    if not rows.paths:
        raise InputError(f"{path} lists no image: write {COLUMNS}, a line for each image")
    targets: Targets
    separator = config.settings_of(ManifestForm).label_separator
    if labels == "numbers":
        if separator != "|":
            raise InputError(
                f"data.form.label_separator={separator!r} is between classes, and {path} has numbers: leave "
                "it out"
            )
        targets = read_numbers(rows, path)
    else:
        read = partial(manifest_labels, rows, separator, path)
        targets = classes_if_any(read, len(rows.paths), labels)
    images = FileImages(path.parent, path_array(rows.paths), targets)
    if rows.groups:
        images.groups = np.array(rows.groups)
    if rows.times:
        images.times = read_times(rows, path)
    if not rows.splits:
        return split(images, config)
    return by_name(images, rows.splits, config, where=str(path))


def read_manifest(
    path: Path,
    group_by: str | None = None,
    time: str | None = None,
    needed: Sequence[str] = ("path", "label"),
) -> ManifestRows:
    """Return the columns of a manifest. group_by, time: those with groups and times. Raises InputError: one
    of the needed columns is missing, or a line has another number of fields than the first."""
    header, lines = read_parquet(path) if path.suffix == ".parquet" else read_text(path)
    for name in needed:
        if name not in header:
            raise InputError(
                f"{path} has no column {name!r} (it has: {', '.join(header) or 'none'}): write {COLUMNS} in "
                "its first line"
            )
    for where, fields in lines.items():
        if len(fields) != len(header):
            few = len(fields) < len(header)
            advice = "add those that are missing" if few else "quote fields that hold the separator"
            raise InputError(f"{path}, {where} has {len(fields)} fields and not {len(header)}: {advice}")

    def column(name: str | None) -> list[str]:
        """Return the texts of a column; none where there is no such column."""
        if name is None or name.lower() not in header:
            return []
        place = header.index(name.lower())
        return [fields[place].strip() for fields in lines.values()]

    return ManifestRows(
        paths=column("path"),
        labels=column("label"),
        splits=column("split"),
        groups=column(group_by),
        times=column(time),
        lines=list(lines),
    )


def read_text(path: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Return (header, fields by line) of CSV, or TSV with tabs; with semicolons where the first line has
    them, as spreadsheets write where the comma is a decimal point. UTF-8, perhaps with a byte-order mark."""
    text, _ = decoded_text(read_table(path), str(path))
    file = io.StringIO(text, newline="")
    delimiter = delimiter_of(file.readline(), "\t" if path.suffix == ".tsv" else ",")
    file.seek(0)
    table = table_rows(file, delimiter, str(path))
    if not table:
        return [], {}
    lines = {f"line {number}": line for number, line in enumerate(table[1:], start=2) if line}
    return column_names(table[0]), lines


def column_names(line: Iterable[str]) -> list[str]:
    """Return the names of columns in the form in which they are compared."""
    return [name.strip().lower() for name in line]


def read_table(path: Path) -> bytes:
    """Return the bytes of a regular file. Raises InputError."""
    try:
        return read_regular(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def decoded_text(content: bytes, where: str) -> tuple[str, str]:
    """Return (text, encoding) of a table: by its byte-order mark, as UTF-8, or as CP949, in which Korean
    spreadsheets write; the last two with a notice. Raises InputError: it is none of these."""
    encoding = ""
    for mark, name in MARKS.items():
        if content.startswith(mark):
            encoding = name
    if b"\0" in content[:100] and (content.startswith(UTF32) or encoding != "utf-16"):
        raise InputError(f"{where} is UTF-16 or UTF-32 without its mark, or not a text: save it as UTF-8")
    encoding = encoding or "utf-8"
    for each in dict.fromkeys((encoding, "cp949")):
        try:
            text = content.decode(each)
        except UnicodeDecodeError:
            continue
        if each in ("utf-16", "cp949"):
            log.warning("%s is not UTF-8, and read as %s: check the names in it", where, each.upper())
        return text, each
    raise InputError(f"{where} is neither UTF-8 nor UTF-16 nor CP949 (Korean): save it as UTF-8")


def table_rows(file: Iterable[str], delimiter: str, where: str) -> list[list[str]]:
    """Return the rows of a table. Raises InputError: it is not one, or has a field longer than any name."""
    try:
        return list(csv.reader(file, delimiter=delimiter))
    except csv.Error as error:
        raise InputError(
            f"{where} is not a table ({error}): close its quotation marks, or give another kind of file"
        ) from None


def delimiter_of(line: str, usual: str) -> str:
    """Return what is between the columns of a first line: the first sign by which it names the path."""
    for sign in (usual, ";", ",", "\t"):
        fields = next(csv.reader([line], delimiter=sign), [])
        if "path" in column_names(fields):
            return sign
    return usual


def read_parquet(path: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Return (header, fields by row), by pyarrow."""
    require_packages("pyarrow", extra="data", what=str(path))
    from pyarrow import ArrowInvalid, parquet

    try:
        table = parquet.read_table(path)
    except (ArrowInvalid, OSError) as error:  # OSError: a damaged page
        raise InputError(f"{path} is not a Parquet file: {error}") from None
    lines = dict[str, list[str]]()
    for number, row in enumerate(zip(*table.to_pydict().values(), strict=True), start=1):
        lines[f"row {number}"] = [text_of(value, str(path)) for value in row]
    return column_names(table.column_names), lines


def text_of(value: object, where: str) -> str:
    """Return a value of a Parquet file as text. Raises InputError: bytes that are not UTF-8."""
    if isinstance(value, bytes):
        return decoded_text(value, where)[0]
    return "" if value is None else str(value)


def manifest_labels(rows: ManifestRows, separator: str, path: Path) -> Targets:
    """Return the targets: classes where every image has one plain label, else several labels.
    Raises InputError: the labels are not classes, or there is a single one."""
    refuse_numbers(rows.labels, str(path))
    parts: list[str] = []
    for text in rows.labels:
        parts += map(str.strip, text.split(separator))
    refuse_captions(parts, str(path))

    parsed = [parse_label(text, separator, path) for text in rows.labels]
    if not any(parsed):
        raise InputError(f"{path} names no class: fill its column label")
    plain: list[str] = []  # the classes, of those labels that are one whole class
    for label in parsed:
        if list(label.values()) == [1.0]:
            plain += label
    if len(plain) < len(parsed) - parsed.count({}):
        targets = named_targets(parsed, str(path))
    elif len(plain) == len(parsed):
        targets = named_targets(plain, str(path))
    else:
        raise InputError(
            f"{rows.lines[parsed.index({})]} of {path} has no label: write its class, or remove the line "
            f"(none at all is for manifests that give some image several, as in 'cat{separator}dog')"
        )
    for each in targets.classes:
        check_utf8(each, "the class")
    return targets


def read_times(rows: ManifestRows, path: Path) -> NDArray[np.float64]:
    """Return the column of times, in seconds or as it numbers them. Raises InputError that names a line."""
    times = []
    for line, text in zip(rows.lines, rows.times, strict=True):
        number = number_in(text)
        try:
            times.append(datetime.fromisoformat(text).timestamp() if number is None else number)
        except (ValueError, OverflowError):  # of a year that the clock does not have
            raise InputError(
                f"{line} of {path} has the time {text!r}: write it as 2026-11-22, 2026-11-22T14:30 or as a "
                "number"
            ) from None
    return np.array(times)


def read_numbers(rows: ManifestRows, path: Path) -> NumberTargets:
    """Return the numbers of the column label. Raises InputError that names a line without one."""
    numbers = [number_in(text) for text in rows.labels]
    if None in numbers:
        row = numbers.index(None)
        raise InputError(
            f"{rows.lines[row]} of {path} has the label {rows.labels[row]!r}, which is not a finite number: "
            "write one, as in 12.5, or remove the line"
        )
    return NumberTargets(np.array(numbers, dtype=np.float32))


def parse_label(text: str, separator: str, path: Path) -> dict[str, float]:
    """ "cat:0.7|dog:0.3" as {"cat": 0.7, "dog": 0.3}; "cat" as {"cat": 1}. An empty label: no classes."""
    label: dict[str, float] = {}
    for part in map(str.strip, text.split(separator)):
        if not part:
            continue
        name, colon, number = part.rpartition(":")
        try:
            weight = finite_number(number) if colon else 1.0
        except ValueError:
            name, colon, weight = part, "", 1.0  # a colon in the class's name
        if not 0 <= weight <= 1:
            raise InputError(
                f"{path}: the label {part!r} has a weight outside 0 ... 1; the name of a class has no colon "
                "before a number"
            )
        label[name if colon else part] = weight
    return label
