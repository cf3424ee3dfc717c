"""What is wrong with images and their masks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vitreous.addons.segmentation.digit_pages import DIGIT_PAGES
from vitreous.addons.segmentation.folders import (
    MaskedFiles,
    existing_folder,
    layout,
    legend_of,
    match_masks,
    open_masked,
    split_masked,
    value_findings,
)
from vitreous.addons.segmentation.masked import IGNORED, Legend, MaskedDataset
from vitreous.addons.segmentation.model import MOST_CLASSES
from vitreous.data.checks import image_findings, survey_images
from vitreous.data.config import DataConfig
from vitreous.data.dataset import ClassTargets, Indices, named_parts
from vitreous.data.findings import DataReport, Finding, finding
from vitreous.data.loading import BadFiles
from vitreous.data.workers import in_threads
from vitreous.errors import InputError
from vitreous.models.stored import BadImage

RARE = 0.001  # of the pixels that are evaluated
EVERY_VALUE = Legend(tuple(str(number) for number in range(MOST_CLASSES)))


class ReadablePairs(NamedTuple):
    """The good pairs of a part: their numbers, the pixels of each value (N, 256), the masks' fingerprints."""

    indices: Indices
    pixels: NDArray[np.int64]
    masks: list[bytes]


def check_masks(source: str, *, workers: int | None = None) -> DataReport:
    """Look at every image and every mask. What training would refuse is a finding here. Raises InputError:
    there are no images and masks."""
    parts, given, findings = open_for_checking(source)
    bad = BadFiles()
    wrong: list[str] = []
    pairs = {name: good_pairs(masked, bad, wrong, workers) for name, masked in parts.items()}
    if not any(len(each.indices) for each in pairs.values()):
        reasons = [*wrong, *(f"{name} cannot be read ({reason})" for name, reason in bad)]
        raise InputError(f"no image of {source} has a mask that fits it: {reasons[0]}")
    good = {name: parts[name].subset(each.indices) for name, each in pairs.items()}
    number = dict[bytes, int]()
    for each in pairs.values():
        for mask in each.masks:
            number.setdefault(mask, len(number))
    # Images with equal masks have the same label.
    for name, images in good.items():
        numbers = np.array([number[mask] for mask in pairs[name].masks], dtype=np.int64)
        good[name] = images.with_(targets=ClassTargets(numbers, tuple(map(str, number.values()))))
    seen = survey_images(good, workers=workers)._replace(bad=bad)
    pixels = np.concatenate([each.pixels for each in pairs.values()])
    present = np.flatnonzero(pixels.sum(axis=0)).tolist()
    largest = max((value for value in present if value != IGNORED), default=0)
    names = given or tuple(map(str, range(largest + 1)))
    odd = [] if given else list(value_findings(present))
    empty = int((pixels[:, :IGNORED].sum(axis=1) == 0).sum())
    findings += [
        *finding("wrong mask", wrong),
        *image_findings(seen, "masks"),
        *odd,
        *(() if odd else class_findings(names, pairs["train"].pixels.sum(axis=0))),
        *finding("ignored", (), empty, severity="warning", value=IGNORED),
    ]
    shown = (pixels[:, : len(names)] > 0).sum(axis=0).tolist()
    return DataReport(tuple(findings), seen.counts, dict(zip(names, shown, strict=True)), tuple(bad.reasons))


def open_for_checking(
    source: str,
) -> tuple[dict[str, MaskedDataset], tuple[str, ...] | None, list[Finding]]:
    """Return the parts of a source, as training would split it, before anything in them has been looked at;
    the names of the classes if they are given; and the files without a partner."""
    config = DataConfig()
    if source == DIGIT_PAGES:
        train, validation, test, *_ = open_masked(source, config)
        return named_parts(train, validation, test), train.classes, []
    root = existing_folder(source)
    legend = legend_of(root)
    files: dict[str, MaskedFiles] = {}
    without_mask: list[str] = []
    without_image: list[str] = []
    for part, (images, masks) in layout(root).items():
        pairs, alone, others = match_masks(images, masks)
        without_mask += map(str, alone)
        without_image += map(str, others)
        if pairs:
            files[part] = MaskedFiles(root, pairs, legend or EVERY_VALUE)
    if not files.keys() & {"all", "train"}:
        raise InputError(f"{source} has no training image with a mask")
    parts = named_parts(*split_masked(files, config, where=source))
    findings = [
        *finding("without mask", without_mask),
        *finding("without image", without_image, severity="note"),
    ]
    return parts, legend.names if legend else None, findings


def good_pairs(masked: MaskedDataset, bad: BadFiles, wrong: list[str], workers: int | None) -> ReadablePairs:
    """Return what can be read and belongs together; the rest goes to `bad`, or to `wrong` with a sentence."""
    indices, pixels, masks = [], [], []
    for index, seen in enumerate(
        in_threads(partial(examine_mask, masked), range(len(masked)), workers=workers)
    ):
        if isinstance(seen, BadImage):
            bad.add(seen)
        elif isinstance(seen, str):
            wrong.append(seen)
        else:
            indices.append(index)
            pixels.append(seen[0])
            masks.append(seen[1])
    counts = np.array(pixels, dtype=np.int64).reshape(-1, IGNORED + 1)
    return ReadablePairs(np.array(indices, dtype=np.int64), counts, masks)


def examine_mask(masked: MaskedDataset, index: int) -> tuple[NDArray[np.int64], bytes] | BadImage | str:
    """Return the pixels of each value of a mask and its fingerprint, or what is wrong with the pair."""
    name = masked.name(index)
    try:
        image, mask = masked.pair(index)
        image.check()
    except BadImage as error:
        return error
    except InputError as error:
        return str(error)
    if mask.shape != image.size:
        height, width = image.size
        return f"the mask of {name} is {mask.shape[0]}x{mask.shape[1]}, but the image is {height}x{width}"
    digest = hashlib.blake2b(mask.tobytes() + repr(mask.shape).encode(), digest_size=16).digest()
    return np.bincount(mask.ravel(), minlength=IGNORED + 1), digest


def class_findings(names: tuple[str, ...], pixels: NDArray[np.int64]) -> Iterator[Finding]:
    """Yield classes that no mask to learn from shows, or hardly any, by the pixels of each value in them."""
    learned = pixels[: len(names)]
    unseen = [name for name, count in zip(names, learned, strict=True) if not count]
    yield from finding("unseen", unseen, severity="warning")
    share = learned / max(learned.sum(), 1)
    rare = [f"{name}: {100 * part:.3f}%" for name, part in zip(names, share, strict=True) if 0 < part < RARE]
    yield from finding("rare", rare, severity="note", share=RARE)
