"""One image as it is stored, whatever it came as: a file's bytes, an image of Pillow, an array, a tensor.

`stored` decides once of which kind it is, and what its numbers mean: the orientation, transparency, the
color profile, whether white is zero, how many bits, how many bands. Whatever wants pixels takes the object
and never guesses again. Pillow reads every format, libjpeg-turbo plain JPEGs, `bands` what Pillow does not
keep whole.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from functools import cache, cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, Union

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from vitreous.errors import InputError, LazyModule, is_installed, utf8_name
from vitreous.models.bands import (
    BITS,
    MOST,
    NOT_NUMBERS,
    NPY,
    PNG,
    TIFF,
    Range,
    checked_bands,
    is_of_bands,
    positive_tiff,
    read_deep_png,
    read_dicom,
    read_npy,
    read_tiff,
    share_beyond,
    to_bytes,
    upright_values,
)
from vitreous.outside import existing_path, parse_digits, read_regular

if TYPE_CHECKING:
    import torch
else:  # exported models answer without it
    torch = LazyModule("torch")

ImageLike = Union["Stored", Image.Image, str, Path, bytes, np.ndarray, "torch.Tensor"]
Allow = Callable[[tuple[int, int], str | None], None]
JPEG_START, JPEG_END = b"\xff\xd8\xff", b"\xff\xd9"
APPLICATION_1, APPLICATION_2, SCAN = 0xE1, 0xE2, 0xDA
FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
SEQUENTIAL = (0xC0, 0xC1)  # frames that are not progressive
COLOR_TYPE = 25  # the place in a PNG, after the bits of a value
DEEP_COLORS = b"\x10\x02"  # there: colors of 16 bits
PROFILE = b"ICC_PROFILE\0"  # begins a segment, before the number of the part and of parts, a byte each

# JPEG finds MPO, phones' pairs of images, itself.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "AVIF", "JPEG2000")
MAX_PIXELS = 178_956_970  # 512 MiB as RGB; more is what Pillow calls a decompression bomb
LONGEST_REASON = 300  # characters
ENDS_TOO_EARLY = "the file ends too early, and the missing rows are gray"
ORIENTATION = 0x0112  # the EXIF tag
FORMAT, SIGNED = 339, 2  # TIFF's tag SampleFormat, and its value of numbers with a sign
FEW_BEYOND = 0.01  # of an image's values, which a range may leave out
SAME_COLOR = 2  # of 255: what a profile may change of colors that are as good as sRGB's
BLOCK = 16  # rows that a JPEG is decoded by; of an image half as large 8, and so on
BORDER = 2  # rows: as far color spreads when it is enlarged, and a part of an image is rounded up
DAMAGED = re.compile(
    "truncated|ends too early|broken data stream|broken PNG|bad header checksum", re.IGNORECASE
)
# The head of a PGM or a PPM, as Pillow and `data pack --raw` write it.
PIXMAP = re.compile(rb"P([56])\n(\d+) (\d+)\n255\n")


try:
    import simplejpeg
except ImportError:  # the extra "train" or "serve"; Pillow reads the same files, a third slower
    simplejpeg = None


class BadImage(Exception):
    """An image that cannot be read: which, and why."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = utf8_name(name)
        super().__init__(f"{self.name}: {reason}")
        self.reason = reason


def bytes_of_file(path: str | Path) -> bytes:
    """Return the bytes of a file. Raises BadImage."""
    try:
        return read_regular(existing_path(path))
    except (OSError, ValueError) as error:  # of a name with a null character
        raise unreadable_file(path, error) from error


def unreadable_file(path: str | Path, error: Exception) -> BadImage:
    """Return what is said of a file that cannot be opened or read."""
    return BadImage(str(path), getattr(error, "strerror", None) or str(error))


def jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (marker, begin of its content, end) up to the pixels, SCAN, or to where a file cannot be
    followed."""
    place = 2
    while place + 4 <= len(data) and data[place] == 0xFF:
        end = place + 2 + int.from_bytes(data[place + 2 : place + 4])
        yield data[place + 1], place + 4, end
        if data[place + 1] == SCAN:
            return
        place = end


def needs_pillow(data: bytes) -> bool:
    """Return whether the segments before the pixels hold an EXIF or XMP orientation, or a color profile that
    is not sRGB, or cannot be followed."""
    for marker, start, end in jpeg_segments(data):
        if marker == SCAN:
            return False
        if marker == APPLICATION_1:
            content = data[start:end]
            if content.startswith(b"Exif\0\0") or b"tiff:Orientation" in content:
                return True
        if marker == APPLICATION_2 and data.startswith(PROFILE, start):
            alone = data[start + len(PROFILE) + 1 : start + len(PROFILE) + 2] == b"\x01"
            if not alone or to_srgb(data[start + len(PROFILE) + 2 : end], "RGB") is not None:
                return True
    return True


def has_colors(head: bytes) -> bool | None:
    """Return whether the beginning of a file says that it has colors; None where it does not say it, as in
    formats that only Pillow reads."""
    if head.startswith(PNG) and len(head) > COLOR_TYPE:
        return head[COLOR_TYPE] not in (0, 4)  # gray, and gray with transparency
    if head.startswith(JPEG_START):
        for marker, start, _ in jpeg_segments(head):
            if marker in FRAMES and start + 5 < len(head):
                return head[start + 5] != 1
    return None


def truncated_jpeg(data: bytes, row: int) -> bytes | None:
    """Return the same image, said to be only `row` pixels high, so that nothing below is decoded. None where
    it is not one scan, whose rows simply follow each other, or has no end, of which its decoder must
    complain."""
    if not data.endswith(JPEG_END):
        return None
    frame, colors = 0, b""
    for marker, start, _ in jpeg_segments(data):
        if marker in SEQUENTIAL:  # precision, height (2), width (2), colors
            frame, colors = start, data[start + 5 : start + 6]
        if marker == SCAN and frame and data[start : start + 1] == colors:
            return data[: frame + 1] + row.to_bytes(2) + data[frame + 3 :]
    return None


def is_gray(mode: str) -> bool:
    """Return whether images of one of Pillow's modes have no color."""
    return mode in ("1", "L", "LA", "La", "F") or mode.startswith("I")


def open_image(data: bytes, name: str) -> Image.Image:
    """Return an image whose header has been read and found good; its pixels have not. Raises BadImage."""
    if not data:
        raise BadImage(name, "the file is empty")
    try:
        image = Image.open(io.BytesIO(data), formats=(*FORMATS, *plugin_formats(data)))
    # Pillow's readers let through whatever a broken file makes them stumble on; each one is reported.
    except Exception as error:
        raise BadImage(name, decoding_error(error, data[:12])) from error
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
    if data[4:8] == b"ftyp" and data[8:12] not in (b"avif", b"avis") and not is_video(data):
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
    """Return the same image with its pixels decoded. Raises BadImage."""
    try:
        image.load()
    except Exception as error:  # as above
        raise BadImage(name, decoding_error(error)) from error
    return image


def is_video(head: bytes) -> bool:
    """Return whether a file begins as a video does: MP4 and MOV, Matroska and WebM, AVI, MPEG."""
    return head[4:12].startswith(
        (b"ftypmp4", b"ftypisom", b"ftypqt", b"ftypM4V", b"ftypavc", b"ftyp3gp")
    ) or (head.startswith((b"\x1aE\xdf\xa3", b"\x00\x00\x01\xba")) or head[8:12] == b"AVI ")


def decoding_error(error: Exception, data: bytes = b"") -> str:
    """Return why an image cannot be read, in a few words without addresses. data: of its file."""
    if isinstance(error, UnidentifiedImageError):
        return "a video: save its frames as images" if is_video(data) else "not an image of a known format"
    if isinstance(error, MemoryError):
        return "it takes more memory than is available"
    if isinstance(error, Image.DecompressionBombError):
        return f"more than {MAX_PIXELS} pixels"
    reason = " ".join(str(error).split()) or type(error).__name__
    if "truncated" in reason.lower():
        return "it is truncated: the file ends too early"
    return reason[:LONGEST_REASON]


def plain_size(data: bytes, channels: int) -> tuple[int, int, int] | None:
    """Return (H, W, bands) of a JPEG that libjpeg-turbo can be left to, in a tenth of the time that Pillow
    takes to open it; None for any other file: another format or color space (also where gray is wanted of
    colors, which Pillow rounds otherwise), rotated, giant, broken."""
    if simplejpeg is None or not data.startswith(JPEG_START) or needs_pillow(data):
        return None
    try:
        height, width, colors, _ = simplejpeg.decode_jpeg_header(data)
    except Exception:  # as in `turbo`
        return None
    known = ("Gray", "YCbCr", "RGB") if channels == 3 else ("Gray",)
    if colors not in known or height * width > MAX_PIXELS:
        return None
    return height, width, 1 if colors == "Gray" else 3


def pixmap(data: bytes) -> UInt8[np.ndarray, "H W bands"] | None:
    """Return the pixels of a PGM or a PPM as they are in the file, which costs a copy; None for anything
    else."""
    head = PIXMAP.match(data)
    if head is None:
        return None
    try:
        width = parse_digits(head[2], low=1, high=MAX_PIXELS)
        height = parse_digits(head[3], low=1, high=MAX_PIXELS)
    except ValueError:
        return None
    bands = 3 if head[1] == b"6" else 1
    if len(data) != head.end() + bands * width * height:
        return None  # Pillow says what is wrong with it
    return np.frombuffer(data, np.uint8, offset=head.end()).reshape(height, width, bands).copy()


def upright_size(image: Image.Image, name: str) -> tuple[int, int]:
    """Return (H, W) of an opened image once it is rotated as its EXIF data says. Raises BadImage."""
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


def contents(image: object, name: str) -> tuple[Any, str]:
    """Return an image as a file's bytes, an image of Pillow or an array, channels last, and its name. Raises
    InputError: it is none of what an image may be, or there is no such file."""
    if isinstance(image, Stored):
        return image.source, name or image.name
    if isinstance(image, str | Path):
        try:
            return read_regular(image), name or str(image)
        except FileNotFoundError:
            raise InputError(f"there is no image {image}") from None
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read the image {image}: {error}") from None
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image), name or "given as bytes"
    if isinstance(image, Image.Image | np.ndarray):
        return image, name
    if callable(read := getattr(image, "read", None)):
        content = read()  # from where it is on
        if not isinstance(content, bytes):
            raise InputError("the image file is open as text: open it in binary mode, as in open(path, 'rb')")
        return content, name or "given as bytes"
    if hasattr(image, "detach"):
        assert isinstance(image, torch.Tensor)
        if image.is_meta or image.layout != torch.strided:
            what = "on the meta device" if image.is_meta else f"of layout {image.layout}"
            raise InputError(f"a tensor {what} has no pixels to read: pass a dense one with values")
        image = image.detach().cpu()
        several = image.ndim == 3 and image.shape[0] <= MOST < image.shape[-1]
        if image.ndim == 3 and (image.shape[0] in (1, 3, 4) or several):
            image = image.permute(1, 2, 0)
        return (image.float() if image.dtype.is_floating_point else image).numpy(), name
    raise InputError(
        f"an object of type {type(image).__name__} is not an image: pass a PIL image, a path, a NumPy "
        "array or a tensor"
    )


def image_in_memory(image: object) -> ImageLike:
    """Return an image that is not a path as something that can be opened many times: what is open for reading
    is read. Raises InputError: it is not an image, or has no pixels."""
    if isinstance(image, str | Path):
        return image
    content, _ = contents(image, "")
    if isinstance(content, bytes):
        try:
            stored(content)
        except BadImage as bad:
            raise InputError(f"cannot read the image {bad.name}: {bad.reason}") from None
    elif isinstance(content, np.ndarray):
        of_array(content, About("", 3, None))
    elif isinstance(content, Image.Image) and not (content.width and content.height):
        raise InputError(
            f"an image of {content.width}x{content.height} pixels is empty: pass one with pixels"
        )
    found: ImageLike = content
    return found


def is_image(value: object) -> TypeGuard[ImageLike]:
    """Return whether this is of a type that one image may have."""
    kinds = Stored | Image.Image | str | Path | np.ndarray | bytes | bytearray | memoryview
    return isinstance(value, kinds) or hasattr(value, "detach") or hasattr(value, "read")


def stored(
    image: object,
    name: str = "",
    channels: int = 3,
    value_range: Range | None = None,
    *,
    most_pixels: int = MAX_PIXELS,
    allow: Allow | None = None,
) -> Stored:
    """Return one image, its kind and the meaning of its numbers decided; its pixels are decoded later.

    Args:
        image: the path of a file, its bytes, or it open for reading; an image of Pillow; an array (H, W) or
            (H, W, bands), or a tensor, also (bands, H, W); or what this has returned. An array of four bands
            of bytes, or of 0 ... 1, is a color image with transparency, unless four channels are wanted.
        name: what the user calls it.
        channels: those that are wanted: 1 gray, 3 color; otherwise as many bands.
        value_range: what becomes 0 and 255 of images of more than 8 bits; see `Preprocessing`.
        most_pixels: of an image of bands; a larger one is refused before its values are decoded.
        allow: is called with (H, W), as stored, and the format as Pillow calls it, before any pixel is
            decoded, and raises BadImage where that would cost too much.

    Raises:
        BadImage: it cannot be opened.
        InputError: it is nothing that an image may be.
    """
    if isinstance(image, Stored):
        value_range = value_range or image.value_range
    content, name = contents(image, name)
    about = About(name, channels, value_range)
    found = of_content(content, about, most_pixels, allow)
    found.source = content
    return found


def of_content(content: Any, about: About, most_pixels: int, allow: Allow | None) -> Stored:
    """Return the image that a file's bytes, an image of Pillow or an array is. Raises as `stored`."""
    if isinstance(content, np.ndarray):
        return of_array(content, about)
    if isinstance(content, Image.Image):
        return of_pillow(content, about)
    raw = pixmap(content)
    if raw is not None and raw.shape[2] == about.channels:
        return Pixmap(raw, about)
    size = plain_size(content, about.channels)
    if size is not None:
        if allow is not None:
            allow((size[0], size[1]), "JPEG")
        return Jpeg(content, size, about)
    try:
        values = read_bands(content, most_pixels)
    except Exception as error:  # as in open_image
        raise BadImage(about.name, decoding_error(error)) from error
    if values is not None:
        if allow is not None:
            allow((values.shape[0], values.shape[1]), None)
        return Bands(values, about)
    image = open_image(content, about.name)
    # The readers of some formats decode all pixels to find the orientation, so the size is checked before.
    if allow is not None:
        allow((image.height, image.width), image.format)
    return of_pillow(image, about, content)


def read_bands(data: bytes, most_pixels: int = MAX_PIXELS) -> np.ndarray | None:
    """Return the values (H, W, bands) of a file that Pillow does not keep whole; None for others. One of more
    than `most_pixels` is refused before they are decoded.

    Raises:
        ValueError: the file is damaged, holds several images or too many bands; a sentence.
        OSError: what reads it is not installed; a sentence.
    """
    values: np.ndarray | None = None
    if data.startswith(NPY):
        values = read_npy(data)
    elif data.startswith(TIFF):
        values = read_tiff(data, most_pixels) if is_of_bands(data) else None
    elif data.startswith(PNG) and data[COLOR_TYPE - 1 : COLOR_TYPE + 1] == DEEP_COLORS:
        values = read_deep_png(data, most_pixels) if is_installed("imagecodecs") else None
    elif data[128:132] == b"DICM":
        values = read_dicom(data, most_pixels)
    return None if values is None else checked_bands(values)


def of_pillow(image: Image.Image, about: About, data: bytes | None = None) -> Stored:
    """Return an image of Pillow, opened or decoded. data: the file's bytes. Raises BadImage."""
    check_not_empty(image, about.name)
    deep = image.mode.startswith("I") or image.mode == "F"
    return DeepGray(image, about) if deep else PillowImage(image, about, data)


def of_array(values: np.ndarray, about: About) -> Stored:
    """Return an image of an array in memory. Raises InputError: it is not one."""
    bands = values.shape[2] if values.ndim == 3 else 1
    if values.ndim not in (2, 3) or 0 in values.shape or bands > MOST:
        first = values.ndim == 3 and values.shape[0] in (1, 3, 4)
        hint = ": its channels come first; pass image.transpose(1, 2, 0)" if first else ""
        raise InputError(
            f"an image of shape {tuple(values.shape)} is not (H, W), or (H, W, C) with 1, 3 or 4 channels"
            f"{hint}"
        )
    if values.dtype.kind not in "buif":
        raise InputError(f"an image of {values.dtype} is neither uint8 nor floating-point in 0 ... 1")
    if values.dtype.kind == "b":
        values = values.astype(np.uint8) * 255
    unit = values.dtype.kind == "f" and values.min() >= 0 and values.max() <= 1
    transparent = bands == 4 and about.channels != 4 and (values.dtype == np.uint8 or unit)
    if transparent and unit:
        values = np.rint(values * 255).astype(np.uint8)
    if values.dtype == np.uint8 and (bands in (1, 3) or transparent):
        gray = values[..., 0] if bands == 1 and values.ndim == 3 else values
        return PillowImage(Image.fromarray(np.ascontiguousarray(gray)), about, None)
    return Bands(values if values.ndim == 3 else values[..., None], about, in_memory=True)


class About(NamedTuple):
    """What an image is called, and what is wanted of it: see `stored`."""

    name: str
    channels: int
    value_range: Range | None


class Stored:
    """One image, decoded when its pixels are asked for: the header tells the rest before.

    name: what the user calls it. size: (H, W), upright. bands: how many it has: 1 of gray, 3 of color, also
    where it is transparent. damage: what is wrong with it all the same, known when its pixels are decoded.
    lost: what the channels and the range that are wanted do not hold, "colors" or "range", known then, too.
    source: what it was opened from, a file's bytes, an image of Pillow or an array.
    """

    damage: str | None = None
    lost: str | None = None
    source: Any = None

    def __init__(self, about: About, size: tuple[int, int], bands: int) -> None:
        self.name, self.channels, self.value_range = about
        self.size, self.bands = size, bands
        if (bands, self.channels) == (3, 1):
            self.lost = "colors"

    @property
    def is_rgba_array(self) -> bool:
        """Whether it was an array in memory whose fourth band is taken for transparency."""
        source = self.source
        return isinstance(source, np.ndarray) and source.shape[2:] == (4,) and self.bands == 3

    def array(self) -> UInt8[np.ndarray, "H W channels"]:
        """Return all upright pixels, as bytes. Raises BadImage."""
        raise NotImplementedError

    def values(self) -> np.ndarray | None:
        """Return the values (H, W, bands) of an image of more than 8 bits, or of bands; None for others.
        Raises BadImage."""
        return None

    def exif(self) -> Image.Exif:
        """Return its EXIF data, empty where it has none."""
        return Image.Exif()

    def pixels(self, *, until: int | None = None) -> UInt8[torch.Tensor, "channels H W"]:
        """Return all upright pixels; below row `until` there may be anything. Raises BadImage."""
        return channels_first(self.array())

    def rough(
        self, at_least: tuple[int, int], *, until: int | None = None
    ) -> UInt8[torch.Tensor, "channels h w"]:
        """Return upright pixels for training, perhaps smaller where that is faster, but not below `at_least`
        (H, W). `until` as for `pixels`. Raises BadImage."""
        return self.pixels(until=until)

    def shrunk(self, side: int) -> UInt8[torch.Tensor, "channels h w"]:
        """Return the whole image with its shorter side at `side` pixels, or as it is if that is smaller."""
        height, width = self.size
        scale = side / min(height, width)
        if scale >= 1:
            return self.pixels()
        size = (max(round(height * scale), 1), max(round(width * scale), 1))
        pixels = self.rough(size)
        return torch.nn.functional.interpolate(pixels[None], size=size, mode="bicubic", antialias=True)[0]

    def preview(self) -> Image.Image:
        """Return the whole image to be looked at, upright: gray if it is gray, else RGB; of bands the first
        three, or the first of two. Raises BadImage."""
        return stored(self, self.name, 1 if self.bands == 1 else 3, self.value_range).upright()

    def check(self) -> None:
        """Decode the pixels. Raises BadImage."""
        self.preview()

    def upright(self) -> Image.Image:
        """Return the whole image, upright, in gray or RGB. Raises BadImage; InputError: neither one channel
        nor three are wanted."""
        if self.channels not in (1, 3):
            raise InputError(
                f"images are loaded as gray or RGB, but the model takes {self.channels} channels: pass the "
                f"model a tensor (B, {self.channels}, H, W), normalized as in its preprocessing"
            )
        pixels = self.array()
        return Image.fromarray(pixels[..., 0] if self.channels == 1 else pixels)

    def planes(self) -> list[Image.Image]:
        """Return the upright image in gray or RGB; of other numbers of channels each of them, as gray. Raises
        BadImage."""
        if self.channels in (1, 3):
            return [self.upright()]
        return [Image.fromarray(np.ascontiguousarray(band)) for band in np.moveaxis(self.array(), 2, 0)]


def channels_first(pixels: UInt8[np.ndarray, "H W c"]) -> UInt8[torch.Tensor, "c H W"]:
    """Return pixels as a tensor, channels last in memory as they are."""
    return torch.from_numpy(pixels).permute(2, 0, 1)


class Pixmap(Stored):
    """Pixels as they are, gray or RGB."""

    def __init__(self, pixels: UInt8[np.ndarray, "H W bands"], about: About) -> None:
        super().__init__(about, (pixels.shape[0], pixels.shape[1]), pixels.shape[2])
        self.raw = pixels

    def array(self) -> UInt8[np.ndarray, "H W channels"]:
        return self.raw


class PillowImage(Stored):
    """What Pillow reads, of 8 bits. data: the file's bytes, where it has been a file."""

    def __init__(self, image: Image.Image, about: About, data: bytes | None) -> None:
        size = upright_size(image, about.name)
        super().__init__(about, size, 1 if is_gray(image.mode) else 3)
        self.image, self.data = image, data

    def exif(self) -> Image.Exif:
        return self.image.getexif()

    def array(self) -> UInt8[np.ndarray, "H W channels"]:
        return np.array(self.upright()).reshape(*self.size, -1)

    def upright(self) -> Image.Image:
        if self.channels not in (1, 3):
            check_bands(self.bands, self.channels, self.name)
        try:
            return displayed_image(self.image, self.channels)
        except Exception as error:  # as in open_image
            endless = self.image.format in ("JPEG", "MPO") and "truncated" in str(error)
            if self.data is None or not endless:
                raise BadImage(self.name, decoding_error(error)) from error
        # Pillow decodes a JPEG without an end when it gets one; what is missing is gray
        self.damage = ENDS_TOO_EARLY
        return displayed_image(
            load_pixels(open_image(self.data + JPEG_END, self.name), self.name), self.channels
        )


class Jpeg(Stored):
    """A JPEG of which libjpeg-turbo gives what Pillow would, sooner. Where it does not, Pillow has to: it
    reads some files that this is too strict for, and says what is wrong with the others."""

    def __init__(self, data: bytes, size: tuple[int, int, int], about: About) -> None:
        height, width, bands = size
        super().__init__(about, (height, width), bands)
        self.data = data

    @cached_property
    def by_pillow(self) -> PillowImage:
        """The same image."""
        about = About(self.name, self.channels, self.value_range)
        return PillowImage(open_image(self.data, self.name), about, self.data)

    def array(self) -> UInt8[np.ndarray, "H W channels"]:
        return self.decoded(1, self.size[0])

    def pixels(self, *, until: int | None = None) -> UInt8[torch.Tensor, "channels H W"]:
        return channels_first(self.decoded(1, until or self.size[0]))

    def rough(
        self, at_least: tuple[int, int], *, until: int | None = None
    ) -> UInt8[torch.Tensor, "channels h w"]:
        """Decode with the faster cosine transform and enlargement of color, and at 1/2, 1/4 or 1/8 of its
        size where that is not below `at_least`, since libjpeg leaves out coefficients then. (Its other
        fractions are slower than the whole.)"""
        (height, width), (tall, wide) = self.size, at_least
        part = 1
        for divisor in (2, 4, 8):
            if height >= divisor * tall and width >= divisor * wide:
                part = divisor
        return channels_first(self.decoded(part, until or height, fastdct=True, fastupsample=True))

    def decoded(self, part: int, until: int, **how: int) -> UInt8[np.ndarray, "h w channels"]:
        """Return a `part`-th of the image, down to row `until`; all of it by Pillow where that has to be.
        Raises BadImage."""
        height, width = self.size
        row = -(-(until + BORDER * part) // BLOCK) * BLOCK
        early = truncated_jpeg(self.data, row) if row < height else None
        colors = "GRAY" if self.channels == 1 else "RGB"
        whole = np.empty((-(-height // part), -(-width // part), 1 if colors == "GRAY" else 3), np.uint8)
        # simplejpeg takes the largest reduction that leaves so many pixels.
        if part > 1:
            how |= {"min_height": -(-(row if early else height) // part), "min_width": whole.shape[1]}
        try:
            simplejpeg.decode_jpeg(early or self.data, colors, buffer=whole, strict=early is None, **how)
        except Exception:  # Pillow says what is wrong with it
            pixels = self.by_pillow.array()
            self.damage = self.by_pillow.damage
            return pixels
        return whole


class Bands(Stored):
    """Values (H, W, bands), in the unit in which they are shown, bright is much.

    in_memory: they were not read from a file. Floating-point numbers outside 0 ... 1 of which no range is
    known are refused then: nearly always they are bytes that have changed their type.
    """

    def __init__(self, values: np.ndarray, about: About, *, in_memory: bool = False) -> None:
        super().__init__(about, (values.shape[0], values.shape[1]), values.shape[2])
        self.stored_values, self.in_memory = values, in_memory

    def values(self) -> np.ndarray:
        return self.stored_values

    def array(self) -> UInt8[np.ndarray, "H W channels"]:
        values, bands = self.values(), self.bands
        check_bands(bands, self.channels, self.name)
        known = self.value_range
        if known and len(known) not in (1, bands):
            known = None
        try:
            if self.in_memory and known is None and values.dtype.kind == "f":
                if not np.isfinite(values).all():
                    raise ValueError(NOT_NUMBERS)
                if values.min() < 0 or values.max() > 1:
                    raise ValueError(
                        f"a floating-point image must have values in 0 ... 1, but this one has "
                        f"{values.min():g} ... {values.max():g}: scale it, or pass bytes (uint8)"
                    )
            pixels = to_bytes(values, known)
        except ValueError as error:
            raise BadImage(self.name, str(error)) from None
        if known and values.dtype != np.uint8 and share_beyond(values, known) > FEW_BEYOND:
            self.lost = "range"
        if bands == self.channels:
            return np.ascontiguousarray(pixels)
        if self.channels == 3:
            return np.repeat(pixels, 3, axis=2)
        return np.array(Image.fromarray(np.ascontiguousarray(pixels)).convert("L"))[..., None]

    def preview(self) -> Image.Image:
        count = 3 if self.bands >= 3 else 1
        known = self.value_range
        known = known[:count] if known and len(known) > 1 else known
        return Bands(self.values()[..., :count], About(self.name, count, known)).upright()


class DeepGray(Bands):
    """Gray of more than 8 bits that Pillow reads: its values are decoded when they are asked for."""

    def __init__(self, image: Image.Image, about: About) -> None:
        Stored.__init__(self, about, upright_size(image, about.name), 1)
        self.image, self.in_memory = image, False

    def exif(self) -> Image.Exif:
        return self.image.getexif()

    @cached_property
    def stored_values(self) -> np.ndarray:  # type: ignore[override]
        image = load_pixels(self.image, self.name)
        values = np.asarray(image)
        if isinstance(image, TiffImageFile):
            tags = image.tag_v2
            if image.mode == "I" and tags.get(BITS) == (32,) and tags.get(FORMAT) != (SIGNED,):
                values = values.view(np.uint32)
            values = positive_tiff(values, tags)
        elif image.mode == "I" and image.format is not None:  # formats that store 16 bits, without a sign
            values = values.astype(np.uint16)
        if values.dtype == np.int32 and values.min() >= 0:
            values = values.astype(np.uint32)
        # a TIFF is turned by Pillow itself
        orientation = 1 if image.format == "TIFF" else int(image.getexif().get(ORIENTATION, 1))
        return upright_values(values, orientation)[..., None]

    def array(self) -> UInt8[np.ndarray, "H W channels"]:
        pixels = super().array()
        blank = self.image.info.get("transparency")
        if isinstance(blank, int):
            pixels[self.values()[..., 0] == blank] = 255
        return pixels


def check_bands(bands: int, channels: int, name: str) -> None:
    """Raise BadImage where an image of so many bands cannot become one of so many channels: only gray and
    color become each other."""
    if bands != channels and not (bands in (1, 3) and channels in (1, 3)):
        raise BadImage(
            name, f"an image has {bands} bands, and the model takes {channels}: give it such images"
        )


def upright(image: ImageLike, channels: int = 3, value_range: Range | None = None) -> Image.Image:
    """Return any image as 8-bit RGB (or gray, for one channel), with its EXIF orientation applied: as
    `stored` understands it. Raises InputError: neither one channel nor three, or its pixels cannot be read.
    """
    try:
        return stored(image, "", channels, value_range).upright()
    except BadImage as bad:
        raise InputError(f"an image cannot be used: {bad.reason}") from None


def displayed_image(image: Image.Image, channels: int) -> Image.Image:
    """Return an image of 8 bits, upright, in sRGB or gray: its color profile applied, transparency composited
    on white, palettes, CMYK and YCbCr converted."""
    image = as_srgb(ImageOps.exif_transpose(image))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    image = image.convert("L" if channels == 1 else "RGB")
    # EXIF data would be read again, and may be damaged.
    image.info.clear()
    return image


def as_srgb(image: Image.Image) -> Image.Image:
    """Return a color image whose profile is another than sRGB (Display P3 of phones, Adobe RGB of cameras,
    the inks of a printer) in sRGB; any other, and one whose profile is damaged, as it is."""
    profile = image.info.get("icc_profile")
    if not isinstance(profile, bytes) or image.mode not in ("RGB", "RGBA", "P", "CMYK"):
        return image
    colors = image
    if image.mode == "P":
        colors = image.convert("RGBA" if "transparency" in image.info else "RGB")
    transform = to_srgb(profile, colors.mode)
    if transform is None:
        return image
    return transform.apply(colors)


@lru_cache(maxsize=64)  # most images of a dataset have one of a few
def to_srgb(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return what converts colors of a profile to sRGB; None where that leaves every color within two levels
    as it is, or the profile cannot be used."""
    target = "RGBA" if mode == "RGBA" else "RGB"
    try:
        found = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        transform = ImageCms.buildTransform(found, ImageCms.createProfile("sRGB"), mode, target)
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return None
    if mode == "CMYK":
        return transform
    grid = np.stack(np.meshgrid(*[np.arange(0, 256, 15, dtype=np.uint8)] * 3), axis=-1).reshape(1, -1, 3)
    colors = Image.fromarray(grid).convert(mode)
    changed = np.asarray(transform.apply(colors).convert("RGB")).astype(int)
    return None if np.abs(changed - grid).max() <= SAME_COLOR else transform
