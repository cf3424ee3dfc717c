"""Images that show the same are in one part of every split, and a class has its share of each part."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from vitreous.data.config import DataConfig, SplitByName, SplitByTime
from vitreous.data.dataset import named_parts
from vitreous.data.held_out import folds_of, share_of
from vitreous.data.likeness import Thumbnails, near_pairs
from vitreous.data.sources import open_data
from vitreous.evaluation.classical import fit_classical

COPIES = {
    "equal": lambda image: image,
    "encoded again": lambda image: encoded_again(image),
    "smaller": lambda image: image.resize((image.width // 2, image.height // 2)),
    "mirrored": ImageOps.mirror,
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.1),
    "gray": lambda image: image.convert("L"),
    "cropped": lambda image: image.crop(margins(image, 0.05)),
    "cropped a little": lambda image: image.crop(margins(image, 0.025)),
    "cropped left": lambda image: image.crop((image.width // 20, 0, image.width, image.height)),
    "all of it": lambda image: ImageEnhance.Brightness(ImageOps.mirror(image).convert("L")).enhance(1.1),
}


def encoded_again(image):
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=40)
    return Image.open(file)


def margins(image, share):
    width, height = image.size
    return tuple(
        round(side)
        for side in (share * width, share * height, width - share * width, height - share * height)
    )


def photo(seed, size=(96, 72)):
    """An image with structure of several sizes."""
    rng = np.random.default_rng(seed)
    values = np.zeros((size[1], size[0], 3))
    for cells, strength in ((3, 90), (7, 60), (15, 25)):
        some = rng.uniform(-strength, strength, (cells, cells, 3)).astype(np.float32)
        for band in range(3):
            layer = Image.fromarray(some[..., band]).resize(size, Image.Resampling.BICUBIC)
            values[..., band] += np.asarray(layer)
    return Image.fromarray((values + 120).clip(0, 255).astype(np.uint8))


def parts_of(source, **config):
    splits = open_data(str(source), DataConfig(**config))
    parts = named_parts(*splits[:3])
    return {images.key(i): name for name, images in parts.items() for i in range(len(images))}


def fill(root, classes="ab", count=20):
    for number, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for index in range(count):
            photo(1000 * number + index).save(root / name / f"{index}.png")
    return root


@pytest.fixture(scope="module")
def looks():
    return [Thumbnails.of(np.asarray(photo(seed))) for seed in range(120)]


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_looks_alike_and_another_image_does_not(looks, how):
    copies = [Thumbnails.of(np.asarray(COPIES[how](photo(seed)).convert("RGB"))) for seed in range(40)]
    gray, color = (np.array(each) for each in zip(*looks, *copies, strict=True))
    found = set(map(tuple, near_pairs(gray, color, np.zeros(len(gray), dtype=int)).tolist()))
    assert len(found & {(seed, 120 + seed) for seed in range(40)}) >= 39
    assert len(found) <= 40


def test_mirror_images_of_two_classes_are_no_copies_where_they_have_no_colors():
    """p and q, a left and a right hand; a photograph that is mirrored is a copy whatever its label is."""
    glyph, seen = Image.new("RGB", (64, 64), "white"), list[Thumbnails]()
    draw = ImageDraw.Draw(glyph)
    draw.rectangle((14, 12, 18, 56), fill="black")
    draw.ellipse((18, 12, 46, 36), outline="black", width=4)
    for image in (glyph, ImageOps.mirror(glyph), photo(0), ImageOps.mirror(photo(0))):
        seen.append(Thumbnails.of(np.asarray(image.convert("RGB"))))
    gray, color = (np.array(each) for each in zip(*seen, strict=True))
    assert near_pairs(gray, color, np.array([0, 0, 0, 0])).tolist() == [[0, 1], [2, 3]]
    assert near_pairs(gray, color, np.array([0, 1, 0, 1])).tolist() == [[2, 3]]


def test_among_images_that_are_all_alike_only_copies_are_copies():
    """Cells, X-rays and products on white have most of their values in common."""
    rng = np.random.default_rng(0)
    base = np.asarray(photo(0), dtype=float)
    images = [base + np.asarray(photo(seed), dtype=float) / 8 for seed in range(1, 81)]
    images += [each * 1.05 + rng.normal(0, 1, base.shape) for each in images[:10]]
    seen = [Thumbnails.of(each.clip(0, 255).astype(np.uint8)) for each in images]
    gray, color = (np.array(each) for each in zip(*seen, strict=True))
    found = near_pairs(gray, color, np.zeros(len(gray), dtype=int))
    assert found.tolist() == [[number, 80 + number] for number in range(10)]


@pytest.mark.parametrize(
    "split", [{}, {"split": SplitByName(seed=3)}, {"split": SplitByName(group_by="([0-9])")}]
)
def test_copies_are_in_one_part_and_move_no_image(tmp_path, split):
    photos = fill(tmp_path / "photos")
    before = parts_of(photos, validation_fraction=0.2, **split)
    assert set(before.values()) == {"train", "validation", "test"}
    for number, how in enumerate(COPIES):
        for name in ("a", "b"):  # also where the copy is in another class
            source = photos / ("a" if number % 3 else name) / f"{number}.png"
            COPIES[how](Image.open(source).convert("RGB")).save(
                photos / name / f"{source.stem}-{how}-copy.png"
            )
    after = parts_of(photos, validation_fraction=0.2, **split)
    assert {key: after[key] for key in before} == before
    for key, part in after.items():
        if "copy" in key:
            number = key.partition("/")[2].partition("-")[0]
            assert part in {after[f"{name}/{number}.png"] for name in ("ab" if int(number) % 3 == 0 else "a")}


def test_the_newest_are_not_copies_of_older_ones(tmp_path):
    photos = fill(tmp_path / "photos", count=15)
    rows = [
        f"{path.relative_to(photos)},{path.parent.name},{path.stem}" for path in sorted(photos.rglob("*.png"))
    ]
    (photos / "a" / "old.png").write_bytes((photos / "a" / "3.png").read_bytes())
    table = photos / "list.csv"
    table.write_text("\n".join(["path,label,taken", *rows, "a/old.png,a,99"]))
    parts = parts_of(table, split=SplitByTime(time="taken"))
    assert parts["a/old.png"] == parts["a/3.png"] == "train"
    assert {key for key, part in parts.items() if part == "test"} == {
        f"{name}/{number}.png" for name in "ab" for number in (12, 13, 14)
    }


def test_noise_with_copies_is_at_chance(tmp_path):
    """Nothing can be learned from it, but copies on both sides of a split are recognized."""
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(30):
            image = Image.fromarray(rng.integers(0, 256, (24, 24, 3), dtype=np.uint8))
            for copy in range(4):
                image.save(tmp_path / name / f"{number}-{copy}.png")
    splits = open_data(str(tmp_path), DataConfig())
    methods = fit_classical(splits)
    for each in methods.baselines(splits.test):
        assert each.interval[0] < 0.5 < each.interval[1], each
    for each in methods.methods:  # by cross-fitting
        assert methods.problem.measures.of(each.answers, methods.learned.truth) < 0.6
    for rows, others in folds_of(splits.train.targets.strata(), splits.train.together()):
        assert not set(splits.train.together(rows)) & set(splits.train.together(others))


@pytest.mark.parametrize("count", range(1, 13))
def test_a_small_class_keeps_enough_to_learn_from(tmp_path, count):
    photos = fill(tmp_path / "photos", count=12)
    for index in range(count):
        (photos / "small").mkdir(exist_ok=True)
        photo(5000 + index).save(photos / "small" / f"x{index}.png")
    for seed in range(5):
        parts = parts_of(photos, validation_fraction=0.1, split=SplitByName(seed=seed))
        of_class = [part for key, part in parts.items() if key.startswith("small")]
        most = 1 if count < 6 else 2 if count < 8 else 4
        assert min(count - 1, 1) <= of_class.count("test") <= (most if count > 1 else 0)
        assert of_class.count("train") >= count / 2
        assert of_class.count("validation") <= max(1, count // 5)


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.2, 0.5, 0.9])
def test_shares_leave_room_for_hashes(fraction):
    for images in range(1, 300):
        low, high = share_of(fraction, images, 2)
        assert 0 <= low <= high < images or images == 1
        assert images == 1 or (
            low >= 1 and low <= max(1, fraction * images) and high >= int(fraction * images)
        )


def test_what_a_class_looks_like_is_no_copy(tmp_path):
    """Where all images of a class are alike some are held out all the same; equal ones stay together."""
    base = np.asarray(photo(0), dtype=float)
    for name, shift in (("a", 0), ("b", 60)):
        (tmp_path / name).mkdir()
        for number in range(20):
            noise = np.random.default_rng(100 * shift + number).normal(0, 2, base.shape)
            values = (np.roll(base, shift, axis=1) + noise).clip(0, 255).astype(np.uint8)
            Image.fromarray(values).save(tmp_path / name / f"{number}.png")
        (tmp_path / name / "copy-of-3.png").write_bytes((tmp_path / name / "3.png").read_bytes())
    parts = parts_of(tmp_path)
    assert 4 <= list(parts.values()).count("test") <= 16
    for name in "ab":
        assert parts[f"{name}/3.png"] == parts[f"{name}/copy-of-3.png"]
