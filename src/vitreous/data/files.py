"""Files of images: which there are, how they begin, and what tells one from another."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from vitreous.errors import is_installed
from vitreous.models.stored import unreadable_file
from vitreous.outside import existing_path, open_regular

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
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm"),
    *(".avif", ".jp2", ".j2k", ".jpx", ".npy"),
    *(suffix for suffix in PLUGINS if suffix not in UNREADABLE),
)
# Images, too, but nothing here reads them.
FOREIGN = (
    *(".svg", ".svgz", ".psd", ".xcf", ".exr", ".tga", ".pbm", ".pnm"),
    *(".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf"),
)
# Not images, but what people put beside them.
VIDEOS = (".mp4", ".mov", ".avi", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg", ".wmv", ".3gp")
CHUNK = 4096  # bytes
HEAD = 1 << 16  # bytes


@contextmanager
def opened_file(path: str | Path) -> Iterator[int]:
    """Open a file, and yield its descriptor. Raises BadImage where it cannot be opened or read."""
    try:
        with open_regular(existing_path(path)) as file:
            yield file.fileno()
    except (OSError, ValueError) as error:
        raise unreadable_file(path, error) from error


def read_head(path: str | Path) -> bytes:
    """Return the first 64 KiB of a file, in which most formats say what they hold. Raises BadImage."""
    with opened_file(path) as file:
        return os.pread(file, HEAD, 0)


def file_digest(path: str | Path) -> str:
    """Return the fingerprint of a file. Raises BadImage."""
    with opened_file(path) as file:
        return fingerprint(os.fstat(file).st_size, lambda place, count: os.pread(file, count, place))


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


def lossless_file(values: np.ndarray) -> tuple[str, bytes]:
    """Return the suffix and the content of a file that holds an image (H, W) or (H, W, bands) as it is: a PNG
    of 8 bits, gray or RGB, or of gray of 16 bits; an .npy file of anything else."""
    gray = values[..., 0] if values.ndim == 3 and values.shape[2] == 1 else values
    file = io.BytesIO()
    of_bytes = gray.dtype == np.uint8 and gray.shape[2:] in ((), (3,))
    if of_bytes or (gray.dtype == np.uint16 and gray.ndim == 2):
        Image.fromarray(np.ascontiguousarray(gray)).save(file, "PNG", compress_level=1)
        return ".png", file.getvalue()
    np.save(file, values)
    return ".npy", file.getvalue()
