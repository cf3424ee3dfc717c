"""Every format and mode, upright and in 8 bits; and everything that is no image."""

import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from vitreous.data.config import RandomResizedCropConfig
from vitreous.data.transforms import crop_encoded, evaluation_pixels, random_crop
from vitreous.models.preprocessing import Preprocessing, to_tensor
from vitreous.models.stored import BadImage, stored, upright
from vitreous.rng import numpy_generator


def save(image: Image.Image, form: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


MODES = [
    ("JPEG", "RGB"), ("JPEG", "L"), ("JPEG", "CMYK"), ("PNG", "RGB"), ("PNG", "L"), ("PNG", "1"),
    ("PNG", "P"), ("PNG", "RGBA"), ("PNG", "LA"), ("WEBP", "RGB"), ("WEBP", "RGBA"), ("BMP", "RGB"),
    ("BMP", "L"), ("TIFF", "RGB"), ("TIFF", "CMYK"), ("TIFF", "F"), ("GIF", "P"),
]  # fmt: skip


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("form", "mode"), MODES)
def test_every_format_and_mode(form, mode, channels, make_smooth):
    source = make_smooth(1, 30, 44)
    encoded = stored(save(source.convert(mode), form), "made", channels)
    pixels = encoded.pixels()
    assert encoded.size == (30, 44)
    assert pixels.shape == (channels, 30, 44)
    assert pixels.dtype == torch.uint8
    expected = to_tensor(upright(Image.open(io.BytesIO(encoded.source)), channels))
    assert torch.equal(pixels, expected)


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_16_bit_gray_is_scaled_not_clipped(form):
    values = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    pixels = stored(save(Image.fromarray(values), form), "made", 1).pixels()
    assert np.array_equal(pixels[0].numpy(), np.rint(values / 257).astype(np.uint8))


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_honored(form, orientation, make_smooth):
    exif = Image.Exif()
    exif[0x0112] = orientation
    encoded = stored(save(make_smooth(2, 30, 44), form, exif=exif.tobytes()), "made", 3)
    assert encoded.size == ((44, 30) if orientation >= 5 else (30, 44))
    assert torch.equal(encoded.pixels(), to_tensor(upright(Image.open(io.BytesIO(encoded.source)))))
    assert encoded.pixels().shape[1:] == encoded.size


def giant() -> bytes:
    """A PNG that says it has 60,000 x 60,000 pixels."""
    header = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 99)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (lambda jpeg: b"", "empty"),
        (lambda jpeg: b"no image at all", "not an image of a known format"),
        (lambda jpeg: b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image of a known format"),
        (lambda jpeg: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image of a known format"),
        (lambda jpeg: save(Image.new("RGB", (50, 50)), "BMP")[:200], "truncated"),
        (lambda jpeg: jpeg[:30], "."),
        (lambda jpeg: giant(), "more than 178956970 pixels"),
        (lambda jpeg: save(Image.new("RGB", (50, 50)), "PNG")[:60], "."),
    ],
)
def test_what_is_no_image_is_bad_and_says_why(data, reason, make_jpeg):
    with pytest.raises(BadImage, match=reason) as caught:
        stored(data(make_jpeg(0)), "made", 3).pixels()
    assert caught.value.name == "made"
    assert "0x" not in caught.value.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    "size", [(375, 500), (500, 375), (300, 301), (1200, 1600), (224, 224), (90, 120), (800, 260)]
)
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "lanczos"])
def test_evaluation_equals_pillow_within_1_of_255(size, interpolation, make_smooth):
    noise = np.random.default_rng(3).integers(0, 256, (*size, 3), dtype=np.uint8)
    for image in (make_smooth(3, *size), Image.fromarray(noise)):
        data = save(image, "JPEG", quality=95)
        for mode, fraction in (("crop", 0.875), ("crop", 1.0), ("squash", 1.0), ("fit", 1.0)):
            preprocessing = Preprocessing(
                size=(224, 224), resize=mode, crop_fraction=fraction, interpolation=interpolation
            )
            ours = evaluation_pixels(stored(data, "made", 3), preprocessing)
            pillows = to_tensor(preprocessing.image(Image.open(io.BytesIO(data))))
            assert (ours.int() - pillows.int()).abs().max() <= 1


def test_a_large_jpeg_is_decoded_no_finer_than_the_crop_needs(make_jpeg):
    encoded = stored(make_jpeg(4, 1200, 1600), "made", 3)
    assert encoded.rough((300, 400)).shape == (3, 300, 400)
    assert encoded.rough((301, 400)).shape == (3, 600, 800)
    assert encoded.rough((601, 1)).shape == encoded.pixels().shape
    small = encoded.shrunk(60)
    assert small.shape == (3, 60, 80)


def test_a_crop_shows_the_box_it_names(make_jpeg):
    """The crop of a DCT-scaled JPEG lies where that of the whole image does."""
    encoded = stored(make_jpeg(5, 1200, 1600), "made", 3)
    preprocessing = Preprocessing(size=(64, 64))
    for copy in range(20):
        box = random_crop(encoded.size, RandomResizedCropConfig(), numpy_generator(0, "sample", 0, 0, copy))
        top, left, h, w = box
        assert 0 <= top <= top + h <= 1200
        assert 0 <= left <= left + w <= 1600
        whole = upright(Image.open(io.BytesIO(encoded.source))).resize(
            (64, 64), 3, box=(left, top, left + w, top + h)
        )
        error = (crop_encoded(encoded, box, preprocessing).float() - to_tensor(whole).float()).abs().mean()
        assert error < 2


@pytest.mark.parametrize("sampler", ["log-uniform", "tensorflow"])
def test_crops_have_the_areas_and_ratios_that_were_asked_for(sampler):
    config = RandomResizedCropConfig(scale=(0.2, 0.5), sampler=sampler)
    boxes = [
        random_crop((300, 400), config, numpy_generator(0, "sample", 0, index, 0)) for index in range(500)
    ]
    areas = np.array([h * w for _, _, h, w in boxes]) / 120_000
    ratios = np.array([w / h for _, _, h, w in boxes])
    assert 0.19 < areas.min() < 0.22
    assert 0.48 < areas.max() < 0.51
    assert 0.73 < ratios.min() < 0.8
    assert 1.25 < ratios.max() < 1.36


def test_a_crop_that_never_fits_is_the_center():
    config = RandomResizedCropConfig(scale=(1, 1), ratio=(1, 1))
    assert random_crop((100, 300), config, numpy_generator(0, "sample", 0, 0, 0)) == (0, 100, 100, 100)


@pytest.mark.parametrize("length", range(2, 24))
def test_a_jpeg_that_ends_in_its_head_is_bad(length, make_jpeg):
    head = make_jpeg(1)[:length]
    with pytest.raises(BadImage):
        stored(head, "made", 3).pixels()
    with pytest.raises(BadImage):
        stored(head[:3] + b"\xff", "made", 3).pixels()
