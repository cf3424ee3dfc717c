"""A folder with images/ and masks/, whose files belong together by their names without ending."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

from vitreous.data.config import DataConfig
from vitreous.data.dataset import BadImage
from vitreous.data.decoding import EXTENSIONS, decode, open_image
from vitreous.data.loading import worker_count
from vitreous.data.segmentation.digit_pages import CLASSES, DIGIT_PAGES, open_digit_pages
from vitreous.data.segmentation.masked import (
    IGNORED,
    Legend,
    Mask,
    MaskedDataset,
    MaskedSubset,
    MaskSplits,
    check_mode,
    class_numbers,
    open_mask,
    read_legend,
)
from vitreous.data.splitting import VALIDATION
from vitreous.errors import InputError

IMAGES, MASKS = ("images", "imgs", "image"), ("masks", "labels", "annotations", "mask")
LAYOUT = "put images into images/ and masks of the same names into masks/ (PNG, the value is the class)"
SAMPLE = 200  # masks that are read before training where classes.txt names the classes
FAR = 4  # times as many classes as the other masks know: one that makes so many is doubted
TURNED = (5, 6, 7, 8)  # EXIF orientations that swap height and width
ORIENTATION = 0x0112

log = logging.getLogger(__name__)
Item = TypeVar("Item")
Result = TypeVar("Result")


class MaskedFiles:
    """Pairs of files, read when asked for."""

    def __init__(self, pairs: Sequence[tuple[Path, Path]], legend: Legend) -> None:
        self.pairs, self.legend = pairs, legend
        self.classes = legend.names

    def __len__(self) -> int:
        return len(self.pairs)

    def name(self, index: int) -> str:
        return str(self.pairs[index][0])

    def pair(self, index: int) -> tuple[Image.Image, Mask]:
        path, mask = self.pairs[index]
        return decode(read(path), str(path)), class_numbers(open_mask(mask), str(mask), self.legend)


def read(path: Path) -> bytes:
    """A file's bytes. Raises BadImage."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadImage(str(path), error.strerror or str(error)) from error


def open_masked_folder(
    root: Path, config: DataConfig, *, classes: tuple[str, ...] | None = None
) -> MaskSplits:
    """The images and masks below `root`: images/ and masks/; with parts, train/images and train/masks, or
    images/train and masks/train, likewise for val and test. A single held-out part is the test set. Without
    one, `data.test_fraction` is held out.

    The classes are named in classes.txt (in `root`); without it they are numbers, up to a mask's largest.
    Every file's header is read first, so that what does not belong together is known before training.

    Args:
        classes: those that a model knows; the folder's must be these.

    Raises:
        InputError: no such layout, an image without mask, sizes that differ, masks of colors, values that
            are no class, nothing to learn from.
    """
    parts = {part: pairs_of(*folders) for part, folders in layout(root).items()}
    file = root / "classes.txt"
    given = read_legend(file) if file.is_file() else None
    everything = [pair for pairs in parts.values() for pair in pairs]
    sizes = check_files(everything, given)
    legend = checked(given, everything) if given else numbered(everything)
    if classes is not None:
        same = legend.names == classes if given else len(legend.names) <= len(classes)
        if not same:
            raise InputError(
                f"{root} has the classes {listed(legend.names)}, but the model knows {listed(classes)}: give "
                "data of the same classes"
            )
        legend = Legend(classes, legend.colors)
    found = {part: MaskedFiles(pairs, legend) for part, pairs in parts.items()}
    train, validation, test = split(found, config)
    heights, widths = zip(*(size[:2] for size in sizes), strict=True)
    return MaskSplits(
        train,
        validation,
        test,
        str(root),
        (round(float(np.median(heights))), round(float(np.median(widths)))),
        1 if all(size[2] == 1 for size in sizes) else 3,
    )


def layout(root: Path) -> dict[str, tuple[Path, Path]]:
    """(images, masks) of each part; "all" where there are no parts. Validation parts are named "val"."""
    names = {"train": "train", "test": "test", **dict.fromkeys(VALIDATION, "val")}
    parts = {}
    for folder, part in names.items():
        inside = folder_of(root / folder, IMAGES), folder_of(root / folder, MASKS)
        beside = below(folder_of(root, IMAGES), folder), below(folder_of(root, MASKS), folder)
        for images, masks in (inside, beside):
            if images and masks:
                parts[part] = (images, masks)
    if parts and "train" not in parts:
        raise InputError(f"{root} has the parts {', '.join(parts)} but no train/: {LAYOUT}, below train/ too")
    images, masks = folder_of(root, IMAGES), folder_of(root, MASKS)
    if not parts and images and masks:
        return {"all": (images, masks)}
    if not parts:
        raise InputError(f"{root} is not a folder of images and masks: {LAYOUT}")
    return parts


def folder_of(root: Path, names: Sequence[str]) -> Path | None:
    return next((root / name for name in names if (root / name).is_dir()), None)


def below(folder: Path | None, name: str) -> Path | None:
    return folder / name if folder and (folder / name).is_dir() else None


def pairs_of(images: Path, masks: Path) -> list[tuple[Path, Path]]:
    """Each image with its mask, by their paths without ending."""
    pairs, without, _ = matched(images, masks)
    if without:
        more = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
        wanted = without[0].relative_to(images).with_suffix(".png")
        raise InputError(
            f"the image {without[0]}{more} has no mask: put {wanted} into {masks}, or remove the image"
        )
    return pairs


def matched(images: Path, masks: Path) -> tuple[list[tuple[Path, Path]], list[Path], list[Path]]:
    """(image_of with their masks, image_of without one, masks without an image)."""
    mask_of = {str(path.relative_to(masks).with_suffix("")): path for path in files_below(masks)}
    image_of = {str(path.relative_to(images).with_suffix("")): path for path in files_below(images)}
    if not image_of:
        raise InputError(f"{images} holds no image ({', '.join(EXTENSIONS)}): {LAYOUT}")
    return (
        [(path, mask_of[stem]) for stem, path in sorted(image_of.items()) if stem in mask_of],
        [path for stem, path in sorted(image_of.items()) if stem not in mask_of],
        [path for stem, path in sorted(mask_of.items()) if stem not in image_of],
    )


def files_below(folder: Path) -> list[Path]:
    """Everything named like an image, hidden files and folders left out."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in EXTENSIONS
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def check_files(pairs: Sequence[tuple[Path, Path]], legend: Legend | None) -> list[tuple[int, int, int]]:
    """(height, width, channels) of every image that can be opened, by the headers; each mask is as large.

    What cannot be opened is left for training, which counts and lists it.
    """

    def check(pair: tuple[Path, Path]) -> tuple[int, int, int] | None:
        try:
            image, mask = open_image(read(pair[0]), str(pair[0])), open_mask(pair[1])
        except BadImage:
            return None
        check_mode(mask, str(pair[1]), legend)
        height, width = size_of(image)
        if (mask.height, mask.width) != (height, width):
            raise InputError(
                f"the mask {pair[1]} is {mask.height}x{mask.width}, its image {height}x{width}: make them "
                "the same size (masks without smoothing)"
            )
        return height, width, 1 if image.mode in ("1", "L", "LA", "F") or image.mode[0] == "I" else 3

    sizes = [size for size in in_parallel(check, pairs) if size]
    if not sizes:
        raise InputError(f"not one of {len(pairs)} images and masks can be read, such as {pairs[0][0]}")
    return sizes


def size_of(image: Image.Image) -> tuple[int, int]:
    """(H, W) of an image turned upright, from its header."""
    try:
        turned = image.getexif().get(ORIENTATION) in TURNED and image.format != "TIFF"
    except Exception:  # broken EXIF data: the image is counted as unreadable when it is decoded
        turned = False
    return (image.width, image.height) if turned else (image.height, image.width)


def checked(legend: Legend, pairs: Sequence[tuple[Path, Path]]) -> Legend:
    """The legend, if the values of some masks, evenly spread, are its classes; the others are checked when
    they are read."""
    step = max(len(pairs) // SAMPLE, 1)
    in_parallel(lambda pair: largest(pair[1], legend), pairs[::step])
    return legend


def numbered(pairs: Sequence[tuple[Path, Path]]) -> Legend:
    """Classes by number, 0 to the largest value in any mask."""
    found = in_parallel(lambda pair: largest(pair[1], None), pairs)
    most = max(found)
    if most < 0:
        raise InputError(f"every pixel of every mask is {IGNORED}, which is left out: {LAYOUT}")
    if most == 0:
        raise InputError(
            f"the masks know the single class 0 ({IGNORED} is left out): if {IGNORED} marks what is sought, "
            "save it as 1"
        )
    warn_of_stray(found, pairs)
    return Legend(tuple(str(number) for number in range(most + 1)))


def warn_of_stray(found: Sequence[int], pairs: Sequence[tuple[Path, Path]]) -> None:
    """One mask alone with a class far beyond all others: more likely a slip of the brush than a class.

    found: the largest class of each mask.
    """
    *_, second, most = sorted([0, *found])
    if len(found) > 1 and most > FAR * (second + 1):
        log.warning(
            "the mask %s alone has the value %d, and no other mask one above %d: fix it if that is not a "
            "class, or write classes.txt; as it is, there are %d classes",
            pairs[found.index(most)][1],
            most,
            second,
            most + 1,
        )


def largest(path: Path, legend: Legend | None) -> int:
    """The largest class in a mask; -1 where there is none, or the mask cannot be read."""
    try:
        mask = class_numbers(open_mask(path), str(path), legend)
    except BadImage:
        return -1  # counted and named when it is loaded
    known = mask[mask != IGNORED]
    return int(known.max()) if known.size else -1


def in_parallel(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """function(item) for each item, in order."""
    with ThreadPoolExecutor(worker_count(None)) as executor:
        return list(executor.map(function, items))


def listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:6])}{', ...' if len(names) > 6 else ''} ({len(names)})"


def split(
    parts: dict[str, MaskedFiles], config: DataConfig
) -> tuple[MaskedDataset, MaskedDataset | None, MaskedDataset | None]:
    """(train, validation, test), sampled at random where the folder says nothing."""
    if "all" not in parts and len(parts) == 3:
        return parts["train"], parts["val"], parts["test"]
    train: MaskedDataset = parts.get("all") or parts["train"]
    test: MaskedDataset | None = parts.get("val") or parts.get("test")
    if test is None:
        train, test = carved(train, config.test_fraction, config.split_seed)
    train, validation = carved(train, config.validation_fraction, config.split_seed)
    return train, validation, test


def carved(images: MaskedDataset, fraction: float, seed: int) -> tuple[MaskedDataset, MaskedDataset | None]:
    """(kept, held out): at least one image each, if anything is held out at all."""
    if not fraction:
        return images, None
    if len(images) < 2:
        raise InputError(f"one image, {images.name(0)}, cannot be shared between training and test: add more")
    mixed = np.random.default_rng(seed).permutation(len(images))
    count = min(max(round(fraction * len(images)), 1), len(images) - 1)
    return MaskedSubset(images, np.sort(mixed[count:])), MaskedSubset(images, np.sort(mixed[:count]))


def open_masked(spec: str, config: DataConfig, *, classes: tuple[str, ...] | None = None) -> MaskSplits:
    """The parts of a source.

    Args:
        spec: "digit-pages", or a folder of images and masks.
        classes: those that a model knows; the source's must be these.

    Raises:
        InputError: nothing of these, or what `open_masked_folder` raises.
    """
    if spec == DIGIT_PAGES:
        if classes not in (None, CLASSES):
            raise InputError(f"{DIGIT_PAGES} has other classes than the model, which knows {listed(classes)}")
        return open_digit_pages(config)
    root = Path(spec).expanduser()
    if not root.is_dir():
        raise InputError(f"there is no folder {spec}: give {DIGIT_PAGES}, or a folder: {LAYOUT}")
    return open_masked_folder(root, config, classes=classes)
