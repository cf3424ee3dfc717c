"""Images as laboratories have them: 10, 12 and 16 bits, two to sixteen bands, NumPy files, DICOM, and values
that are not numbers; from the folder to what the model sees."""

import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.api.data_source import data_source
from vitreous.data.config import DataConfig
from vitreous.data.image_list import image_list
from vitreous.data.image_samples import evaluation_loader
from vitreous.data.packing import Packing, pack
from vitreous.data.sources import open_data
from vitreous.models.bands import measured_range, to_bytes
from vitreous.models.model import build_model
from vitreous.models.stored import BadImage, read_bands, stored
from vitreous.training.initial_model import for_channels

tifffile = pytest.importorskip("tifffile")
pydicom = pytest.importorskip("pydicom")
RAMP = np.linspace(0, 1, 32 * 32).reshape(32, 32)


def encoded(values, form):
    """An image file of such values."""
    file = io.BytesIO()
    if form == "npy":
        np.save(file, values)
    elif form == "tiff":
        tifffile.imwrite(
            file, values, photometric="minisblack", planarconfig="contig" if values.ndim == 3 else None
        )
    elif form == "png":
        Image.fromarray(values).save(file, "PNG")
    return file.getvalue()


def folder(root, files, suffix):
    for number, data in enumerate(files):
        place = root / ("one" if number % 2 else "two")
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.{suffix}").write_bytes(data)
    return root


@pytest.mark.parametrize("bits", [9, 10, 12, 14, 16])
@pytest.mark.parametrize("form", ["png", "tiff", "npy"])
def test_all_gray_levels_of_a_camera_reach_the_model(tmp_path, bits, form):
    values = (RAMP * (2**bits - 1)).round().astype(np.uint16)
    files = [encoded(values // (1 + number % 2), form) for number in range(8)]
    splits = open_data(
        str(folder(tmp_path / "data", files, form.replace("tiff", "tif"))), DataConfig(test_fraction=0)
    )
    assert splits.summary.value_range == ((0.0, 2.0**bits - 1),)
    assert splits.summary.channels == 1
    how = vt.Preprocessing(size=(32, 32), channels=1, value_range=splits.summary.value_range)
    (batch,) = evaluation_loader(splits.train, preprocessing=how, batch_size=8)
    assert len(batch.images[0].unique()) >= 128
    assert not [each for each in splits.train.findings if each.kind == "levels"]
    whole = vt.Preprocessing(size=(32, 32), channels=3, value_range=splits.summary.value_range)
    assert len(whole(next((tmp_path / "data" / "two").iterdir())).unique()) == 256


def test_levels_that_are_lost_are_a_finding(tmp_path):
    dark = (RAMP * 1023).astype(np.uint16)
    files = [encoded(dark, "png")] * 7 + [encoded((RAMP * 65535).astype(np.uint16), "png")]
    splits = open_data(str(folder(tmp_path, files, "png")), DataConfig(test_fraction=0))
    (found,) = (each for each in splits.train.findings if each.kind == "levels")
    assert found.found == 7
    assert "0 to 65535" in found.sentence
    assert any(each.kind == "levels" for each in vt.check_data(str(tmp_path)).findings)


def test_images_of_eight_bits_are_as_they_were(tmp_path):
    files = [encoded((RAMP * 255).astype(np.uint8), "png")] * 4
    splits = open_data(str(folder(tmp_path, files, "png")), DataConfig(test_fraction=0))
    assert splits.summary.value_range is splits.summary.statistics is None


@pytest.mark.parametrize("bands", [2, 4, 5, 13, 16])
@pytest.mark.parametrize("form", ["tiff", "npy"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.float32])
def test_every_band_reaches_the_model(tmp_path, bands, form, dtype):
    scale = 200 if dtype == np.uint8 else 3000
    values = np.stack([np.roll(RAMP, band) * scale * (band + 1) / bands for band in range(bands)], axis=2)
    files = [encoded(values.astype(dtype), form)] * 4
    splits = open_data(str(folder(tmp_path, files, form.replace("tiff", "tif"))), DataConfig(test_fraction=0))
    summary = splits.summary
    assert summary.channels == bands
    mean, std = summary.statistics
    assert len(mean) == len(std) == bands
    how = vt.Preprocessing(size=(16, 16), channels=bands, mean=mean, std=std, value_range=summary.value_range)
    (batch,) = evaluation_loader(splits.train, preprocessing=how, batch_size=4)
    assert batch.images.shape == (4, bands, 16, 16)
    assert batch.images.mean(dim=(0, 2, 3)).abs().max() < 0.1
    assert batch.images.std(dim=(0, 2, 3)).min() > 0.5


@pytest.mark.parametrize("tag", ["unspecified", "unassalpha"])
def test_a_fourth_band_is_transparency_only_where_the_file_says_so(tag):
    file, values = io.BytesIO(), np.full((8, 8, 4), 100, np.uint8)
    tifffile.imwrite(file, values, photometric="rgb", extrasamples=[tag])
    image = stored(file.getvalue(), "made", 3)
    assert image.bands == (3 if tag == "unassalpha" else 4)
    if tag != "unassalpha":
        with pytest.raises(BadImage, match="4 bands, and the model takes 3"):
            image.pixels()


def dicom(values, **fields):
    """A DICOM file of gray values."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = CTImageStorage, generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    found = FileDataset("made", {}, file_meta=meta, preamble=b"\0" * 128)
    found.SOPClassUID, found.SOPInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID
    found.Rows, found.Columns = values.shape
    found.SamplesPerPixel, found.PhotometricInterpretation = 1, "MONOCHROME2"
    found.BitsAllocated, found.BitsStored, found.HighBit = 16, 12, 11
    found.PixelRepresentation, found.PixelData = 0, values.astype("<u2").tobytes()
    for name, value in fields.items():
        setattr(found, name, value)
    file = io.BytesIO()
    found.save_as(file, enforce_file_format=True)
    return file.getvalue()


def test_dicom_in_its_unit(tmp_path):
    values = (RAMP * 4000).astype(np.uint16)
    plain = read_bands(dicom(values))
    assert np.array_equal(plain[..., 0], values)
    units = read_bands(dicom(values, RescaleSlope=2, RescaleIntercept=-1024))
    assert units.min() == -1024
    assert np.array_equal(units[..., 0], 2.0 * values - 1024)
    inverted = read_bands(dicom(values, PhotometricInterpretation="MONOCHROME1"))
    assert np.array_equal(inverted[..., 0], 4095 - values)  # within what twelve bits can store
    splits = open_data(str(folder(tmp_path, [dicom(values)] * 4, "dcm")), DataConfig(test_fraction=0))
    assert splits.summary.channels == 1
    assert len(splits.train) == 4


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 5)])
def test_values_that_are_not_numbers_are_a_bad_image(value, shape):
    values = np.ones(shape, np.float32)
    values[2, 3] = value
    with pytest.raises(BadImage, match="not all numbers"):
        stored(encoded(values, "npy"), "made", shape[2] if len(shape) == 3 else 1).pixels()
    with pytest.raises(vt.InputError, match="not all numbers"):
        vt.Preprocessing(size=(8, 8), channels=5, mean=(0,) * 5, std=(1,) * 5)(
            values if len(shape) == 3 else values[..., None].repeat(5, 2)
        )


DAMAGED = [
    b"\x93NUMPY",
    b"\x93NUMPY\x01\0\xff\xff",
    b"II*\0",
    b"II*\0\x08\0\0\0\xff\xff",
    b"\0" * 128 + b"DICM",
    encoded(np.zeros((4, 4, 99), np.uint8), "npy"),
    encoded(np.zeros((0, 4), np.uint8), "npy"),
    encoded(np.zeros((4, 4), np.complex64), "npy"),
    encoded(np.zeros((8, 8), np.uint16), "npy")[:-3],
    encoded(np.array(1.0), "npy"),
    b"\0" * 128 + b"DICM" + b"\x02\0\x10\0UI\xff\xff",
]


@pytest.mark.parametrize("data", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_files_are_bad_images(data):
    with pytest.raises(BadImage):
        stored(data, "made", 3).pixels()


@pytest.mark.parametrize(
    ("form", "dtype"), [("npy", np.uint8), pytest.param("tiff", np.uint16, marks=pytest.mark.slow)]
)
def test_a_folder_of_four_bands_is_inspected_across_its_classes_right_and_wrong(
    tmp_path, form, dtype, quick_figures
):
    values = np.random.default_rng(0).uniform(0, 200, (8, 24, 32, 4)).astype(dtype)
    data = folder(tmp_path / "data", [encoded(each, form) for each in values], form.replace("tiff", "tif"))
    tiny = {"width": 16, "depth": 1, "heads": 1, "mlp_dim": 16, "num_classes": 2}
    model = vt.create("ViT-Ti/8", image_size=(16, 24), channels=4, **tiny)
    model.labels = ["one", "two"]
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([3.0, 0.0]))  # everything is a "one"
    vt.save(model, tmp_path / "model")
    found = vt.inspect(tmp_path / "model", data, out=tmp_path / "out", attributions=0, progress=False)
    assert found.failed == ()
    page = found.report.read_text(encoding="utf-8")
    assert set(re.findall("([✓✗]) (one|two), predicted", page)) == {("✓", "one"), ("✗", "two")}
    captions = re.findall("[✓✗] (one|two), predicted", page)
    assert {captions[:8].count(label) for label in model.labels} == {4}


def test_a_header_of_more_values_than_the_file_holds():
    head = encoded(np.zeros((4, 4), np.float64), "npy")
    huge = head.replace(b"(4, 4)", b"(4, 9**9)").replace(b"(4, 9**9)", b"(9999999999, 4)")
    with pytest.raises(BadImage):
        stored(huge, "made", 1)


def test_arrays_in_memory_are_images_of_bands_or_batches():
    for shape, count in (
        ((24, 24, 5), 1),
        ((24, 24, 2), 1),
        ((100, 8, 8), 100),
        ((4, 24, 24, 3), 4),
        ((24, 24), 1),
    ):
        found = image_list(np.zeros(shape, np.uint8))
        assert len(found) == count, shape
    how = vt.Preprocessing(size=(8, 8), channels=5, mean=(0,) * 5, std=(1,) * 5)
    values = np.random.default_rng(0).integers(0, 256, (24, 24, 5), dtype=np.uint8)
    assert torch.equal(how(values), how(torch.from_numpy(values).permute(2, 0, 1).byte()))


def test_the_range_is_stored_with_the_model(tmp_path):
    how = vt.Preprocessing(
        size=(32, 32), channels=2, mean=(0.5,) * 2, std=(0.5,) * 2, value_range=((0, 1023), (-5, 5))
    )
    config = vt.create("ViT-Ti/16", num_classes=2, image_size=32, depth=1, channels=2).config
    model = build_model(config, preprocessing=how)
    vt.save(model, tmp_path / "m")
    assert vt.load(tmp_path / "m").preprocessing.value_range == ((0, 1023), (-5, 5))
    with pytest.raises(vt.InputError):
        vt.create(
            "ViT-Ti/16", num_classes=2, channels=2, preprocessing={"channels": 2, "value_range": ((3, 1),)}
        )


def test_measured_ranges():
    assert measured_range([np.full((4, 1), 255, np.uint8)]) is None
    assert measured_range([np.full((4, 1), 1000, np.uint16), np.full((4, 1), 3, np.uint16)]) == ((0, 1023),)
    assert measured_range([np.array([[-3.0, 7], [4, 8]], np.float32)]) == ((-3, 4), (7, 8))
    assert measured_range([np.zeros((4, 1), np.float32)]) == ((0, 1),)
    assert to_bytes(np.array([[0, 4095]], np.uint16), ((0, 4095),)).tolist() == [[0, 255]]


@pytest.mark.parametrize("channels", [1, 2, 4, 7])
def test_a_patch_embedding_of_other_channels_is_timms(channels):
    """The formula of timm's `adapt_input_conv`."""
    weight = torch.randn(8, 3, 4, 4)
    found = for_channels(weight, channels)
    if channels == 1:
        expected = weight.sum(dim=1, keepdim=True)
    else:
        expected = weight.repeat(1, -(-channels // 3), 1, 1)[:, :channels] * (3 / channels)
    assert torch.equal(found, expected)
    pixels = torch.rand(1, 1, 4, 4)
    same = torch.nn.functional.conv2d(pixels.expand(-1, channels, -1, -1), found)
    plain = torch.nn.functional.conv2d(pixels.expand(-1, 3, -1, -1), weight)
    if channels % 3 == 0 or channels == 1:
        torch.testing.assert_close(same, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["gray", "bands", "float"])
def test_shards_have_the_range_of_the_images_that_they_were_made_of(tmp_path, kind):
    """A model that was trained on the shards then sees the original files as it saw the shards."""
    rng = np.random.default_rng(0)
    scale = {"gray": 4095, "bands": 10_000, "float": 1}[kind]
    files = []
    for _ in range(8):
        values = rng.uniform(0.2, 1, (40, 48, 5) if kind == "bands" else (40, 48)) * scale
        kept = values - 300 if kind == "float" else values
        files.append(encoded(kept.astype(np.float32 if kind == "float" else np.uint16), "npy"))
    splits = open_data(str(folder(tmp_path / "data", files, "npy")), DataConfig(test_fraction=0))
    pack(splits, tmp_path / "packed", Packing(size=20))
    again = open_data(str(tmp_path / "packed"), DataConfig(test_fraction=0))
    assert again.summary.channels == splits.summary.channels
    assert np.allclose(again.summary.value_range, splits.summary.value_range, atol=0.3)
    assert min(again.train.opened(0).size) == 20
    mean = [float(part.train.opened(0).values().mean()) for part in (splits, again)]
    assert mean[0] == pytest.approx(mean[1], rel=0.02)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "BMP"])
def test_a_few_colored_images_among_gray_ones_keep_their_color(tmp_path, form):
    """They are fewer than a sample would find: the 70th of 140."""
    for number in range(140):
        gray = Image.new("L", (4, 4), number)
        place = tmp_path / ("a" if number < 70 else "b") / f"{number:03}.{form.lower()}"
        place.parent.mkdir(exist_ok=True)
        (gray.convert("RGB") if number == 69 else gray).save(place, form)
    splits = open_data(str(tmp_path), DataConfig(test_fraction=0, validation_fraction=0))
    assert 69 not in splits.train.sample(64)
    assert splits.summary.channels == 3


DOORS = ("path", "text", "bytes", "file", "pillow", "array", "tensor", "stored", "list", "folder", "python")


def tensor_through(door, place, values, how):
    """Return what a model sees of the image in a file, given in some way."""
    if door == "list":
        (batch,) = evaluation_loader(image_list([str(place)]), preprocessing=how, batch_size=1)
        return batch.images[0]
    if door in ("folder", "python"):
        pairs = [(values, "a"), (values, "b")]
        source = str(place.parent.parent) if door == "folder" else data_source(pairs)
        splits = open_data(source, DataConfig(test_fraction=0, validation_fraction=0))
        assert splits.summary.channels == how.channels
        (batch,) = evaluation_loader(splits.train, preprocessing=how, batch_size=2)
        return batch.images[0]
    if door == "pillow":
        return how(Image.fromarray(values[..., 0] if values.shape[2:] == (1,) else values))
    if door == "tensor":
        return how(torch.from_numpy(np.moveaxis(np.atleast_3d(values), 2, 0).copy()))
    content = place.read_bytes()
    given = {
        "path": place,
        "text": str(place),
        "bytes": content,
        "file": io.BytesIO(content),
        "array": values,
    }
    return how(stored(content) if door == "stored" else given[door])


LEVELS_OF = {
    "gray 8": (1, np.uint8, "png", (0, 255)),
    "gray 12": (1, np.uint16, "png", (0, 4095)),
    "gray 16": (1, np.uint16, "tiff", (0, 65535)),
    "gray 16 npy": (1, np.uint16, "npy", (0, 65535)),
    "gray int32": (1, np.int32, "tiff", (-1000, 3000)),
    "gray float": (1, np.float32, "tiff", (-1000, 3000)),
    "color 8": (3, np.uint8, "png", (0, 255)),
    "color 16": (3, np.uint16, "tiff", (0, 4095)),
    "color float": (3, np.float32, "npy", (-250, -16)),
    "4 bands 8": (4, np.uint8, "npy", (0, 255)),
    "5 bands 16": (5, np.uint16, "tiff", (0, 4095)),
    "2 bands float": (2, np.float32, "npy", (-1, 7)),
}
# Pillow has no image of such bands. Four bands of bytes in memory are RGBA where nothing says how many
# channels are wanted, as in a list to train on, with a warning.
LEFT_OUT = {(door, kind) for door in ("pillow",) for kind in LEVELS_OF if int(kind[0] in "245")} | {
    ("pillow", "color 16"),
    ("pillow", "color float"),
    ("python", "4 bands 8"),
}


@pytest.mark.parametrize("kind", LEVELS_OF)
@pytest.mark.parametrize("door", DOORS)
def test_an_image_is_the_same_through_every_door(tmp_path, door, kind):
    if (door, kind) in LEFT_OUT:
        pytest.skip("no such image, see LEFT_OUT")
    bands, dtype, form, (low, high) = LEVELS_OF[kind]
    shape = (24, 32) if bands == 1 else (24, 32, bands)
    values = (low + np.random.default_rng(0).uniform(0, 1, shape) * (high - low)).astype(dtype)
    for name in "ab":
        place = tmp_path / "data" / name / f"0.{form}"
        place.parent.mkdir(parents=True)
        if form == "png":
            Image.fromarray(values).save(place)
        else:
            place.write_bytes(encoded(values, form))
    wide = None if dtype == np.uint8 else ((low, high),)
    how = vt.Preprocessing(
        size=(24, 32), channels=bands, mean=(0,) * bands, std=(1,) * bands, value_range=wide
    )
    given = values[..., None] if door == "array" and bands == 1 else values
    found = tensor_through(door, place, given, how)
    expected = (np.atleast_3d(values).astype(np.float64) - low) / (high - low)
    assert found.shape == (bands, 24, 32)
    assert np.abs(found.permute(1, 2, 0).numpy() - expected).max() <= 0.51 / 255
