"""Which images show the same: equal files, and those that look alike.

A model that was trained on an image has an easy answer to its copy. So images of one group are in one part of
a split, in one fold of a cross-fitting and on one side of a probe, whatever draws them
(`ImageDataset.together` asks here); and equal images on both sides of a split that the user has made are a
finding.

Files are equal by their digests. Images look alike where small gray copies of them agree: also where one of
them is mirrored, brighter, gray, encoded again, smaller, or cropped by up to a twentieth of each side. What
agreement is enough depends on the images, as in the ratio test of SIFT (Lowe 2004): of cells, X-rays or faces
all look alike, and two of them are copies only where they agree much better than each does with many others.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitreous.data.dataset import ImageDataset, read_digests
from vitreous.data.workers import in_threads
from vitreous.errors import cache_folder
from vitreous.models.stored import BadImage, Bands
from vitreous.whole_files import whole

MOST_EQUAL = 100_000  # images whose digests are compared
MOST_ALIKE = 10_000  # images that are compared with each other when data are opened

GrayImages = NDArray[np.uint8]  # (N, SIDE, SIDE)
Colors = NDArray[np.uint8]  # (N, THUMB, THUMB, 3)
Links = NDArray[np.int64]  # (P, 2) the numbers of two images, the lower one first


# ---- What is compared

SIDE = 48  # pixels of a small gray copy
THUMB = 16  # pixels of a small colored copy


class Thumbnails(NamedTuple):
    """Small copies of an image. gray: (SIDE, SIDE); color: (THUMB, THUMB, 3)."""

    gray: NDArray[np.uint8]
    color: NDArray[np.uint8]

    @classmethod
    def of(cls, pixels: NDArray[np.uint8]) -> Thumbnails:
        """Return those of an image (H, W, 3)."""
        image = Image.fromarray(pixels)
        gray = image.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
        return cls(np.asarray(gray), np.asarray(image.resize((THUMB, THUMB), Image.Resampling.BOX)))


def unit_rows(images: NDArray[np.number]) -> NDArray[np.float32]:
    """Return images as rows of mean 0 and length 1; shorter where there is next to nothing on them."""
    rows = images.reshape(len(images), math.prod(images.shape[1:])).astype(np.float32)
    rows -= rows.mean(axis=1, keepdims=True)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), FLAT * np.sqrt(rows.shape[1]))
    return rows


# ---- Which pairs look alike

FLAT = 4.0  # of 255: standard deviation of a small copy with next to nothing on it
ALIKE = 0.97  # correlation of two copies that show the same, at least
COARSE = 8  # pixels of the copies by which pairs are found
AROUND = 16  # images that are the most similar to each; the last of them says how close images are here
APART = 0.5  # distance of the images around, where they are not closer
FAR = 0.6  # of that distance, from which on a pair is not compared in detail
RATIO = 0.3  # of that distance, in detail, up to which two images are copies
CELLS = 16  # pixels of the views that are compared in detail
COLORED = 6.0  # of 255: how far a channel is from gray in an image that has colors
OTHER_COLORS = 10.0  # of 255: mean difference of colors, from which on two images are not copies
ROWS = 1024  # images compared with all others at a time
PAIRS = 4096  # pairs compared in detail at a time
MOST_PAIRED = 20_000  # images of which every pair is compared; of more, those with alike hashes
BITS = 4  # parts of a hash of 64 bits: two that differ in fewer bits than this agree in a whole part
CROWD = 64  # images that are all alike; beyond, that says nothing
MANY_ALIKE = 4  # images of a class, and half of it: more that look alike are what the class looks like

WHOLE, LOW, HIGH = (0.0, 1.0), (0.05, 1.0), (0.0, 0.95)
# What is left of the height and of the width: of the whole image, of its middle, and without a border.
WINDOWS = (
    (WHOLE, WHOLE),
    ((0.05, 0.95), (0.05, 0.95)),
    ((0.025, 0.975), (0.025, 0.975)),
    *((y, WHOLE) for y in (LOW, HIGH)),
    *((y, x) for y in (WHOLE, LOW, HIGH) for x in (LOW, HIGH)),
)
# The window that a mirror image has in the place of each.
MIRRORED = [WINDOWS.index((y, {LOW: HIGH, HIGH: LOW}.get(x, x))) for y, x in WINDOWS]


def near_pairs(gray: GrayImages, colors: Colors, labels: NDArray[np.int64]) -> Links:
    """Return the pairs of images that look alike, in order: also where one has colors and the other none.

    Args:
        labels: of each image. Where these differ, mirror images without colors are not copies: p and q are
            two letters.
    """
    if len(gray) < 2:
        return np.zeros((0, 2), dtype=np.int64)
    if len(gray) <= MOST_PAIRED:
        pairs, around = similar_pairs(gray)
    else:
        pairs, around = hashed_pairs(gray), np.full(len(gray), APART, dtype=np.float32)
    # How far each channel is from gray in 4 x 4 parts of each image, (N, 4, 4, 3).
    cells = colors.reshape(len(colors), 4, THUMB // 4, 4, THUMB // 4, 3).mean(axis=(2, 4), dtype=np.float32)
    cells = cells - cells.mean(axis=3, keepdims=True)
    colored = np.abs(cells).max(axis=(1, 2, 3)) > COLORED
    one, two, mirrored = pairs.T
    theirs = np.where(mirrored[:, None, None, None] == 1, cells[two][:, :, ::-1], cells[two])
    differ = np.abs(cells[one] - theirs).mean(axis=(1, 2, 3))
    pairs = pairs[(differ < OTHER_COLORS) | ~(colored[one] & colored[two])]
    close = np.minimum(1 - ALIKE, RATIO * around[pairs[:, :2]].min(axis=1))
    found = pairs[1 - pair_correlations(gray, pairs) <= close]
    one, two, mirrored = found.T
    glyphs = (mirrored == 1) & (labels[one] != labels[two]) & ~(colored[one] | colored[two])
    return np.unique(found[~glyphs, :2], axis=0)


def similar_pairs(gray: GrayImages) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return (pairs, distances of the images around each). Pairs are (one, other, whether one is mirrored)
    whose coarse copies are much closer than those of the images around: as they are, mirrored, or the middle
    of one."""
    import torch  # whose k largest are found faster than NumPy's

    cells = gray.reshape(len(gray), COARSE, SIDE // COARSE, COARSE, SIDE // COARSE)
    whole = unit_rows(cells.mean(axis=(2, 4), dtype=np.float32))
    middle = unit_rows(windows_of(gray, WINDOWS[1:2], COARSE))
    against, count = torch.from_numpy(whole), min(AROUND, len(gray) - 1)
    around = np.full(len(gray), APART, dtype=np.float32)
    found: list[NDArray[np.int64]] = []
    distances: list[NDArray[np.float32]] = []
    for copies, mirrored in ((whole, False), (whole, True), (middle, False), (middle, True)):
        for first in range(0, len(gray), ROWS):
            some = copies[first : first + ROWS].reshape(-1, COARSE, COARSE)
            some = some[:, :, ::-1].copy() if mirrored else some
            similar = torch.from_numpy(some.reshape(len(some), -1)) @ against.T
            similar[torch.arange(len(some)), first + torch.arange(len(some))] = -1.0
            values, nearest = similar.topk(count, dim=1)
            if copies is whole and not mirrored and count == AROUND:
                farthest = 1 - values[:, -1].numpy()
                around[first : first + ROWS] = np.minimum(farthest, APART)
            row, column = torch.nonzero(values > 1 - FAR * APART, as_tuple=True)
            other = nearest[row, column].numpy()
            found.append(np.stack([row.numpy() + first, other, np.full(len(other), mirrored)], axis=1))
            distances.append(1 - values[row, column].numpy())
    pairs = np.concatenate(found)
    near = np.concatenate(distances) <= FAR * around[pairs[:, :2]].min(axis=1)
    return ordered(pairs[near]), around


def ordered(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each pair once, the lower number first: mirroring is the same in both directions."""
    return np.unique(np.column_stack([np.sort(pairs[:, :2], axis=1), pairs[:, 2]]), axis=0)


def hashed_pairs(gray: GrayImages) -> NDArray[np.int64]:
    """Return pairs whose hashes agree in a whole part, as `similar_pairs` does: some of those that look
    alike, without comparing all. A hash is 64 bits, whether brightness grows from each cell to the next."""
    cells = gray.reshape(len(gray), 8, SIDE // 8, 16, SIDE // 16).mean(axis=(2, 4), dtype=np.float32)
    found = [np.zeros((0, 3), dtype=np.int64)]
    plain = cells[:, :, 1::2] > cells[:, :, 0::2]
    turned = cells[:, :, ::-1][:, :, 1::2] > cells[:, :, ::-1][:, :, 0::2]
    for mirrored, others in ((0, plain), (1, turned)):
        bits = np.concatenate([plain, others]) if mirrored else plain
        parts = np.packbits(bits.reshape(len(bits), 64), axis=1).view(np.uint16)
        for part in range(BITS):
            order = np.argsort(parts[:, part], kind="stable")
            edges = np.flatnonzero(np.diff(parts[order, part])) + 1
            for group in np.split(order, edges):
                if 1 < len(group) <= CROWD:
                    members = np.sort(group)
                    one, two = (members[each] for each in np.triu_indices(len(members), k=1))
                    across = (one < len(gray)) & (two >= len(gray)) if mirrored else one >= 0
                    pairs = np.stack([one, two % len(gray), np.full(len(one), mirrored)], axis=1)[across]
                    found.append(pairs[pairs[:, 0] != pairs[:, 1]])
    return ordered(np.concatenate(found))


def window(part: tuple[float, float], cells: int) -> NDArray[np.float32]:
    """Return what averages a part of SIDE pixels into so many cells, (cells, SIDE)."""
    edges = np.linspace(part[0] * SIDE, part[1] * SIDE, cells + 1)
    pixels = np.arange(SIDE)
    covered = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return (covered.clip(0) / np.diff(edges)[:, None]).astype(np.float32)


def windows_of(
    gray: GrayImages, windows: Sequence[tuple[tuple[float, float], tuple[float, float]]], cells: int
) -> NDArray[np.float32]:
    """Return parts of images, (N * windows, cells, cells), those of an image one after the other."""
    values = gray.astype(np.float32)
    found = [window(y, cells) @ values @ window(x, cells).T for y, x in windows]
    return np.stack(found, axis=1).reshape(-1, cells, cells).astype(np.float32)


def pair_correlations(gray: GrayImages, pairs: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the correlation of the images of each pair: of the whole of one with the part of the other that
    fits best."""
    found = np.zeros(len(pairs), dtype=np.float32)
    for first in range(0, len(pairs), PAIRS):
        one, two, mirrored = pairs[first : first + PAIRS].T
        mine, place = np.unique(np.concatenate([one, two]), return_inverse=True)
        shown = unit_rows(windows_of(gray[mine], WINDOWS, CELLS)).reshape(
            len(mine), len(WINDOWS), CELLS, CELLS
        )
        ours, theirs = shown[place[: len(one)]], shown[place[len(one) :]]
        theirs = np.where(mirrored[:, None, None, None] == 1, theirs[:, MIRRORED, :, ::-1], theirs)
        ours, theirs = (each.reshape(len(one), len(WINDOWS), -1) for each in (ours, theirs))
        best = np.einsum("nd,nkd->nk", ours[:, 0], theirs), np.einsum("nkd,nd->nk", ours, theirs[:, 0])
        found[first : first + PAIRS] = np.concatenate(best, axis=1).max(axis=1)
    return found


# ---- Groups of a dataset


def equal_groups(digests: Sequence[str | bytes]) -> list[list[int]]:
    """Return groups of two or more images with the same digest; an empty one is not known."""
    groups = defaultdict[str | bytes, list[int]](list)
    for index, digest in enumerate(digests):
        if digest:
            groups[digest].append(index)
    return [group for group in groups.values() if len(group) > 1]


def components(links: Links, count: int) -> NDArray[np.int64]:
    """Return the number of the group of each of `count` images, where linked images are in one group."""
    parent = list(range(count))

    def first(image: int) -> int:
        while parent[image] != image:
            # This halves the way of the next search.
            parent[image] = parent[parent[image]]
            image = parent[image]
        return image

    for one, two in links.tolist():
        low, high = sorted((first(one), first(two)))
        parent[high] = low
    return np.unique([first(image) for image in range(count)], return_inverse=True)[1].astype(np.int64)


class Numbered:
    """Images of several parts, numbered one part after the other."""

    def __init__(self, parts: Mapping[str, ImageDataset]) -> None:
        self.parts = dict(parts)
        self.starts = np.cumsum([0, *map(len, parts.values())])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def at(self, number: int) -> tuple[str, ImageDataset, int]:
        """Return the part of an image, its name, and the number of the image in it."""
        place = int(np.searchsorted(self.starts, number, side="right")) - 1
        name = list(self.parts)[place]
        return name, self.parts[name], int(number - self.starts[place])

    def name(self, number: int) -> str:
        """Return the name of an image."""
        _, images, index = self.at(number)
        return images.name(index)

    def key(self, number: int) -> str:
        """Return the name of an image relative to its source."""
        _, images, index = self.at(number)
        return images.key(index)

    def strata(self) -> NDArray[np.int64]:
        """Return the class number of each image."""
        return np.concatenate([images.targets.strata() for images in self.parts.values()])


class ImageHashes(NamedTuple):
    """What was seen of every image where all of them were decoded: hashes of their pixels, small copies."""

    digests: list[str]
    gray: GrayImages
    colors: Colors


class Likeness:
    """Which images of a source are equal or look alike, found when it is asked for.

    Args:
        parts: of the source, before anything is drawn from them.
        names: groups that the user has given, a name for each image; empty: none.
        seen: what is compared, where it is known already; None: it is read, unless that takes long.
    """

    def __init__(
        self, parts: Mapping[str, ImageDataset], names: Sequence[str] = (), seen: ImageHashes | None = None
    ) -> None:
        self.images, self.names, self.seen = Numbered(parts), names, seen
        self.count = len(self.images)

    @property
    def comparable(self) -> bool:
        """Whether images are files, or held in memory, and not too many to compare their digests."""
        parts = self.images.parts.values()
        return self.count <= MOST_EQUAL and all(part.listed and part.blocks is None for part in parts)

    @property
    def complete(self) -> bool:
        """Whether it compares whatever there is."""
        return self.seen is not None or (
            self.comparable and self.count <= MOST_ALIKE and any(map(bool, self.digests))
        )

    @cached_property
    def digests(self) -> list[str]:
        """The digest of each image; none where there are too many."""
        if self.seen:
            return self.seen.digests
        if not self.comparable:
            return [""] * self.count
        parts = self.images.parts.values()
        return list(chain.from_iterable(read_digests(part, np.arange(len(part))) for part in parts))

    @cached_property
    def contents(self) -> list[str]:
        """The digests of the images alone: that of one with a mask has the mask's after it."""
        return [digest[:16] for digest in self.digests]

    @cached_property
    def equal(self) -> Links:
        """Pairs of images with equal digests: each with the first one of its group."""
        pairs: list[tuple[int, int]] = []
        for first, *others in equal_groups(self.contents):
            pairs += ((first, other) for other in others)
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    @cached_property
    def alike(self) -> Links:
        """Pairs of images that look alike and are not equal; none where there are too many images. They are
        kept by the digests, so that the same images are looked at once."""
        own = np.setdiff1d(np.arange(self.count), self.equal[:, 1])  # of equal images one
        labels = self.images.strata()
        if self.seen:
            return own[near_pairs(self.seen.gray[own], self.seen.colors[own], labels[own])]
        own = own[[bool(self.contents[index]) for index in own.tolist()]] if len(own) else own
        if not 1 < len(own) <= MOST_ALIKE:
            return np.zeros((0, 2), dtype=np.int64)
        known = "\n".join(["2", *self.contents, *map(str, labels)])  # 2: the version of the rule
        file = cache_folder() / "alike" / f"{hashlib.blake2b(known.encode(), digest_size=16).hexdigest()}.npy"
        with suppress(OSError, ValueError, EOFError):
            stored = np.load(file, allow_pickle=False)
            if stored.ndim == 2 and stored.shape[1] == 2 and (not len(stored) or stored.max() < self.count):
                return stored.astype(np.int64)
        looks = list(in_threads(self.look, own.tolist()))
        seen = np.array([look is not None for look in looks])
        gray = np.array([look.gray for look in looks if look], dtype=np.uint8).reshape(-1, SIDE, SIDE)
        color = np.array([look.color for look in looks if look], dtype=np.uint8).reshape(-1, THUMB, THUMB, 3)
        links = own[seen][near_pairs(gray, color, labels[own[seen]])]
        # A cache that cannot be written stops nothing.
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            with whole(file) as temporary, temporary.open("wb") as opened:
                np.save(opened, links)
        return links

    def look(self, index: int) -> Thumbnails | None:
        """Return small copies of an image, of a large JPEG without decoding all of it; None: it cannot be
        read."""
        _, images, place = self.images.at(index)
        try:
            opened = images.opened(place)
            if isinstance(opened, Bands):  # of which the first three are compared, or the first
                return Thumbnails.of(np.asarray(opened.preview().convert("RGB")))
            return Thumbnails.of(opened.rough((SIDE, SIDE)).permute(1, 2, 0).contiguous().numpy())
        except BadImage:
            # The image is counted and named when it is loaded.
            return None

    @cached_property
    def copies(self) -> NDArray[np.int64]:
        """(N,) the number of each image's group: images of one number are equal or look alike.

        Images that look alike and are most of a class are not copies: it is what the class looks like, and
        nothing of it could be held out. Equal ones stay together.
        """
        if not len(self.alike):
            return components(self.equal, self.count)
        groups = components(np.concatenate([self.equal, self.alike]), self.count)
        strata = self.images.strata()
        _, first, sizes = np.unique(strata, return_index=True, return_counts=True)
        size_of = dict(zip(strata[first].tolist(), sizes.tolist(), strict=True))
        pairs, counts = np.unique(np.column_stack([groups, strata]), axis=0, return_counts=True)
        usual = {
            group
            for (group, stratum), count in zip(pairs.tolist(), counts.tolist(), strict=True)
            if count > max(MANY_ALIKE, size_of[stratum] / 2)
        }
        if usual:
            copies = self.alike[[group not in usual for group in groups[self.alike[:, 0]].tolist()]]
            groups = components(np.concatenate([self.equal, copies]), self.count)
        return groups

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """(N,) the number of each image's group: images of one number are copies, or of one name."""
        if not len(self.names):
            return self.copies
        _, named = np.unique(np.asarray(self.names), return_inverse=True)
        links = []
        for numbers in (self.copies, named):
            _, first, place = np.unique(numbers, return_index=True, return_inverse=True)
            links.append(np.column_stack([first[place], np.arange(self.count)]))
        return components(np.concatenate(links), self.count)

    @property
    def linked(self) -> bool:
        """Whether any image is in a group with another."""
        return bool(len(self.names) or (self.comparable and (len(self.equal) or len(self.alike))))


def likeness_of(images: Numbered) -> tuple[Likeness, NDArray[np.int64]]:
    """Return what knows which of some images are equal or alike, and the numbers that they have there. It is
    that of their source, or one of their own."""
    known = [part.known() for part in images.parts.values()]
    likeness = known[0][0]
    if isinstance(likeness, Likeness) and all(other is likeness for other, _ in known):
        return likeness, np.concatenate([numbers for _, numbers in known])
    return Likeness(images.parts), np.arange(len(images))
