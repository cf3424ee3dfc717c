"""Images that a command was given by name: opened, and those told that cannot be."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

    from vitreous.deployment.predictor import Failure


def opened(images: tuple[str, ...]) -> tuple[list[tuple[str, Image.Image]], list[Failure]]:
    """The decoded of files, folders and globs, each behind its path; and what could not be read, and why."""
    from vitreous.data.dataset import BadImage
    from vitreous.deployment.predictor import Failure, Files, find_images

    paths, failed = find_images(images)
    files = Files(paths)
    decoded = []
    for row, path in enumerate(paths):
        try:
            decoded.append((path, files.image(row)))
        except BadImage as bad:
            failed.append(Failure(bad.name, bad.reason))
    return decoded, failed


def tell_failed(failed: Iterable[Failure]) -> int:
    """A line for each of those that could not be read; the exit code."""
    code = 0
    for each in failed:
        print(f"vitreous: {each.path}: {each.reason}", file=sys.stderr)
        code = 2
    return code
