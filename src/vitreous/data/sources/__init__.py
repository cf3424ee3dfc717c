"""DATA, as it is written on the command line, to pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vitreous.data.config import DataConfig
from vitreous.data.decoding import Encoded
from vitreous.data.pictures import BadPicture, DataSummary, Pictures
from vitreous.data.pictures import Splits as Splits
from vitreous.data.sources.digits import open_digits
from vitreous.data.sources.folders import open_folder
from vitreous.data.sources.synthetic import open_synthetic
from vitreous.data.splitting import split, strata
from vitreous.errors import InputError

SAMPLE = 64  # pictures whose size and colour are looked at
FORMS = "digits; a folder with a sub-folder for each class, or with train/ and val/; synthetic:N@SIZE"


def open_data(spec: str, config: DataConfig) -> Splits:
    """Train, validation and test pictures of a source. Raises InputError for what is no DATA."""
    train, validation, test = open_parts(spec, config)
    return Splits(train, validation, test, spec, summarise(train))


def open_parts(spec: str, config: DataConfig) -> tuple[Pictures, Pictures | None, Pictures | None]:
    """(train, validation, test), by the form of the specification."""
    kind, colon, rest = spec.partition(":")
    if spec == "digits":
        return open_digits(config)
    if colon and kind == "synthetic":
        return split(open_synthetic(rest), config)
    path = Path(spec).expanduser()
    if path.is_dir():
        return open_folder(path, config)
    if path.exists():
        raise InputError(f"{spec} is no data set that is known here: DATA is {FORMS}")
    raise InputError(f"there is no {spec}: DATA is {FORMS}")


def summarise(train: Pictures) -> DataSummary:
    """What a recipe is chosen from."""
    sizes, grey = [], True
    for index in np.unique(np.linspace(0, len(train) - 1, SAMPLE).astype(int)):
        try:
            encoded = Encoded(train, int(index), 3)
        except BadPicture:
            continue  # counted and named when it is loaded
        sizes.append(encoded.size)
        grey &= encoded.picture.mode in ("1", "L", "LA", "La", "F") or encoded.picture.mode.startswith("I")
    if not sizes:
        raise InputError(f"not one of {len(train)} pictures can be read, such as {train.name(0)}")
    height, width = np.median(sizes, axis=0).round().astype(int).tolist()
    counts = np.bincount(strata(train.targets), minlength=len(train.classes))
    return DataSummary(
        pictures=len(train),
        classes=len(train.classes),
        smallest_class=int(counts.min()),
        height=height,
        width=width,
        channels=1 if grey else 3,
        multi_label=train.targets.ndim == 2,
    )
