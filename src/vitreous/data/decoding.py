"""From a file's bytes to pixels: Pillow for every format, libjpeg-turbo where a JPEG is plain."""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8
from PIL import Image, UnidentifiedImageError

from vitreous.errors import InputError, LazyModule, is_installed, utf8_name
from vitreous.models.bands import Range, read_bands
from vitreous.models.preprocessing import bytes_of_bands, upright
from vitreous.outside import open_regular, read_regular, same_path, whole_number

if TYPE_CHECKING:
    import torch
else:  # exported models answer without it
    torch = LazyModule("torch")

JPEG_START, JPEG_END = b"\xff\xd8\xff", b"\xff\xd9"
APPLICATION_1, SCAN = 0xE1, 0xDA
SEQUENTIAL = (0xC0, 0xC1)  # frames that are not progressive


class BadImage(Exception):
    """An image that cannot be read: which, and why."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = utf8_name(name)
        super().__init__(f"{self.name}: {reason}")
        self.reason = reason


def jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(marker, begin of its content, end) up to the pixels, SCAN, or to where a file cannot be followed."""
    place = 2
    while place + 4 <= len(data) and data[place] == 0xFF:
        end = place + 2 + int.from_bytes(data[place + 2 : place + 4])
        yield data[place + 1], place + 4, end
        if data[place + 1] == SCAN:
            return
        place = end


def may_be_rotated(data: bytes) -> bool:
    """Whether the segments before the pixels hold an EXIF or XMP orientation, or cannot be followed."""
    for marker, start, end in jpeg_segments(data):
        if marker == SCAN:
            return False
        if marker == APPLICATION_1:
            content = data[start:end]
            if content.startswith(b"Exif\0\0") or b"tiff:Orientation" in content:
                return True
    return True


def truncated_jpeg(data: bytes, row: int) -> bytes | None:
    """The same image, said to be only `row` pixels high, so that nothing below is decoded. None where it is
    not one scan, whose rows simply follow each other, or has no end, of which its decoder must complain."""
    if not data.endswith(JPEG_END):
        return None
    frame, colors = 0, b""
    for marker, start, _ in jpeg_segments(data):
        if marker in SEQUENTIAL:  # precision, height (2), width (2), colors
            frame, colors = start, data[start + 5 : start + 6]
        if marker == SCAN and frame and data[start : start + 1] == colors:
            return data[: frame + 1] + row.to_bytes(2) + data[frame + 3 :]
    return None


try:
    import simplejpeg
except ImportError:  # the extra "train" or "serve"; Pillow reads the same files, a third slower
    simplejpeg = None

# JPEG finds MPO, phones' pairs of images, itself.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "AVIF", "JPEG2000")
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
MAX_PIXELS = 178_956_970  # 512 MiB as RGB; more is what Pillow calls a decompression bomb
LONGEST_REASON = 300  # characters
ENDS_TOO_EARLY = "the file ends too early, and the missing rows are gray"
ORIENTATION = 0x0112  # the EXIF tag
CHUNK = 4096  # bytes
BLOCK = 16  # rows that a JPEG is decoded by; of an image half as large 8, and so on
BORDER = 2  # rows: as far color spreads when it is enlarged, and a part of an image is rounded up
DAMAGED = re.compile(
    "truncated|ends too early|broken data stream|broken PNG|bad header checksum", re.IGNORECASE
)
PIXMAP = re.compile(rb"P6\n(\d+) (\d+)\n255\n")  # the head of a PPM, as Pillow and `data pack --raw` write it


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


def is_gray(mode: str) -> bool:
    """Whether images of one of Pillow's modes have no color."""
    return mode in ("1", "L", "LA", "La", "F") or mode.startswith("I")


def open_image(data: bytes, name: str) -> Image.Image:
    """An image whose header has been read and found good; its pixels have not. Raises BadImage."""
    if not data:
        raise BadImage(name, "the file is empty")
    try:
        image = Image.open(io.BytesIO(data), formats=(*FORMATS, *plugin_formats(data)))
    # Pillow's readers let through whatever a broken file makes them stumble on; each one is reported.
    except Exception as error:
        raise BadImage(name, decoding_error(error)) from error
    check_not_empty(image, name)
    if image.width * image.height > MAX_PIXELS:
        raise BadImage(name, f"{image.width}x{image.height} pixels, more than {MAX_PIXELS}")
    return image


def check_not_empty(image: Image.Image, name: str) -> None:
    """Raise BadImage for an image without pixels."""
    if not image.width or not image.height:
        raise BadImage(name, f"{image.width}x{image.height} pixels: it is empty")


def plugin_formats(data: bytes) -> tuple[str, ...]:
    """Return the format that a plugin of Pillow reads, if the data are of it. Raises OSError where the plugin
    is not installed."""
    if data[4:8] == b"ftyp" and data[8:12] not in (b"avif", b"avis"):
        module, format = "pillow_heif", "HEIF"
    elif data[:2] == b"\xff\x0a" or data[4:8] == b"JXL ":
        module, format = "pillow_jxl", "JXL"
    else:
        return ()
    if not is_installed(module):
        raise OSError(f"an image of the format {format}: pip install 'vitreous[heic]'")
    register_plugin(module)
    return (format,)


@cache
def register_plugin(module: str) -> None:
    """Import a plugin, which few images need."""
    plugin = import_module(module)
    if hasattr(plugin, "register_heif_opener"):
        plugin.register_heif_opener()


def load_pixels(image: Image.Image, name: str) -> Image.Image:
    """The same image with its pixels decoded. Raises BadImage."""
    try:
        image.load()
    except Exception as error:  # as above
        raise BadImage(name, decoding_error(error)) from error
    return image


def decode(data: bytes, name: str) -> Image.Image:
    """The whole image, of any mode and orientation, as stored. Raises BadImage, also where its orientation
    cannot be read."""
    image = open_image(data, name)
    try:
        image.load()
    except Exception as error:  # as above
        if not ends_too_early(image, error):
            raise BadImage(name, decoding_error(error)) from error
        image = load_pixels(open_image(data + JPEG_END, name), name)
    upright_size(image, name)
    return image


def ends_too_early(image: Image.Image, error: Exception) -> bool:
    """Whether a JPEG has no end. Pillow decodes it with one; what is missing is gray."""
    return image.format in ("JPEG", "MPO") and "truncated" in str(error)


def decoding_error(error: Exception) -> str:
    """Why an image cannot be read, in a few words without addresses."""
    if isinstance(error, UnidentifiedImageError):
        return "no image of a known format"
    if isinstance(error, MemoryError):
        return "it takes more memory than there is"
    if isinstance(error, Image.DecompressionBombError):
        return f"more than {MAX_PIXELS} pixels"
    reason = " ".join(str(error).split()) or type(error).__name__
    if "truncated" in reason.lower():
        return "it is truncated: the file ends too early"
    return reason[:LONGEST_REASON]


def stored_bands(data: bytes, name: str) -> np.ndarray | None:
    """The (H, W, bands) of a file that Pillow does not keep whole; None for others. Raises BadImage."""
    try:
        return read_bands(data)
    except Exception as error:  # as in open_image
        raise BadImage(name, decoding_error(error)) from error


def first_bands(values: np.ndarray, name: str, value_range: Range | None) -> Image.Image:
    """The first three bands of an image (H, W, bands), or the first of two, as bytes, to be shown."""
    count = 3 if values.shape[2] >= 3 else 1
    known = value_range[:count] if value_range and len(value_range) > 1 else value_range
    try:
        shown = bytes_of_bands(values[..., :count], count, known)
    except InputError as error:
        raise BadImage(name, str(error)) from None
    return Image.fromarray(shown[..., 0] if count == 1 else np.ascontiguousarray(shown))


def plain_size(data: bytes, channels: int) -> tuple[int, int] | None:
    """(H, W) of a JPEG that libjpeg-turbo can be left to, in a tenth of the time that Pillow takes to open
    it; None for any other file: another format or color space (also where gray is wanted of colors, which
    Pillow rounds otherwise), rotated, giant, broken."""
    if simplejpeg is None or not data.startswith(JPEG_START) or may_be_rotated(data):
        return None
    try:
        height, width, colors, _ = simplejpeg.decode_jpeg_header(data)
    except Exception:  # as in `turbo`
        return None
    known = ("Gray", "YCbCr", "RGB") if channels == 3 else ("Gray",)
    return (height, width) if colors in known and height * width <= MAX_PIXELS else None


def pixmap(data: bytes) -> UInt8[np.ndarray, "H W 3"] | None:
    """The pixels of a PPM as they are in the file, which costs a copy; None for anything else."""
    head = PIXMAP.match(data)
    if head is None:
        return None
    try:
        width = whole_number(head[1], low=1, high=MAX_PIXELS)
        height = whole_number(head[2], low=1, high=MAX_PIXELS)
    except ValueError:
        return None
    if len(data) != head.end() + 3 * width * height:
        return None  # Pillow says what is wrong with it
    return np.frombuffer(data, np.uint8, offset=head.end()).reshape(height, width, 3).copy()


def upright_size(image: Image.Image, name: str) -> tuple[int, int]:
    """(H, W) of an opened image once it is rotated as its EXIF data says. Raises BadImage."""
    try:
        orientation = int(image.getexif().get(ORIENTATION, 1))
    except Exception as error:  # as in open_image
        reason = decoding_error(error)  # some of a format's readers read on for it, up to what is damaged
        about_exif = "" if DAMAGED.search(reason) else "its EXIF data is broken: "
        raise BadImage(name, f"{about_exif}{reason}") from error
    width, height = image.size
    # Of a TIFF, Pillow tells the upright size itself.
    rotated = orientation >= 5 and image.format != "TIFF"
    return (width, height) if rotated else (height, width)


class EncodedImage:
    """One image, decoded when its pixels are asked for: the header tells its upright size before.

    Args:
        stored: a file's bytes, an image whose pixels are there, or stored values (H, W, bands).
        value_range: what becomes 0 and 255 of images of more than 8 bits; see `Preprocessing`.

    Raises:
        BadImage: it cannot be opened.
    """

    def __init__(
        self,
        stored: bytes | Image.Image | np.ndarray,
        name: str,
        channels: int,
        value_range: Range | None = None,
    ) -> None:
        self.name, self.channels, self.value_range = name, channels, value_range
        self.damage: str | None = None  # what is wrong with it, known when its pixels are decoded
        self.data = stored if isinstance(stored, bytes) else None
        self.raw = pixmap(self.data) if self.data and channels == 3 else None
        size = plain_size(self.data, channels) if self.data else None
        self.plain = size is not None  # a JPEG of which libjpeg-turbo gives what Pillow and `upright` would
        self.bands = stored if isinstance(stored, np.ndarray) else None  # (H, W, bands), as stored
        if self.data and size is None and self.raw is None:
            self.bands = stored_bands(self.data, name)
        if self.raw is not None:
            size = self.raw.shape[0], self.raw.shape[1]
        elif self.bands is not None:
            size = self.bands.shape[0], self.bands.shape[1]
        if size is None:
            assert not isinstance(stored, np.ndarray)
            self.image = open_image(stored, name) if isinstance(stored, bytes) else stored
            check_not_empty(self.image, name)
            size = upright_size(self.image, self.name)
        self.size = size  # (H, W)

    @cached_property
    def image(self) -> Image.Image:
        """As Pillow opens it, its pixels perhaps not decoded yet. Raises BadImage."""
        assert self.data is not None
        return open_image(self.data, self.name)

    def pixels(self, *, until: int | None = None) -> UInt8[torch.Tensor, "C H W"]:
        """All upright 8-bit pixels; below row `until` there may be anything. Raises BadImage."""
        return self.channels_first(self.turbo(1, until or self.size[0]))

    def rough(self, at_least: tuple[int, int], *, until: int | None = None) -> UInt8[torch.Tensor, "C H W"]:
        """Upright pixels for training: of a JPEG with the faster cosine transform and enlargement of color,
        and at 1/2, 1/4 or 1/8 of its size where that is not below `at_least` (H, W), since libjpeg leaves out
        coefficients then. (Its other fractions are slower than the whole.) `until` as for `pixels`."""
        (height, width), (tall, wide) = self.size, at_least
        part = 1
        for divisor in (2, 4, 8):
            if height >= divisor * tall and width >= divisor * wide:
                part = divisor
        return self.channels_first(self.turbo(part, until or height, fastdct=True, fastupsample=True))

    def channels_first(self, pixels: UInt8[np.ndarray, "H W c"] | None) -> UInt8[torch.Tensor, "C H W"]:
        """As a tensor, channels last in memory as the pixels are; those of Pillow if there are none."""
        if pixels is None and self.bands is not None and self.channels not in (1, 3):
            pixels = self.scaled_bands()
        if pixels is None:
            pixels = np.array(self.upright()).reshape(*self.size, -1)
        return torch.from_numpy(pixels).permute(2, 0, 1)

    def turbo(self, part: int, until: int, **how: int) -> UInt8[np.ndarray, "H W c"] | None:
        """A `part`-th of the image by libjpeg-turbo, down to row `until`, or the pixels that are there as
        they are; None if Pillow has to do it, which reads some files that this is too strict for, and says
        what is wrong with the others."""
        if self.raw is not None:
            return self.raw
        if not self.plain:
            return None
        assert self.data is not None
        height, width = self.size
        row = -(-(until + BORDER * part) // BLOCK) * BLOCK
        early = truncated_jpeg(self.data, row) if row < height else None
        colors = "GRAY" if self.channels == 1 else "RGB"
        whole = np.empty((-(-height // part), -(-width // part), 1 if colors == "GRAY" else 3), np.uint8)
        if part > 1:  # simplejpeg takes the largest reduction that leaves as much
            how |= {"min_height": -(-(row if early else height) // part), "min_width": whole.shape[1]}
        try:
            simplejpeg.decode_jpeg(early or self.data, colors, buffer=whole, strict=early is None, **how)
        except Exception:  # Pillow says what is wrong with it
            return None
        return whole

    def shrunk(self, side: int) -> UInt8[torch.Tensor, "C H W"]:
        """The whole image with its shorter side at `side` pixels, or as it is if that is smaller."""
        height, width = self.size
        scale = side / min(height, width)
        if scale >= 1:
            return self.pixels()
        size = (max(round(height * scale), 1), max(round(width * scale), 1))
        pixels = self.rough(size)
        return torch.nn.functional.interpolate(pixels[None], size=size, mode="bicubic", antialias=True)[0]

    def upright(self) -> Image.Image:
        """The whole image, upright, in gray or RGB."""
        if self.bands is not None:
            values = self.scaled_bands()
            image = Image.fromarray(values[..., 0] if values.shape[2] == 1 else values)
            return upright(image, self.channels)
        try:
            return upright(self.image, self.channels, self.value_range)
        except Exception as error:  # as in open_image
            if self.data is None or not ends_too_early(self.image, error):
                raise BadImage(self.name, decoding_error(error)) from error
        self.damage = ENDS_TOO_EARLY
        return upright(load_pixels(open_image(self.data + JPEG_END, self.name), self.name), self.channels)

    def scaled_bands(self) -> UInt8[np.ndarray, "H W bands"]:
        """The bands as bytes. Raises BadImage: they are not as many as channels, or not numbers."""
        assert self.bands is not None
        try:
            return bytes_of_bands(self.bands, self.channels, self.value_range)
        except InputError as error:
            raise BadImage(self.name, str(error)) from None

    @property
    def stored_channels(self) -> int:
        """How many bands are stored: 1 of gray, 3 of color also where it is transparent."""
        if self.bands is not None:
            return int(self.bands.shape[2])
        return 1 if is_gray(self.image.mode) else 3

    def wide_values(self) -> np.ndarray | None:
        """The stored values (H, W, bands) of an image of more than 8 bits, or of bands; None for others.
        Raises BadImage."""
        if self.bands is not None:
            return self.bands
        mode = self.image.mode
        if not (mode.startswith("I") or mode == "F"):
            return None
        values = np.asarray(load_pixels(self.image, self.name))[..., None]
        return values.astype(np.uint32) if mode == "I" and values.min() >= 0 else values
