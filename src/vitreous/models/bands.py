"""Images that Pillow does not keep whole: colors of more than eight bits, two bands or five and more, NumPy
files, DICOM. They are arrays (H, W, bands) of the values that the file stores, up to sixteen bands.

tifffile reads TIFF, imagecodecs PNG of 16-bit colors, pydicom DICOM (the extra "science"); what eight bits
hold in one, three or four bands, and gray of sixteen bits, is left to Pillow.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

import numpy as np
from PIL import Image
from PIL.TiffImagePlugin import TiffImageFile

from vitreous.errors import is_installed

MOST = 16  # bands
NPY, PNG = b"\x93NUMPY", b"\x89PNG\r\n\x1a\n"
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
INSTALL = "pip install 'vitreous[science]'"
SAMPLES, BITS, EXTRA, COLORS = 277, 258, 338, 262  # tags of TIFF
ALPHA = (1, 2)  # values of the tag ExtraSamples
MOST_PIXELS = 178_956_970
Range = Sequence[tuple[float, float]]  # (low, high) of all bands together, or of each


def read_bands(data: bytes) -> np.ndarray | None:
    """Return the values (H, W, bands) of a file that Pillow does not keep whole; None for others.

    Raises:
        ValueError: the file is damaged, holds several images or too many bands; a sentence.
        OSError: what reads it is not installed; a sentence.
    """
    if data.startswith(NPY):
        return checked(read_npy(data))
    if data.startswith(TIFF):
        return checked(read_tiff(data)) if is_of_bands(data) else None
    if (
        data.startswith(PNG)
        and len(data) > 26
        and data[24] == 16
        and data[25] == 2
        and is_installed("imagecodecs")
    ):
        import imagecodecs

        size = (int.from_bytes(data[16:20]), int.from_bytes(data[20:24]))
        check_size(size)
        return checked(imagecodecs.png_decode(data))
    if data[128:132] == b"DICM":
        return checked(read_dicom(data))
    return None


def check_size(shape: Sequence[int]) -> None:
    if math.prod(shape) > MOST * MOST_PIXELS:
        raise ValueError(f"{' x '.join(map(str, shape))} values, more than an image can have")


def checked(values: np.ndarray) -> np.ndarray:
    """Return an array as (H, W, bands) of numbers. Raises ValueError: it is not an image."""
    if values.dtype.kind not in "buif":
        raise ValueError(f"it holds {values.dtype}, not numbers of pixels")
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
        raise ValueError("its size is not that of the array that its header describes")
    values = np.frombuffer(data, dtype, offset=file.tell())
    return values.reshape(shape, order="F" if columns_first else "C")


def is_of_bands(data: bytes) -> bool:
    """Return whether Pillow would drop bands or bits of a TIFF file."""
    try:
        with Image.open(io.BytesIO(data), formats=("TIFF",)) as image:
            assert isinstance(image, TiffImageFile)
            tags = image.tag_v2
    except Exception:  # damaged, or of a kind that Pillow does not know, such as five bands of 16 bits
        return is_installed("tifffile")
    samples = int(tags.get(SAMPLES, 1))
    bits = tags.get(BITS, (1,))
    extra = tags.get(EXTRA, ())
    extra = extra if isinstance(extra, tuple) else (extra,)
    transparent = bool(extra) and extra[0] in ALPHA
    if samples == 1 or tags.get(COLORS) == 5:  # gray, a palette; inks
        return False
    return max(bits) > 8 or not (samples == 3 or (samples in (2, 4) and transparent))


def read_tiff(data: bytes) -> np.ndarray:
    """Return the bands of the first page of a TIFF file."""
    if not is_installed("tifffile"):
        raise OSError(f"an image of several bands or of colors of more than 8 bits: {INSTALL}")
    import tifffile

    with tifffile.TiffFile(io.BytesIO(data)) as file:
        series = file.series[0] if file.series else None
        page = file.pages[0]
        check_size(page.shape)
        if (
            series is not None
            and series.axes in ("SYX", "CYX", "YXS", "YXC", "IYX")
            and len(series.shape) == 3
        ):
            check_size(series.shape)
            if series.shape[series.axes.index("Y") - 1 if series.axes[0] != "Y" else 2] <= MOST:
                values: np.ndarray = series.asarray()
                return np.moveaxis(values, 0, 2) if series.axes[0] != "Y" else values
        values = page.asarray()
    planar = values.ndim == 3 and "S" in page.axes and page.axes.index("S") == 0
    return np.moveaxis(values, 0, 2) if planar else values


def read_dicom(data: bytes) -> np.ndarray:
    """Return the pixels of a DICOM file in the unit that it says (as Hounsfield's), bright where they are
    shown bright. Raises ValueError: it has several frames or none."""
    if not is_installed("pydicom"):
        raise OSError(f"a DICOM image: {INSTALL}")
    import pydicom
    from pydicom.pixels.processing import apply_modality_lut

    found = pydicom.dcmread(io.BytesIO(data))
    if int(found.get("NumberOfFrames") or 1) > 1:
        raise ValueError(f"it has {found.NumberOfFrames} frames: write each as an image of its own")
    check_size((int(found.get("Rows") or 0), int(found.get("Columns") or 0)))
    values: np.ndarray = found.pixel_array
    if values.ndim == 3:
        return values
    values = apply_modality_lut(values, found)
    if found.get("PhotometricInterpretation") == "MONOCHROME1":
        values = values.max() + values.min() - values
    return values.astype(np.float32) if values.dtype == np.float64 else values


def to_bytes(values: np.ndarray, value_range: Range | None) -> np.ndarray:
    """Return values (H, W) or (..., bands) as bytes: (low, high) of a range becomes 0 ... 255. Bytes are
    scaled only where each band has a range. Raises ValueError: not all of them are numbers."""
    if values.dtype == np.uint8 and (value_range is None or len(value_range) == 1):
        return values
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("its pixels are not all numbers (NaN or infinite)")
    known = value_range
    if not known and values.dtype.kind == "u":  # that of its type
        known = ((0.0, float(np.iinfo(values.dtype).max)),)
    elif not known:  # its own beside 0 ... 1
        known = ((float(min(values.min(), 0)), float(max(values.max(), 1))),)
    ranges = np.array(known, dtype=np.float64)
    if len(ranges) not in (1, values.shape[-1]):
        raise ValueError(f"it has {values.shape[-1]} bands, and {len(ranges)} ranges are known")
    low, high = ranges[:, 0], ranges[:, 1]
    scaled = (values.astype(np.float32) - low.astype(np.float32)) * (255 / np.maximum(high - low, 1e-12))
    bytes_: np.ndarray = np.rint(scaled).clip(0, 255).astype(np.uint8)
    return bytes_


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
