"""What is wrong with images and their masks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitreous.data.checking import SHOWN, DataReport, Finding, alike, broken, looks
from vitreous.data.config import DataConfig
from vitreous.data.dataset import BadFiles, BadImage, DataSummary, Indices, Splits
from vitreous.data.loading import in_order, pool, worker_count
from vitreous.data.segmentation.digit_pages import DIGIT_PAGES
from vitreous.data.segmentation.folders import (
    LAYOUT,
    MaskedFiles,
    layout,
    matched,
    open_masked,
    size_of,
    split,
)
from vitreous.data.segmentation.masked import IGNORED, Legend, MaskedDataset, read_legend
from vitreous.data.survey import survey
from vitreous.errors import InputError
from vitreous.models.segmenter import MOST_CLASSES

AHEAD = 64  # images in the making
RARE = 0.001  # of the pixels that are evaluated
EVERY_VALUE = Legend(tuple(str(number) for number in range(MOST_CLASSES)))


class Parts(NamedTuple):
    """Images with masks by part, the names of the classes if they are given, and files that stand alone."""

    images: dict[str, MaskedDataset]
    classes: tuple[str, ...] | None
    without_mask: list[Path]
    without_image: list[Path]


class Pairs(NamedTuple):
    """The good pairs of a part: their numbers, the pixels of each value (N, 256), the masks' fingerprints."""

    indices: Indices
    pixels: NDArray[np.int64]
    masks: list[bytes]


class Alone:
    """The images of some pairs; those with equal masks have the same label."""

    def __init__(self, masked: MaskedDataset, pairs: Pairs, labels: dict[bytes, int]) -> None:
        self.masked, self.indices = masked, pairs.indices
        self.targets = np.array([labels[mask] for mask in pairs.masks], dtype=np.int64)
        self.classes = tuple(map(str, range(len(labels))))

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, index: int) -> str:
        return self.masked.name(int(self.indices[index]))

    def image(self, index: int) -> Image.Image:
        return self.masked.pair(int(self.indices[index]))[0]

    def encoded(self, index: int) -> bytes | None:
        return None


def check_masks(source: str, *, workers: int | None = None) -> DataReport:
    """Look at every image and every mask. What training would refuse is a finding here.

    Raises:
        InputError: there are no images and masks.
    """
    parts = open_parts(source)
    bad = BadFiles()
    wrong: list[str] = []
    pairs = {name: good_pairs(masked, bad, wrong, workers) for name, masked in parts.images.items()}
    if not any(len(each.indices) for each in pairs.values()):
        reasons = [*wrong, *(f"{name} cannot be read ({reason})" for name, reason in bad)]
        raise InputError(f"not one image of {source} has a mask that fits it: {reasons[0]}")
    labels = {mask: row for row, mask in enumerate({mask for each in pairs.values() for mask in each.masks})}
    alone = {name: Alone(parts.images[name], each, labels) for name, each in pairs.items()}
    summary = DataSummary(len(alone["train"]), len(labels), 1, 0, 0, 3, False)
    seen = survey(
        Splits(alone["train"], alone.get("validation"), alone.get("test"), source, summary), workers=workers
    )
    seen = seen._replace(bad=bad)
    pixels = {name: each.pixels.sum(axis=0) for name, each in pairs.items()}
    found = [
        broken(seen),
        *structure(parts, wrong),
        *alike(seen, "masks"),
        *shares(parts.classes, pixels, np.concatenate([each.pixels for each in pairs.values()])),
        *looks(seen),
    ]
    names = class_names(parts.classes, pixels)
    shown = np.concatenate([each.pixels[:, : len(names)] > 0 for each in pairs.values()]).sum(axis=0)
    return DataReport(
        images={name: len(each.indices) for name, each in pairs.items()},
        classes=dict(zip(names, shown.tolist(), strict=True)),
        findings=tuple(finding for finding in found if finding.found),
    )


def open_parts(source: str) -> Parts:
    """The parts of a source, as training would split it, before anything in them has been looked at."""
    config = DataConfig()
    if source == DIGIT_PAGES:
        train, validation, test, *_ = open_masked(source, config)
        return Parts(named(train, validation, test), train.classes, [], [])
    root = Path(source).expanduser()
    if not root.is_dir():
        raise InputError(f"there is no folder {source}: give {DIGIT_PAGES}, or a folder: {LAYOUT}")
    file = root / "classes.txt"
    legend = read_legend(file) if file.is_file() else None
    files: dict[str, MaskedFiles] = {}
    without_mask: list[Path] = []
    without_image: list[Path] = []
    for part, (images, masks) in layout(root).items():
        pairs, alone, others = matched(images, masks)
        without_mask += alone
        without_image += others
        if pairs:
            files[part] = MaskedFiles(pairs, legend or EVERY_VALUE)
    if not files.keys() & {"all", "train"}:
        raise InputError(f"{source} has no image to train on that has a mask: {LAYOUT}")
    return Parts(named(*split(files, config)), legend.names if legend else None, without_mask, without_image)


def named(
    train: MaskedDataset, validation: MaskedDataset | None, test: MaskedDataset | None
) -> dict[str, MaskedDataset]:
    parts = {"train": train, "validation": validation, "test": test}
    return {name: part for name, part in parts.items() if part is not None}


def good_pairs(masked: MaskedDataset, bad: BadFiles, wrong: list[str], workers: int | None) -> Pairs:
    """What can be read and belongs together; the rest goes to `bad`, or to `wrong` with a sentence."""
    indices, pixels, masks = [], [], []
    with pool(worker_count(workers) or 1) as executor:
        assert executor is not None
        found = in_order(executor, partial(look, masked), range(len(masked)), ahead=AHEAD)
        for index, seen in enumerate(found):
            if isinstance(seen, BadImage):
                bad.add(seen)
            elif isinstance(seen, str):
                wrong.append(seen)
            else:
                indices.append(index)
                pixels.append(seen[0])
                masks.append(seen[1])
    counts = np.array(pixels, dtype=np.int64).reshape(-1, IGNORED + 1)
    return Pairs(np.array(indices, dtype=np.int64), counts, masks)


def look(masked: MaskedDataset, index: int) -> tuple[NDArray[np.int64], bytes] | BadImage | str:
    """The pixels of each value of a mask and its fingerprint, or what is wrong with the pair."""
    try:
        image, mask = masked.pair(index)
    except BadImage as error:
        return error
    except InputError as error:
        return str(error)
    if mask.shape != (size := size_of(image)):
        return (
            f"the mask of {masked.name(index)} is {mask.shape[0]}x{mask.shape[1]}, the image "
            f"{size[0]}x{size[1]}"
        )
    digest = hashlib.blake2b(mask.tobytes() + repr(mask.shape).encode(), digest_size=16).digest()
    return np.bincount(mask.ravel(), minlength=IGNORED + 1), digest


def structure(parts: Parts, wrong: list[str]) -> Iterator[Finding]:
    """Files that do not belong together: training refuses them."""
    yield Finding(
        "without mask",
        "error",
        "images have no mask",
        "add masks, or remove the images: training refuses them",
        len(parts.without_mask),
        tuple(map(str, parts.without_mask[:SHOWN])),
    )
    yield Finding(
        "without image",
        "note",
        "masks have no image",
        "no harm, unless images are missing",
        len(parts.without_image),
        tuple(map(str, parts.without_image[:SHOWN])),
    )
    yield Finding(
        "wrong mask",
        "error",
        "masks do not fit their images or the classes",
        "fix them: training refuses such masks",
        len(wrong),
        tuple(wrong[:SHOWN]),
    )


def class_names(given: tuple[str, ...] | None, pixels: dict[str, NDArray[np.int64]]) -> tuple[str, ...]:
    """As classes.txt names them, or the numbers up to a mask's largest."""
    if given:
        return given
    present = np.flatnonzero(np.sum(list(pixels.values()), axis=0)[:IGNORED])
    return tuple(map(str, range(int(present.max(initial=0)) + 1)))


def shares(
    given: tuple[str, ...] | None, pixels: dict[str, NDArray[np.int64]], each: NDArray[np.int64]
) -> Iterator[Finding]:
    """Classes that no mask to learn from shows, or hardly any; masks that show one class, or none."""
    names = class_names(given, pixels)
    learned = pixels["train"][: len(names)]
    unseen = [name for name, count in zip(names, learned, strict=True) if not count]
    advice = "add masks that show them, or take them out of classes.txt and number the others again"
    yield Finding("unseen", "warning", "classes are in no mask of train", advice, len(unseen), tuple(unseen))
    share = learned / max(learned.sum(), 1)
    rare = [f"{name}: {part:.3%}" for name, part in zip(names, share, strict=True) if 0 < part < RARE]
    advice = "look at the IoU of each class, and add images that show them"
    yield Finding(
        "rare", "note", f"classes have less than {RARE:.1%} of the pixels", advice, len(rare), tuple(rare)
    )
    ignored = int((each[:, :IGNORED].sum(axis=1) == 0).sum())
    advice = "save their classes, or remove the images: nothing is learned from them"
    yield Finding("ignored", "warning", f"masks are {IGNORED} everywhere", advice, ignored, ())
