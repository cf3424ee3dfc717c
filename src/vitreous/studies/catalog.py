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
TITLES_OF_OTHERS = {"complexity": "How does the cost of a layer grow with the length and the width?"}


def titles() -> dict[str, str]:
    """What each study asks; those of `NAMES` train models, the others measure something else."""
    return {**{name: study_named(name).title for name in NAMES}, **TITLES_OF_OTHERS}


def study_named(name: str) -> Study:
    """The study called `name`.

    Raises:
        InputError: there is none; the nearest name is given.
    """
    if name not in NAMES:
        raise InputError(f"unknown study {name!r}: {nearest(name, (*NAMES, *TITLES_OF_OTHERS))}")
    found: Study = import_module(f"vitreous.studies.{name.replace('-', '_')}").STUDY
    return found
