"""Why is it not learning? Checks of data, of a run's course and of its model; each finding has its fix."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """Something that keeps a model from learning, or its accuracy from being true.

    Attributes:
        check: the short name of what was looked at.
        problem: what was seen, with the numbers.
        fix: what to do.
    """

    check: str
    problem: str
    fix: str
