"""What `vitreous data check` must not miss, and must not make up."""

import numpy as np
import pytest
from PIL import Image

from vitreous.data.checks import actions, collect, report_of
from vitreous.data.config import DataConfig
from vitreous.data.held_out import EXCLUDE
from vitreous.data.likeness import AROUND, SIDE, THUMB, near_pairs
from vitreous.data.sources import open_data


def found(root):
    report = report_of(collect(open_data(str(root), DataConfig(test_fraction=0)), workers=2))
    return {finding.kind: finding for finding in report.findings}


def test_an_image_of_several_classes_counts_for_each(tmp_path, make):
    make(tmp_path, count=12)
    rows = [f"{name}/{i}.jpg,{name}|animal|zoo\n" for name in ("cat", "dog") for i in range(12)]
    (tmp_path / "list.csv").write_text("path,label\n" + "".join(rows))
    report = report_of(collect(open_data(str(tmp_path / "list.csv"), DataConfig()), workers=2))
    assert report.classes == {"animal": 24, "cat": 12, "dog": 12, "zoo": 24}
    assert "few" not in {finding.kind for finding in report.findings}


@pytest.fixture
def textured():
    """An image with texture in it: neighboring cells of a thumbnail hardly differ, and noise turns them."""

    def make(seed):
        generator = np.random.default_rng(seed)
        coarse = Image.fromarray(generator.integers(0, 256, (5, 5, 3), dtype=np.uint8))
        base = np.asarray(coarse.resize((160, 120), Image.Resampling.BICUBIC), dtype=float)
        return Image.fromarray((0.8 * base + generator.normal(25, 14, base.shape)).clip(0, 255).astype("u1"))

    return make


@pytest.mark.parametrize("change", ["smaller", "brighter", "recompressed", "webp"])
def test_a_changed_copy_is_nearly_the_same(tmp_path, textured, change):
    for part, seeds in (("train", range(12)), ("val", range(12, 18))):
        for seed in seeds:
            folder = tmp_path / part / ("cat" if seed % 2 else "dog")
            folder.mkdir(parents=True, exist_ok=True)
            textured(seed).save(folder / f"{seed}.jpg", quality=95)
    source = tmp_path / "train" / "cat" / "3.jpg"
    with Image.open(source) as image:
        copies = {
            "smaller": (image.resize((90, 68)), {"quality": 70}),
            "brighter": (image.point(lambda value: min(255, int(1.03 * value))), {"quality": 90}),
            "recompressed": (image, {"quality": 40}),
            "webp": (image, {"quality": 60}),
        }
        copy, options = copies[change]
        path = tmp_path / "val" / "cat" / ("copy.webp" if change == "webp" else "copy.jpg")
        copy.save(path, **options)
    assert found(tmp_path)["near-leak"].images == ((str(source), str(path)),)


def test_the_same_shape_in_another_color_is_another_image(tmp_path, textured):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
    for seed in range(12):
        textured(seed).save(tmp_path / ("cat" if seed % 2 else "dog") / f"{seed}.png")
    with Image.open(tmp_path / "cat" / "1.png") as image:
        red, green, blue = image.split()
        Image.merge("RGB", (blue, red, green)).save(tmp_path / "cat" / "other.png")
    assert "near-duplicate" not in found(tmp_path)


def test_a_set_in_which_all_look_alike_is_not_listed_pair_by_pair():
    gray = np.tile((np.arange(SIDE**2) % 251).astype(np.uint8).reshape(1, SIDE, SIDE), (300, 1, 1))
    colors = np.zeros((300, THUMB, THUMB, 3), dtype=np.uint8)
    assert len(near_pairs(gray, colors, np.zeros(300, dtype=int))) < 300 * AROUND * 4


def test_every_copy_of_a_held_out_image_is_left_out(tmp_path, textured):
    """Of equal images, however many, the first one of the last part is used and no other."""
    names = ["train/cat/0.png", "train/cat/1.png", "val/cat/0.png", "test/cat/0.png", "test/cat/1.png"]
    for name, seed in (*((name, 0) for name in names), ("train/dog/2.png", 1), ("test/dog/2.png", 2)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        textured(seed).save(tmp_path / name)
    rows = [
        each for each in actions(collect(open_data(str(tmp_path), DataConfig()))) if each.action == EXCLUDE
    ]
    assert sorted(each.path for each in rows) == sorted(set(names) - {"test/cat/0.png"})
    assert {each.kind for each in rows} == {"leak", "duplicate"}
    assert [each.path for each in rows if each.kind == "duplicate"] == ["test/cat/1.png"]
