"""Files of images: which there are, their bytes, and what tells one from another."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from vitreous.errors import is_installed
from vitreous.models.stored import BadImage
from vitreous.outside import open_regular, read_regular, same_path

PLUGINS = {
    ".heic": "pillow_heif",
    ".heif": "pillow_heif",
    ".hif": "pillow_heif",
    ".jxl": "pillow_jxl",
    ".dcm": "pydicom",
    ".dicom": "pydicom",
}
INSTALL = "pip install 'vitreous[heic,science]'"
UNREADABLE = tuple(suffix for suffix, module in PLUGINS.items() if not is_installed(module))
EXTENSIONS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm"),
    *(".avif", ".jp2", ".j2k", ".jpx", ".npy"),
    *(suffix for suffix in PLUGINS if suffix not in UNREADABLE),
)
# Images, too, but nothing here reads them.
FOREIGN = (
    *(".svg", ".svgz", ".psd", ".xcf", ".exr", ".tga", ".pgm", ".pbm", ".pnm"),
    *(".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf"),
)
CHUNK = 4096  # bytes


def read_file(path: str | Path) -> bytes:
    """A file's bytes. Raises BadImage."""
    try:
        return read_regular(existing(path))
    except (OSError, ValueError) as error:  # of a name with a null character
        raise BadImage(str(path), getattr(error, "strerror", None) or str(error)) from error


def existing(path: str | Path) -> str | Path:
    """Return the path that is there, perhaps in another form of Unicode or without Windows' backslashes."""
    text = str(path)
    if (text.isascii() and "\\" not in text) or os.path.lexists(path):
        return path
    return same_path(path) or path


def file_digest(path: str | Path) -> str:
    """Return the fingerprint of a file. Raises BadImage."""
    try:
        with open_regular(existing(path)) as file:
            number = file.fileno()
            return fingerprint(os.fstat(number).st_size, lambda place, count: os.pread(number, count, place))
    except (OSError, ValueError) as error:
        raise BadImage(str(path), getattr(error, "strerror", None) or str(error)) from error


def fingerprint(size: int, read: Callable[[int, int], bytes]) -> str:
    """Return 16 hexadecimal digits for stored bytes: a hash of how many there are, and of the first, middle
    and last 4 KiB, of which compressed images have no two alike. Large files are not read as a whole.

    Args:
        read: gives the bytes of (place, count).
    """
    places = (0, size // 2, size - CHUNK) if size > 3 * CHUNK else range(0, size, CHUNK)
    digest = hashlib.blake2b(str(size).encode(), digest_size=8)
    for place in places:
        digest.update(read(place, CHUNK))
    return digest.hexdigest()
