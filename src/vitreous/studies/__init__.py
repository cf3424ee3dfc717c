"""The paper's experiments at small scale, in one registry; and the cost of layers (`complexity`)."""

from __future__ import annotations

from vitreous.errors import InputError, nearest
from vitreous.studies.architecture_studies import HEAD, HYBRID, POSITIONS, SHAPE
from vitreous.studies.learning_studies import DATA_SIZE, OPTIMIZER, RESOLUTION, SELF_SUPERVISED
from vitreous.studies.study import Study

STUDIES = {
    study.name: study
    for study in (POSITIONS, HEAD, OPTIMIZER, SHAPE, RESOLUTION, HYBRID, DATA_SIZE, SELF_SUPERVISED)
}
COMPLEXITY = "complexity"  # times layers, the others train models
COMPLEXITY_TITLE = "How does the cost of a layer grow with the length and the width?"


def study_named(name: str) -> Study:
    """Return the study called `name`. Raises InputError with the nearest name if there is none."""
    if name not in STUDIES:
        raise InputError(f"unknown study {name!r}: {nearest(name, [*STUDIES, COMPLEXITY])}")
    return STUDIES[name]
