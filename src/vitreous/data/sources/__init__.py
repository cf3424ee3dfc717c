"""DATA, as it is written on the command line, to images. Add-ons extend the kinds of it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from vitreous.data.config import BUNDLED, MANIFESTS, DataConfig, TargetKind
from vitreous.data.dataset import DataSummary, ImageDataset, LabelTargets, SourceParts, SplitParts, Splits
from vitreous.data.findings import Finding, finding
from vitreous.data.held_out import split
from vitreous.data.sources.folders import (
    has_class_folders,
    images_without_classes,
    is_without_classes,
    open_folder,
    subfolders,
)
from vitreous.data.workers import in_threads
from vitreous.errors import InputError, LazyModule, check_utf8
from vitreous.extensions import DataKind, addons, imported
from vitreous.models.bands import Range, measured_range, to_bytes
from vitreous.models.stored import BadImage, has_colors
from vitreous.outside import is_url, local_path

if TYPE_CHECKING:
    from vitreous.data.sources import hub, manifests, objects, shards, small
else:  # one of them is imported, if DATA is of its form
    hub = LazyModule("vitreous.data.sources.hub")
    manifests = LazyModule("vitreous.data.sources.manifests")
    objects = LazyModule("vitreous.data.sources.objects")
    shards = LazyModule("vitreous.data.sources.shards")
    small = LazyModule("vitreous.data.sources.small")

BINARIES = ("cifar10", "cifar100", "mnist")
ADDED = dict[str, DataKind]()
for addon in addons().values():
    ADDED.update(addon.sources)
log = logging.getLogger(__name__)
SAMPLE = 64  # images whose size and color are looked at
LOOKED_AT = 65_536  # pixels of an image of more than 8 bits
HEADERS = 20_000  # images whose headers are read, where a sample is gray
LEVELS = 4  # times as many stored as are left
FORMS = "; ".join(
    (
        "digits; a folder with a sub-folder for each class, or with train/ and val/; a manifest .csv, .tsv, "
        ".jsonl or .parquet; shards name-{000..099}.tar, here or at s3://, gs://, https://, hf://; "
        "cifar10:PATH, cifar100:PATH, mnist:PATH; hf:NAME; synthetic:N@SIZE",
        *(added.form for added in ADDED.values()),
    )
)


class DataSource(NamedTuple):
    """What DATA means.

    Attributes:
        name: DATA as it is written; of Python objects, their type.
        form: as `data.form.kind` names it.
        open: returns the parts that it has, from (config, targets) as `open_data` takes them.
        numbers: whether its labels may be numbers to predict.
        validated: whether a validation set is split off by default.
    """

    name: str
    form: str
    open: Callable[[DataConfig, TargetKind], SourceParts]
    numbers: bool = False
    validated: bool = True


def open_data(spec: object, config: DataConfig, targets: TargetKind = "classes") -> Splits:
    """Open the train, validation and test images of a source.

    Args:
        spec: DATA as on the command line; or a torch `Dataset`, a `datasets.Dataset`, arrays, a list of
            (image, label) and other Python objects that `open_objects` takes.
        targets: whether labels are classes, or "numbers" to predict: then targets are float32 (N,), without
            classes; or "unlabeled", where shards need not have labels, and a folder no classes.

    Raises:
        InputError: DATA is not one of the known forms, or an option has no effect on it.
    """
    source = find_source(spec)
    check_form(source, config, targets)
    train, *others = open_parts(source, config, targets)
    summary, found = summarize(train)
    train = train.with_(findings=(*train.findings, *found), value_range=summary.value_range)
    validation, test = (part and part.with_(value_range=summary.value_range) for part in others)
    return Splits(train, validation, test, source.name, summary)


def find_source(spec: object) -> DataSource:
    """Return what DATA means, by the first form that it has. Raises InputError: it has none."""
    if isinstance(spec, Path):
        spec = path_spec(spec)
    if not isinstance(spec, str):
        name = type(spec).__name__
        return DataSource(name, "plain", lambda _, targets: objects.open_objects(spec, targets), numbers=True)
    if not spec:
        raise InputError("DATA is empty: is a variable not set? Name one")
    if spec in BUNDLED:
        if os.path.lexists(spec):
            log.warning("%s is the dataset that comes with vitreous: write ./%s for what is here", spec, spec)
        return DataSource(spec, "plain", lambda config, _: small.open_digits(config), validated=False)
    if is_url(spec):
        check_url(spec)
        return DataSource(spec, "fetched", partial(shards.open_shards, spec))
    kind, colon, rest = spec.partition(":")
    return (named_source(spec, kind, rest) if colon else None) or local_source(spec)


def path_spec(path: Path) -> str:
    """Return DATA that means a path, never the dataset of the same name."""
    return os.path.join(os.curdir, path) if str(path) in BUNDLED else str(path)


def check_url(url: str) -> None:
    """Raise InputError: a URL is not of shards, which alone are read from one."""
    if url.endswith(".tar"):
        return
    kind, _, rest = url.partition(":")
    if kind.lower() == "file":
        path = Path(unquote(rest.removeprefix("//")))
        raise InputError(f"{url}: local files are written without file://: write {path}")
    raise InputError(f"{url}: only shards can be read from a URL: write {kind}://.../name-{{000..099}}.tar")


def named_source(spec: str, kind: str, rest: str) -> DataSource | None:
    """Return what `kind:rest` means; None where there is no such kind."""
    if kind == "hf":
        return DataSource(spec, "hub", partial(hub.open_hub, rest), numbers=True)
    if kind == "synthetic":
        return DataSource(spec, "plain", lambda *_: small.open_synthetic(rest), validated=False)
    if kind in BINARIES:
        return DataSource(spec, "plain", lambda *_: small.open_binary(kind, rest))
    if kind in ADDED:
        added, opened = ADDED[kind], imported(ADDED[kind].opened)
        return DataSource(spec, "plain", lambda config, _: opened(rest, config), validated=added.validated)
    return None


def local_source(spec: str) -> DataSource:
    """Return what is at a path, or in the files of a pattern. Raises InputError: nothing that is known."""
    path = local_path(spec)
    if path.is_dir():
        if any(path.glob("*.tar")) and not has_class_folders(path):
            return DataSource(spec, "shards", partial(open_shard_folder, path))
        if tables := manifests.metadata_tables(path):
            return DataSource(spec, "manifest", partial(manifests.open_metadata, path, tables), numbers=True)
        return DataSource(spec, "folder", partial(open_folder, path))
    if spec.endswith(".tar"):
        return DataSource(spec, "shards", partial(shards.open_shards, spec))
    if path.is_file() and path.suffix in MANIFESTS:
        return DataSource(spec, "manifest", partial(manifests.open_manifest, path), numbers=True)
    if path.exists():
        raise InputError(f"{spec} is not a known kind of file: DATA is {FORMS}")
    kind = spec.partition(":")[0]
    close = get_close_matches(kind, ["digits", "hf", "synthetic", *BINARIES, *ADDED], n=1, cutoff=0.7)
    hint = f" (did you mean {close[0]}?)" if close and spec not in close else ""
    raise InputError(f"there is no {spec}{hint}: DATA is {FORMS}")


def open_shard_folder(folder: Path, config: DataConfig, kind: TargetKind) -> SourceParts:
    """Return the parts of the shards in a folder. An archive may also be what its images were unpacked from:
    where these need no labels, and are not in folders of classes, they are read themselves."""
    may_be_unpacked = kind == "unlabeled" and is_without_classes(subfolders(folder))
    if may_be_unpacked and (unpacked := images_without_classes(folder)):
        return {"train": unpacked}
    return shards.open_shards(f"{folder}/*.tar", config, kind)


def check_form(source: DataSource, config: DataConfig, targets: TargetKind) -> None:
    """Raise InputError for settings of another form of DATA, or labels that this form does not have."""
    name, form = source.name, source.form
    if config.form is not None and config.form.kind != form:
        raise InputError(
            f"data.form.kind={config.form.kind} does not fit {name}, which is {form}: leave it out"
        )
    if targets != "numbers":
        return
    if config.class_balance:
        raise InputError(
            f"data.class_balance=true needs classes, not numbers, and {name} ignores it: leave it out"
        )
    if not source.numbers:
        raise InputError(
            f"{name} has no numbers to predict: pass a manifest (.csv, .tsv or .parquet) whose "
            "column label has a number for each image, or hf:NAME"
        )


def open_parts(source: DataSource, config: DataConfig, targets: TargetKind) -> SplitParts:
    """Return (train, validation, test) of a source. Raises InputError: a class has no name that can be
    written, or the source cannot be opened or split."""
    parts = source.open(config, targets)
    for name in parts["train"].classes:
        check_utf8(name, "the class")
    return split(parts, config if source.validated else config.without_validation(), where=source.name)


def summarize(train: ImageDataset) -> tuple[DataSummary, list[Finding]]:
    """Return what a recipe is chosen from, as a sample of the images shows it, and what the user should know
    of it."""
    sizes: list[tuple[int, int]] = []
    bands: list[int] = []
    wide: dict[str, NDArray[np.number]] = {}  # of images of more than 8 bits some pixels, (n, bands), by name
    reason = ""
    for index in train.sample(SAMPLE):
        try:
            encoded = train.opened(index)
            stored, values = encoded.bands, encoded.values()
        except BadImage as bad:
            reason = reason or f"{bad.name} ({bad.reason})"
            continue  # counted and named when it is loaded
        sizes.append(encoded.size)
        bands.append(stored)
        if values is not None and np.isfinite(values).all():
            flat = values.reshape(-1, stored)
            wide[encoded.name] = flat[:: max(len(flat) // LOOKED_AT, 1)]
    if not sizes:
        raise InputError(f"none of the {len(train)} images can be read, for example {reason}")
    height, width = np.median(sizes, axis=0).round().astype(int).tolist()

    # Gray images among colored ones count as colored; images of bands as most of them are.
    channels = max(bands)
    if channels == 1 and any_colored(train):
        channels = 3
    if set(bands) - {1, 3}:
        channels = max(set(bands), key=bands.count)

    # What becomes 0 and 255 of more than 8 bits: one range, where all bands have the same.
    of_bands = {name: values for name, values in wide.items() if values.shape[1] == channels}
    value_range = measured_range(list(of_bands.values())) if of_bands else None
    if value_range and len(set(value_range)) == 1:
        value_range = value_range[:1]
    statistics = None
    if channels not in (1, 3):
        known = np.concatenate([to_bytes(values, value_range) for values in of_bands.values()]) / 255
        statistics = tuple(known.mean(axis=0).tolist()), tuple(known.std(axis=0).clip(1e-3).tolist())

    lost = [name for name, values in of_bands.items() if loses_levels(values, value_range)]
    ranges = ", ".join(f"{low:g} to {high:g}" for low, high in value_range or ())
    summary = DataSummary(
        images=len(train),
        classes=len(train.classes),
        height=height,
        width=width,
        channels=channels,
        multi_label=isinstance(train.targets, LabelTargets),
        value_range=value_range,
        statistics=statistics,
    )
    return summary, list(finding("levels", lost, range=ranges, severity="warning"))


def any_colored(images: ImageDataset) -> bool:
    """Return whether the header of any image says that it has colors: where a sample is gray, a few colored
    ones, perhaps what tells a class, would otherwise lose them. Of more than 20,000 images as many are looked
    at; pixels are not decoded."""

    def some(rows: list[int]) -> bool:
        for row in rows:
            with suppress(BadImage):  # counted and named when it is loaded
                head = images.head(row)
                found = None if head is None else has_colors(head)
                if head is not None and found is None:
                    found = images.opened(row).bands == 3
                if found:
                    return True
        return False

    rows = images.sample(HEADERS)
    return any(in_threads(some, [rows[first : first + 64] for first in range(0, len(rows), 64)]))


def loses_levels(values: NDArray[np.number], value_range: Range | None) -> bool:
    """Return whether most gray levels of an image (n, bands) are lost where its range becomes 8 bits."""
    stored = min(len(np.unique(band)) for band in values.T)
    left = min(len(np.unique(band)) for band in to_bytes(values, value_range).T)
    return min(stored, 256) > LEVELS * left
