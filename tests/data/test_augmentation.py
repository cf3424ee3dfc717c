"""What is done to training images: that it is done, to whom, and how much."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance
from torch.utils._python_dispatch import TorchDispatchMode

from vitreous.data.batch_augmentation import BatchRandom, BatchTransform, flip, mix, span
from vitreous.data.config import (
    AffineConfig,
    AugmentationConfig,
    ColorJitterConfig,
    MixConfig,
    RandAugmentConfig,
    ThreeAugmentConfig,
)
from vitreous.data.image_augmentation import change_colors, jitter, shift_hue, three_augment
from vitreous.data.image_samples import Batch
from vitreous.data.rand_augment import BIG_VISION, LISTS, Strength, rand_augment
from vitreous.models.preprocessing import Preprocessing
from vitreous.rng import numpy_generator


def random(step=0, size=64, **others):
    return BatchRandom(0, 0, step, size=size, **others)


class Numbers(NamedTuple):
    """A batch of images alone."""

    images: torch.Tensor


def augment(images, config, **others):
    """What the transform makes of numbers that its normalization leaves as they are."""
    channels = images.shape[1]
    as_they_are = Preprocessing(channels=channels, mean=(0.0,) * channels, std=(1 / 255,) * channels)
    return BatchTransform(as_they_are, config, **others)(Numbers(images), 0, 0).images


def test_flips_mirror_some_images_and_leave_the_others():
    images = torch.randint(0, 256, (64, 3, 5, 7), dtype=torch.uint8)
    flipped = flip(images.clone(), random().uniform(0.0, 1.0) < 0.5)
    same = (flipped == images).flatten(1).all(1)
    mirrored = (flipped == images.flip(-1)).flatten(1).all(1)
    assert (same ^ mirrored).all()
    assert 16 < same.sum() < 48


def test_each_step_of_each_epoch_has_its_own_augmentation():
    transform = BatchTransform(
        Preprocessing(channels=3), AugmentationConfig(affine=AffineConfig(translate=0.3))
    )
    images = torch.randint(0, 256, (8, 3, 16, 16), dtype=torch.uint8)
    first = transform(Numbers(images), 0, 0).images
    assert torch.equal(transform(Numbers(images), 0, 0).images, first)
    assert not torch.equal(transform(Numbers(images), 0, 1).images, first)
    assert not torch.equal(transform(Numbers(images), 1, 0).images, first)


def test_an_affine_of_nothing_changes_nothing():
    images = torch.randn(8, 1, 9, 12)
    assert torch.allclose(augment(images, AugmentationConfig(affine=AffineConfig())), images, atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(33, 33), (33, 65)])
def test_a_rotation_keeps_distances(height, width):
    """A dot turns around the center: its distance stays, also where the image is not square."""
    images = torch.zeros(64, 1, height, width)
    row, column = height // 2 - 9, width // 2
    images[:, 0, row - 1 : row + 2, column - 1 : column + 2] = 1
    turned = augment(images, AugmentationConfig(affine=AffineConfig(rotate=90, fill="mean")))
    y, x = torch.meshgrid(torch.arange(height) - height // 2, torch.arange(width) - width // 2, indexing="ij")
    mass = turned[:, 0].flatten(1).sum(1)
    center = torch.stack([(turned[:, 0] * place).flatten(1).sum(1) / mass for place in (y, x)], dim=1)
    assert torch.allclose(center.norm(dim=1), torch.full((64,), 9.0), atol=0.3)
    angles = torch.atan2(center[:, 1], -center[:, 0]) * 180 / math.pi
    assert angles.min() < -60
    assert angles.max() > 60


def test_a_shift_is_a_part_of_the_side():
    images = torch.zeros(256, 1, 20, 40)
    images[:, 0, 10, 20] = 1
    moved = augment(images, AugmentationConfig(affine=AffineConfig(translate=0.25)))
    rows, columns = moved.sum(3).squeeze(1).argmax(1), moved.sum(2).squeeze(1).argmax(1)
    assert rows.min() in (5, 6)
    assert rows.max() in (14, 15)
    assert columns.min() in (10, 11)
    assert columns.max() in (29, 30)


def test_a_scale_makes_images_larger_and_smaller():
    images = torch.zeros(256, 1, 40, 40)
    images[:, 0, 15:25, 15:25] = 1
    scaled = augment(images, AugmentationConfig(affine=AffineConfig(scale=0.3)))
    sides = scaled.flatten(1).sum(1).sqrt() / 10
    assert sides.min().item() == pytest.approx(0.7, abs=0.05)
    assert sides.max().item() == pytest.approx(1.3, abs=0.05)
    assert sides.mean().item() == pytest.approx(1.0, abs=0.05)


def test_erasing_takes_one_rectangle_of_the_right_area():
    images = torch.full((256, 3, 32, 32), 9.0)
    erased = augment(images, AugmentationConfig(random_erasing=0.5)) != 9
    touched = erased.flatten(1).any(1)
    assert 100 < touched.sum() < 156
    for mask in erased[touched].all(dim=1):
        rows, columns = mask.any(1), mask.any(0)
        assert mask.sum() == rows.sum() * columns.sum()  # all of a rectangle
    areas = erased[touched].float().mean(dim=(1, 2, 3))
    assert areas.max() < 0.36
    assert areas.min() > 0.01


def test_noise_has_its_deviation():
    noisy = augment(torch.zeros(64, 1, 32, 32), AugmentationConfig(noise=0.3))
    assert noisy.std().item() == pytest.approx(0.3, rel=0.05)


def test_mixup_mixes_neighbors_and_their_targets_alike():
    images, targets = torch.randn(7, 3, 4, 4), torch.eye(7)
    mixed, labels = mix(images, targets, MixConfig(mixup=1.0), random(size=7))
    own = labels[0, 0]
    assert 0 < own < 1
    assert torch.allclose(mixed[0], own * images[0] + (1 - own) * images[1], atol=1e-6)
    assert torch.allclose(mixed[1], own * images[1] + (1 - own) * images[0], atol=1e-6)
    assert torch.equal(mixed[6], images[6])  # without a neighbor
    assert torch.allclose(labels.sum(1), torch.ones(7))


def test_cutmix_weighs_targets_by_area():
    images = torch.arange(8.0)[:, None, None, None].expand(8, 1, 16, 16)
    for step in range(20):
        mixed, labels = mix(images, torch.eye(8), MixConfig(cutmix=1.0), random(step, 8))
        for index in range(8):
            part = (mixed[index] == index).float().mean()
            assert labels[index, index] == pytest.approx(part.item(), abs=1e-6)


@pytest.mark.slow
@pytest.mark.peers
def test_boxes_of_cutmix_are_whole_pixels_as_timms(monkeypatch):
    timm = pytest.importorskip("timm.data.mixup")
    rng = np.random.default_rng(0)
    for _ in range(200):
        row, column, own = int(rng.integers(16)), int(rng.integers(32)), float(rng.random())
        places = [column, row]
        monkeypatch.setattr(timm.np.random, "randint", lambda *w, size=None, left=places: left.pop())
        theirs = timm.rand_bbox((1, 1, 16, 32), own)
        side = (1 - own) ** 0.5
        ours = (*span(row, int(side * 16), 16), *span(column, int(side * 32), 32))
        assert ours == tuple(int(each) for each in theirs)


def test_both_mixes_take_turns_and_may_be_left_out():
    config = MixConfig(mixup=0.8, cutmix=1.0, probability=0.5)
    images = torch.randn(4, 1, 8, 8)
    kinds = {"none": 0, "mixup": 0, "cutmix": 0}
    for step in range(200):
        mixed, _ = mix(images, torch.eye(4), config, random(step, 4))
        kept = (mixed == images).float().mean()
        kinds["none" if kept == 1 else "cutmix" if kept > 0 else "mixup"] += 1
    assert 70 < kinds["none"] < 130
    assert kinds["mixup"] > 25
    assert kinds["cutmix"] > 15


def test_two_processes_draw_what_one_would():
    affine = AffineConfig(rotate=20, translate=0.1, elastic=0.02)
    config = AugmentationConfig(flip=0.5, affine=affine, mix=MixConfig(mixup=0.8))
    images, targets = torch.randint(0, 256, (16, 3, 8, 8), dtype=torch.uint8), torch.arange(16) % 5

    def run(rank, world):
        mine = slice(rank * 16 // world, (rank + 1) * 16 // world)
        options = {"classes": 5, "seed": 1, "rank": rank, "world_size": world}
        transform = BatchTransform(Preprocessing(size=(8, 8)), config, **options)
        batch = Batch(images[mine].clone(), targets[mine], torch.arange(16)[mine])
        return transform(batch, 2, 3)

    whole = run(0, 1)
    parts = [run(rank, 2) for rank in range(2)]
    assert torch.allclose(whole.images, torch.cat([part.images for part in parts]), atol=1e-6)
    assert torch.equal(whole.targets, torch.cat([part.targets for part in parts]))


@pytest.mark.parametrize("option", [{"noise": 0.1}, {"random_erasing": 1.0}])
def test_noise_depends_on_seed_epoch_step_and_process(option):
    images = torch.zeros(8, 3, 16, 16, dtype=torch.uint8)
    first = {"seed": 1, "epoch": 2, "step": 3, "rank": 1}

    def noisy(**changed):
        key = {**first, **changed}
        transform = BatchTransform(
            Preprocessing(size=(16, 16)),
            AugmentationConfig(**option),
            seed=key["seed"],
            rank=key["rank"],
            world_size=2,
        )
        return transform(Numbers(images.clone()), key["epoch"], key["step"]).images

    assert torch.equal(noisy(), noisy())
    for other in ({"seed": 2}, {"epoch": 3}, {"step": 4}, {"rank": 0}):
        assert not torch.equal(noisy(), noisy(**other))


def test_noise_of_a_batch_does_not_grow_with_the_number_of_processes():
    """It was sampled for the batch of all processes, in each of them."""
    sizes = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            sizes.extend(each.numel() for each in [found] if torch.is_tensor(each))
            return found

    images = torch.zeros(8, 3, 16, 16, dtype=torch.uint8)
    config = AugmentationConfig(noise=0.1, random_erasing=0.5)
    transform = BatchTransform(Preprocessing(size=(16, 16)), config, rank=3, world_size=64)
    with Sizes():
        transform(Numbers(images), 0, 0)
    assert max(sizes) == images.numel()


def test_numbers_to_predict_are_mixed_as_they_are():
    config = MixConfig(mixup=1.0)
    images, targets = torch.randn(4, 1, 4, 4), torch.tensor([0.0, 1.0, 2.0, 3.0])
    _, mixed = mix(images, targets, config, random(size=4))
    assert mixed.shape == (4,)
    assert mixed.sum() == pytest.approx(6.0)
    assert 0 < mixed[0] < 1


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("operations", LISTS)
def test_every_operation_keeps_size_and_mode(operations, mode, make_smooth):
    image = make_smooth(0, 24, 32).convert(mode)
    chosen = LISTS[operations]
    for operation in chosen.table.values():
        for level in (0.0, 0.5, 1.0):
            strength = Strength(level, -1, (0.3, 0.6), chosen.fill, chosen.resample)
            changed = operation(image, strength)
            assert (changed.size, changed.mode) == (image.size, mode)


def test_the_lists_differ_as_documented(make_smooth):
    assert [len(LISTS[name].table) for name in ("paper", "torchvision", "timm", "big_vision")] == [
        14,
        14,
        15,
        16,
    ]
    image = make_smooth(0, 24, 32)
    for name in ("paper", "torchvision", "timm"):
        for operation in ("rotate", "color", "solarize", "posterize", "shear-x", "translate-y", "sharpness"):
            if (name, operation) == ("timm", "posterize"):
                continue  # timm keeps 4 bits at level 0
            still = LISTS[name].table[operation](
                image, Strength(0.0, 1, (0, 0), (0, 0, 0), Image.Resampling.NEAREST)
            )
            assert np.abs(np.asarray(still).astype(int) - np.asarray(image)).max() == 0, (name, operation)
    weak = LISTS["big_vision"].table["brightness"](
        image, Strength(0.5, 1, (0, 0), (0, 0, 0), Image.Resampling.NEAREST)
    )
    assert np.abs(np.asarray(weak).astype(int) - np.asarray(image)).max() <= 1


def at_deits_magnitude(name, image):
    """An operation of timm's list at magnitude 9 of 10."""
    chosen = LISTS["timm"]
    return np.asarray(
        chosen.table[name](image, Strength(9 / chosen.levels, 1, (0, 0), chosen.fill, chosen.resample))
    ).astype(int)


def test_the_timm_list_has_timms_numbers_at_deits_magnitude():
    """rand-m9-mstd0.5-inc1: the arguments that timm/data/auto_augment.py computes for level 9."""
    ramp = Image.fromarray(np.tile(np.arange(256, dtype=np.uint8)[:, None, None], (1, 8, 3)))
    values = np.asarray(ramp).astype(int)
    assert np.array_equal(at_deits_magnitude("posterize", ramp), values & 0b1000_0000)  # 1 bit
    assert np.array_equal(at_deits_magnitude("solarize", ramp), np.where(values < 26, values, 255 - values))
    assert np.array_equal(
        at_deits_magnitude("solarize-add", ramp), np.where(values < 128, values + 99, values).clip(0, 255)
    )
    for name, kind in (("brightness", ImageEnhance.Brightness), ("contrast", ImageEnhance.Contrast)):
        assert np.array_equal(at_deits_magnitude(name, ramp), np.asarray(kind(ramp).enhance(1.81)))
    affine = Image.Transform.AFFINE, Image.Resampling.BICUBIC
    for name, matrix in (
        ("shear-x", (1, 0.27, 0, 0, 1, 0)),
        ("shear-y", (1, 0, 0, 0.27, 1, 0)),
        ("translate-x", (1, 0, 0.405 * 8, 0, 1, 0)),
        ("translate-y", (1, 0, 0, 0, 1, 0.405 * 256)),
    ):
        expected = ramp.transform(ramp.size, affine[0], matrix, affine[1], fillcolor=(124, 116, 104))
        assert np.array_equal(at_deits_magnitude(name, ramp), np.asarray(expected)), name
    rotated = ramp.rotate(27, Image.Resampling.BICUBIC, fillcolor=(124, 116, 104))
    assert np.array_equal(at_deits_magnitude("rotate", ramp), np.asarray(rotated))


def test_rand_augment_draws_for_each_image(make_smooth):
    image = make_smooth(0, 24, 32)
    results = {
        rand_augment(image, RandAugmentConfig(), numpy_generator(0, "sample", 0, index, 0)).tobytes()
        for index in range(30)
    }
    assert len(results) > 20
    calm = RandAugmentConfig(probability=0)
    assert rand_augment(image, calm, numpy_generator(0, "sample", 0, 0, 0)) is image


def test_big_visions_levels_go_on_beyond_ten():
    """At 15, as AugReg's medium1 has it: its autoaugment.py divides by 10 and does not stop there."""
    assert RandAugmentConfig(magnitude=15, operations="big_vision").magnitude == 15
    ramp = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)).convert("RGB")
    values = np.asarray(ramp)
    strength = Strength(1.5, 1, (0.5, 0.5), (128, 128, 128), Image.Resampling.NEAREST)
    assert np.array_equal(BIG_VISION["posterize"](ramp, strength), values & 0b1111_1100)  # 6 bits
    # From 384 on, which TensorFlow compares as a byte: from 128 on (seen by running it).
    inverted = np.where(values < 128, values, 255 - values)
    assert np.array_equal(BIG_VISION["solarize"](ramp, strength), inverted)
    added = np.where(values < 128, values.astype(int) + 165, values).clip(0, 255)
    assert np.array_equal(BIG_VISION["solarize-add"](ramp, strength), added)
    sharper = np.asarray(Image.blend(Image.new("RGB", ramp.size, (1, 1, 1)), ramp, 2.8))  # 16 x 16 / 256 is 1
    assert np.array_equal(BIG_VISION["contrast"](ramp, strength), sharper)
    config = RandAugmentConfig(layers=20, magnitude=15, operations="big_vision")
    assert not np.array_equal(rand_augment(ramp, config, np.random.default_rng(0)), values)


def test_magnitudes_beyond_the_list_are_refused():
    with pytest.raises(ValueError, match="above 10"):
        RandAugmentConfig(magnitude=15)
    assert RandAugmentConfig(magnitude=15, operations="torchvision").magnitude == 15


def test_three_augment_takes_each_of_three(make_smooth):
    image = make_smooth(0, 24, 32)
    kinds = [three_augment(image, numpy_generator(0, "sample", 0, index, 0)) for index in range(60)]
    gray = sum(np.ptp(np.asarray(each).astype(int), axis=2).max() == 0 for each in kinds)
    assert 10 < gray < 30
    assert {each.mode for each in kinds} == {"RGB"}


def test_color_jitter_stays_within_its_strength():
    image = Image.new("RGB", (4, 4), (100, 100, 100))
    config = ColorJitterConfig(brightness=0.2, contrast=0, saturation=0)
    values = [
        np.asarray(jitter(image, config, numpy_generator(0, "sample", 0, i, 0)))[0, 0, 0] for i in range(200)
    ]
    assert 79 <= min(values) < 85
    assert 115 < max(values) <= 120


def test_hue_turns_around():
    red = Image.new("RGB", (2, 2), (255, 0, 0))
    assert np.asarray(shift_hue(red, 1 / 3))[0, 0].argmax() == 1
    assert np.asarray(shift_hue(red, -1 / 3))[0, 0].argmax() == 2
    gray = Image.new("L", (2, 2), 7)
    assert shift_hue(gray, 0.3) is gray


@pytest.mark.parametrize("policy", [RandAugmentConfig(), ThreeAugmentConfig()])
@pytest.mark.parametrize("channels", [1, 3])
def test_changes_of_color_keep_the_shape(channels, policy):
    pixels = torch.randint(0, 256, (channels, 16, 20), dtype=torch.uint8)
    config = AugmentationConfig(policy=policy, color_jitter=ColorJitterConfig(hue=0.1))
    for index in range(20):
        changed = change_colors(pixels, config, numpy_generator(0, "sample", 0, index, 0))
        assert changed.shape == pixels.shape
        assert changed.dtype == torch.uint8
