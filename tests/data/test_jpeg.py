"""What a JPEG's head says, and images that are decoded only down to a row."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from vitreous.data.config import RandomResizedCropConfig
from vitreous.data.transforms import crop_encoded, evaluation_pixels, random_crop
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.stored import ENDS_TOO_EARLY, JPEG_END, stored, truncated_jpeg
from vitreous.rng import numpy_generator

pytest.importorskip("simplejpeg")


def made(height: int = 203, width: int = 151, mode: str = "RGB", **options) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (height // 4 + 1, width // 4 + 1, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).resize((width, height)).convert(mode)
    file = io.BytesIO()
    image.save(file, "JPEG", **{"quality": 88, **options})
    return file.getvalue()


KINDS = [{"subsampling": each} for each in ("4:2:0", "4:2:2", "4:4:4")] + [
    {"mode": "L"},
    {"restart_marker_rows": 2},
]


@pytest.mark.parametrize("until", [1, 15, 16, 17, 90, 187, 202, 203])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_upper_rows_are_those_of_the_whole_image(kind, until):
    channels = 1 if kind.get("mode") == "L" else 3
    data = made(**kind)
    whole, part = (stored(data, "made", channels) for _ in range(2))
    assert torch.equal(part.pixels(until=until)[:, :until], whole.pixels()[:, :until])
    for least in ((203, 151), (101, 75), (50, 37), (25, 18)):
        rough, upper = whole.rough(least), part.rough(least, until=until)
        assert rough.shape == upper.shape
        rows = until * rough.shape[1] // 203
        assert torch.equal(upper[:, :rows], rough[:, :rows])


def test_a_lower_image_is_said_to_be_where_its_rows_follow_each_other():
    data = made()
    assert Image.open(io.BytesIO(truncated_jpeg(data, 48))).size == (151, 48)
    assert truncated_jpeg(made(progressive=True), 48) is None
    assert truncated_jpeg(data[:-2], 48) is None
    assert truncated_jpeg(data + b"more", 48) is None
    assert truncated_jpeg(b"\xff\xd8\xff\xd9", 48) is None
    for length in range(len(data) - 1):
        truncated_jpeg(data[:length] + JPEG_END, 48)  # no exception, whatever the head has become


def test_a_progressive_image_is_decoded_whole():
    data = made(progressive=True)
    encoded = stored(data, "made", 3)
    assert torch.equal(encoded.pixels(until=20), encoded.pixels())


@pytest.mark.parametrize("part", [0.5, 0.9, 0.99])
def test_a_truncated_image_is_repaired_though_the_crop_has_its_rows(part):
    """What lies below the crop is not decoded; that the file ends too early is noted all the same."""
    whole = made(600, 500)
    data = whole[: int(part * len(whole))]
    preprocessing = Preprocessing(size=(64, 64))
    encoded, good = stored(data, "made", 3), stored(whole, "made", 3)
    crop = crop_encoded(encoded, (0, 0, 40, 40), preprocessing)
    assert encoded.damage == ENDS_TOO_EARLY
    difference = crop.int() - crop_encoded(good, (0, 0, 40, 40), preprocessing).int()
    assert difference.abs().float().mean() < 12  # Pillow's decoding, and the faster one
    encoded = stored(data, "made", 3)
    evaluation_pixels(encoded, Preprocessing(size=(64, 64), crop_fraction=0.5))
    assert encoded.damage == ENDS_TOO_EARLY
    assert good.damage is None
    assert encoded.pixels()[:, -1, -1].tolist() == [128, 128, 128] or part > 0.9


def test_crops_are_those_of_the_whole_image():
    """The same image as a progressive file is decoded whole."""
    preprocessing = Preprocessing(size=(64, 64))
    early, whole = (made(400, 300, progressive=each) for each in (False, True))
    for index in range(40):
        box = random_crop((400, 300), RandomResizedCropConfig(), numpy_generator(0, "sample", 0, index, 0))
        one, two = (crop_encoded(stored(data, "made", 3), box, preprocessing) for data in (early, whole))
        assert torch.equal(one, two)


@pytest.mark.parametrize("height", [601, 605, 609, 615])
@pytest.mark.parametrize("part", [2, 4, 8])
def test_no_crop_sees_a_row_that_was_not_decoded(height, part, monkeypatch):
    """A part of an image has its rows rounded up, so that those of the crop reach a little further down."""
    whole = np.full  # memory that was used for something else
    monkeypatch.setattr("vitreous.models.stored.np.empty", lambda shape, dtype: whole(shape, 77, dtype))
    early, late = (made(height, 600, progressive=each) for each in (False, True))
    preprocessing = Preprocessing(size=(512 // part, 512 // part))
    for end in range(height - 40, height + 1):
        box = (end - 512, 3, 512, 512)
        one, two = (crop_encoded(stored(data, "made", 3), box, preprocessing) for data in (early, late))
        assert torch.equal(one, two)
