"""A table of images: CSV, TSV, JSON lines or Parquet with the columns path, label and, if wanted, split.

Other usual names of these columns are understood (`file_name`, `image`, `class` ...), and said; so are the
metadata files of Hugging Face's folders of images, and a column of 0 and 1 for each class.

A label is a class name; several, separated by `data.form.label_separator` ("|"), make the task multi-label,
in which an image may have none; a number after a colon makes one soft: `cat:0.7|dog:0.3`. Pre-training needs
no labels. Paths are absolute, or relative to the manifest's folder. split is train, val (also valid,
validation) or test; without it the images are split class by class.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.config import (
    LABEL_COLUMNS,
    PATH_COLUMNS,
    DataConfig,
    ManifestForm,
    SplitByTime,
    TargetKind,
)
from vitreous.data.dataset import ImageDataset, NumberTargets, SourceParts, Targets, part_called
from vitreous.data.findings import Finding, finding
from vitreous.data.sources.folders import FileImages, open_folder, path_array, subfolders
from vitreous.data.sources.labels import (
    classes_if_any,
    named_targets,
    number_in,
    refuse_captions,
    refuse_numbers,
)
from vitreous.errors import InputError, require_packages
from vitreous.outside import read_regular

COLUMNS = "the columns path, label and, if wanted, split"
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")  # of a folder of images
ON, OFF = ("1", "1.0", "true"), ("0", "0.0", "false", "")  # what a column of a class holds
log = logging.getLogger(__name__)


class ManifestTable(NamedTuple):
    """A table of texts: the path of its file, the names of its columns, and its rows by where they are in
    that file, in words."""

    where: str
    header: list[str]
    lines: dict[str, list[str]]

    def place(self, name: str | None) -> int | None:
        """Return the number of a column, whatever its case; None where there is no such column."""
        places = (place for place, each in enumerate(self.header) if each.lower() == str(name).lower())
        return next(places, None)

    def column(self, name: str | None) -> list[str]:
        """Return the texts of a column; none where there is no such column."""
        place = None if name is None else self.place(name)
        return [] if place is None else [fields[place].strip() for fields in self.lines.values()]


def open_manifest(path: Path, config: DataConfig, kind: TargetKind) -> SourceParts:
    """Return the parts of a file with a table. Raises InputError if `open_table` does, or it is not one."""
    return open_table(read_table(path), config, kind)


def open_table(table: ManifestTable, config: DataConfig, kind: TargetKind) -> SourceParts:
    """Return the parts of a table, whose paths are relative to its folder. Raises InputError, which names the
    line.

    Args:
        kind: whether the column label holds classes, or numbers to predict, or need not be there.
    """
    where, form, group_by = table.where, config.settings_of(ManifestForm), config.group_by
    time = config.split.time if isinstance(config.split, SplitByTime) else None
    paths = path_column(table.header, where, form.path_column)
    others = [name for name in table.header if name.lower() not in (paths.lower(), "split")]
    others = [name for name in others if name.lower() not in (str(group_by).lower(), str(time).lower())]
    chosen = manifest_label_columns(table, others, form.label_column)
    if not chosen and kind != "unlabeled":
        raise InputError(
            f"{where} has no column 'label' (it has: {', '.join(table.header)}): name the column with the "
            "labels, or several of 0 and 1, in data.form.label_column"
        )
    found: dict[str, Any] = {"file": os.path.basename(where), "paths": paths, "severity": "note"}
    targets: Targets | None = None
    findings = list[Finding]()
    if len(chosen) > 1:
        targets = of_zeros_and_ones(table, chosen)
        findings += finding("columns.several", classes=chosen, **found)
    elif chosen and (paths.lower(), chosen[0].lower()) != ("path", "label"):
        findings += finding("columns", labels=chosen[0], **found)
    if not table.lines:
        raise InputError(f"{where} lists no image: write {COLUMNS}, one line for each image")

    texts = table.column(chosen[0]) if len(chosen) == 1 else [""] * len(table.lines)
    if kind == "numbers":
        if form.label_separator != "|":
            raise InputError(
                f"data.form.label_separator={form.label_separator!r} separates classes, but {where} has "
                "numbers: leave it out"
            )
        targets = read_numbers(table, texts)
    elif targets is None:
        read = partial(manifest_labels, table, texts, form.label_separator)
        targets = classes_if_any(read, len(texts), kind)
    groups, splits = table.column(group_by), table.column("split")
    images = FileImages(Path(where).parent, path_array(table.column(paths)), targets).with_(
        findings=tuple(findings),
        groups=np.array(groups) if groups else None,
        times=read_times(table, time),
    )
    return parts_by_split(images, splits, where) if splits else {"train": images}


def parts_by_split(images: ImageDataset, splits: Sequence[str], where: str) -> SourceParts:
    """Return the parts of images each of which has a split. Raises InputError: it is not one of these."""
    part = np.array([part_called(split) or split for split in splits])
    if unknown := sorted(set(part.tolist()) - {"train", "val", "test"}):
        raise InputError(f"{where} has a split {unknown[0]!r}: write train, val or test")
    if "train" not in part:
        raise InputError(f"{where} has no image in the split 'train': add some")
    return {
        name: images.subset(np.flatnonzero(part == name)) for name in ("train", "val", "test") if name in part
    }


def metadata_tables(root: Path) -> dict[str, ManifestTable]:
    """Return the tables of a folder of images as Hugging Face lays it out, by the folder of the part that
    each is in, or "" alone where the folder itself has one; none where there are not such files."""
    tables: dict[str, ManifestTable] = {}
    for name in ("", *(each for each in subfolders(root) if part_called(each))):
        files = [root / name / file for file in METADATA if (root / name / file).is_file()]
        # A table without this column is of something else, so that its rows need not be whole either.
        if files and first_known_column(("file_name",), (table := parse_table(files[0])).header):
            check_fields(table)
            tables[name] = table
        if "" in tables:
            break
    return tables


def open_metadata(
    root: Path, tables: Mapping[str, ManifestTable], config: DataConfig, kind: TargetKind
) -> SourceParts:
    """Return the parts of a folder of images with such tables; those of the folder alone where the first has
    no column of labels and the folder has classes."""
    classes = [name for name in subfolders(root) if not part_called(name)]
    named = config.settings_of(ManifestForm).label_column
    header = next(iter(tables.values())).header
    if len(classes) > 1 and not (named or first_known_column(LABEL_COLUMNS, header)):
        return open_folder(root, config, kind)
    return open_table(join_tables(root, tables), config, kind)


def join_tables(root: Path, tables: Mapping[str, ManifestTable]) -> ManifestTable:
    """Return the tables of a folder as one. The first folder of an image names its part, if it can. Raises
    InputError: they have different columns."""
    header = next(iter(tables.values())).header
    lines: dict[str, list[str]] = {}
    for part, table in tables.items():
        if table.header != header:
            raise InputError(
                f"{table.where} and the file of another split have different columns: give them the same"
            )
        place = header.index(path_column(header, table.where))
        for line, fields in table.lines.items():
            path = os.path.join(part, fields[place])
            lines[f"{line} of {part}/" if part else line] = [*fields[:place], path, *fields[place + 1 :]]
    together = ManifestTable(str(root / METADATA[0]), header, lines)
    parts = [part_called(path.partition("/")[0]) for path in together.column(path_column(header, str(root)))]
    if together.place("split") is None and "train" in parts and None not in parts:
        with_parts = {line: [*lines[line], str(part)] for line, part in zip(lines, parts, strict=True)}
        return ManifestTable(together.where, [*header, "split"], with_parts)
    return together


def path_column(header: Sequence[str], where: str, name: str | None = None) -> str:
    """Return the column of a table that names its images. name: as the user has given it. Raises InputError:
    there is none."""
    found = first_known_column(PATH_COLUMNS if name is None else (name.lower(),), header)
    if found is None:
        raise InputError(
            f"{where} has no column {name or 'path'!r} (it has: {', '.join(header) or 'none'}): write "
            f"{COLUMNS} in its first line, or name them in data.form.path_column and data.form.label_column"
        )
    return found


def first_known_column(wanted: Sequence[str], header: Sequence[str]) -> str | None:
    """Return the first of some columns, in lower case, that a table has, as the table writes it."""
    of_lower_case = {each.strip().lower(): each for each in reversed(header)}
    return next((of_lower_case[each] for each in wanted if each in of_lower_case), None)


def manifest_label_columns(table: ManifestTable, others: Sequence[str], name: str | None = None) -> list[str]:
    """Return the column of the labels; several, where each is that of a class; none where that is not clear.

    Args:
        others: the columns besides that of the images.
        name: as the user has given it, perhaps several with commas between them.
    """
    if name is not None:
        names = [name] if first_known_column([name.lower()], others) else name.split(",")
        found = [first_known_column([each.strip().lower()], others) for each in names]
        if None in found:
            raise InputError(
                f"data.form.label_column={name!r} is not a column of labels: there are {', '.join(others)}"
            )
        return [each for each in found if each]
    if usual := first_known_column(LABEL_COLUMNS, others):
        return [usual]
    if len(others) == 1:
        return list(others)
    binary = [each for each in others if {text.lower() for text in table.column(each)} <= {*ON, *OFF}]
    return binary if len(binary) > 1 and len(binary) == len(others) else []


def of_zeros_and_ones(table: ManifestTable, classes: Sequence[str]) -> Targets:
    """Return the targets of images where each class has a column. Raises InputError for other values."""
    shown: list[list[str]] = [[] for _ in table.lines]
    for name in classes:
        for line, names, text in zip(table.lines, shown, table.column(name), strict=True):
            if text.lower() in ON:
                names.append(name)
            elif text.lower() not in OFF:
                raise InputError(
                    f"{line} of {table.where} has {text!r} in the column of class {name!r}: write 1 if the "
                    "image shows it, and 0 if it does not"
                )
    if all(len(names) == 1 for names in shown):
        return named_targets([name for [name] in shown], table.where)
    return named_targets([dict.fromkeys(names, 1.0) for names in shown], table.where)


def read_table(path: Path) -> ManifestTable:
    """Return the table in a file. Raises InputError: a line has another number of fields than the first."""
    table = parse_table(path)
    check_fields(table)
    return table


def parse_table(path: Path) -> ManifestTable:
    """Return the table in a file, whose lines may have any number of fields. Raises InputError: there is
    none."""
    if path.suffix == ".parquet":
        return read_parquet(path)
    try:
        return text_table(read_regular(path), str(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def check_fields(table: ManifestTable) -> None:
    """Raise InputError: a line has another number of fields than the first."""
    for line, fields in table.lines.items():
        if len(fields) != len(table.header):
            few = len(fields) < len(table.header)
            advice = "add those that are missing" if few else "quote fields that hold the separator"
            raise InputError(
                f"{table.where}, {line} has {len(fields)} fields instead of {len(table.header)}: {advice}"
            )


def text_table(content: bytes, where: str) -> ManifestTable:
    """Return the table that a file of another kind than Parquet holds. Raises InputError: it is not one."""
    text = decoded_text(content, where)
    return json_table(text, where) if where.endswith(".jsonl") else delimited_table(text, where)


def delimited_table(text: str, where: str) -> ManifestTable:
    """Return a table of CSV, or TSV with tabs; with semicolons where the first line has them, as spreadsheets
    write where the comma is a decimal point. Raises InputError: it is not a table."""
    file = io.StringIO(text, newline="")
    delimiter = delimiter_of(file.readline(), "\t" if where.endswith(".tsv") else ",")
    file.seek(0)
    try:
        table = list(csv.reader(file, delimiter=delimiter))
    except csv.Error as error:  # such as a field longer than any name
        raise InputError(
            f"{where} is not a table ({error}): close its quotation marks, or pass another kind of file"
        ) from None
    if not table:
        return ManifestTable(where, [], {})
    lines = {f"line {number}": line for number, line in enumerate(table[1:], start=2) if line}
    return ManifestTable(where, [name.strip() for name in table[0]], lines)


def json_table(text: str, where: str) -> ManifestTable:
    """Return a table of an object in each line. Raises InputError: a line is not one."""
    rows: dict[str, dict[str, object]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise InputError(f"{where}, line {number} is not a JSON object: write one in each line")
        rows[f"line {number}"] = row
    header = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = {at: [label_text(row.get(name), where) for name in header] for at, row in rows.items()}
    return ManifestTable(where, [name.strip() for name in header], lines)


UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def decoded_text(content: bytes, where: str) -> str:
    """Return the text of a table: by its byte-order mark, as UTF-8, or as CP949, in which Korean
    spreadsheets write; the last two with a notice. Raises InputError: it is none of these."""
    encoding = ""
    for mark, name in MARKS.items():
        if content.startswith(mark):
            encoding = name
    if b"\0" in content[:100] and (content.startswith(UTF32) or encoding != "utf-16"):
        raise InputError(
            f"{where} is UTF-16 or UTF-32 without a byte-order mark, or not text: save it as UTF-8"
        )
    encoding = encoding or "utf-8"
    for each in dict.fromkeys((encoding, "cp949")):
        try:
            text = content.decode(each)
        except UnicodeDecodeError:
            continue
        if each in ("utf-16", "cp949"):
            log.warning("%s is not UTF-8, and read as %s: check the names in it", where, each.upper())
        return text
    raise InputError(f"{where} is neither UTF-8 nor UTF-16 nor CP949 (Korean): save it as UTF-8")


def delimiter_of(line: str, usual: str) -> str:
    """Return what is between the columns of a first line: the first sign by which it has one of a usual name,
    or else more than one."""
    signs = {sign: next(csv.reader([line], delimiter=sign), []) for sign in (usual, ";", ",", "\t")}
    for sign, fields in signs.items():
        if len(fields) > 1 and first_known_column((*PATH_COLUMNS, *LABEL_COLUMNS), fields):
            return sign
    return next((sign for sign, fields in signs.items() if len(fields) > 1), usual)


def read_parquet(path: Path) -> ManifestTable:
    """Return the table of a Parquet file."""
    require_packages("pyarrow", extra="data", what=str(path))
    from pyarrow import ArrowInvalid, parquet

    try:
        table = parquet.read_table(path)
    except (ArrowInvalid, OSError) as error:  # OSError: a damaged page
        raise InputError(f"{path} is not a Parquet file: {error}") from None
    lines = dict[str, list[str]]()
    for number, row in enumerate(zip(*table.to_pydict().values(), strict=True), start=1):
        lines[f"row {number}"] = [label_text(value, str(path)) for value in row]
    return ManifestTable(str(path), [name.strip() for name in table.column_names], lines)


def label_text(value: object, where: str) -> str:
    """Return a value of a Parquet file or of JSON as text, several labels with | between them. Raises
    InputError: bytes that are not UTF-8."""
    if isinstance(value, bytes):
        return decoded_text(value, where)
    if isinstance(value, list):
        return "|".join(label_text(each, where) for each in value)
    return "" if value is None else str(value)


def manifest_labels(table: ManifestTable, labels: Sequence[str], separator: str) -> Targets:
    """Return the targets of the column of labels: classes where every image has one plain label, else several
    labels. Raises InputError: the labels are not classes, or there is a single one."""
    where = table.where
    refuse_numbers(labels, where)
    parts: list[str] = []
    for text in labels:
        parts += map(str.strip, text.split(separator))
    refuse_captions(parts, where)

    weighted = has_class_weights(labels, separator)
    parsed = [parse_label(text, separator, where, weighted=weighted) for text in labels]
    if not any(parsed):
        raise InputError(f"{where} names no class: fill its column label")
    plain: list[str] = []  # the classes, of those labels that are one whole class
    for label in parsed:
        if list(label.values()) == [1.0]:
            plain += label
    if len(plain) < len(parsed) - parsed.count({}):
        return named_targets(parsed, where)
    if len(plain) == len(parsed):
        return named_targets(plain, where)
    line = list(table.lines)[parsed.index({})]
    raise InputError(
        f"{line} of {where} has no label: write its class, or remove the line "
        f"(a label may be empty only if other images have several, as in 'cat{separator}dog')"
    )


def read_times(table: ManifestTable, column: str | None) -> NDArray[np.float64] | None:
    """Return the column of times, in seconds or as it numbers them; None where there is none. Raises
    InputError that names a line."""
    times = []
    for line, text in zip(table.lines, table.column(column), strict=False):
        number = number_in(text)
        try:
            times.append(datetime.fromisoformat(text).timestamp() if number is None else number)
        except (ValueError, OverflowError):  # of a year that the clock does not have
            raise InputError(
                f"{line} of {table.where} has the time {text!r}: write it as 2026-11-22, 2026-11-22T14:30 or "
                "as a number"
            ) from None
    return np.array(times) if times else None


def read_numbers(table: ManifestTable, labels: Sequence[str]) -> NumberTargets:
    """Return the numbers of the column of labels. Raises InputError that names a line without one."""
    numbers = [number_in(text) for text in labels]
    if None in numbers:
        row = numbers.index(None)
        raise InputError(
            f"{list(table.lines)[row]} of {table.where} has the label {labels[row]!r}, which is not a finite "
            "number: write one, as in 12.5, or remove the line"
        )
    return NumberTargets(np.array(numbers, dtype=np.float32))


def has_class_weights(labels: Sequence[str], separator: str) -> bool:
    """Return whether numbers after a colon are weights of classes, and do not belong to their names, as in
    `grade:1` or `ratio 4:1`: some label is a share, or some image has several labels with numbers."""
    for text in set(labels):
        numbers = [number_in(part.rpartition(":")[2]) for part in text.split(separator) if ":" in part]
        known = [number for number in numbers if number is not None]
        if any(0 < number < 1 for number in known) or len(known) > 1:
            return True
    return False


def parse_label(text: str, separator: str, where: str, *, weighted: bool) -> dict[str, float]:
    """Return "cat:0.7|dog:0.3" as {"cat": 0.7, "dog": 0.3}; "cat" as {"cat": 1}. An empty label: no classes.
    weighted: whether numbers after a colon are weights."""
    label: dict[str, float] = {}
    for part in filter(None, map(str.strip, text.split(separator))):
        name, colon, number = part.rpartition(":")
        weight = number_in(number) if weighted and colon else None
        if weight is None:  # a colon is in the name of the class
            name, weight = part, 1.0
        if not 0 <= weight <= 1:
            raise InputError(
                f"{where}: the label {part!r} has a weight outside 0 ... 1; the name of a class has no colon "
                "before a number"
            )
        label[name] = weight
    return label
