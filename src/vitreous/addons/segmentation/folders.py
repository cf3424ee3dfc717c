"""A folder with images/ and masks/, whose files belong together by their names without ending."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import cast

import numpy as np

from vitreous.addons.segmentation import IMAGES, MASKS
from vitreous.addons.segmentation.digit_pages import CLASSES, DIGIT_PAGES, open_digit_pages
from vitreous.addons.segmentation.masked import (
    IGNORED,
    Legend,
    Mask,
    MaskedDataset,
    MaskSplits,
    check_mode,
    read_legend,
    read_mask,
)
from vitreous.data.config import DataConfig
from vitreous.data.dataset import PARTS, ClassTargets, DataSummary
from vitreous.data.files import EXTENSIONS, file_digest
from vitreous.data.findings import Finding, finding
from vitreous.data.held_out import split
from vitreous.data.image_list import images_below
from vitreous.data.sources import summarize
from vitreous.data.workers import in_threads
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.stored import BadImage, Stored, bytes_of_file, is_gray, open_image, upright_size
from vitreous.outside import local_path

LAYOUT = "put images into images/ and masks of the same names into masks/ (PNG, the value is the class)"
SAMPLE = 200  # masks that are read before training where classes.txt names the classes
SPARSE = 0.5  # of the classes by number: where fewer are in the masks, the values are named
VALUES = 8  # that are named
FAR = 4  # times as many classes as the other masks know: one that makes so many is doubted

log = logging.getLogger(__name__)
MaskedParts = tuple[MaskedDataset, MaskedDataset | None, MaskedDataset | None]  # train, validation, test


class MaskedFiles(MaskedDataset):
    """Pairs of files, read when asked for."""

    def __init__(self, root: Path, pairs: Sequence[tuple[Path, Path]], legend: Legend) -> None:
        self.root, self.pairs, self.legend = root, pairs, legend
        self.targets = ClassTargets(np.zeros(len(pairs), dtype=np.int64), legend.names)

    def name(self, index: int) -> str:
        return str(self.pairs[index][0])

    def key(self, index: int) -> str:
        return str(self.pairs[index][0].relative_to(self.root))

    def digest(self, index: int) -> str:
        return "".join(map(file_digest, self.pairs[index]))

    def pair(self, index: int, how: Preprocessing | int = 3) -> tuple[Stored, Mask]:
        return self.opened(index, how), read_mask(self.pairs[index][1], self.legend)

    def encoded(self, index: int) -> bytes:
        return bytes_of_file(self.pairs[index][0])


def open_masked(spec: str, config: DataConfig, *, classes: tuple[str, ...] | None = None) -> MaskSplits:
    """Return the parts of a source: "digit-pages", or a folder with images/ and masks/; with parts,
    train/images and train/masks, or images/train and masks/train, likewise for val and test. A single
    held-out part is the test set. Without one, `data.test_fraction` is held out.

    The classes are named in classes.txt (in the folder); without it they are numbers, up to a mask's largest.
    Every file's header is read first, so that what does not belong together is known before training.

    Args:
        classes: those that a model knows; the source's must be these.

    Raises:
        InputError: no such layout, an image without mask, sizes that differ, masks of colors, values that
            are not classes, nothing to learn from.
    """
    if spec == DIGIT_PAGES:
        if classes not in (None, CLASSES):
            raise InputError(
                f"{DIGIT_PAGES} and the model differ in their classes; the model knows {listed(classes)}"
            )
        return open_digit_pages(config)
    root = existing_folder(spec)
    parts: dict[str, list[tuple[Path, Path]]] = {}  # each image with its mask
    for part, (images, masks) in layout(root).items():
        parts[part], without, _ = match_masks(images, masks)
        if without:
            more = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
            wanted = without[0].relative_to(images).with_suffix(".png")
            raise InputError(
                f"the image {without[0]}{more} has no mask: put {wanted} into {masks}, or remove the image"
            )
    given = legend_of(root)
    everything = list(chain.from_iterable(parts.values()))
    sizes = check_files(everything, given)
    # Some masks are read now, and the others are checked when they are read.
    if given:
        some = everything[:: max(len(everything) // SAMPLE, 1)]
        list(in_threads(lambda pair: values_of(pair[1], given), some))
    legend, odd = (given, []) if given else numbered_classes(everything)
    if classes is not None:
        same = legend.names == classes if given else len(legend.names) <= len(classes)
        if not same:
            raise InputError(
                f"{root} has the classes {listed(legend.names)}, but the model knows {listed(classes)}: pass "
                "data of the same classes"
            )
        legend = Legend(classes, legend.colors)
    files = {part: MaskedFiles(root, pairs, legend) for part, pairs in parts.items()}
    height, width, _ = np.median(sizes, axis=0).round().astype(int).tolist()
    channels = max(channels for _, _, channels in sizes)
    train, validation, test = split_masked(files, config, where=str(root))
    summary, found = summarize(train)
    value_range = summary.value_range if summary.channels == channels else None
    summary = DataSummary(
        *(len(train), len(legend.names), height, width, channels), multi_label=False, value_range=value_range
    )
    train = train.with_(findings=(*train.findings, *odd, *found))
    return MaskSplits(train, validation, test, str(root), summary)


def existing_folder(spec: str) -> Path:
    """Return a folder that is there. Raises InputError."""
    root = local_path(spec)
    if not root.is_dir():
        raise InputError(f"there is no folder {spec}: pass {DIGIT_PAGES}, or a folder: {LAYOUT}")
    return root


def legend_of(root: Path) -> Legend | None:
    """Return what classes.txt says, if there is one."""
    file = root / "classes.txt"
    return read_legend(file) if file.is_file() else None


def layout(root: Path) -> dict[str, tuple[Path, Path]]:
    """Return (images, masks) of each part; "all" where there are no parts. Validation sets are named
    "val"."""
    parts = {}
    for name, part in PARTS.items():
        for pattern in (f"{name}/{{}}", f"{{}}/{name}"):
            if folders := image_and_mask_folders(root, pattern):
                parts[part] = folders
    if parts and "train" not in parts:
        raise InputError(f"{root} has {', '.join(parts)} but no train/: there, too, {LAYOUT}")
    if not parts and (folders := image_and_mask_folders(root, "{}")):
        parts["all"] = folders
    if not parts:
        raise InputError(f"{root} is not a folder of images and masks: {LAYOUT}")
    return parts


def image_and_mask_folders(root: Path, pattern: str) -> tuple[Path, Path] | None:
    """Return (images, masks) below `root`, if both are there: `pattern` with one of their names in the
    gap."""
    images = [root / pattern.format(name) for name in IMAGES if (root / pattern.format(name)).is_dir()]
    masks = [root / pattern.format(name) for name in MASKS if (root / pattern.format(name)).is_dir()]
    return (images[0], masks[0]) if images and masks else None


def match_masks(images: Path, masks: Path) -> tuple[list[tuple[Path, Path]], list[Path], list[Path]]:
    """Return (image_of with their masks, image_of without one, masks without an image)."""
    mask_of = {str(path.relative_to(masks).with_suffix("")): path for path in images_below(masks)}
    image_of = {str(path.relative_to(images).with_suffix("")): path for path in images_below(images)}
    if not image_of:
        raise InputError(f"{images} holds no image ({', '.join(EXTENSIONS)}): {LAYOUT}")
    return (
        [(path, mask_of[stem]) for stem, path in sorted(image_of.items()) if stem in mask_of],
        [path for stem, path in sorted(image_of.items()) if stem not in mask_of],
        [path for stem, path in sorted(mask_of.items()) if stem not in image_of],
    )


def check_files(pairs: Sequence[tuple[Path, Path]], legend: Legend | None) -> list[tuple[int, int, int]]:
    """Return (height, width, channels) of every image that can be opened, by the headers; each mask is as
    large. What cannot be opened is left for training, which counts and lists it."""

    def check(pair: tuple[Path, Path]) -> tuple[int, int, int] | None:
        try:
            image, mask = (open_image(bytes_of_file(path), str(path)) for path in pair)
            height, width = upright_size(image, str(pair[0]))
        except BadImage:
            return None
        check_mode(mask, str(pair[1]), legend)
        if (mask.height, mask.width) != (height, width):
            raise InputError(
                f"the mask {pair[1]} is {mask.height}x{mask.width}, but its image is {height}x{width}: make "
                "them "
                "the same size (masks without smoothing)"
            )
        return height, width, 1 if is_gray(image.mode) else 3

    sizes = [size for size in in_threads(check, pairs) if size]
    if not sizes:
        raise InputError(f"none of the {len(pairs)} images and masks can be read, for example {pairs[0][0]}")
    return sizes


def numbered_classes(pairs: Sequence[tuple[Path, Path]]) -> tuple[Legend, list[Finding]]:
    """Return classes by number, 0 to the largest value in any mask, and what is odd in the values. Raises
    InputError: there is nothing to tell apart."""
    values = list(in_threads(lambda pair: values_of(pair[1], None), pairs))
    found = list(value_findings(sorted(frozenset[int]().union(*values))))
    for each in found:
        if each.severity == "error":
            raise InputError(each.sentence)
    largest = [max(each - {IGNORED}, default=0) for each in values]
    *_, second, most = sorted([0, *largest])
    # A number so far from the others is more likely a slip of the brush than a class.
    if len(largest) > 1 and most > FAR * (second + 1):
        log.warning(
            "the mask %s alone has the value %d, and no other mask one above %d: fix it if that is not a "
            "class, or write classes.txt; as it is, there are %d classes",
            *(pairs[largest.index(most)][1], most, second, most + 1),
        )
    return Legend(tuple(str(number) for number in range(most + 1))), found


def value_findings(values: Sequence[int]) -> Iterator[Finding]:
    """Yield what is odd in the values of masks, in order, that are to be classes by their numbers."""
    classes = [value for value in values if value != IGNORED]
    shown = ", ".join(map(str, values[:VALUES])) + (", ..." if len(values) > VALUES else "")
    if not classes:
        yield from finding("nothing in masks", ignored=IGNORED)
    elif classes == [0]:
        yield from finding("one value", ignored=IGNORED, values=shown)
    elif len(classes) < SPARSE * (classes[-1] + 1):
        missing = classes[-1] + 1 - len(classes)
        yield from finding("sparse values", None, missing, "warning", ignored=IGNORED, values=shown)


def values_of(path: Path, legend: Legend | None) -> frozenset[int]:
    """Return the values of a mask; none where it cannot be read, which is counted when it is loaded."""
    try:
        return frozenset(np.unique(read_mask(path, legend)).tolist())
    except BadImage:
        return frozenset()


def listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:6])}{', ...' if len(names) > 6 else ''} ({len(names)})"


def split_masked(files: Mapping[str, MaskedFiles], config: DataConfig, *, where: str) -> MaskedParts:
    """Return (train, validation, test), sampled at random where the folder says nothing."""
    held_out = dict(files)
    train = held_out.pop("all", None) or held_out.pop("train")
    if len(train) < 2 and not held_out and config.test_fraction:
        raise InputError(f"one image, {train.name(0)}, cannot be shared between training and test: add more")
    return cast(MaskedParts, split({"train": train, **held_out}, config, where=where))
