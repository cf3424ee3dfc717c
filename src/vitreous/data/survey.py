"""One look at every image of a data set: what is cheap to know and enough to find what is wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitreous.data.dataset import BadFiles, BadImage, ImageDataset, Splits
from vitreous.data.decoding import Encoded
from vitreous.data.splitting import strata
from vitreous.data.threads import in_order, pool, worker_count

THUMB = 16  # pixels: the side of a thumbnail
AHEAD = 256  # images in the making


class Look(NamedTuple):
    """What one image tells."""

    digest: bytes  # of the upright pixels: equal images in files that differ are equal
    thumb: NDArray[np.uint8]  # (THUMB, THUMB, 3)
    size: tuple[int, int]  # (H, W)
    gray: bool


class Survey(NamedTuple):
    """All good images, in columns of N. parts and labels number `part_names` and `classes`. counts: how
    many images show each class; those with several labels count for each."""

    names: list[str]
    parts: NDArray[np.int64]
    labels: NDArray[np.int64]
    digests: list[bytes]
    thumbs: NDArray[np.uint8]  # (N, THUMB, THUMB, 3)
    sizes: NDArray[np.int64]  # (N, 2)
    gray: NDArray[np.bool_]
    counts: NDArray[np.int64]
    classes: tuple[str, ...]
    part_names: tuple[str, ...]
    bad: BadFiles


def survey(splits: Splits, *, workers: int | None = None) -> Survey:
    """Decode every image once, in threads."""
    named = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    parts = {name: images for name, images in named.items() if images is not None}
    bad = BadFiles()
    names: list[str] = []
    owners: list[int] = []
    labels: list[int] = []
    looks: list[Look] = []
    counts = np.zeros(len(splits.train.classes), dtype=np.int64)
    for number, images in enumerate(parts.values()):
        groups = strata(images.targets)
        for index, seen in enumerate(look_at_all(images, workers)):
            if isinstance(seen, BadImage):
                bad.add(seen)
                continue
            names.append(images.name(index))
            owners.append(number)
            labels.append(int(groups[index]))
            looks.append(seen)
            counts[classes_of(images.targets[index])] += 1
    return Survey(
        names,
        np.array(owners, dtype=np.int64),
        np.array(labels, dtype=np.int64),
        [seen.digest for seen in looks],
        np.array([seen.thumb for seen in looks], dtype=np.uint8).reshape(-1, THUMB, THUMB, 3),
        np.array([seen.size for seen in looks], dtype=np.int64).reshape(-1, 2),
        np.array([seen.gray for seen in looks], dtype=bool),
        counts,
        splits.train.classes,
        tuple(parts),
        bad,
    )


def classes_of(target: Any) -> Any:
    """The numbers of the classes that an image shows, by its target: a number, or a row of labels."""
    return np.flatnonzero(target) if np.ndim(target) else target


def look_at_all(images: ImageDataset, workers: int | None) -> Iterator[Look | BadImage]:
    """In order."""
    with pool(worker_count(workers) or 1) as executor:
        assert executor is not None
        yield from in_order(executor, partial(look, images), range(len(images)), ahead=AHEAD)


def look(images: ImageDataset, index: int) -> Look | BadImage:
    """One image."""
    try:
        encoded = Encoded(images, index, 3)
        pixels = encoded.pixels().permute(1, 2, 0).contiguous().numpy()
    except BadImage as bad:
        return bad
    small = Image.fromarray(pixels).resize((THUMB, THUMB), Image.Resampling.BOX)
    return Look(
        hashlib.blake2b(pixels.tobytes() + bytes(str(pixels.shape), "ascii"), digest_size=16).digest(),
        np.asarray(small),
        encoded.size,
        bool((pixels[..., 0] == pixels[..., 1]).all() and (pixels[..., 1] == pixels[..., 2]).all()),
    )
