"""The same image twice: exactly, or resized, recompressed, slightly brighter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

ALIKE = 0.995  # correlation of two thumbnails that show the same
CLOSE = 10.0  # of 255: mean difference of such thumbnails, at most
FLAT = 4.0  # of 255: standard deviation of a thumbnail with next to nothing on it
MOST_PAIRED = 20_000  # images of which every pair is compared; of more, those with alike hashes
ROWS = 1024  # images compared with all others at a time
BANDS = 4  # of the 64 bits: two hashes that differ in fewer bits than this agree in a whole band
CROWD = 64  # images that are all alike; beyond, that says nothing

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]  # of the images' numbers


def exact(digests: list[bytes]) -> list[list[int]]:
    """Groups of two or more images with the same pixels."""
    groups: defaultdict[bytes, list[int]] = defaultdict(list)
    for index, digest in enumerate(digests):
        groups[digest].append(index)
    return [group for group in groups.values() if len(group) > 1]


def near(thumbs: NDArray[np.uint8], digests: list[bytes]) -> list[tuple[int, int]]:
    """Pairs that look the same and are not: thumbnails that agree but for some brightness and contrast."""
    gray = thumbs.astype(np.float32).mean(axis=3)
    shapes = gray.reshape(len(gray), -1)
    shapes = shapes - shapes.mean(axis=1, keepdims=True)
    shapes /= np.maximum(np.linalg.norm(shapes, axis=1, keepdims=True), FLAT * np.sqrt(shapes.shape[1]))
    candidates = all_pairs(shapes) if len(gray) <= MOST_PAIRED else hashed_pairs(gray)
    colors = thumbs.reshape(len(thumbs), -1).astype(np.int16)
    found: set[tuple[int, int]] = set()
    for one, two in candidates:
        alike = (shapes[one] * shapes[two]).sum(axis=1) > ALIKE
        close = np.abs(colors[one] - colors[two]).mean(axis=1) < CLOSE
        found |= set(zip(one[alike & close].tolist(), two[alike & close].tolist(), strict=True))
    return sorted(pair for pair in found if digests[pair[0]] != digests[pair[1]])


def all_pairs(shapes: NDArray[np.float32]) -> Iterator[Pairs]:
    """Of all pairs, those whose thumbnails agree."""
    for first in range(0, len(shapes), ROWS):
        agree = np.triu(shapes[first : first + ROWS] @ shapes[first:].T > ALIKE, k=1)
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
