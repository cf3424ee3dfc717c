"""Files of every kind of image that is read, for tests: what is shown, and how it is stored.

`KINDS` has for each kind the ending of its files, and a function of (class, number) that returns the bytes of
one: noise, brighter to the right in class 1.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageCms

SIZE = 40, 52  # (H, W)
LARGE = 150, 210  # of the kinds whose names end with "large"


def shown(label: int, number: int, bands: int = 1, size: tuple[int, int] = SIZE) -> np.ndarray:
    """Return what an image shows, 0 ... 1, (H, W) or (H, W, bands)."""
    rng = np.random.default_rng(1000 * label + number)
    values = rng.uniform(0.1, 0.5, (*size, bands))
    values += 0.4 * label * np.linspace(0, 1, size[1])[None, :, None]
    values *= np.linspace(0.6, 1, size[0])[:, None, None]
    return values[..., 0] if bands == 1 else values


def eight_bits(values: np.ndarray) -> np.ndarray:
    return np.rint(values * 255).astype(np.uint8)


def whole_numbers(values: np.ndarray, most: int) -> np.ndarray:
    return np.rint(values * most).astype(np.uint16)


def by_pillow(pixels: np.ndarray | Image.Image, form: str, **how: Any) -> bytes:
    image = Image.fromarray(pixels) if isinstance(pixels, np.ndarray) else pixels
    file = io.BytesIO()
    image.save(file, form, **({"quality": 95} if form == "JPEG" else {}), **how)
    return file.getvalue()


def npy(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def tiff(values: np.ndarray, photometric: str = "minisblack", **how: Any) -> bytes:
    import tifffile

    planes = {"planarconfig": "contig"} if values.ndim == 3 else {}
    file = io.BytesIO()
    tifffile.imwrite(file, values, photometric=photometric, **planes, **how)
    return file.getvalue()


def dicom(
    values: np.ndarray,
    photometric: str = "MONOCHROME2",
    bits: int = 12,
    *,
    signed: bool = False,
    **fields: Any,
) -> bytes:
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID, meta.TransferSyntaxUID = generate_uid(), ExplicitVRLittleEndian
    found: Any = FileDataset("made", {}, file_meta=meta, preamble=b"\0" * 128)
    found.SOPClassUID, found.SOPInstanceUID = SecondaryCaptureImageStorage, meta.MediaStorageSOPInstanceUID
    found.Rows, found.Columns = values.shape[:2]
    found.SamplesPerPixel = values.shape[2] if values.ndim == 3 else 1
    if values.ndim == 3:
        found.PlanarConfiguration = 0
    found.PhotometricInterpretation = photometric
    found.BitsAllocated = 8 * values.itemsize
    found.BitsStored, found.HighBit, found.PixelRepresentation = bits, bits - 1, int(signed)
    found.PixelData = values.tobytes()
    for name, value in fields.items():
        setattr(found, name, value)
    file = io.BytesIO()
    found.save_as(file, enforce_file_format=True)
    return file.getvalue()


def palette_of_dicom(colors: np.ndarray, bits: int = 8) -> dict[str, Any]:
    """Return the fields of a palette, (entries, 3) bytes."""
    fields: dict[str, Any] = {}
    for place, color in enumerate(("Red", "Green", "Blue")):
        entries = (colors[:, place].astype(np.uint16) * (257 if bits == 16 else 1)).astype(
            "<u2" if bits == 16 else "u1"
        )
        fields[f"{color}PaletteColorLookupTableDescriptor"] = [len(colors), 0, bits]
        fields[f"{color}PaletteColorLookupTableData"] = entries.tobytes()
    return fields


def linear_profile() -> bytes:
    """Return a profile of sRGB's primaries whose values are linear in light: no tables are needed for it."""
    return changed_profile(dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), b"curv" + bytes(8)))


def display_p3() -> bytes:
    """Return a profile of Display P3's primaries, adapted to D50, with the curve of sRGB."""

    def xyz(*numbers: float) -> bytes:
        return b"XYZ " + bytes(4) + b"".join(round(65536 * each).to_bytes(4, signed=True) for each in numbers)

    return changed_profile(
        {
            b"rXYZ": xyz(0.51512, 0.2412, -0.00105),
            b"gXYZ": xyz(0.29198, 0.69225, 0.04189),
            b"bXYZ": xyz(0.1571, 0.06657, 0.78407),
        }
    )


def changed_profile(tags: dict[bytes, bytes]) -> bytes:
    """Return the profile of sRGB with other contents of some tags."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    for row in range(int.from_bytes(profile[128:132])):
        entry = 132 + 12 * row
        content = tags.get(bytes(profile[entry : entry + 4]))
        if content is not None:
            place = int.from_bytes(profile[entry + 4 : entry + 8])
            profile[place : place + len(content)] = content
    return bytes(profile)


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def computed_tomography(label: int, number: int) -> bytes:
    """Return a DICOM file of Hounsfield units, -1000 ... 1000."""
    stored = whole_numbers(shown(label, number), 2000) + 24
    return dicom(stored.astype(np.uint16), RescaleSlope=1, RescaleIntercept=-1024)


def of_both_kinds(label: int, number: int) -> bytes:
    """Return a DICOM file in which white is zero, or black is: hospitals mix them."""
    values = whole_numbers(shown(label, number), 4095)
    return dicom(values) if number % 2 else dicom(4095 - values, "MONOCHROME1")


def indexed(label: int, number: int) -> bytes:
    colors = np.array([[255, 0, 0], [0, 255, 0], [10, 20, 30], [255, 255, 255]], np.uint8)
    index = np.rint(shown(label, number) * 3).astype(np.uint8)
    return dicom(index, "PALETTE COLOR", 8, **palette_of_dicom(colors))


def transparent(label: int, number: int) -> bytes:
    pixels = eight_bits(shown(label, number, 4))
    pixels[..., 3] = np.where(np.arange(SIZE[1]) > 20, 255, 90)
    return by_pillow(pixels, "PNG")


def color(label: int, number: int, size: tuple[int, int] = SIZE) -> np.ndarray:
    return eight_bits(shown(label, number, 3, size))


KINDS: dict[str, tuple[str, Callable[[int, int], bytes]]] = {
    "JPEG": ("jpg", lambda k, i: by_pillow(color(k, i), "JPEG")),
    "JPEG large": ("jpg", lambda k, i: by_pillow(color(k, i, LARGE), "JPEG")),
    "JPEG gray": ("jpg", lambda k, i: by_pillow(eight_bits(shown(k, i)), "JPEG")),
    "JPEG of inks": ("jpg", lambda k, i: by_pillow(Image.fromarray(color(k, i)).convert("CMYK"), "JPEG")),
    "JPEG turned": ("jpg", lambda k, i: by_pillow(color(k, i), "JPEG", exif=turned(6))),
    "JPEG in Display P3": ("jpg", lambda k, i: by_pillow(color(k, i), "JPEG", icc_profile=display_p3())),
    "PNG in linear light": ("png", lambda k, i: by_pillow(color(k, i), "PNG", icc_profile=linear_profile())),
    "PNG transparent": ("png", transparent),
    "PNG with a palette": ("png", lambda k, i: by_pillow(Image.fromarray(color(k, i)).quantize(32), "PNG")),
    "PNG of 12 bits": ("png", lambda k, i: by_pillow(whole_numbers(shown(k, i), 4095), "PNG")),
    "PNG of 12 bits, large": (
        "png",
        lambda k, i: by_pillow(whole_numbers(shown(k, i, size=LARGE), 4095), "PNG"),
    ),
    "TIFF of 16 bits, white is zero": (
        "tif",
        lambda k, i: tiff(65535 - whole_numbers(shown(k, i), 65535), "miniswhite"),
    ),
    "TIFF of five bands": ("tif", lambda k, i: tiff(whole_numbers(shown(k, i, 5), 4095))),
    "NumPy float gray": ("npy", lambda k, i: npy((shown(k, i) * 500 - 200).astype(np.float32))),
    "NumPy float color": ("npy", lambda k, i: npy((shown(k, i, 3) * 500 - 200).astype(np.float32))),
    "NumPy four bands": ("npy", lambda k, i: npy(eight_bits(shown(k, i, 4)))),
    "DICOM of a CT": ("dcm", computed_tomography),
    "DICOM of both kinds": ("dcm", of_both_kinds),
    "DICOM with a palette": ("dcm", indexed),
}
