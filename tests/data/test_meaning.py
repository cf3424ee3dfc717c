"""What the stored numbers of an image mean: what is shown the same is read the same, whatever the format, the
number of bits, and whether white is zero."""

import io
import struct

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms

import vitreous as vt
from stored_images import dicom, palette_of_dicom
from vitreous.models.stored import stored, upright

tifffile = pytest.importorskip("tifffile")
pydicom = pytest.importorskip("pydicom")
SHOWN = np.linspace(0.1, 0.7, 24 * 32).reshape(24, 32)  # darker than the middle: a negative is another image
SIZE = (12, 16)


def packed_tiff(values, white_is_zero, bits):
    """Return a TIFF file whose pixels have an odd number of bits, one after the other, as cameras write."""
    rows = ("".join(f"{value:0{bits}b}" for value in row) for row in values.tolist())
    data = b"".join(int(row.ljust(-len(row) // 8 * -8, "0"), 2).to_bytes(-(-len(row) // 8)) for row in rows)
    height, width = values.shape
    tags = {
        256: width,
        257: height,
        258: bits,
        259: 1,
        262: int(not white_is_zero),
        273: 8,
        277: 1,
        278: height,
    }
    tags[279] = len(data)
    fields = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return (
        b"II*\0" + struct.pack("<I", 8 + len(data)) + data + struct.pack("<H", len(tags)) + fields + bytes(4)
    )


def tiff(values, white_is_zero, compression=None):
    file = io.BytesIO()
    photometric = "miniswhite" if white_is_zero else "minisblack"
    tifffile.imwrite(file, values, photometric=photometric, compression=compression)
    return file.getvalue()


def of_bits(bits, signed):
    """Return (least, largest) value, and the type that holds them."""
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return low, high, np.dtype(f"{'i' if signed else 'u'}{1 if bits <= 8 else 2 if bits <= 16 else 4}")


def levels(bits, signed):
    """Return the image as numbers of so many bits, and the same complemented."""
    low, high, dtype = of_bits(bits, signed)
    values = np.rint(low + SHOWN * (high - low)).astype(np.int64)
    return values.astype(dtype), (low + high - values).astype(dtype), ((low, high),)


CASES = {
    **{f"DICOM {bits} {signed}": ("dicom", bits, signed) for bits in (8, 12, 16) for signed in (False, True)},
    **{f"DICOM 32 {signed}": ("dicom", 32, signed) for signed in (False, True)},
    **{f"TIFF {bits}": ("tiff", bits, False) for bits in (8, 16, 32)},
    **{f"TIFF {bits} zlib": ("zlib", bits, False) for bits in (8, 16)},
    **{f"TIFF {bits}": ("packed", bits, False) for bits in (6, 10, 12, 14)},
    **{f"TIFF {bits} signed": ("tiff", bits, True) for bits in (16, 32)},
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_a_negative_is_read_as_it_is_shown(case, channels):
    kind, bits, signed = CASES[case]
    values, negative, value_range = levels(bits, signed)
    if kind == "dicom":
        plain = dicom(values, "MONOCHROME2", bits, signed=signed)
        white = dicom(negative, "MONOCHROME1", bits, signed=signed)
    elif kind == "packed":
        plain, white = packed_tiff(values, False, bits), packed_tiff(negative, True, bits)
    else:
        compression = "zlib" if kind == "zlib" else None
        plain, white = tiff(values, False, compression), tiff(negative, True, compression)
    how = vt.Preprocessing(size=SIZE, channels=channels, mean=(0,) * channels, std=(1,) * channels,
                           value_range=value_range)  # fmt: skip
    ours, theirs = how(plain), how(white)
    expected = torch.from_numpy(SHOWN).float().mean()
    assert abs(ours.mean() - expected) < 0.01
    assert (ours - theirs).abs().max() <= 1.01 / 255


def test_a_negative_of_one_value_is_not_its_own_complement():
    """What a single image uses says nothing of what white is."""
    dark = np.full((8, 8), 30, np.uint8)
    how = vt.Preprocessing(size=(8, 8), channels=1, mean=(0,), std=(1,))
    assert how(dicom(dark, "MONOCHROME1", 8)).mean() == pytest.approx(225 / 255)


@pytest.mark.parametrize("slope", [1, 2.5])
def test_negatives_are_rescaled_to_the_same_unit(slope):
    values, negative, _ = levels(12, False)
    unit = {"RescaleSlope": slope, "RescaleIntercept": -1024}
    plain = stored(dicom(values, "MONOCHROME2", 12, **unit)).values()
    white = stored(dicom(negative, "MONOCHROME1", 12, **unit)).values()
    assert np.allclose(plain, slope * values[..., None] - 1024.0)
    assert np.allclose(plain, white)


def test_a_table_that_says_what_values_mean_comes_before_the_complement():
    from pydicom.dataset import Dataset

    table = Dataset()
    table.LUTDescriptor = [16, 0, 16]
    table.add_new(0x00283006, "US", [4000 * k for k in range(16)])
    index = (np.arange(64) % 16).astype(np.uint8).reshape(8, 8)
    white = dicom(index, "MONOCHROME1", 8, ModalityLUTSequence=[table])
    assert np.array_equal(stored(white).values()[..., 0], 65535 - 4000 * index.astype(int))


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_floating_point_values_with_white_as_zero(compression):
    values = SHOWN.astype(np.float32)
    plain, white = tiff(values, False, compression), tiff(1 - values, True, compression)
    how = vt.Preprocessing(size=SIZE, channels=1, mean=(0,), std=(1,))
    assert (how(plain) - how(white)).abs().max() < 0.005
    assert how(plain).mean() == pytest.approx(float(SHOWN.mean()), abs=0.01)


@pytest.mark.parametrize("bits", [8, 16])
def test_a_palette_is_looked_up(bits):
    values = (np.arange(64) % 4).astype(np.uint8).reshape(8, 8)
    colors = np.array([[255, 0, 0], [0, 255, 0], [10, 20, 30], [255, 255, 255]], np.uint8)
    image = stored(dicom(values, "PALETTE COLOR", 8, **palette_of_dicom(colors, bits)))
    assert image.bands == 3
    assert np.array_equal(image.array(), colors[values])


@pytest.mark.parametrize("photometric", ["RGB", "YBR_FULL"])
def test_colors_of_dicom(photometric):
    rgb = np.zeros((8, 8, 3), np.uint8)
    rgb[:, :4], rgb[:, 4:] = (200, 30, 40), (20, 90, 250)
    pixels = rgb
    if photometric == "YBR_FULL":
        pixels = np.asarray(Image.fromarray(rgb).convert("YCbCr"))
    found = stored(dicom(pixels, photometric, 8)).array()
    assert np.abs(found.astype(int) - rgb).max() <= 2


def test_fewer_than_eight_bits_of_dicom_fill_the_range():
    values = (np.arange(64) % 16).astype(np.uint8).reshape(8, 8)
    found = stored(dicom(values, "MONOCHROME2", 4), channels=1).array()[..., 0]
    assert np.array_equal(found, values * 17)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.int16])
@pytest.mark.parametrize("form", ["array", "npy", "tiff", "pillow"])
def test_bytes_in_a_wider_type_are_bytes(dtype, form):
    bytes_ = np.rint(SHOWN * 255).astype(np.uint8)
    values = bytes_.astype(dtype)
    if form == "npy":
        file = io.BytesIO()
        np.save(file, values)
        image = file.getvalue()
    elif form == "tiff":
        image = tiff(values, False)
    elif form == "pillow":
        if dtype != np.int32:
            pytest.skip("Pillow has one such type")
        image = Image.fromarray(values)
    else:
        image = values
    assert np.array_equal(stored(image, channels=1).array()[..., 0], bytes_)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["gray", "bands"])
def test_orientation_of_tiff(orientation, kind):
    """Of 16 bits and of bands it is what Pillow makes of 8 bits."""
    shape = (6, 9) if kind == "gray" else (6, 9, 5)
    values = np.arange(np.prod(shape), dtype=np.uint16).reshape(shape) * 100
    file = io.BytesIO()
    tag = [(274, "H", 1, orientation, True)]
    tifffile.imwrite(file, values, photometric="minisblack", planarconfig="contig", extratags=tag)
    found = stored(file.getvalue(), channels=1 if kind == "gray" else 5)
    first = values if kind == "gray" else values[..., 0]
    plain = Image.fromarray((first // 100 % 256).astype(np.uint8))
    file = io.BytesIO()
    plain.save(file, "TIFF", tiffinfo={274: orientation})
    expected = np.asarray(upright(Image.open(file), 1))
    assert found.size == expected.shape
    assert np.array_equal(found.values()[..., 0] // 100 % 256, expected)


@pytest.mark.parametrize("tag", ["unassalpha", "assocalpha"])
def test_transparency_of_sixteen_bits_is_white(tag):
    values = np.zeros((8, 8, 4), np.uint16)
    values[:, :4] = 20_000, 30_000, 40_000, 65_535
    file = io.BytesIO()
    tifffile.imwrite(file, values, photometric="rgb", extrasamples=[tag])
    found = stored(file.getvalue())
    assert found.bands == 3
    assert found.array()[0, 0].tolist() == [78, 117, 156]
    assert found.array()[0, 7].tolist() == [255, 255, 255]


def with_profile(pixels, profile, form):
    file = io.BytesIO()
    Image.fromarray(pixels).save(
        file, form, icc_profile=profile, **({"quality": 98} if form == "JPEG" else {})
    )
    return file.getvalue()


def linear_profile():
    """Return a profile of sRGB's primaries whose values are linear in light, as no tables are needed for."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    count = int.from_bytes(profile[128:132])
    for row in range(count):
        entry = 132 + 12 * row
        if profile[entry : entry + 4] in (b"rTRC", b"gTRC", b"bTRC"):
            place = int.from_bytes(profile[entry + 4 : entry + 8])
            profile[place : place + 12] = b"curv" + bytes(4) + (0).to_bytes(4)
    return bytes(profile)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_a_color_profile_is_converted_to_srgb(form):
    pixels = np.full((32, 32, 3), 128, np.uint8)
    shown = stored(with_profile(pixels, linear_profile(), form)).array()
    assert np.abs(shown.astype(int) - 188).max() <= 2  # half of the light


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_the_profile_of_srgb_changes_nothing(form):
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    tagged, plain = (stored(with_profile(pixels, each, form)) for each in (profile, None))
    assert type(tagged) is type(plain)
    assert np.array_equal(tagged.array(), plain.array())


def test_a_damaged_profile_changes_nothing():
    pixels = np.full((32, 32, 3), 128, np.uint8)
    shown = stored(with_profile(pixels, b"not a profile", "PNG")).array()
    assert np.array_equal(shown, pixels)
