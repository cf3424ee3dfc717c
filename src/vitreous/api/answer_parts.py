"""Folders of predictions: a Parquet file for each part of DATA, written by any number of processes;
resumable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vitreous.api.arguments import progress_bar
from vitreous.api.predictor import NO_ANSWER, Predictor
from vitreous.data.image_parts import ImagePart, image_parts
from vitreous.deployment.answers import WRONG, ParquetTables, arrow_table
from vitreous.errors import InputError, LazyModule, Param, require_packages, writing_to
from vitreous.outside import number_of_launcher
from vitreous.whole_files import whole

if TYPE_CHECKING:
    import pyarrow
    from pyarrow import parquet
else:  # it is not installed everywhere
    pyarrow = LazyModule("pyarrow")
    parquet = LazyModule("pyarrow.parquet")

ABOUT = b"vitreous"  # in a file's metadata: which images of which model it answers, and what failed


class Answered(NamedTuple):
    """What a file, or a folder of files, contains: the number of images, and what is wrong with some of
    them."""

    images: int
    failed: Mapping[str, str]
    damaged: Mapping[str, str]
    width: int = 0  # of the features, 0 where there are none


def answer_parts(
    predictor: Predictor,
    data: Any,
    folder: str | Path,
    *,
    progress: bool = True,
) -> Answered:
    """Write predictions for DATA to a folder, a file for each part; parts that already have a file are
    skipped.

    A file gets its final name when it is complete: a process that is killed loses only the part that it was
    working on, and the same command resumes there. Under torchrun, each process works on its share.

    Raises:
        InputError: the model or the data does not exist, or the folder contains predictions of another model
            or for other images.
    """
    require_packages("pyarrow", extra="data", what=f"writing {folder}")
    folder = Path(folder)
    parts = image_parts(data)
    first = next(parts)
    parts, predictor.calibration = chain([first], parts), first.open
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    # All of them here, or each by one of torchrun's processes.
    rank, processes = number_of_launcher("RANK", 0), number_of_launcher("WORLD_SIZE", 1, low=1)
    writer = PartWriter(predictor, folder)
    images, failed, damaged = 0, dict[str, str](), dict[str, str]()
    with progress_bar("answering", progress) as advance:
        for number, part in enumerate(parts):
            if number % processes != rank:
                continue
            each = writer.write(number, part)
            images += each.images
            failed |= each.failed
            damaged |= each.damaged
            advance(images, None)
    schema = next((parquet.read_schema(path) for path in folder.glob("part-*.parquet")), None)
    width = schema.field("features").type.list_size if schema and "features" in schema.names else 0
    return Answered(images, failed, damaged, width)


class PartWriter:
    """Writes the predictions for parts in one process, each to a separate file."""

    def __init__(self, predictor: Predictor, folder: Path) -> None:
        self.predictor, self.folder = predictor, folder
        use, digest = predictor.use, predictor.opened.digest()
        about = digest, predictor.labels, predictor.output, use.options, use.precision
        self.key = hashlib.blake2b(repr(about).encode(), digest_size=16).hexdigest()

    def write(self, number: int, part: ImagePart) -> Answered:
        """Write the predictions for a part, unless its file exists. Raises InputError: the file has
        others."""
        path = self.folder / f"part-{number:05d}.parquet"
        if path.is_file():
            return self.found(part, path)
        images, wrong = part.open(), {name: dict[str, str]() for name in WRONG}
        with writing_to(path), whole(path) as partial:
            tables, leading = ParquetTables(partial), list[pyarrow.Table]()
            begun = False  # whether the columns are known: some image could be read
            for columns in self.predictor.columns(images):
                for name, found in wrong.items():
                    pairs = zip(columns["path"], columns[name], strict=True)
                    found |= {image: reason for image, reason in pairs if reason is not None}
                table = arrow_table(columns)
                if not begun and len(columns) == len(NO_ANSWER):
                    leading.append(table)
                    continue
                for each in [table] if begun else [table.slice(0, 0), *leading, table]:
                    tables.add(each)
                begun = True
            # Not one image could be read, so the columns are those of any other.
            if not begun:
                for each in (arrow_table(self.predictor.blank()), *leading):
                    tables.add(each)
            about = {
                "data": part.key,
                "model": self.key,
                "labels": self.predictor.labels,
                "failed": wrong["error"],
                "damaged": wrong["damaged"],
            }
            tables.close({ABOUT: json.dumps(about)})
        # A process that was killed may have left these.
        for left in self.folder.glob(f".{path.name}.*.tmp"):
            left.unlink(missing_ok=True)
        return Answered(len(images), wrong["error"], wrong["damaged"])

    def found(self, part: ImagePart, path: Path) -> Answered:
        """Return what an existing file contains. Raises InputError: it belongs to another part or model."""
        try:
            stored = parquet.read_metadata(path)
            about = json.loads(stored.metadata[ABOUT])
        except (pyarrow.ArrowInvalid, KeyError, TypeError, ValueError):
            raise InputError(f"{path} was not written by vitreous: choose another {Param('out')}") from None
        for what, now in (("model", self.key), ("data", part.key)):
            if about[what] != now:
                other = (
                    "another model or other options" if what == "model" else "other images than DATA has now"
                )
                raise InputError(f"{path} contains the predictions of {other}: choose another {Param('out')}")
        return Answered(stored.num_rows, about["failed"], about.get("damaged", {}))
