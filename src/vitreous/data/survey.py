"""One pass over every image of a dataset: what can be known only by decoding all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.data.dataset import ImageDataset
from vitreous.data.likeness import SIDE, THUMB, ImageHashes, Likeness, Numbered, Thumbnails, likeness_of
from vitreous.data.loading import BadFiles
from vitreous.data.workers import in_threads
from vitreous.models.stored import BadImage


class SurveyedImage(NamedTuple):
    """What one image tells."""

    look: Thumbnails
    digest: str  # of the upright pixels
    size: tuple[int, int]  # (H, W)
    gray: bool
    damage: str | None


class DataSurvey(NamedTuple):
    """What was seen of all images that can be read, in columns of N."""

    images: Numbered
    likeness: Likeness  # which of them are equal or alike
    rows: NDArray[np.int64]  # the numbers that they have there
    thumbs: NDArray[np.uint8]  # (N, THUMB, THUMB, 3)
    sizes: NDArray[np.int64]  # (N, 2)
    gray: NDArray[np.bool_]
    bad: BadFiles  # those that cannot be read; it knows what is damaged, too
    bad_keys: dict[str, str]  # the names of those relative to the source, by name

    @property
    def counts(self) -> dict[str, int]:
        """How many images each part has."""
        return {name: len(part) for name, part in self.images.parts.items()}


def survey_images(parts: Mapping[str, ImageDataset], *, workers: int | None) -> DataSurvey:
    """Decode every image once, in threads. Where images were not compared when they were opened, since they
    would be fetched or are too many, they are now."""
    likeness, rows = likeness_of(images := Numbered(parts))
    bad, bad_keys = BadFiles(), dict[str, str]()
    chosen: list[int] = []
    facts: list[SurveyedImage] = []
    examined = in_threads(partial(examine, images, likeness.complete), range(len(images)), workers=workers)
    for number, seen in enumerate(examined):
        if isinstance(seen, BadImage):
            bad.add(seen)
            bad_keys[seen.name] = images.key(number)
            continue
        if seen.damage is not None:
            bad.damaged[images.name(number)] = seen.damage
        chosen.append(number)
        facts.append(seen)
    good = np.array(chosen, dtype=np.int64)
    readable = dict[str, ImageDataset]()
    for (name, part), start in zip(parts.items(), images.starts.tolist(), strict=False):
        readable[name] = part.subset(good[(good >= start) & (good < start + len(part))] - start)
    thumbs = np.array([each.look.color for each in facts], dtype=np.uint8).reshape(-1, THUMB, THUMB, 3)
    rows = rows[good]
    if not likeness.complete:
        gray = np.array([each.look.gray for each in facts], dtype=np.uint8).reshape(-1, SIDE, SIDE)
        likeness = Likeness(readable, seen=ImageHashes([each.digest for each in facts], gray, thumbs))
        rows = np.arange(len(good))
    return DataSurvey(
        images=Numbered(readable),
        likeness=likeness,
        rows=rows,
        thumbs=thumbs,
        sizes=np.array([each.size for each in facts], dtype=np.int64).reshape(-1, 2),
        gray=np.array([each.gray for each in facts], dtype=bool),
        bad=bad,
        bad_keys=bad_keys,
    )


def examine(images: Numbered, compared: bool, number: int) -> SurveyedImage | BadImage:
    """Return what one image tells, or why it cannot be read. compared: whether its digest is known."""
    _, part, index = images.at(number)
    try:
        encoded = part.opened(index)
        seen = encoded.bands in (1, 3)  # of other bands those that can be seen
        pixels = encoded.array() if seen else np.asarray(encoded.preview().convert("RGB"))
    except BadImage as bad:
        return bad
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    content = b"" if compared else pixels.tobytes() + bytes(str(pixels.shape), "ascii")
    return SurveyedImage(
        look=Thumbnails.of(pixels),
        digest=hashlib.blake2b(content, digest_size=8).hexdigest(),
        size=encoded.size,
        gray=bool((red == green).all() and (green == blue).all()),
        damage=encoded.damage,
    )
