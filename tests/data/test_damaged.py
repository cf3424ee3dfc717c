"""Damaged images and rare formats: skipped, repaired, counted and listed everywhere."""

import io
import json
import sys
import types

import numpy as np
import pytest
from PIL import Image

from vitreous.cli import run
from vitreous.data.config import AugmentationConfig, DataConfig
from vitreous.data.image_list import ImageList, image_list
from vitreous.data.image_samples import evaluation_loader, image_loader
from vitreous.data.sources import open_data
from vitreous.data.transforms import evaluation_pixels
from vitreous.errors import InputError, is_installed
from vitreous.models.preprocessing import NativePreprocessing, Preprocessing
from vitreous.models.stored import ENDS_TOO_EARLY, BadImage, open_image, register_plugin, stored


def with_damaged_exif(make_smooth):
    """A JPEG whose EXIF header is damaged."""
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    make_smooth(1, 40, 60).save(file, "JPEG", exif=exif.tobytes())
    data = file.getvalue()
    place = data.index(b"Exif\0\0") + 6
    return data[:place] + b"\xff" + data[place + 1 :]


def stumble_at_exif(monkeypatch):
    """Let Pillow stumble at such data, as some of its versions do."""
    plain = Image.Image.getexif

    def getexif(image):
        if image.info.get("exif", b"").startswith(b"Exif\0\0\xff"):
            raise SyntaxError("not a TIFF file")
        return plain(image)

    monkeypatch.setattr(Image.Image, "getexif", getexif)


@pytest.mark.parametrize("channels", [1, 3])
def test_damaged_exif_data_that_pillow_passes_over_are_not_read_again(make_smooth, channels):
    encoded = stored(with_damaged_exif(make_smooth), "made", channels)
    preprocessing = Preprocessing(size=(16, 16), channels=channels)
    assert evaluation_pixels(encoded, preprocessing).shape == (channels, 16, 16)


def test_damaged_exif_data_are_skipped_and_named(make_smooth, photos, monkeypatch):
    data = with_damaged_exif(make_smooth)
    stumble_at_exif(monkeypatch)
    for read in (lambda *named: stored(*named, 1), lambda *named: stored(*named, 3)):
        with pytest.raises(BadImage, match="its EXIF data is broken"):
            read(data, "made")
    (photos / "cat" / "0.jpg").write_bytes(data)
    images = open_data(str(photos), DataConfig(test_fraction=0)).train
    loader = evaluation_loader(images, preprocessing=Preprocessing(size=(16, 16)), batch_size=8)
    assert sum(len(batch.images) for batch in loader) == 19
    assert list(dict(loader.bad)) == [str(photos / "cat" / "0.jpg")]


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1, 1_000_000), (1_000_000, 1)])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_very_long_image_takes_little_memory(size, channels):
    pixels = np.random.default_rng(0).integers(0, 256, size[::-1], dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    preprocessing = Preprocessing(size=(32, 32), channels=channels)
    image = preprocessing.image(Image.open(file))  # would be 32 x 32 million pixels
    assert image.size == (32, 32)
    short = Image.fromarray(pixels[:401] if size[0] == 1 else pixels[:, :401])
    assert preprocessing.image(short).size == (32, 32)


def test_only_the_window_of_a_long_image_is_the_same_image(monkeypatch, make_smooth):
    image = make_smooth(3, 400, 90)
    preprocessing = Preprocessing(size=(32, 32))
    whole = np.asarray(preprocessing.image(image)).astype(int)
    monkeypatch.setattr("vitreous.models.preprocessing.MOST_RESIZED", 0)  # it counts as long
    assert np.abs(np.asarray(preprocessing.image(image)).astype(int) - whole).max() <= 1


def test_too_little_memory_is_a_bad_image(monkeypatch, photos):
    def too_much(image, *words, **options):
        raise MemoryError

    monkeypatch.setattr(Image.Image, "resize", too_much)
    images = ImageList([str(path) for path in sorted((photos / "cat").iterdir())])
    loader = evaluation_loader(images, preprocessing=Preprocessing(size=(16, 16)), batch_size=8)
    assert list(loader) == []
    assert set(dict(loader.bad).values()) == {"it takes more memory than is available"}


def cut(path, part=0.7):
    data = path.read_bytes()
    path.write_bytes(data[: int(part * len(data))])


@pytest.mark.parametrize("in_memory", [True, False])
def test_truncated_jpegs_are_read_and_counted(photos, tmp_path, in_memory, capsys):
    cut(photos / "cat" / "0.jpg")
    images = open_data(str(photos), DataConfig(test_fraction=0)).train
    loader = image_loader(
        images,
        preprocessing=Preprocessing(size=(16, 16)),
        augmentation=AugmentationConfig(),
        batch_size=20,
        seed=0,
        config=DataConfig(reading={"in_memory": in_memory}),
    )
    assert sorted(next(loader.epoch(0)).indices.tolist()) == list(range(20))
    assert len(loader.bad) == 0
    loader.bad.write(tmp_path / "bad_files.txt")
    assert (tmp_path / "bad_files.txt").read_text() == (
        f"{photos}/cat/0.jpg\tdamaged: the file ends too early, and the missing rows are gray\n"
    )
    assert run(["data", "check", str(photos), "--json"]) == 0
    findings = {each["kind"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["damaged"]["images"] == [f"{photos}/cat/0.jpg"]


def test_how_many_may_be_bad_is_a_setting(photos):
    for index in range(5):
        (photos / "cat" / f"{index}.jpg").write_bytes(b"damaged")
    images = open_data(str(photos), DataConfig(test_fraction=0)).train

    def epoch(**reading):
        loader = image_loader(
            images,
            preprocessing=Preprocessing(size=(16, 16)),
            augmentation=AugmentationConfig(),
            batch_size=20,
            seed=0,
            config=DataConfig(reading=reading),
        )
        return len(next(loader.epoch(0)).indices), len(loader.bad)

    with pytest.raises(InputError, match=r"5 of 20 .*more than 1%.*--quarantine.*bad_files=0\.2"):
        epoch()
    assert epoch(bad_files=0.3) == (20, 5)


def test_quarantine_moves_bad_files_away(photos, tmp_path, capsys):
    for name in ("cat/0.jpg", "dog/3.jpg"):
        (photos / name).write_bytes(b"damaged")
    assert run(["data", "check", str(photos), "--quarantine", str(tmp_path / "away")]) == 1
    assert "moved to quarantine: 2 files" in capsys.readouterr().out
    moved = {str(file.relative_to(tmp_path / "away")) for file in (tmp_path / "away").rglob("*.jpg")}
    assert moved == {"cat/0.jpg", "dog/3.jpg"}
    assert run(["data", "check", str(photos)]) == 0
    for source, folder, sentence in (
        (str(photos), str(photos / "away"), "name another folder"),
        ("digits", str(tmp_path / "away"), "leave it out"),
    ):
        assert run(["data", "check", source, "--quarantine", folder]) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(("form", "suffix"), [("AVIF", "avif"), ("JPEG2000", "jp2")])
def test_what_pillow_reads_is_read(form, suffix, photos, make_smooth):
    make_smooth(5, 48, 64).save(photos / "cat" / f"more.{suffix}", form)
    images = open_data(str(photos), DataConfig(test_fraction=0)).train
    assert len(images) == 21
    row = next(row for row in range(21) if images.key(row) == f"cat/more.{suffix}")
    assert images.opened(row, 3).pixels().shape == (3, 48, 64)


def test_a_format_without_its_plugin_names_the_line_that_installs_it(monkeypatch):
    for module in ("pillow_heif", "pillow_jxl"):
        monkeypatch.setitem(sys.modules, module, None)
    for data, name in ((b"\0\0\0\x18ftypheic" + b"\0" * 40, "HEIF"), (b"\xff\x0a" + b"\0" * 40, "JXL")):
        with pytest.raises(BadImage, match=rf"an image of the format {name}: pip install 'vitreous\[heic\]'"):
            open_image(data, "made")


def test_a_plugin_is_registered_when_it_is_needed(monkeypatch):
    plugin = types.ModuleType("pillow_heif")
    plugin.register_heif_opener = lambda: Image.register_open(
        "HEIF", lambda file, name: Image.new("RGB", (7, 5)), lambda prefix: prefix[4:8] == b"ftyp"
    )
    monkeypatch.setitem(sys.modules, "pillow_heif", plugin)
    monkeypatch.setattr(Image, "OPEN", dict(Image.OPEN))
    register_plugin.cache_clear()
    assert open_image(b"\0\0\0\x18ftypheic" + b"\0" * 40, "made").size == (7, 5)
    register_plugin.cache_clear()


def test_a_folder_to_predict_names_what_it_cannot_read(tmp_path, make_jpeg):
    (tmp_path / "a.jpg").write_bytes(make_jpeg(0))
    (tmp_path / "b.HEIC").write_bytes(b"\0\0\0\x18ftypheic" + b"\0" * 40)
    images = image_list(str(tmp_path))
    assert (len(images), images.missing) == (2, {})
    if not is_installed("pillow_heif"):
        with pytest.raises(BadImage, match=r"HEIF: pip install 'vitreous\[heic\]'"):
            images.image(1)


@pytest.mark.parametrize("name", ["shards-000.tar", "list.csv", "images.parquet"])
def test_a_file_of_many_images_is_no_image(tmp_path, name):
    (tmp_path / name).write_bytes(b"path,label\n")
    with pytest.raises(
        InputError,
        match=rf"{name} is a file with many images, or with their names, not an image: add `out` FOLDER",
    ):
        image_list(tmp_path / name)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_every_batch_says_which_of_its_images_are_damaged(photos, native, workers):
    cut(photos / "cat" / "3.jpg", 0.5)
    images = ImageList([str(path) for path in sorted((photos / "cat").iterdir())])
    kind = NativePreprocessing if native else Preprocessing
    loader = evaluation_loader(images, preprocessing=kind(size=(16, 16)), batch_size=4, workers=workers)
    damaged = []
    for batch in loader:
        assert batch.damaged.shape == batch.indices.shape
        damaged += [images.name(index) for index in batch.indices[batch.damaged].tolist()]
    assert damaged == [str(photos / "cat" / "3.jpg")]
    assert loader.bad.damaged == {damaged[0]: ENDS_TOO_EARLY}
    assert not loader.bad.reasons
