"""The same picture twice: exactly, or resized, recompressed, slightly brighter."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

BANDS = 4  # of the 64 bits: two hashes that differ in fewer bits than this agree in a whole band
CLOSE = 3.0  # of 255: mean difference of two thumbnails that show the same
CROWD = 64  # pictures alike in one band; beyond, they are flat and the band says nothing


def exact(digests: list[bytes]) -> list[list[int]]:
    """Groups of two or more pictures with the same pixels."""
    groups: defaultdict[bytes, list[int]] = defaultdict(list)
    for index, digest in enumerate(digests):
        groups[digest].append(index)
    return [group for group in groups.values() if len(group) > 1]


def near(thumbs: NDArray[np.uint8], digests: list[bytes]) -> list[tuple[int, int]]:
    """Pairs that look the same and are not: difference hashes that differ in at most three of 64 bits, and
    thumbnails that agree."""
    grey = thumbs.astype(np.float32).mean(axis=3)
    hashes = difference_hash(grey)
    pairs: set[tuple[int, int]] = set()
    bands = hashes.view(np.uint16).reshape(len(hashes), BANDS)
    for band in range(BANDS):
        order = np.argsort(bands[:, band], kind="stable")
        edges = np.flatnonzero(np.diff(bands[order, band])) + 1
        for group in np.split(order, edges):
            if 1 < len(group) <= CROWD:
                pairs |= close_pairs(group, grey, hashes)
    return sorted(pair for pair in pairs if digests[pair[0]] != digests[pair[1]])


def difference_hash(grey: NDArray[np.float32]) -> NDArray[np.uint64]:
    """(N,): 64 bits for each thumbnail, whether brightness grows from each cell to the next on its right."""
    rows = grey.reshape(len(grey), 8, 2, -1).mean(axis=2)  # (N, 8, 16)
    cells = (rows[:, :, 1::2] > rows[:, :, 0::2]).reshape(len(grey), 64)
    return np.packbits(cells, axis=1).view(np.uint64).ravel()


def close_pairs(
    group: NDArray[np.int64], grey: NDArray[np.float32], hashes: NDArray[np.uint64]
) -> set[tuple[int, int]]:
    """The pairs within a few candidates."""
    members = np.sort(group)
    one, two = np.triu_indices(len(members), k=1)
    one, two = members[one], members[two]
    differing = np.bitwise_count(hashes[one] ^ hashes[two])
    distance = np.abs(grey[one] - grey[two]).mean(axis=(1, 2))
    found = (differing < BANDS) & (distance < CLOSE)
    return set(zip(one[found].tolist(), two[found].tolist(), strict=True))
