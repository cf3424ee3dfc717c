"""Images that a command was given by name: opened, and those told that cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

    from vitreous.data.image_list import Failure


def opened(images: tuple[str, ...]) -> tuple[list[tuple[str, Image.Image]], list[Failure]]:
    """The decoded of files, folders and globs, each behind its path; and what could not be read, and why."""
    from vitreous.data.dataset import BadImage
    from vitreous.data.image_list import Failure, ImageList, find_images

    paths, failed = find_images(images)
    files = ImageList(paths)
    decoded = []
    for row, path in enumerate(paths):
        try:
            decoded.append((path, files.image(row)))
        except BadImage as bad:
            failed.append(Failure(bad.name, bad.reason))
    return decoded, failed
