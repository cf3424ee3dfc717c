"""The registry of studies."""

from __future__ import annotations

from vitreous.errors import InputError, nearest
from vitreous.studies.architecture_studies import HEAD, HYBRID, POSITIONS, SHAPE
from vitreous.studies.learning_studies import DATA_SIZE, OPTIMIZER, RESOLUTION, SELF_SUPERVISED
from vitreous.studies.study import COMPLEXITY_TITLE, Study

STUDIES = {
    study.name: study
    for study in (POSITIONS, HEAD, OPTIMIZER, SHAPE, RESOLUTION, HYBRID, DATA_SIZE, SELF_SUPERVISED)
}


def study_titles() -> dict[str, str]:
    """Return the question of each study; "complexity" times layers, the others train models."""
    return {**{name: study.title for name, study in STUDIES.items()}, "complexity": COMPLEXITY_TITLE}


def study_named(name: str) -> Study:
    """Return the study called `name`. Raises InputError with the nearest name if there is none."""
    if name not in STUDIES:
        raise InputError(f"unknown study {name!r}: {nearest(name, list(study_titles()))}")
    return STUDIES[name]
