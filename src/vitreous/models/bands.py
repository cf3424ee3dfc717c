"""Images that Pillow does not keep whole: colors of more than eight bits, two bands or five and more, NumPy
files, DICOM. They are arrays (H, W, bands), up to sixteen bands, of the values that the file stores, upright
and in the unit in which they are shown: bright is much, whatever the file counts from.

tifffile reads TIFF, imagecodecs PNG of 16-bit colors, pydicom DICOM (the extra "science"); what eight bits
hold in one, three or four bands, and gray of sixteen bits, is left to Pillow.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image
from PIL.TiffImagePlugin import TiffImageFile

from vitreous.errors import is_installed

MOST = 16  # bands
NPY, PNG = b"\x93NUMPY", b"\x89PNG\r\n\x1a\n"
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
INSTALL = "pip install 'vitreous[science]'"
SAMPLES, BITS, EXTRA, COLORS, ORIENTATION = 277, 258, 338, 262, 274  # tags of TIFF
LEAST, MOST_VALUE = 340, 341  # SMinSampleValue, SMaxSampleValue
ALPHA = (1, 2)  # values of the tag ExtraSamples: associated (colors are multiplied by it), and not
WHITE_IS_ZERO = 0  # a value of the tag PhotometricInterpretation
NOT_NUMBERS = "its pixels are not all numbers (NaN or infinite)"
Range = Sequence[tuple[float, float]]  # (low, high) of all bands together, or of each


def check_size(shape: Sequence[int], most_pixels: int) -> None:
    if math.prod(shape) > MOST * most_pixels:
        raise ValueError(f"{' x '.join(map(str, shape))} values, more than an image can have")


def checked_bands(values: np.ndarray) -> np.ndarray:
    """Return an array as (H, W, bands) of numbers. Raises ValueError: it is not an image."""
    if values.dtype.kind not in "buif":
        raise ValueError(f"it holds {values.dtype}, not pixel values")
    if values.ndim == 3 and values.shape[2] > MOST >= values.shape[0]:
        values = np.moveaxis(values, 0, 2)  # channels first
    if values.ndim == 2:
        values = values[..., None]
    if values.ndim != 3 or 0 in values.shape or values.shape[2] > MOST:
        raise ValueError(
            f"it has the shape {values.shape}: an image is (H, W) or (H, W, bands), {MOST} at most"
        )
    return values.astype(np.uint8) * 255 if values.dtype.kind == "b" else values


def read_npy(data: bytes) -> np.ndarray:
    """Return the array of an .npy file, which holds all of it. Raises ValueError."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        header = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, columns_first, dtype = header(file)
    except (ValueError, SyntaxError, RecursionError, MemoryError, OverflowError, TypeError):
        raise ValueError("it is not a NumPy file, or its header is damaged") from None
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError("its size does not match the array that its header describes")
    values = np.frombuffer(data, dtype, offset=file.tell())
    return values.reshape(shape, order="F" if columns_first else "C")


def is_of_bands(data: bytes) -> bool:
    """Return whether Pillow would drop bands or bits of a TIFF file, or shows it as a negative."""
    try:
        with Image.open(io.BytesIO(data), formats=("TIFF",)) as image:
            assert isinstance(image, TiffImageFile)
            tags = image.tag_v2
    except Exception:
        # The file may be damaged, or of a kind that Pillow does not know, such as five bands of 16 bits.
        return is_installed("tifffile")
    samples = int(tags.get(SAMPLES, 1))
    bits = tags.get(BITS, (1,))
    extra = tags.get(EXTRA, ())
    extra = extra if isinstance(extra, tuple) else (extra,)
    transparent = bool(extra) and extra[0] in ALPHA
    if samples == 1 or tags.get(COLORS) == 5:  # gray, a palette; inks
        return False
    return max(bits) > 8 or not (samples == 3 or (samples in (2, 4) and transparent))


def read_tiff(data: bytes, most_pixels: int) -> np.ndarray:
    """Return the bands of the first page of a TIFF file."""
    if not is_installed("tifffile"):
        raise OSError(f"an image of several bands or of more than 8 bits: {INSTALL}")
    import tifffile

    with tifffile.TiffFile(io.BytesIO(data)) as file:
        series = file.series[0] if file.series else None
        page = file.pages[0]
        check_size(page.shape, most_pixels)
        read: Any = page
        if series is not None and series.axes in ("SYX", "CYX", "YXS", "YXC", "IYX") and series.ndim == 3:
            check_size(series.shape, most_pixels)
            bands_of_series = series.shape[0 if series.axes[0] != "Y" else 2]
            read = series if bands_of_series <= MOST else page
        values: np.ndarray = read.asarray()
        assert isinstance(page, tifffile.TiffPage)  # the first one of a file
        tags = {tag.code: tag.value for tag in page.tags}
        extra = tuple(int(each) for each in page.extrasamples)
        planes = values.ndim == 3 and read.axes[0] in "SCI"
    if planes:
        values = np.moveaxis(values, 0, 2)
    if values.ndim == 2:
        values = positive_tiff(values, tags)
    elif values.ndim == 3 and values.shape[2] in (2, 4) and extra[:1] and extra[0] in ALPHA:
        values = on_white(values, associated=extra[0] == ALPHA[0])
    return upright_values(values, int(tags.get(ORIENTATION, 1)))


def read_deep_png(data: bytes, most_pixels: int) -> np.ndarray:
    """Return the pixels of a PNG of 16-bit colors, which imagecodecs reads."""
    import imagecodecs

    check_size((int.from_bytes(data[16:20]), int.from_bytes(data[20:24])), most_pixels)
    values: np.ndarray = imagecodecs.png_decode(data)
    return values


def positive_tiff(values: np.ndarray, tags: Mapping[int, Any]) -> np.ndarray:
    """Return the gray values of a TIFF so that bright is much: where white is zero, complemented within what
    its bits can store; floating-point numbers within the range that its tags say, or 0 ... 1."""
    bits = tags.get(BITS, 8 * values.dtype.itemsize)
    bits = int(bits[0] if isinstance(bits, tuple) else bits)
    values, bits = of_a_byte(values, bits)
    if tags.get(COLORS) != WHITE_IS_ZERO:
        return values
    if values.dtype.kind == "f":
        low, high = (tags.get(tag, other) for tag, other in ((LEAST, 0.0), (MOST_VALUE, 1.0)))
        low, high = (float(each[0] if isinstance(each, tuple) else each) for each in (low, high))
        return (low + high - values).astype(values.dtype)
    return complement(values, bits)


def of_a_byte(values: np.ndarray, bits: int) -> tuple[np.ndarray, int]:
    """Return numbers of fewer than eight bits as if they had eight, whose largest is 255; others as they are;
    and their bits."""
    if bits < 8 and values.dtype == np.uint8:
        return np.rint(values * (255 / (2**bits - 1))).astype(np.uint8), 8
    return values, bits


def complement(values: np.ndarray, bits: int) -> np.ndarray:
    """Return whole numbers of so many bits, low for high, within what these bits can store."""
    if values.dtype.kind == "i":
        # This is -1 - x, since the range is -2^(bits - 1) ... 2^(bits - 1) - 1.
        return np.invert(values)
    most = values.dtype.type(2**bits - 1)
    return np.where(values > most, values.dtype.type(0), most - values)


def on_white(values: np.ndarray, *, associated: bool) -> np.ndarray:
    """Return colors, or gray, of a file whose last band is how opaque they are, on white."""
    most = 1.0 if values.dtype.kind == "f" else float(np.iinfo(values.dtype).max)
    colors, opaque = values[..., :-1].astype(np.float64), values[..., -1:] / most
    shown = (colors if associated else colors * opaque) + most * (1 - opaque)
    found: np.ndarray = shown.clip(0, most)
    return (found if values.dtype.kind == "f" else np.rint(found)).astype(values.dtype)


def upright_values(values: np.ndarray, orientation: int) -> np.ndarray:
    """Return an image (H, W, ...) turned as the value of an EXIF orientation says."""
    if orientation in (5, 6, 7, 8):
        values = np.swapaxes(values, 0, 1)
    if orientation in (3, 4, 7, 8):
        values = values[::-1]
    if orientation in (2, 3, 6, 7):
        values = values[:, ::-1]
    return values


def read_dicom(data: bytes, most_pixels: int) -> np.ndarray:
    """Return the pixels of a DICOM file in the unit that it says (as Hounsfield's), bright where they are
    shown bright; those of a palette, and of other color spaces, as colors. Raises ValueError: it has several
    frames or none."""
    if not is_installed("pydicom"):
        raise OSError(f"a DICOM image: {INSTALL}")
    import pydicom
    from pydicom.pixels.processing import apply_color_lut, apply_modality_lut

    found = pydicom.dcmread(io.BytesIO(data))
    if int(found.get("NumberOfFrames") or 1) > 1:
        raise ValueError(f"it has {found.NumberOfFrames} frames: save each as a separate image")
    check_size((int(found.get("Rows") or 0), int(found.get("Columns") or 0)), most_pixels)
    values: np.ndarray = found.pixel_array
    kind, bits = str(found.get("PhotometricInterpretation")), int(found.get("BitsStored") or 8)
    if kind == "PALETTE COLOR":
        colors: np.ndarray = apply_color_lut(values, found)
        return colors if colors.dtype == np.uint8 else np.rint(colors / 257).astype(np.uint8)
    if values.ndim == 3:
        return values
    values, bits = of_a_byte(values, bits)
    # A table that is not a straight line says what the stored numbers mean, and so comes first.
    table = found.get("ModalityLUTSequence")
    if table:
        values = apply_modality_lut(values, found)
        bits = int(table[0].LUTDescriptor[2])
    if kind == "MONOCHROME1":
        values = complement(values, bits)
    if not table:
        values = apply_modality_lut(values, found)
    return values.astype(np.float32) if values.dtype == np.float64 else values


def range_of_type(values: np.ndarray) -> tuple[float, float]:
    """Return what becomes 0 and 255 of values of which nothing else is known: of up to 16 bits without sign
    what their type can hold; of 32 bits or with a sign, if none is negative, as of 8 or 16 bits, whichever
    holds them; of others their own beside 0 ... 1."""
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind == "u" and values.dtype.itemsize <= 2:
        return 0.0, float(np.iinfo(values.dtype).max)
    if values.dtype.kind in "ui" and low >= 0:
        for bits in (8, 16):
            if high < 2**bits:
                return 0.0, 2.0**bits - 1
    return min(low, 0.0), max(high, 1.0)


def to_bytes(values: np.ndarray, value_range: Range | None) -> np.ndarray:
    """Return values (H, W) or (..., bands) as bytes: (low, high) of a range becomes 0 ... 255. Bytes are
    scaled only where each band has a range. Raises ValueError: not all of them are numbers."""
    if values.dtype == np.uint8 and (value_range is None or len(value_range) == 1):
        return values
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(NOT_NUMBERS)
    ranges = np.array(value_range or [range_of_type(values)], dtype=np.float64)
    if len(ranges) not in (1, values.shape[-1]):
        raise ValueError(f"it has {values.shape[-1]} bands, but {len(ranges)} value ranges are given")
    low, high = ranges[:, 0], ranges[:, 1]
    scaled = (values.astype(np.float32) - low.astype(np.float32)) * (255 / np.maximum(high - low, 1e-12))
    bytes_: np.ndarray = np.rint(scaled).clip(0, 255).astype(np.uint8)
    return bytes_


def share_beyond(values: np.ndarray, value_range: Range) -> float:
    """Return the share of values (H, W, bands) that a range cuts off, by a level of 8 bits or more."""
    low, high = np.array(value_range, dtype=np.float64).T
    level = (high - low) / 255
    return float(((values < low - level) | (values > high + level)).mean())


def measured_range(images: Sequence[np.ndarray]) -> tuple[tuple[float, float], ...] | None:
    """Return the range that images (n, bands) use, of each band, or one for a single band: of whole numbers
    from zero up to a full number of bits (10, 12, 16), of others from the least to the largest. None where
    all are bytes."""
    if all(each.dtype == np.uint8 for each in images):
        return None
    low = np.min([each.min(axis=0) for each in images], axis=0)
    high = np.max([each.max(axis=0) for each in images], axis=0)
    if all(each.dtype.kind == "u" for each in images):
        return tuple((0.0, 2.0 ** max(int(top).bit_length(), 1) - 1) for top in high.tolist())
    ranges: list[tuple[float, float]] = []
    for least, most in zip(low.tolist(), high.tolist(), strict=True):
        ranges.append((float(least), float(most) if most > least else float(least) + 1))
    return tuple(ranges)
