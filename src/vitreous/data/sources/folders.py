"""A folder with a sub-folder for each class; or with train/ and val/ or test/ that hold such sub-folders.

A large folder's index is cached, and used again while every folder in it has the same modification time,
which adding, removing and renaming files change.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vitreous.data.config import DataConfig, FolderForm, TargetKind
from vitreous.data.dataset import (
    ClassTargets,
    ImageDataset,
    SourceParts,
    Targets,
    part_called,
    single_class_targets,
)
from vitreous.data.files import (
    EXTENSIONS,
    FOREIGN,
    INSTALL,
    UNREADABLE,
    VIDEOS,
    file_digest,
    read_head,
)
from vitreous.data.findings import Finding, finding
from vitreous.data.sources.labels import UNLABELED
from vitreous.data.workers import in_threads
from vitreous.errors import InputError, cache_folder
from vitreous.models.stored import FORMATS, bytes_of_file
from vitreous.outside import SYSTEM, identity, is_visible_folder, same_name
from vitreous.whole_files import whole

LARGE = 20_000  # images; fewer are listed in a fraction of a second
SETTLED = 2_000_000_000  # nanoseconds; some file systems count modification times in steps of two seconds
LISTERS = 16  # threads: listing waits for the disk or the network, not for a core


Paths = NDArray[np.bytes_]  # (N,) of bytes: a third of the memory of strings


def path_array(paths: Iterable[str]) -> Paths:
    """Return relative paths as bytes; those that are not UTF-8 (file systems allow them) survive."""
    return np.array([os.fsencode(path) for path in paths], dtype=np.bytes_)


class FileImages(ImageDataset):
    """Files below a folder, read when asked for. part: the folder's place in its source, as in "train/"."""

    def __init__(self, root: Path, paths: Paths, targets: Targets, *, part: str = "") -> None:
        self.root, self.paths, self.targets, self.part = str(root), paths, targets, part

    def name(self, index: int) -> str:
        return os.path.join(self.root, os.fsdecode(self.paths[index]))  # a manifest may have absolute paths

    def key(self, index: int) -> str:
        return self.part + os.fsdecode(self.paths[index])

    def digest(self, index: int) -> str:
        return file_digest(self.name(index))

    def encoded(self, index: int) -> bytes:
        return bytes_of_file(self.name(index))

    def head(self, index: int) -> bytes:
        return read_head(self.name(index))


class FolderIndex(NamedTuple):
    """Images class by class, paths relative to the root; what was skipped; and the folders seen, with
    modification times."""

    paths: Paths
    skipped: Paths
    counts: NDArray[np.int64]
    folders: Paths
    stamps: NDArray[np.int64]


def index_images(root: Path, classes: Sequence[str]) -> FolderIndex:
    """Return the images of a folder: from the cache if nothing has changed, else from the disk."""
    file = cache_file(root, classes)
    # Damaged bytes, as after a power cut, can make this parser fail in any way.
    with suppress(Exception), np.load(file, allow_pickle=False) as cached:
        known = FolderIndex(*(cached[field] for field in FolderIndex._fields))
        if unchanged(root, known):
            return known
    began = time.time_ns()
    listed = list(in_threads(lambda name: list_class(root, name), classes, workers=LISTERS))
    index = FolderIndex(*map(np.concatenate, zip(*listed, strict=True)))
    # A folder that was changed just now could be changed again within the same tick of its clock.
    if len(index.paths) >= LARGE and index.stamps.max() < began - SETTLED:
        # A cache that cannot be written stops nothing.
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            with whole(file) as temporary, temporary.open("wb") as opened:
                np.savez(opened, **index._asdict())
    return index


def list_class(root: Path, name: str) -> FolderIndex:
    """Return the images below one class folder, sorted. Hidden ones, those in formats that are not read here,
    and folders that are links to where they are themselves, are skipped."""
    names: list[str] = []
    skipped: list[str] = []
    folders, stamps = [], []
    home, start = root.resolve(), (root / name).resolve()
    around = {home, *home.parents, *start.parents}
    # The folder itself is what is listed.
    if name == ".":
        around.remove(home)
    seen = {identity(each.stat()) for each in around}
    waiting = [name]
    while waiting:
        folder = waiting.pop()
        info = (root / folder).stat()
        if identity(info) in seen:
            skipped.append(f"{folder}/")
            continue
        seen.add(identity(info))
        folders.append(folder)
        stamps.append(info.st_mtime_ns)
        with os.scandir(root / folder) as entries:
            for entry in entries:
                path, lower = f"{folder}/{entry.name}", entry.name.lower()
                if lower.endswith(EXTENSIONS) and lower[0] != "." and not is_visible_folder(entry):
                    if may_be_image(entry):
                        names.append(path)
                    else:
                        skipped.append(path)
                elif lower.endswith((*EXTENSIONS, *UNREADABLE, *FOREIGN, *VIDEOS)):
                    skipped.append(path)
                elif is_visible_folder(entry):
                    waiting.append(path)
                elif "." not in lower and is_image_file(entry.path):
                    skipped.append(path)
    return FolderIndex(
        path_array(sorted(names)),
        path_array(sorted(skipped)),
        np.array([len(names)]),
        path_array(folders),
        np.array(stamps, dtype=np.int64),
    )


def is_image_file(path: str) -> bool:
    """Return whether this is a file that holds an image, whatever its name."""
    if not os.path.isfile(path):
        return False
    try:
        with Image.open(path, formats=FORMATS):
            return True
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return False


def may_be_image(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a regular file, or a link to nothing, which is counted as one that cannot be
    read. Pipes, devices and sockets are not: reading them may never end."""
    try:
        return entry.is_file() or not os.path.exists(entry.path)
    except OSError:  # a link to itself
        return True


def unchanged(root: Path, index: FolderIndex) -> bool:
    """Return whether every folder is there as it was."""
    for name, stamp in zip(index.folders.tolist(), index.stamps.tolist(), strict=True):
        try:
            info = (root / os.fsdecode(name)).stat()
        except OSError:
            return False
        if info.st_mtime_ns != stamp:
            return False
    return True


def cache_file(root: Path, classes: Sequence[str]) -> Path:
    """Return where the index of a folder with these classes is kept."""
    key = "\0".join([str(root.resolve()), *classes, *EXTENSIONS, *FOREIGN, *VIDEOS]).encode(
        "utf-8", "surrogateescape"
    )
    return cache_folder() / "indexes" / f"{hashlib.sha256(key).hexdigest()[:32]}.npz"


def open_folder(root: Path, config: DataConfig, kind: TargetKind) -> SourceParts:
    """Return the parts of a folder: several where it has train/. Images that need no labels may be in any
    folders below it."""
    names = subfolders(root)
    if kind == "unlabeled" and is_without_classes(names):
        if loose := images_without_classes(root):
            return {"train": loose}
        raise InputError(f"{root} holds no images")
    parts = part_folders(root, names)
    if not parts:
        return {"train": class_folder(root, config)}
    train = class_folder(root / parts["train"], config, part=parts["train"])
    others = [str(root / name) for name in names if name not in parts.values()]
    found = {"train": train.with_(findings=(*train.findings, *finding("beside", others, severity="warning")))}
    for part, name in parts.items():
        if part != "train":
            found[part] = class_folder(root / name, config, part=name, classes=train.classes)
    return found


def is_without_classes(names: Sequence[str]) -> bool:
    """Return whether a folder with the folders `names` has neither parts nor classes."""
    return len(names) < 2 and "train" not in names


def images_without_classes(root: Path) -> FileImages | None:
    """Return the images in any folders below one; None where there are none."""
    paths = index_images(root, (".",)).paths
    return FileImages(root, paths, single_class_targets(len(paths), *UNLABELED)) if len(paths) else None


def has_class_folders(root: Path) -> bool:
    """Return whether there are images in at least two folders of a folder, or of its train/. An archive
    beside them is what they were unpacked from."""
    names = subfolders(root)
    inner = [os.path.join("train", name) for name in subfolders(root / "train")] if "train" in names else []
    with_images = 0
    for name in (*names, *inner):
        with os.scandir(root / name) as entries:
            with_images += any(each.name.lower().endswith(EXTENSIONS) for each in entries)
        if with_images == 2:
            return True
    return False


def part_folders(root: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the names of the folders of train, val and test, if `root`, which has the folders `names`, holds
    these parts and not classes. Raises InputError: there are two of a part, or parts without one for
    training."""
    found: dict[str, str] = {}
    for name in names:
        part = part_called(name)
        if part is None:
            continue
        if part in found:
            test = all(part_called(each) != "test" for each in names)
            other = "; rename one to test/ if it is the test set" if test else ""
            raise InputError(
                f"{root} has two folders for the same split, {found[part]}/ and {name}/: keep one{other}"
            )
        found[part] = name
    only_parts = len(found) == len(names)
    if "train" not in found:
        if found and only_parts:
            raise InputError(f"{root} has {', '.join(names)} but no train/: add the images to train on")
        return {}
    # Classes may be called so, too: "training" and "testing" beside others are parts if they share classes.
    classes = classes_below(root / found["train"])
    shared = len(found) > 1 and all(classes & classes_below(root / name) for name in found.values())
    if classes and (only_parts or found["train"] == "train" or shared):
        return found
    return {}


def class_folder(
    root: Path, config: DataConfig, *, part: str = "", classes: tuple[str, ...] | None = None
) -> FileImages:
    """Return all images below the class folders of `root`. What is left out is in its findings.

    Args:
        part: the name of `root` in its source, where it is a part of that.
        classes: those that there may be, numbered so.
    """
    found = subfolders(root)
    if not found:
        raise InputError(
            f"{root} has no class folders: put the images of each class in a separate folder, as in "
            f"{root}/cat/1.jpg and {root}/dog/2.jpg"
        )
    found, links = without_links(root, nested_classes(root, found, config))
    index = index_images(root, found)

    # A folder's name is its class; folders may be one class in two forms of Unicode, or hold no image.
    labels = [same_name(name.rpartition("/")[2]) for name in found]
    counts = index.counts.tolist()
    present = {label for label, count in zip(labels, counts, strict=True) if count}
    empty = [name for name, count in zip(found, counts, strict=True) if not count]
    findings = tuple(folder_findings(root, index.skipped, found, empty, links))
    if not present:
        reason = f": {len(index.skipped)} were skipped" if len(index.skipped) else ""
        unreadable = any(is_unreadable(os.fsdecode(name)) for name in index.skipped)
        hint = f"{INSTALL} reads them" if unreadable else "add some, or remove the folder"
        for each in findings:
            if each.kind in ("video", "no ending", "other format"):
                hint = each.sentence
        raise InputError(
            f"the class folder {root / empty[0]} holds no image ({', '.join(EXTENSIONS)}){reason}; {hint}"
        )
    if classes is None:
        classes = tuple(sorted(present))
    elif unknown := sorted(present - set(classes)):
        raise InputError(f"{root} has a class {unknown[0]!r} that train/ lacks: add it there or remove it")

    place = {name: number for number, name in enumerate(classes)}
    numbers = np.array([place.get(label, -1) for label in labels], dtype=np.int64)
    targets = ClassTargets(np.repeat(numbers, index.counts), classes)
    images = FileImages(root, index.paths, targets, part=f"{part}/" if part else "")
    return images.with_(findings=findings)


def without_links(root: Path, names: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the class folders that are not links to `root`, to another of them, or into one; and the names
    of those that are: their images have a class already."""
    folders = {(root / name).resolve() for name in names if not (root / name).is_symlink()}
    home, kept, links = root.resolve(), list[str](), list[str]()
    for name in names:
        own = (root / name).resolve()
        if (root / name).is_symlink() and (
            own in (home, *home.parents) or not folders.isdisjoint((own, *own.parents))
        ):
            links.append(name)
        else:
            kept.append(name)
            folders.add(own)
    return tuple(kept), links


def nested_classes(root: Path, outer: tuple[str, ...], config: DataConfig) -> tuple[str, ...]:
    """Return the class folders of a folder: its own, or, where all of these hold some of the same name, those
    if the configuration says so. Raises InputError where it does not say which are the classes."""
    common = set(subfolders(root / outer[0])) if len(outer) > 1 else set()
    for name in outer[1:]:
        if len(common) < 2:
            return outer
        common &= set(subfolders(root / name))
    nested = config.settings_of(FolderForm).nested
    if len(common) < 2 or nested == "outer":
        return outer
    if nested == "inner":
        inner: list[str] = []
        for one in outer:
            inner += (f"{one}/{other}" for other in subfolders(root / one))
        return tuple(inner)
    raise InputError(
        f"{root}: its folders {', '.join(outer[:3])} all hold folders {', '.join(sorted(common)[:3])}: set "
        "data.form.nested=inner if these are the classes, data.form.nested=outer if the outer folders are, "
        "or name the outer ones train, val and test if they are splits"
    )


def folder_findings(
    root: Path, skipped: Paths, classes: Sequence[str], empty: Sequence[str], links: Sequence[str]
) -> Iterator[Finding]:
    """Yield what was left out of a folder, and what is odd about its class folders. empty: those of them that
    hold no image; links: those that lead to images which have a class."""
    names = [os.path.join(root, os.fsdecode(path)) for path in skipped]
    unreadable, foreign, videos = (
        [name for name in names if is_unreadable(name, formats)] for formats in (UNREADABLE, FOREIGN, VIDEOS)
    )
    bare = [name for name in names if "." not in os.path.basename(name) and not name.endswith("/")]
    loops = [name for name in names if name.endswith("/")]
    hidden = [name for name in names if os.path.basename(name).startswith(".")]
    special = [n for n in names if os.path.exists(n) and not (os.path.isfile(n) or os.path.isdir(n))]
    formats = endings(unreadable)
    yield from finding("format", unreadable, formats=formats, install=INSTALL, severity="warning")
    yield from finding("other format", foreign, formats=endings(foreign), severity="warning")
    yield from finding("video", videos, formats=endings(videos), severity="warning")
    yield from finding("no ending", bare, severity="warning")
    yield from finding("loop", loops, severity="warning")
    yield from finding("link", [str(root / name) for name in links], severity="warning")
    yield from finding("hidden", hidden, severity="note")
    yield from finding("special", special, severity="warning")
    yield from finding("empty", [str(root / name) for name in empty], severity="warning")

    forms = Counter(map(same_name, classes))
    several = [str(root / name) for name in classes if forms[same_name(name)] > 1]
    yield from finding("forms", several, severity="warning")

    with os.scandir(root) as entries:
        in_lower_case = {entry.path: entry.name.lower() for entry in entries}
    system = [path for path, name in in_lower_case.items() if name in SYSTEM]
    images = [path for path, name in in_lower_case.items() if name.endswith((*EXTENSIONS, *UNREADABLE))]
    loose = [path for path in images if in_lower_case[path][0] != "."]
    yield from finding("system", system, severity="note")
    yield from finding("loose", loose, severity="warning")


def is_unreadable(name: str, formats: tuple[str, ...] = UNREADABLE) -> bool:
    """Return whether a name is that of an image in one of the formats that are not read here."""
    return name.lower().endswith(formats) and not os.path.basename(name).startswith(".")


def endings(names: Sequence[str]) -> str:
    """Return the endings of some names, each once, in words."""
    return ", ".join(sorted({os.path.splitext(name)[1].lower() for name in names}))


def classes_below(root: Path) -> set[str]:
    """Return the names of the folders in a folder, in the form in which they are compared."""
    return set(map(same_name, subfolders(root)))


def subfolders(root: Path) -> tuple[str, ...]:
    """Return the names of the folders in a folder, sorted; hidden ones and the system's are not looked at."""
    with os.scandir(root) as entries:
        return tuple(sorted(each.name for each in entries if is_visible_folder(each)))
