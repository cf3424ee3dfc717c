"""Every study by its name."""

from __future__ import annotations

from importlib import import_module

from vitreous.errors import InputError, nearest
from vitreous.studies.study import Study

NAMES = (
    "positions",
    "head",
    "optimizer",
    "shape",
    "resolution",
    "hybrid",
    "data-size",
    "self-supervised",
)


def study_named(name: str) -> Study:
    """The study called `name`.

    Raises:
        InputError: there is none; the nearest name is given.
    """
    if name not in NAMES:
        raise InputError(f"unknown study {name!r}: {nearest(name, NAMES)}")
    found: Study = import_module(f"vitreous.studies.{name.replace('-', '_')}").STUDY
    return found
