"""What a task says of its models, in the README.md of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

IMAGES: dict[str, str] = {"Images": "{model.image_size[0]}x{model.image_size[1]}, {model.channels} channels"}


class Card(NamedTuple):
    """What a task says of its models.

    The texts are filled in with the fields of the run's configuration and of its result, `classes` in words.
    """

    about: str  # what the model is, a sentence
    facts: Mapping[str, str]  # rows of the table
    use: str  # a command, its RUN in place, and lines of Python
    python: str
    limits: str  # what the numbers do not say
