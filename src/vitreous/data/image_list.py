"""Images that a user names or has: paths, folders, globs, PIL images, arrays, tensors; one or many."""

from __future__ import annotations

import glob
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeGuard, cast, runtime_checkable

import numpy as np

from vitreous.data.config import MANIFESTS, PATH_COLUMNS
from vitreous.data.dataset import ImageDataset, single_class_targets
from vitreous.data.files import EXTENSIONS, UNREADABLE
from vitreous.errors import InputError, Param, utf8_name
from vitreous.languages.terminal import said
from vitreous.models.bands import MOST
from vitreous.models.stored import BadImage, ImageLike, bytes_of_file, image_in_memory, is_image
from vitreous.outside import identity, is_url, is_visible_folder, local_path, scheme_of

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

NO_SUCH = "no such file or folder"
NOT_IMAGES = (*MANIFESTS, ".tar")  # endings of files that hold or name many images
INSTALL = {  # what fsspec needs for a protocol
    "http": "pip install requests aiohttp",
    "https": "pip install requests aiohttp",
    "s3": "pip install s3fs",
    "gs": "pip install gcsfs",
    "hf": "pip install huggingface_hub",
}


@dataclass(frozen=True)
class Failure:
    """An image that could not be read, and why."""

    path: str
    reason: str


class ImageList(ImageDataset):
    """Images without labels, decoded when they are asked for.

    Args:
        images: paths of files, PIL images, arrays of one image each.
        missing: of rows under whose path there is nothing, why; they cannot be read.
    """

    source = "image"

    def __init__(self, images: Sequence[ImageLike], missing: Mapping[int, str] | None = None) -> None:
        self.images = list(images)
        self.missing = dict(missing or {})
        self.targets = single_class_targets(len(images))

    def name(self, index: int) -> str:
        image = self.images[index]
        return utf8_name(image) if isinstance(image, str | Path) else super().name(index)

    def encoded(self, index: int) -> bytes | None:
        image = self.images[index]
        if index in self.missing:
            raise BadImage(self.name(index), self.missing[index])
        if isinstance(image, str) and is_url(image):
            return read_url(image)
        return bytes_of_file(image) if isinstance(image, str | Path) else None

    def held(self, index: int) -> ImageLike:
        return self.images[index]


class ImageRows(NamedTuple):
    """Some images of a dataset, one after the other, and what a model takes of those that can be read. A row
    is answered, or says why not: whatever reads images for answers yields these.

    Attributes:
        names: of all of these images, in order; two of them may be equal.
        images: those that can be read, in order.
        failed: why an image cannot be read, by its place in `names`.
        damaged: what is missing of an image that was read, by its place in `names`.
    """

    names: list[str]
    images: Any
    failed: dict[int, str]
    damaged: dict[int, str]

    @property
    def readable(self) -> list[int]:
        """The places in `names` of the images that can be read."""
        return [place for place in range(len(self.names)) if place not in self.failed]


def image_list(images: object) -> ImageList:
    """Return what `images` means: as many rows as there are images in a list, whatever can be read of them.

    Args:
        images: one or many of: the path of a file, a folder (with everything below it) or a glob; a PIL
            image; an array of one image, (H, W) or (H, W, C), a tensor, also (C, H, W), or a batch of these:
            an array (3, H, W) is three gray images. Many paths may be a list, an array, a Series, a column
            of a data frame, or the data frame with a column path.

    Raises:
        InputError: no image was found at all, or something that is not an image.
    """
    if isinstance(images, ImageList):
        return images
    if (paths := column_of_paths(images)) is not None:
        images = paths
    many = list(images) if is_many(images) else [images]
    if not many:
        raise InputError("the list of images is empty: pass paths, PIL images or arrays")
    if any(isinstance(each, str | Path) for each in many):
        if not all(isinstance(each, str | Path) or is_blank(each) for each in many):
            raise InputError("paths and images in memory are mixed: pass only one kind")
        return listed_images(many)
    for each in many:
        if not is_image(each):
            raise InputError(
                f"an image is a path, a file's bytes, a PIL image, an array or a tensor, not {each!r:.60}"
            )
    return ImageList([image_in_memory(each) for each in many])


def column_of_paths(images: object) -> list[object] | None:
    """Return the paths that are a column of a data frame (of pandas or polars), `path`, another usual name of
    it, or its only one, or an array of texts; None for anything else."""
    columns = list(getattr(images, "columns", ()))
    if columns:
        usual = [name for name in PATH_COLUMNS if name in columns]
        name = usual[0] if usual else columns[0]
        if not usual and len(columns) > 1:
            names = ", ".join(map(str, columns))
            raise InputError(
                f"the data frame has no column 'path' (it has: {names}): pass the column with the paths, "
                "frame[NAME]"
            )
        return list(cast("Mapping[object, Iterable[object]]", images)[name])
    if isinstance(images, np.ndarray) and images.dtype.kind in "UO":
        return images.reshape(-1).tolist()
    return None


def is_blank(path: object) -> bool:
    """Return whether a cell of a column of paths is empty: None, or what a library has for it (NaN, NA)."""
    missing = path is None or type(path).__name__ in ("NAType", "NaTType")
    return missing or (isinstance(path, float | np.floating) and math.isnan(path))


@runtime_checkable
class Shaped(Protocol):
    """An array or a tensor."""

    ndim: int
    shape: tuple[int, ...]


def is_many(images: object) -> TypeGuard[Iterable[object]]:
    """Return whether this is a list of images or a batch, and not one image."""
    if not isinstance(images, Shaped) or images.ndim not in (3, 4) or 0 in images.shape:
        return isinstance(images, Iterable) and not is_image(images)
    if images.ndim == 4:
        return True
    colors = {images.shape[-1]} if isinstance(images, np.ndarray) else {images.shape[0], images.shape[-1]}
    # An array (H, W, bands), or a tensor (bands, H, W), of two or up to sixteen bands is one image, and not a
    # batch of gray images as wide.
    bands, *sides = images.shape[::-1] if isinstance(images, np.ndarray) else images.shape
    return not colors & {1, 3, 4} and not bands <= MOST < min(sides)


def listed_images(wanted: Sequence[object]) -> ImageList:
    """Return the images that paths mean, in order.

    A list that a user wrote is a list: the path of a file has a row as often as it is named, and one under
    which there is nothing, or an empty cell of a table, has a row that says so. Folders and globs mean the
    files in them that have none yet, each once.

    Raises:
        InputError: nothing was found at all.
    """
    found: list[str] = []
    missing: dict[int, str] = {}
    merged = 0
    seen: set[str] = set()
    for number, each in enumerate(wanted, start=1):
        if not isinstance(each, str | Path):  # an empty cell
            missing[len(found)] = "there is no path"
            found.append(f"row {number}")
            continue
        files, single = matches(path := str(each))
        if not files:
            missing[len(found)] = "a folder without images" if Path(path).is_dir() else NO_SUCH
            found.append(path)
        elif single:
            found += files
        else:
            new = [file for file in files if file not in seen]
            merged += len(files) - len(new)
            found += new
        seen.update(files)
    if len(missing) == len(found):
        tried = "; ".join(f"{utf8_name(found[row])}: {reason}" for row, reason in missing.items())
        raise InputError(
            f"no image found ({tried:.500}): pass files, folders or globs such as 'photos/*.jpg'"
        )
    if merged:
        warnings.warn(
            said(
                "{count} images match several of the folders and globs, and are predicted only once",
                count=merged,
            ),
            stacklevel=2,
        )
    return ImageList(found, missing)


def matches(wanted: str) -> tuple[list[str], bool]:
    """Return the files of one path or glob, in order, and whether it is the path of a single one. Raises
    InputError: the path is empty, or is a file of many images."""
    if not wanted:
        raise InputError("the path of an image is empty: is a variable not set? Pass files, folders or globs")
    if is_url(wanted):
        return [wanted], True
    path = local_path(wanted)
    if path.is_dir():
        return [str(file) for file in images_below(path)], False
    if path.suffix.lower() in NOT_IMAGES and path.is_file():
        raise InputError(
            f"{utf8_name(wanted)} is a file with many images, or with their names, not an image: add "
            f"{Param('out')} FOLDER, or unpack it and give the folder"
        )
    if path.exists():
        return [wanted if Path(wanted).exists() else str(path)], True
    found = sorted(glob.glob(str(path), recursive=True))
    return [str(Path(file)) for file in found if os.path.isfile(file)], False


def images_below(folder: Path, seen: set[tuple[int, int]] | None = None) -> Iterator[Path]:
    """Yield the files named like images below a folder, in order, also those of formats that are not read
    here; hidden ones, those in hidden folders and in the system's are left out. A folder is listed when it is
    reached, and once, whatever links lead to it. seen: folders that are not listed (any more)."""
    if seen is None:
        seen = {identity(each.stat()) for each in folder.resolve().parents}
    this = identity(folder.stat())
    if this in seen:
        return
    seen.add(this)
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if is_visible_folder(entry):
            yield from images_below(Path(entry.path), seen)
            continue
        suffix = os.path.splitext(entry.name)[1].lower()
        named = suffix in (*EXTENSIONS, *UNREADABLE) and not entry.name.startswith(".")
        if named and os.path.isfile(entry.path):
            yield Path(entry.path)


def file_system(path: str) -> tuple[AbstractFileSystem, str]:
    """Return the file system of fsspec that holds a file, and its path there. Raises InputError."""
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    if not is_url(path):
        return LocalFileSystem(), os.path.expanduser(path)
    try:
        return url_to_fs(path)
    except ImportError as error:
        install = INSTALL.get(scheme_of(path), "install what it names")
        reason = " ".join(str(error).split())
        raise InputError(f"{path} cannot be reached ({reason}): {install}") from None
    except ValueError as error:
        raise InputError(f"{path} cannot be reached: {' '.join(str(error).split())}") from None


def read_url(url: str) -> bytes:
    """Return the bytes of a remote file. Raises BadImage."""
    system, path = file_system(url)
    try:
        return system.cat_file(path)
    except Exception as error:  # each protocol has its own
        raise BadImage(url, " ".join(str(error).split()) or type(error).__name__) from error
