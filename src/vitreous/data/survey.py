"""One pass over every image of a dataset: enough to find duplicates and errors."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitreous.data.dataset import ImageDataset, Indices
from vitreous.data.loading import BadFiles
from vitreous.data.workers import in_threads
from vitreous.models.stored import BadImage

ALIKE = 0.995  # correlation of two thumbnails, in color, that show the same
ALIKE_GRAY = 0.99  # of them in gray, below which they are not compared in color
DIFFERENT = 64  # of 255: a color of a cell, from which on two thumbnails do not show the same
CLOSE = 10.0  # of 255: mean difference of such thumbnails, at most
FLAT = 4.0  # of 255: standard deviation of a thumbnail with next to nothing on it
MOST_PAIRED = 20_000  # images of which every pair is compared; of more, those with alike hashes
ROWS = 1024  # images compared with all others at a time
BANDS = 4  # of the 64 bits: two hashes that differ in fewer bits than this agree in a whole band
CROWD = 64  # images that are all alike; beyond, that says nothing

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]  # of the images' numbers


def exact_duplicates(digests: list[bytes]) -> list[list[int]]:
    """Groups of two or more images with the same pixels."""
    groups: defaultdict[bytes, list[int]] = defaultdict(list)
    for index, digest in enumerate(digests):
        groups[digest].append(index)
    return [group for group in groups.values() if len(group) > 1]


def near_duplicates(thumbs: NDArray[np.uint8], digests: list[bytes]) -> list[tuple[int, int]]:
    """Pairs that look the same and are not: thumbnails that agree but for some brightness and contrast."""
    gray = thumbs.astype(np.float32).mean(axis=3)
    shapes = normalized(gray)
    candidates = all_pairs(shapes) if len(gray) <= MOST_PAIRED else hashed_pairs(gray)
    colors = thumbs.reshape(len(thumbs), -1).astype(np.int16)
    found: set[tuple[int, int]] = set()
    for one, two in candidates:
        apart = np.abs(colors[one] - colors[two])
        close = (apart.mean(axis=1) < CLOSE) & (apart.max(axis=1, initial=0) < DIFFERENT)
        one, two = one[close], two[close]
        alike = (normalized(thumbs[one]) * normalized(thumbs[two])).sum(axis=1) > ALIKE
        found |= set(zip(one[alike].tolist(), two[alike].tolist(), strict=True))
    return sorted(pair for pair in found if digests[pair[0]] != digests[pair[1]])


def normalized(images: NDArray[np.number]) -> NDArray[np.float32]:
    """Return images as rows of mean 0 and length 1; shorter where there is next to nothing on them."""
    rows = images.reshape(len(images), math.prod(images.shape[1:])).astype(np.float32)
    rows -= rows.mean(axis=1, keepdims=True)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), FLAT * np.sqrt(rows.shape[1]))
    return rows


def all_pairs(shapes: NDArray[np.float32]) -> Iterator[Pairs]:
    """Of all pairs, those whose thumbnails agree."""
    for first in range(0, len(shapes), ROWS):
        agree = np.triu(shapes[first : first + ROWS] @ shapes[first:].T > ALIKE_GRAY, k=1)
        agree[agree.sum(axis=1) > CROWD] = False
        one, two = np.nonzero(agree)
        yield one + first, two + first


def hashed_pairs(gray: NDArray[np.float32]) -> Iterator[Pairs]:
    """Pairs whose hashes agree in a whole band: some of those that look alike, without comparing all."""
    bands = difference_hash(gray).view(np.uint16).reshape(len(gray), BANDS)
    for band in range(BANDS):
        order = np.argsort(bands[:, band], kind="stable")
        edges = np.flatnonzero(np.diff(bands[order, band])) + 1
        for group in np.split(order, edges):
            if 1 < len(group) <= CROWD:
                members = np.sort(group)
                one, two = np.triu_indices(len(members), k=1)
                yield members[one], members[two]


def difference_hash(gray: NDArray[np.float32]) -> NDArray[np.uint64]:
    """(N,): 64 bits for each thumbnail, whether brightness grows from each cell to the next on its right."""
    rows = gray.reshape(len(gray), 8, 2, -1).mean(axis=2)  # (N, 8, 16)
    cells = (rows[:, :, 1::2] > rows[:, :, 0::2]).reshape(len(gray), 64)
    return np.packbits(cells, axis=1).view(np.uint64).ravel()


THUMB = 16  # pixels: the side of a thumbnail


class ImageFacts(NamedTuple):
    """What one image tells."""

    digest: bytes  # of the upright pixels: equal images in files that differ are equal
    thumb: NDArray[np.uint8]  # (THUMB, THUMB, 3)
    size: tuple[int, int]  # (H, W)
    gray: bool
    damage: str | None


class DataSurvey(NamedTuple):
    """All good images, in columns of N. images: how many each part has. keys: names relative to the source.
    places: the number of each image in its part; parts: the number of that part. counts: of the classes in
    all parts. bad_keys: of images that cannot be read, by name."""

    images: dict[str, int]
    names: list[str]
    keys: list[str]
    places: NDArray[np.int64]
    parts: NDArray[np.int64]
    labels: NDArray[np.int64]
    digests: list[bytes]
    thumbs: NDArray[np.uint8]  # (N, THUMB, THUMB, 3)
    sizes: NDArray[np.int64]  # (N, 2)
    gray: NDArray[np.bool_]
    counts: NDArray[np.int64]
    bad: BadFiles  # which knows what is damaged, too
    bad_keys: dict[str, str]

    def named(self, indices: Indices) -> list[str]:
        """Return the names of some images."""
        return [self.names[index] for index in indices]


def survey_images(parts: Mapping[str, ImageDataset], *, workers: int | None = None) -> DataSurvey:
    """Decode every image once, in threads."""
    bad, bad_keys = BadFiles(), dict[str, str]()
    good: list[ImageDataset] = []
    names: list[str] = []
    keys: list[str] = []
    places: list[int] = []
    facts: list[ImageFacts] = []
    for images in parts.values():
        first = len(places)
        found = in_threads(partial(examine, images), range(len(images)), workers=workers)
        for index, seen in enumerate(found):
            if isinstance(seen, BadImage):
                bad.add(seen)
                bad_keys[seen.name] = images.key(index)
                continue
            if seen.damage is not None:
                bad.damaged[images.name(index)] = seen.damage
            names.append(images.name(index))
            keys.append(images.key(index))
            places.append(index)
            facts.append(seen)
        good.append(images.subset(np.array(places[first:], dtype=np.int64)))
    return DataSurvey(
        images=dict(zip(parts, map(len, good), strict=True)),
        names=names,
        keys=keys,
        places=np.array(places, dtype=np.int64),
        parts=np.repeat(np.arange(len(parts)), [len(images) for images in good]),
        labels=np.concatenate([images.targets.strata() for images in good]),
        digests=[seen.digest for seen in facts],
        thumbs=np.array([seen.thumb for seen in facts], dtype=np.uint8).reshape(-1, THUMB, THUMB, 3),
        sizes=np.array([seen.size for seen in facts], dtype=np.int64).reshape(-1, 2),
        gray=np.array([seen.gray for seen in facts], dtype=bool),
        counts=np.sum([images.targets.counts() for images in good], axis=0),
        bad=bad,
        bad_keys=bad_keys,
    )


def examine(images: ImageDataset, index: int) -> ImageFacts | BadImage:
    """Return what one image tells, or why it cannot be read."""
    try:
        encoded = images.opened(index)
        seen = encoded.bands in (1, 3)  # of other bands those that can be seen
        pixels = encoded.array() if seen else np.asarray(encoded.preview().convert("RGB"))
    except BadImage as bad:
        return bad
    small = Image.fromarray(pixels).resize((THUMB, THUMB), Image.Resampling.BOX)
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    content = pixels.tobytes() + bytes(str(pixels.shape), "ascii")
    return ImageFacts(
        digest=hashlib.blake2b(content, digest_size=16).digest(),
        thumb=np.asarray(small),
        size=encoded.size,
        gray=bool((red == green).all() and (green == blue).all()),
        damage=encoded.damage,
    )
