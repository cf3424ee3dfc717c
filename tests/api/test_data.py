"""DATA as Python objects: as a manifest they have the same images and labels as a folder."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import vitreous as vt
from vitreous.api.data_source import data_source
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.models.stored import upright


class TorchDataset(torch.utils.data.Dataset[tuple[Image.Image, int]]):
    """As torchvision's are: a PIL image and the number of a class."""

    classes = ("bright", "dark")

    def __init__(self, pixels: NDArray[np.uint8], labels: list[str]) -> None:
        self.pixels, self.labels = pixels, labels

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.fromarray(self.pixels[index]), self.classes.index(self.labels[index])


def read(source: str) -> list[tuple[bytes, str]]:
    """(pixels, class) of all images, sorted."""
    splits = open_data(source, DataConfig(test_fraction=0.0))
    assert splits.test is None
    images = splits.train
    return sorted(
        (images.image(index).convert("RGB").tobytes(), images.label(index)) for index in range(len(images))
    )


def test_every_form_is_the_same_data(photos: Path, pixels: NDArray[np.uint8], labels: list[str]) -> None:
    expected = read(str(photos))
    pairs = [(Image.fromarray(image), label) for image, label in zip(pixels, labels, strict=True)]
    sources = [
        data_source(form)
        for form in ((pixels, labels), pairs, TorchDataset(pixels, labels), {"train": pairs})
    ]
    for source in sources:
        assert read(source) == expected
    assert len(set(sources)) == 1, "the same data are written once"


def test_a_hugging_face_dataset_is_data(photos: Path, pixels: NDArray[np.uint8], labels: list[str]) -> None:
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    classes = datasets.ClassLabel(names=["bright", "dark"])
    table = datasets.Dataset.from_dict(
        {"image": [Image.fromarray(each) for each in pixels], "label": labels},
        features=datasets.Features({"image": datasets.Image(), "label": classes}),
    )
    assert read(data_source(table)) == read(str(photos))
    with pytest.raises(vt.InputError):
        data_source(table.remove_columns("image"))


def test_named_parts_are_splits(pixels: NDArray[np.uint8], labels: list[str]) -> None:
    whole = {"train": (pixels[::2], labels[::2]), "test": (pixels[1::2], labels[1::2])}
    splits = open_data(data_source(whole), DataConfig())
    assert splits.test is not None
    assert (len(splits.train), len(splits.test)) == (12, 12)


def test_several_labels_of_an_image(pixels: NDArray[np.uint8]) -> None:
    labels = [["a", "b"], ["a"], [], ["b"]] * 6
    whole = DataConfig(test_fraction=0.0)
    stored, given = (open_data(data, whole) for data in (data_source((pixels, labels)), (pixels, labels)))
    np.testing.assert_array_equal(stored.train.targets.tensor(), given.train.targets.tensor())
    assert stored.summary.multi_label


def test_labels_that_are_true_or_false_are_classes(pixels: NDArray[np.uint8]) -> None:
    given = data_source((pixels, np.arange(len(pixels)) % 2 == 0))
    assert open_data(given, DataConfig()).train.classes == ("False", "True")


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ([], "no label for any image"),
        (np.zeros((16, 16), np.uint8), "tables as labels"),
        (Image.new("L", (16, 16)), "neither class numbers nor names"),
    ],
)
def test_labels_without_a_class_are_an_input_error(
    pixels: NDArray[np.uint8], label: object, words: str
) -> None:
    with pytest.raises(vt.InputError, match=words):
        data_source([(each, label) for each in pixels])


def test_numbers_to_predict(pixels: NDArray[np.uint8]) -> None:
    numbers = np.linspace(-1, 1, len(pixels), dtype=np.float32)
    source = data_source((pixels, numbers), "numbers")
    stored = open_data(source, DataConfig(test_fraction=0.0), "numbers")
    np.testing.assert_array_equal(stored.train.targets.values, numbers)


@pytest.mark.parametrize("data", [[], 3, [1, 2], ([1], [2, 3])])
def test_what_is_not_data_is_an_input_error(data: object, tmp_path: Path) -> None:
    with pytest.raises(vt.InputError):
        data_source(data)
    assert not list(tmp_path.rglob("*.png")), "nothing is left of it"


def test_check_pack_and_doctor_take_it(pixels: NDArray[np.uint8], labels: list[str], tmp_path: Path) -> None:
    report = vt.check_data((pixels, labels))
    assert sum(report.images.values()) == 24
    assert not report.errors
    packed = vt.pack_data((pixels, labels), tmp_path / "packed", size=8)
    assert packed.to_json()["images"] == 24
    assert isinstance(vt.doctor((pixels, labels)).findings, tuple)
    with pytest.raises(vt.InputError, match="did you mean"):
        vt.check_data((pixels, labels), task="segmentatoin")
    with pytest.raises(vt.InputError, match="has nothing of its own for regression: leave out"):
        vt.check_data((pixels, labels), task="regression")


def in_memory(mode: str) -> Image.Image:
    """An image of a mode, with colors or grays that differ."""
    ramp = np.arange(20 * 10, dtype=np.uint16).reshape(10, 20)
    match mode:
        case "I;16":
            return Image.fromarray(ramp * 300)
        case "F":
            return Image.fromarray(ramp.astype(np.float32) / 200)
        case "P":
            image = Image.fromarray(ramp.astype(np.uint8)).convert("RGB").quantize(16)
            image.info["transparency"] = 3
            return image
    colors = [Image.fromarray((ramp * step).astype(np.uint8)) for step in (1, 2, 3, 4)]
    return Image.merge("RGBA", colors) if mode == "RGBA" else Image.merge("RGB", colors[:3]).convert(mode)


@pytest.mark.parametrize("mode", ["CMYK", "I;16", "F", "LA", "P", "RGBA", "1", "YCbCr", "HSV"])
def test_an_image_of_any_mode_is_stored_as_it_is_predicted(mode: str) -> None:
    image = in_memory(mode)
    images = open_data(data_source([(image, "a"), (image.copy(), "b")]), DataConfig(test_fraction=0.0)).train
    for channels in (1, 3):
        stored, given = (
            np.array(upright(each, channels, images.value_range), dtype=int)
            for each in (images.image(0), image)
        )
        np.testing.assert_allclose(stored, given, atol=1)  # YCbCr to gray, directly or as RGB


def test_an_image_in_memory_is_trained_upright_as_it_is_predicted() -> None:
    pixels = np.arange(600, dtype=np.uint8).reshape(10, 20, 3)
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", exif=exif)
    pairs = [(Image.open(io.BytesIO(file.getvalue())), label) for label in "ab"]
    images = open_data(data_source(pairs), DataConfig(test_fraction=0.0)).train
    assert images.image(0).size == (10, 20)
    np.testing.assert_array_equal(upright(images.image(0)), upright(pairs[0][0]))


def test_an_image_in_memory_that_cannot_be_read_is_named() -> None:
    file = io.BytesIO()
    Image.new("RGB", (64, 64)).save(file, "PNG")
    torn = Image.open(io.BytesIO(file.getvalue()[:60]))
    with pytest.raises(vt.InputError, match=r"list\[1\] of DATA cannot be read: "):
        data_source([(Image.new("RGB", (8, 8)), "a"), (torn, "b")])
