"""What DATA means: a name as on the command line, or objects in memory, which are stored with a manifest."""

from __future__ import annotations

import csv
import hashlib
import io
import logging
import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from vitreous.data.config import DataConfig, TargetKind
from vitreous.data.dataset import ImageDataset
from vitreous.data.files import lossless_file
from vitreous.data.image_list import is_blank
from vitreous.data.sources import open_data, path_spec
from vitreous.data.sources.manifests import path_column
from vitreous.errors import InputError, cache_folder, writing_to
from vitreous.models.stored import BadImage
from vitreous.training.config import Tree
from vitreous.whole_files import whole

log = logging.getLogger(__name__)


def data_source(data: object, targets: TargetKind = "classes", settings: Tree | None = None) -> str:
    """Return DATA as on the command line. Objects in memory are stored with a manifest, and their images as
    PNG, or as .npy if PNG cannot represent them.

    The manifest is in the cache ($VITREOUS_CACHE/data), named by its content, so that a run on it can be
    resumed and evaluated later, and the same data is not written twice.

    Args:
        data: a path or name; or objects as `vitreous.data.sources.objects.open_objects` takes them.
        targets: what the labels are; see `vitreous.data.sources.open_data`.
        settings: of which data.form.path_column names a data frame's column of paths.

    Raises:
        InputError: data of another form, images that cannot be read, or nothing at all.
    """
    if isinstance(data, str) and not data:
        raise InputError("DATA is empty: is a variable not set? Name one, or leave it out")
    if isinstance(data, str):
        return data
    if isinstance(data, Path):
        return path_spec(data)
    if is_frame(data):
        form = (settings or {}).get("data", {}).get("form") or {}
        return frame_manifest(data, form.get("path_column"))
    unsplit = DataConfig(test_fraction=0.0, validation_fraction=0.0)
    splits = open_data(data, unsplit, targets)
    parts = {"train": splits.train, "val": splits.validation, "test": splits.test}
    home = cache_folder() / "data"
    with writing_to(home, "free up space, or set VITREOUS_CACHE"):
        home.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=home, prefix=".unfinished-") as unfinished:
            written = Path(unfinished, "data")
            written.mkdir()
            digest = write_manifest(written, {name: part for name, part in parts.items() if part is not None})
            folder = home / digest
            # It may be there already, whole, from another call or process.
            with suppress(OSError):
                os.replace(written, folder)
            (folder / "manifest.csv").stat()
    return str(folder / "manifest.csv")


def is_frame(data: object) -> bool:
    """Return whether this is a data frame, of pandas or polars."""
    return hasattr(data, "columns") and hasattr(data, "to_csv" if hasattr(data, "to_csv") else "write_csv")


def frame_manifest(frame: Any, paths: str | None) -> str:
    """Return the manifest that a data frame with the columns path and label describes, written into the cache
    and named by its content; relative paths are those of the working directory. Raises InputError: a column
    is missing. paths: the name of the column of paths."""
    names = [str(name).strip() for name in frame.columns]
    place = names.index(path_column(names, "the data frame", paths))
    columns = [list(frame[name]) for name in frame.columns]
    written = io.StringIO(newline="")
    rows = csv.writer(written)
    rows.writerow(names)
    for row in zip(*columns, strict=True):
        values = ["" if is_blank(value) else value for value in row]
        values[place] = os.path.abspath(values[place]) if values[place] else ""
        rows.writerow(values)
    content = written.getvalue().encode("utf-8", "surrogateescape")
    file = cache_folder() / "data" / f"{hashlib.blake2b(content, digest_size=12).hexdigest()}.csv"
    with writing_to(file, "free up space, or set VITREOUS_CACHE"):
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            with whole(file) as temporary:
                temporary.write_bytes(content)
    return str(file)


def write_manifest(folder: Path, parts: dict[str, ImageDataset]) -> str:
    """Write the images, upright and in the unit in which they are shown, and the labels of all parts into
    `folder`: those of 8 bits, gray or RGB, and gray of 16 bits as PNG, others as .npy files. Returns a hash
    of them. Raises InputError: an image cannot be read."""
    digest, count, transparent = hashlib.blake2b(digest_size=12), 0, 0
    with (folder / "manifest.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", *(["split"] if len(parts) > 1 else [])])
        for split, images in parts.items():
            if barred := [name for name in images.classes if "|" in name]:
                raise InputError(f"the class {barred[0]!r} has a | in its name: rename it")
            for index in range(len(images)):
                label = images.label(index)
                try:
                    image = images.opened(index)
                    values = image.values()
                    values = np.asarray(image.preview()) if values is None else values
                except BadImage as bad:
                    raise InputError(f"{bad.name} of DATA cannot be read: {bad.reason}") from None
                transparent += image.is_rgba_array
                suffix, content = lossless_file(values)
                name = f"{count:08d}{suffix}"
                (folder / name).write_bytes(content)
                about = f"{split}\0{label}\0{values.dtype.str}{values.shape}"
                digest.update(about.encode() + np.ascontiguousarray(values).tobytes())
                rows.writerow([name, label, *([split] if len(parts) > 1 else [])])
                count += 1
    if transparent:
        log.warning(
            "%d arrays of four bands of bytes are read as RGBA, on white: for four bands of which none is "
            "transparency, give .npy files, or another type such as uint16",
            transparent,
        )
    return digest.hexdigest()
