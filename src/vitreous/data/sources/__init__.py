"""DATA, as it is written on the command line, to images. Add-ons extend the kinds of it."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.data.config import DataConfig, Targets
from vitreous.data.dataset import DataSummary, ImageDataset, Parts, Splits
from vitreous.data.decoding import BadImage, is_gray
from vitreous.data.sources.folders import open_folder
from vitreous.data.sources.hub import open_hub
from vitreous.data.sources.manifests import SUFFIXES, open_manifest
from vitreous.data.sources.objects import open_objects
from vitreous.data.sources.shards import open_shards
from vitreous.data.sources.small import (
    CIFAR10,
    CIFAR100,
    open_cifar,
    open_digits,
    open_mnist,
    open_synthetic,
    without_validation,
)
from vitreous.data.splitting import split
from vitreous.errors import InputError
from vitreous.extensions import addons, imported
from vitreous.outside import local_path

BINARIES: dict[str, Callable[[Path, DataConfig], Parts]] = {
    "cifar10": partial(open_cifar, files=CIFAR10),
    "cifar100": partial(open_cifar, files=CIFAR100),
    "mnist": open_mnist,
}
ADDED = {kind: address for addon in addons().values() for kind, address in addon.sources.items()}
SAMPLE = 64  # images whose size and color are looked at
FORMS = (
    "digits; a folder with a sub-folder for each class, or with train/ and val/; a manifest .csv, .tsv or "
    ".parquet; shards name-{000..099}.tar, here or at s3://, gs://, https://, hf://; cifar10:PATH, "
    "cifar100:PATH, mnist:PATH; hf:NAME; synthetic:N@SIZE"
)
FORMS = "; ".join((FORMS, *(form for addon in addons().values() for form in addon.source_forms)))


def open_data(spec: Any, config: DataConfig, targets: Targets = "classes") -> Splits:
    """Open the train, validation and test images of a source.

    Args:
        spec: DATA as on the command line; or a torch `Dataset`, a `datasets.Dataset`, arrays, a list of
            (image, label) and other Python objects that `open_objects` takes.
        targets: whether labels are classes, or "numbers" to predict: then targets are float32 (N,), without
            classes; or "unlabeled", where shards need not have labels.

    Raises:
        InputError: DATA is not one of the known forms, or an option has no effect on it.
    """
    if isinstance(spec, Path):
        spec = str(spec)
    if isinstance(spec, str) and not spec:
        raise InputError("DATA is empty: is a variable not set? Name one")
    refuse_ignored(spec, config, targets)
    if isinstance(spec, str):
        name, parts = spec, open_spec(spec, config, targets)
    else:
        name, parts = type(spec).__name__, open_objects(spec, config, targets)
    return Splits(*parts, name, summarize(parts[0]))


def refuse_ignored(spec: Any, config: DataConfig, targets: Targets) -> None:
    """Raise InputError for an option that this form of DATA would ignore."""
    is_object = not isinstance(spec, str)
    is_manifest = not is_object and Path(spec).suffix in SUFFIXES
    is_hub = not is_object and spec.startswith("hf:")
    is_tar = not is_object and (spec.endswith(".tar") or any(local_path(spec).glob("*.tar")))
    name = type(spec).__name__ if is_object else spec
    ignored = (
        (config.streaming and not (is_hub or is_tar), "data.streaming=true is for hf:NAME and shards"),
        (
            config.cache_gb != type(config).model_fields["cache_gb"].default and "://" not in str(spec),
            f"data.cache_gb={config.cache_gb:g} is for shards that are fetched (s3://, https://)",
        ),
        (
            config.label_separator != "|" and not (is_manifest and targets != "numbers"),
            f"data.label_separator={config.label_separator!r} is for manifests of classes alone",
        ),
        (config.class_balance and targets == "numbers", "data.class_balance=true needs classes, not numbers"),
    )
    for wrong, why in ignored:
        if wrong:
            raise InputError(f"{why}, and {name} ignores it: leave it out")
    if targets == "numbers" and not (is_manifest or is_hub or is_object):
        raise InputError(
            f"{spec} has no numbers to predict: a regression needs a manifest (.csv, .tsv or .parquet) whose "
            "column label holds a number for each image, or hf:NAME"
        )


def open_spec(spec: str, config: DataConfig, targets: Targets) -> Parts:
    """Return (train, validation, test), by the form of the specification."""
    kind, colon, rest = spec.partition(":")
    if spec == "digits":
        return open_digits(config)
    if "://" in spec:
        if not spec.endswith(".tar"):
            raise InputError(f"{spec}: from a URL shards are read: write {kind}://.../name-{{000..099}}.tar")
        return open_shards(spec, config, targets)
    if colon and kind == "hf":
        return open_hub(rest, config, targets)
    if colon and kind == "synthetic":
        return split(open_synthetic(rest), without_validation(config))
    if colon and kind in BINARIES:
        if not rest or not (folder := local_path(rest)).is_dir():
            raise InputError(f"there is no folder {rest!r}: write the folder that holds the files")
        return BINARIES[kind](folder, config)
    if colon and kind in ADDED:
        return imported(ADDED[kind])(rest, config)
    path = local_path(spec)
    if path.is_dir():
        packed = any(path.glob("*.tar"))
        return open_shards(f"{path}/*.tar", config, targets) if packed else open_folder(path, config)
    if spec.endswith(".tar"):
        return open_shards(spec, config, targets)
    if path.is_file() and path.suffix in SUFFIXES:
        return open_manifest(path, config, targets)
    if path.exists():
        raise InputError(f"{spec} is a file of no known form: DATA is {FORMS}")
    names = ["digits", "hf", "synthetic", *BINARIES, *ADDED]
    close = get_close_matches(kind, names, n=1, cutoff=0.7)
    hint = f" (did you mean {close[0]}?)" if close and spec not in close else ""
    raise InputError(f"there is no {spec}{hint}: DATA is {FORMS}")


def summarize(train: ImageDataset) -> DataSummary:
    """What a recipe is chosen from."""
    sizes, gray, reason = [], True, ""
    for index in train.sample(SAMPLE):
        try:
            encoded = train.opened(index, 3)
            mode = encoded.image.mode
        except BadImage as bad:
            reason = reason or f"{bad.name} ({bad.reason})"
            continue  # counted and named when it is loaded
        sizes.append(encoded.size)
        gray &= is_gray(mode)
    if not sizes:
        raise InputError(f"not one of {len(train)} images can be read, such as {reason}")
    height, width = np.median(sizes, axis=0).round().astype(int).tolist()
    return DataSummary(
        images=len(train),
        classes=len(train.classes),
        height=height,
        width=width,
        channels=1 if gray else 3,
        multi_label=train.targets.ndim == 2,
    )
