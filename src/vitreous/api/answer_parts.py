"""Folders of answers: a Parquet file for each part of DATA, by any number of processes, resumed."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vitreous.api.arguments import progress_bar
from vitreous.api.predictor import NO_ANSWER, Predictor
from vitreous.data.image_parts import ImagePart, image_parts
from vitreous.deployment.answers import WRONG, ParquetTables, table_of
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
    """What a file, or a folder of them, has: how many images, and what is wrong with some of them."""

    images: int
    failed: Mapping[str, str]
    damaged: Mapping[str, str]
    width: int = 0  # of the features, 0 where there are none


def answer_parts(
    predictor: Predictor,
    data: Any,
    folder: str | Path,
    *,
    engine: str | None = None,
    actors: int | None = None,
    progress: bool = True,
) -> Answered:
    """Answer DATA into a folder, a file for each part; a part whose file is there is not answered again.

    A file has its name once it is complete: a process that is killed, at any time, loses the part that it was
    at, and the same command goes on with it. Under torchrun each process answers its share.

    Args:
        engine: "ray" for the processes of a Ray cluster; by default this one.
        actors: how many of them, with "ray"; by default one for each GPU, or else for each machine.

    Raises:
        InputError: no such model or data, or the folder has answers of another model or to other images.
    """
    require_packages("pyarrow", extra="data", what=f"writing {folder}")
    if engine not in (None, "ray"):
        raise InputError(
            f"{Param('engine')} {engine} is not known: the one engine is ray; leave it out to compute here"
        )
    if actors is not None and (engine is None or actors < 1):
        raise InputError(
            f"{Param('actors')} {actors}: give a number from 1 on, together with {Param('engine')} ray"
        )
    folder = Path(folder)
    parts = image_parts(data)
    first = next(parts)
    parts, predictor.calibration = chain([first], parts), first.open
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if engine:
        done = by_ray(predictor, parts, folder, actors)
    else:  # all of them here, or each by one of torchrun's processes
        rank, processes = number_of_launcher("RANK", 0), number_of_launcher("WORLD_SIZE", 1, low=1)
        writer = PartWriter(predictor, folder)
        done = (writer.write(part) for part in parts if part.number % processes == rank)
    images, failed, damaged = 0, dict[str, str](), dict[str, str]()
    with progress_bar("answering", progress) as advance:
        for each in done:
            images += each.images
            failed |= each.failed
            damaged |= each.damaged
            advance(images, None)
    return Answered(images, failed, damaged, width_of(folder))


def width_of(folder: Path) -> int:
    """Return the number of features of an image in a folder's files."""
    schema = next((parquet.read_schema(path) for path in folder.glob("part-*.parquet")), None)
    return schema.field("features").type.list_size if schema and "features" in schema.names else 0


def by_ray(
    predictor: Predictor, parts: Iterable[ImagePart], folder: Path, actors: int | None
) -> Iterator[Answered]:
    """Answer parts by Ray Data: one model for each actor. Where one dies, another answers its part."""
    require_packages("ray", extra="ray", what=f"{Param('engine')} ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray: Any = import_module("ray")
    ray.data = import_module("ray.data")
    if not ray.is_initialized():
        local: dict[str, Any] = {} if "RAY_ADDRESS" in os.environ else {"include_dashboard": False}
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **local)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0))
    rows = [{"part": pickle.dumps(part)} for part in parts]
    chosen = min(actors or gpus or sum(each["Alive"] for each in ray.nodes()), len(rows))
    answered = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
        PartWriter,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=chosen),
        num_cpus=max(int(resources.get("CPU", 1)) // (chosen + 1), 1),
        num_gpus=1 if gpus else 0,
        fn_constructor_args=(predictor, folder.resolve()),
    )
    for row in answered.iter_rows():
        yield Answered(row["images"], json.loads(row["failed"]), json.loads(row["damaged"]))


class PartWriter:
    """What answers parts in one process, each into a file of its own."""

    def __init__(self, predictor: Predictor, folder: Path) -> None:
        self.predictor, self.folder = predictor, folder
        use, digest = predictor.use, predictor.opened.digest()
        about = digest, predictor.labels, predictor.output, use.options, use.precision
        self.key = hashlib.blake2b(repr(about).encode(), digest_size=16).hexdigest()

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Answer the parts of a batch of Ray Data."""
        written = [self.write(pickle.loads(part)) for part in batch["part"]]
        return {
            "images": [each.images for each in written],
            "failed": [json.dumps(dict(each.failed)) for each in written],
            "damaged": [json.dumps(dict(each.damaged)) for each in written],
        }

    def write(self, part: ImagePart) -> Answered:
        """Answer a part, unless its file is there. Raises InputError where that has other answers."""
        path = self.folder / f"part-{part.number:05d}.parquet"
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
                table = table_of(columns)
                if not begun and len(columns) == len(NO_ANSWER):
                    leading.append(table)
                    continue
                for each in [table] if begun else [table.slice(0, 0), *leading, table]:
                    tables.add(each)
                begun = True
            if not begun:  # not one image can be read: the columns are those of any other
                for each in (table_of(self.predictor.blank()), *leading):
                    tables.add(each)
            about = {
                "data": part.key,
                "model": self.key,
                "labels": self.predictor.labels,
                "failed": wrong["error"],
                "damaged": wrong["damaged"],
            }
            tables.close({ABOUT: json.dumps(about)})
        for left in self.folder.glob(f".{path.name}.*.tmp"):  # by a process that was killed
            left.unlink(missing_ok=True)
        return Answered(len(images), wrong["error"], wrong["damaged"])

    def found(self, part: ImagePart, path: Path) -> Answered:
        """Return what a file has that is there. Raises InputError where it is not of this part and model."""
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
                raise InputError(f"{path} has the answers of {other}: choose another {Param('out')}")
        return Answered(stored.num_rows, about["failed"], about.get("damaged", {}))
