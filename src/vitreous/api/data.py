"""DATA that is given as Python objects, as a manifest on the disk, by whose path a run finds its data
again when it is resumed or evaluated. Calls that make no run read the objects themselves."""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.errors import InputError, writing_to

if TYPE_CHECKING:
    from vitreous.data.dataset import ImageDataset


def data_source(data: Any, *, numbers: bool = False) -> str:
    """Return DATA as the command line writes it. Objects are written as a manifest with PNG files.

    The manifest is in the cache ($VITREOUS_CACHE/data), named by its content: so a run on it can be resumed
    and evaluated later, and the same data are not written twice.

    Args:
        data: a path or name; or objects as `vitreous.data.sources.objects.open_objects` takes them.
        numbers: whether a label is a number to predict.

    Raises:
        InputError: data of another form, images that cannot be read, or nothing at all.
    """
    if isinstance(data, str) and not data:
        raise InputError("DATA is empty: is a variable not set? Name one, or leave it out")
    if isinstance(data, str | Path):
        return str(data)
    from vitreous.data.config import DataConfig
    from vitreous.data.sources import open_data
    from vitreous.errors import cache_folder

    whole = DataConfig(test_fraction=0.0, validation_fraction=0.0)
    splits = open_data(data, whole, "numbers" if numbers else "classes")
    parts = {"train": splits.train, "val": splits.validation, "test": splits.test}
    home = cache_folder() / "data"
    with writing_to(home, "make room, or set VITREOUS_CACHE"):
        home.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=home, prefix=".unfinished-") as unfinished:
            written = Path(unfinished, "data")
            written.mkdir()
            digest = write_manifest(written, {name: part for name, part in parts.items() if part is not None})
            folder = home / digest
            if not folder.exists():
                os.replace(written, folder)
    return str(folder / "manifest.csv")


def write_manifest(folder: Path, parts: dict[str, ImageDataset]) -> str:
    """Write the images and labels of all parts into `folder`. Returns a hash of them.

    Raises:
        InputError: an image cannot be read.
    """
    from vitreous.data.decoding import BadImage

    digest, count = hashlib.blake2b(digest_size=12), 0
    with (folder / "manifest.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", *(["split"] if len(parts) > 1 else [])])
        for split, images in parts.items():
            for index, label in enumerate(label_texts(images)):
                try:
                    image = images.image(index)
                except BadImage as bad:
                    raise InputError(f"{bad.name} of DATA cannot be read: {bad.reason}") from None
                name = f"{count:08d}.png"
                image.save(folder / name, compress_level=1)
                digest.update(f"{split}\0{label}\0{image.mode}{image.size}".encode() + image.tobytes())
                rows.writerow([name, label, *([split] if len(parts) > 1 else [])])
                count += 1
    return digest.hexdigest()


def label_texts(images: ImageDataset) -> Iterator[str]:
    """Yield each image's label as a manifest has it. Raises InputError for a name that it cannot have."""
    if bad := [name for name in images.classes if "|" in name]:
        raise InputError(f"the class {bad[0]!r} has a | in its name: rename it")
    for target in images.targets:
        if np.ndim(target):
            weights = zip(images.classes, np.asarray(target).tolist(), strict=True)
            yield "|".join(
                name if weight == 1 else f"{name}:{weight:g}" for name, weight in weights if weight
            )
        else:
            yield images.classes[int(target)] if images.classes else f"{target:.9g}"
