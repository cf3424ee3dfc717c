"""Folders of images and masks, composed pages, and what training sees of both."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitreous.addons.segmentation.checking import check_masks
from vitreous.addons.segmentation.digit_pages import open_digit_pages
from vitreous.addons.segmentation.folders import open_masked
from vitreous.addons.segmentation.masked import MaskReader, mask_image, palette
from vitreous.addons.segmentation.task import masks_config
from vitreous.data.config import AugmentationConfig, DataConfig, RandomResizedCropConfig
from vitreous.data.image_samples import evaluation_loader, image_loader
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing

SEEN = Preprocessing(size=(16, 16), channels=3, resize="squash", interpolation="bilinear")


def write(root: Path, stems="abcdefghij", *, size=(24, 20), images="images", masks="masks", ending="jpg"):
    """Images whose mask is 1 or 2 in a square and 0 elsewhere; the square is bright."""
    rng = np.random.default_rng(0)
    for number, stem in enumerate(stems):
        mask = np.zeros(size, dtype=np.uint8)
        top, left = rng.integers(0, 10, 2)
        mask[top : top + 8, left : left + 8] = 1 + number % 2
        pixels = (40 + 180 * (mask > 0))[..., None].repeat(3, axis=2).astype(np.uint8)
        for folder, image in ((images, Image.fromarray(pixels)), (masks, mask_image(mask, 3))):
            path = root / folder / f"{stem}.{ending if folder == images else 'png'}"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path, **({"quality": 100, "subsampling": 0} if path.suffix == ".jpg" else {}))
    return root


def loader(images, *, augmentation=None, preprocessing=SEEN, **options):
    augmentation = augmentation or AugmentationConfig()
    return image_loader(
        images,
        preprocessing=preprocessing,
        augmentation=augmentation,
        reader=MaskReader(images, preprocessing, augmentation),
        **{"batch_size": 4, "seed": 0} | options,
    )


def evaluation(images, **options):
    return evaluation_loader(images, preprocessing=SEEN, reader=MaskReader(images, SEEN), **options)


def test_a_folder_is_split_and_its_classes_numbered(tmp_path):
    splits = open_masked(str(write(tmp_path)), DataConfig(test_fraction=0.2, validation_fraction=0.25))
    assert sum(len(part) for part in splits[:3]) == 10
    assert splits.train.classes == ("0", "1", "2")
    found = splits.summary
    assert (found.height, found.width, found.channels) == (24, 20, 3)
    names = {part.name(i) for part in splits[:3] for i in range(len(part))}
    assert len(names) == 10
    image, mask = splits.train.pair(0)
    bright = np.asarray(image.preview().convert("L")) > 128
    assert np.array_equal(bright, mask > 0)


@pytest.mark.parametrize("images", ["{part}/images", "images/{part}"])
def test_parts_may_stand_inside_or_outside(tmp_path, images):
    for part, stems in (("train", "abcdef"), ("val", "ghi")):
        place = images.format(part=part)
        write(tmp_path, stems, images=place, masks=place.replace("images", "masks"))
    splits = open_masked(str(tmp_path), DataConfig())
    assert (len(splits.train), splits.validation, len(splits.test)) == (6, None, 3)


def test_classes_have_names_and_colors_may_stand_for_them(tmp_path):
    write(tmp_path)
    (tmp_path / "classes.txt").write_text("background #000000\nred car #ff0000\ngreen\ttree #00ff00\n")
    for path in (tmp_path / "masks").iterdir():
        colors = np.array([[0, 0, 0], [255, 0, 0], [0, 255, 0]], dtype=np.uint8)
        mask = np.asarray(Image.open(path))
        pixels = colors[mask]
        pixels[0, 0] = 255  # white is left out
        Image.fromarray(pixels).save(path)
    splits = open_masked(str(tmp_path), DataConfig())
    assert splits.train.classes == ("background", "red car", "green\ttree")
    _, mask = splits.train.pair(0)
    assert mask[0, 0] == 255
    assert set(np.unique(mask)) <= {0, 1, 2, 255}


def spoil(tmp_path, what):
    path = tmp_path / "masks" / "c.png"
    mask = np.asarray(Image.open(path))
    match what:
        case "no mask":
            path.unlink()
        case "size":
            Image.fromarray(mask[:-1]).save(path)
        case "colors":
            mask_image(mask, 3).convert("RGB").save(path)
        case "range":
            (tmp_path / "classes.txt").write_text("background\nthing\n")
        case "unknown color":
            (tmp_path / "classes.txt").write_text("a #000000\nb #123456\nc #654321\n")
            mask_image(mask, 3).convert("RGB").save(path)
        case "twice":
            (tmp_path / "classes.txt").write_text("a\nb\na\n")
        case "half colored":
            (tmp_path / "classes.txt").write_text("a #000000\nb\n")
        case "empty":
            for file in (tmp_path / "images").iterdir():
                file.unlink()
        case "one class":
            for file in (tmp_path / "masks").iterdir():
                Image.fromarray(np.where(np.asarray(Image.open(file)) > 0, 255, 0).astype(np.uint8)).save(
                    file
                )
        case "no masks folder":
            (tmp_path / "masks").rename(tmp_path / "other")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("no mask", "c.jpg has no mask: put c.png into"),
        ("size", "c.png is 23x20, but its image is 24x20"),
        ("colors", r"c.png has colors \(mode RGB\), not class numbers"),
        ("range", r"has the value 2, but there are 2 classes \(0 to 1; 255 is ignored\)"),
        ("unknown color", "which no class of classes.txt has"),
        ("twice", "names 'a' twice"),
        ("half colored", "has 2 classes but 1 colors"),
        ("empty", "images holds no image"),
        ("one class", "if 255 marks the object, save it as 1"),
        ("no masks folder", "is not a folder of images and masks: put images into images/"),
    ],
)
def test_what_does_not_belong_together_is_said_before_training(tmp_path, what, said):
    spoil(write(tmp_path), what)
    with pytest.raises(InputError, match=said) as error:
        open_masked(str(tmp_path), DataConfig())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("value", "masks", "told"), [(254, 1, True), (254, 2, False), (5, 1, False)])
def test_a_stray_value_in_one_mask_is_named(tmp_path, caplog, value, masks, told):
    """It makes a class of its own, and many below it that nothing belongs to."""
    write(tmp_path)
    for name in ("c", "d")[:masks]:
        path = tmp_path / "masks" / f"{name}.png"
        mask = np.array(Image.open(path))
        mask[3, 4] = value
        Image.fromarray(mask).save(path)
    assert len(open_masked(str(tmp_path), DataConfig()).train.classes) == value + 1
    said = f"c.png alone has the value {value}, and no other mask one above 2"
    assert (said in caplog.text) == told
    assert bool(caplog.records) == told


@pytest.mark.parametrize(
    ("values", "kind", "severity", "said"),
    [
        ([0, 255], "one value", "error", "their values: 0, 255; 255 is ignored"),
        ([255], "nothing in masks", "error", "every pixel of every mask is 255"),
        ([0, 100], "sparse values", "warning", "values 0, 100, and .* 99 classes do not appear in any mask"),
        ([0, 100, 255], "sparse values", "warning", "values 0, 100, 255, and .*255 is ignored"),
        ([0, 1, 3, 255], None, None, None),
    ],
)
def test_training_and_checking_say_the_same_of_the_values_of_masks(tmp_path, values, kind, severity, said):
    rng = np.random.default_rng(0)
    for number in range(8):
        for folder in ("images", "masks"):
            (tmp_path / folder).mkdir(exist_ok=True)
            pixels = rng.choice(np.array(values if folder == "masks" else range(256), np.uint8), (24, 20))
            Image.fromarray(pixels).save(tmp_path / folder / f"{number}.png")
    kinds = ("one value", "nothing in masks", "sparse values")
    found = [each for each in check_masks(str(tmp_path)).findings if each.kind in kinds]
    assert [(each.kind, each.severity) for each in found] == ([(kind, severity)] if kind else [])
    if severity == "error":
        with pytest.raises(InputError, match=said) as error:
            open_masked(str(tmp_path), DataConfig())
        assert str(error.value) == found[0].sentence
    else:
        assert [
            each for each in open_masked(str(tmp_path), DataConfig()).train.findings if each.kind in kinds
        ] == found
        assert not found or re.search(said, found[0].problem)


def test_masks_of_sixteen_bits_are_read(tmp_path):
    write(tmp_path)
    path = tmp_path / "masks" / "a.png"
    mask = np.asarray(Image.open(path))
    Image.fromarray(mask.astype(np.uint16)).save(path)
    splits = open_masked(str(tmp_path), DataConfig(test_fraction=0.0))
    assert np.array_equal(splits.train.pair(0)[1], mask)
    Image.fromarray(mask.astype(np.uint16) + 300).save(path)
    with pytest.raises(InputError, match="has the value 300, but there are 255 classes"):
        open_masked(str(tmp_path), DataConfig())


def test_images_of_twelve_bits_keep_their_levels(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(8):
        for folder, values in (("images", rng.integers(0, 4096, (24, 20))), ("masks", np.eye(24, 20))):
            (tmp_path / folder).mkdir(exist_ok=True)
            dtype = np.uint16 if folder == "images" else np.uint8
            Image.fromarray(values.astype(dtype)).save(tmp_path / folder / f"{number}.png")
    data = open_masked(str(tmp_path), DataConfig())
    assert masks_config(data).preprocessing.value_range == ((0.0, 4095.0),)


def test_a_models_classes_must_be_the_datas(tmp_path):
    write(tmp_path)
    assert open_masked(str(tmp_path), DataConfig(), classes=("a", "b", "c", "d")).train.classes[3] == "d"
    with pytest.raises(InputError, match="the model knows a, b"):
        open_masked(str(tmp_path), DataConfig(), classes=("a", "b"))
    with pytest.raises(InputError, match="there is no folder nowhere"):
        open_masked("nowhere", DataConfig())


def test_a_broken_image_or_mask_is_counted_and_its_place_filled(tmp_path):
    write(tmp_path)
    (tmp_path / "images" / "a.jpg").write_bytes(b"no image")
    (tmp_path / "masks" / "b.png").write_bytes((tmp_path / "masks" / "b.png").read_bytes()[:60])
    splits = open_masked(str(tmp_path), DataConfig(test_fraction=0.0))
    batches = loader(splits.train, batch_size=5)
    assert [len(batch.images) for batch in batches.epoch(0)] == [5, 5]
    assert sorted(Path(name).name for name, _ in batches.bad) == ["a.jpg", "b.png"]
    judged = evaluation(splits.train, batch_size=3)
    assert sum(len(batch.masks) for batch in judged) == 8
    assert len(judged.bad) == 2


AUGMENTED = AugmentationConfig(random_resized_crop=RandomResizedCropConfig(scale=(0.3, 1.0)), flip=0.5)


def test_image_and_mask_are_changed_alike(tmp_path):
    """The square is bright, so that the image tells where the mask must be."""
    splits = open_masked(str(write(tmp_path, ending="png")), DataConfig(test_fraction=0.0))
    batches = list(loader(splits.train, augmentation=AUGMENTED, batch_size=5).epoch(0))
    for images, masks in batches:
        bright = SEEN.denormalize(images)[:, 0] > 130
        differ = (bright != (masks > 0)).float().mean()
        assert differ < 0.06, differ  # the edge alone, where bilinear and nearest part
    assert set(torch.cat([batch.masks.flatten() for batch in batches]).tolist()) == {0, 1, 2}


def test_mirrored_images_have_mirrored_masks(tmp_path):
    splits = open_masked(str(write(tmp_path)), DataConfig(test_fraction=0.0))
    plain, mirrored = (
        next(iter(loader(splits.train, augmentation=AugmentationConfig(flip=flip)).epoch(0)))
        for flip in (0.0, 1.0)
    )
    assert torch.equal(mirrored.masks, plain.masks.flip(-1))
    assert torch.equal(mirrored.images, plain.images.flip(-1))


def test_batches_depend_on_seed_epoch_and_step_alone(tmp_path):
    splits = open_masked(str(write(tmp_path)), DataConfig(test_fraction=0.0))
    noisy = AUGMENTED.model_copy(update={"noise": 0.1})
    options = {"augmentation": noisy, "batch_size": 2}
    whole = list(loader(splits.train, **options).epoch(3))
    rest = list(loader(splits.train, **options, workers=2).epoch(3, start=2))
    for one, other in zip(whole[2:], rest, strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.masks, other.masks)
    assert not torch.equal(whole[0].images, next(iter(loader(splits.train, **options).epoch(4))).images)
    plain = next(loader(splits.train, augmentation=AUGMENTED, batch_size=2).epoch(3))
    shared = [
        next(loader(splits.train, augmentation=AUGMENTED, batch_size=1, rank=rank, world_size=2).epoch(3))
        for rank in (0, 1)
    ]
    assert torch.equal(torch.cat([each.images for each in shared]), plain.images)
    assert torch.equal(torch.cat([each.masks for each in shared]), plain.masks)


def test_evaluation_decodes_in_threads_and_in_order(tmp_path, monkeypatch):
    splits = open_masked(str(write(tmp_path)), DataConfig(test_fraction=0.0))
    threads, opened = set(), Image.open

    def watched(*arguments, **options):
        threads.add(threading.current_thread().name)
        return opened(*arguments, **options)

    monkeypatch.setattr(Image, "open", watched)
    batches = evaluation(splits.train, batch_size=3, workers=2)
    assert [index for batch in batches for index in batch.indices.tolist()] == list(range(10))
    assert threads
    assert all(name.startswith("vitreous-data") for name in threads)


def test_a_batch_larger_than_the_data_is_said(tmp_path):
    splits = open_masked(str(write(tmp_path)), DataConfig(test_fraction=0.0))
    with pytest.raises(InputError, match="a batch of 11 is more than the 10 training samples"):
        loader(splits.train, batch_size=11)


def test_a_turned_photograph_fits_its_upright_mask(tmp_path):
    write(tmp_path, "ab")
    path = tmp_path / "images" / "a.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(path).transpose(Image.Transpose.ROTATE_90).save(path, exif=exif, quality=100)
    splits = open_masked(str(tmp_path), DataConfig(test_fraction=0.0))
    batch, *_ = evaluation(splits.train, batch_size=2)
    assert batch.masks[0].shape == (24, 20)


def test_pages_are_made_of_digits_that_no_other_part_shows():
    splits = open_digit_pages(DataConfig(validation_fraction=0.2))
    parts = [
        {digit.tobytes() for digit in part.cover} for part in (splits.train, splits.validation, splits.test)
    ]
    assert not parts[0] & parts[2]
    assert not parts[0] & parts[1]
    image, mask = splits.train.pair(7)
    again, same = splits.train.pair(7)
    assert np.array_equal(image.array(), again.array())
    assert np.array_equal(mask, same)
    counts = sum(np.bincount(splits.test.pair(i)[1].ravel(), minlength=11) for i in range(60))
    assert (counts > 0).all()
    assert 0.7 < counts[0] / counts.sum() < 0.92


def test_a_palette_tells_classes_apart():
    colors = palette(255)
    assert len({tuple(color) for color in colors.tolist()}) == 255
    mask = np.array([[0, 1], [2, 255]], dtype=np.uint8)
    image = mask_image(mask, 3)
    assert image.mode == "P"
    assert np.array_equal(np.asarray(image), mask)
    assert mask_image(mask, 3).convert("RGB").getpixel((1, 1)) == (255, 255, 255)
