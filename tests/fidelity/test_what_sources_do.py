"""What the sources of recipes *do*, as distributions and dynamics: not what their settings are called."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torch import nn

from vitreous.data.batch_augmentation import BatchRandom, mix
from vitreous.data.config import RandomResizedCropConfig
from vitreous.data.rand_augment import BIG_VISION, Strength
from vitreous.data.sampling import repeated, shuffled_order
from vitreous.data.transforms import crop_pixels, random_crop
from vitreous.layers.embedding import sincos_2d, sincos_of_mae
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import SinCosPositionConfig
from vitreous.models.model import build_model
from vitreous.models.names import config_of
from vitreous.models.preprocessing import Preprocessing
from vitreous.rng import numpy_generator
from vitreous.tasks.pretraining.rules import find_recipe
from vitreous.training.objectives import several_labels_loss, sigmoid_loss
from vitreous.training.recipes import NAMES, recipe

INCEPTION = RandomResizedCropConfig(scale=(0.05, 1.0), ratio=(0.75, 1.33), sampler="tensorflow")


def kernel_of_tensorflow(rng: np.random.Generator, count: int, size: tuple[int, int]) -> np.ndarray:
    """Boxes (height, width) of GenerateRandomCrop, with single precision as there, written for all boxes at
    once: a second reading of sample_distorted_bounding_box_op.cc."""
    rows, columns = size
    found = np.zeros((count, 2), dtype=np.int64)
    missing = np.ones(count, dtype=bool)
    for _ in range(100):
        ratio = (0.75 + rng.random(count, dtype=np.float32) * np.float32(0.58)).astype(np.float32)
        least, most = np.float32(0.05) * columns * rows, np.float32(columns * rows)
        low = np.rint(np.sqrt(least / ratio)).astype(int)
        high = np.rint(np.sqrt(most / ratio)).astype(int)
        wide = np.rint(high * ratio) > columns
        high[wide] = ((columns + 0.5 - 1e-7) / ratio[wide]).astype(int)
        high -= (np.rint(high * ratio) > columns) & wide
        high = np.minimum(high, rows)
        low = np.minimum(low, high)
        height = low + (rng.random(count) * (high - low + 1)).astype(int)
        height += height * np.rint(height * ratio) < least
        height -= height * np.rint(height * ratio) > most
        width = np.rint(height * ratio).astype(int)
        good = (height * width >= least) & (height * width <= most) & (width <= columns) & (height <= rows)
        taken = good & missing
        found[taken] = np.stack([height, width], axis=1)[taken]
        missing &= ~good
    found[missing] = size
    return found


@pytest.mark.parametrize("size", [(375, 500), (224, 224), (500, 200)])
def test_crops_are_those_of_tensorflow(size: tuple[int, int]) -> None:
    rngs = [numpy_generator(0, "sample", 0, index, 0) for index in range(4000)]
    boxes = np.array([random_crop(size, INCEPTION, rng) for rng in rngs])
    theirs = kernel_of_tensorflow(np.random.default_rng(1), 4000, size)
    for ours, other in (
        (boxes[:, 2], theirs[:, 0]),
        (boxes[:, 3], theirs[:, 1]),
        (boxes[:, 2] * boxes[:, 3], theirs[:, 0] * theirs[:, 1]),
    ):
        assert stats.ks_2samp(ours, other).pvalue > 0.001
    tops, lefts = boxes[:, 0], boxes[:, 1]
    assert (tops + boxes[:, 2] <= size[0]).all()
    assert (lefts + boxes[:, 3] <= size[1]).all()


def test_crops_of_tensorflow_are_smaller_than_those_of_torchvision() -> None:
    """The mean area is that of a port of the kernel by others (20,000 boxes of 375 x 500: 0.344; of
    torchvision's boxes 0.416)."""
    areas = {}
    for sampler in ("tensorflow", "log-uniform"):
        config = RandomResizedCropConfig(scale=(0.05, 1.0), sampler=sampler)  # type: ignore[arg-type]
        boxes = [random_crop((375, 500), config, numpy_generator(0, "sample", 0, i, 0)) for i in range(4000)]
        areas[sampler] = np.array([h * w / 187_500 for _, _, h, w in boxes])
    assert areas["tensorflow"].mean() == pytest.approx(0.344, abs=0.012)
    assert areas["log-uniform"].mean() == pytest.approx(0.416, abs=0.012)
    assert (areas["tensorflow"] < 0.25).mean() == pytest.approx(0.42, abs=0.025)


def test_a_tensorflow_crop_that_never_fits_is_the_whole_image() -> None:
    config = RandomResizedCropConfig(scale=(1, 1), ratio=(1, 1), sampler="tensorflow")
    assert random_crop((100, 300), config, numpy_generator(0, "sample", 0, 0, 0)) == (0, 0, 100, 300)


def test_recipes_of_google_crop_as_tensorflow_does() -> None:
    found = {
        name: crop.sampler
        for name in NAMES
        if (crop := recipe(name).config.augmentation.random_resized_crop) and crop.scale == (0.05, 1.0)
    }
    assert len(found) >= 8
    assert set(found.values()) == {"tensorflow"}


def test_without_antialiasing_a_smaller_crop_is_sampled_bilinearly() -> None:
    """tf.image.resize: pixels between are read at half-pixel centers, and those between these are not."""
    stripes = torch.zeros(3, 64, 64, dtype=torch.uint8)
    stripes[:, :, ::4] = 255
    preprocessing = Preprocessing(size=(16, 16))
    sampled = crop_pixels(
        stripes, (0, 0, 64, 64), (64, 64), preprocessing, RandomResizedCropConfig(antialias=False)
    )
    averaged = crop_pixels(stripes, (0, 0, 64, 64), (64, 64), preprocessing)
    assert sampled.float().std() == 0  # every sample lies between columns 1 and 2 of four, which are dark
    assert sampled.max() == 0
    assert averaged.float().mean() == pytest.approx(255 / 4, abs=8)


def test_contrast_of_big_vision_moves_towards_the_number_of_pixels() -> None:
    """224 x 224 pixels: to the gray value 196, whatever the image."""
    image = Image.new("RGB", (224, 224), (20, 60, 100))
    strength = Strength(0.0, 1, (0, 0), (128,) * 3, Image.Resampling.NEAREST)  # a tenth of the image is left
    found = np.asarray(BIG_VISION["contrast"](image, strength))[0, 0]
    assert found == pytest.approx([0.1 * value + 0.9 * 196 for value in (20, 60, 100)], abs=1)


@pytest.mark.parametrize(("batch", "copies"), [(1024, 3), (12, 3), (10, 4), (2, 3)])
def test_copies_of_an_image_stay_in_one_batch(batch: int, copies: int) -> None:
    """In every batch of an epoch, and not in the first alone."""
    steps = 400 if batch == 1024 else 40
    order = repeated(shuffled_order(batch * steps, seed=0, epoch=0), copies, batch)
    rows = np.asarray(order.indices).reshape(steps, batch)
    numbers = np.asarray(order.copies).reshape(steps, batch)
    seen: set[int] = set()
    for indices, each in zip(rows, numbers, strict=True):
        found, counts = np.unique(indices, return_counts=True)
        assert (counts == copies).sum() >= batch // copies - copies
        assert len({*zip(indices, each, strict=True)}) == batch  # no image twice with the same changes
        assert seen.isdisjoint(found)
        seen |= {*found.tolist()}


def test_several_labels_are_smoothed_towards_one_half() -> None:
    logits = torch.tensor([[math.log(3), -math.log(3), 0.0]])
    targets = torch.tensor([[1.0, 0.0, 1.0]])
    wanted = nn.functional.binary_cross_entropy_with_logits(
        logits, torch.tensor([[0.9, 0.1, 0.9]]), reduction="sum"
    )
    assert several_labels_loss(logits, targets, 0.2) == pytest.approx(float(wanted))


@pytest.mark.parametrize("name", [pytest.param("R26+ViT-S/32", marks=pytest.mark.slow), "BiT-R50x1"])
def test_units_with_the_norm_at_their_end_begin_as_their_shortcut(name: str) -> None:
    """models_resnet.py of vit_jax and bit.py of big_vision: the last GroupNorm of a unit begins at zero."""
    options = {"order": "post-activation"} if name.startswith("BiT") else {}
    model = build_model(config_of(name, **options))
    units = [module for module in model.modules() if type(module).__name__ == "PostActivationBottleneck"]
    assert units
    assert all(not unit.norm3.weight.any() for unit in units)
    assert all((unit.norm1.weight == 1).all() for unit in units)


def test_the_representation_layer_is_drawn_as_a_dense_layer_of_flax() -> None:
    """LeCun normal: variance 1 / fan_in after truncation at two standard deviations."""
    config = config_of("ViT-S/16", depth=1, image_size=32, representation_size=256)
    weight = build_model(config).representation.linear.weight.detach()
    assert weight.std().item() == pytest.approx(384**-0.5, rel=0.01)
    assert weight.abs().max().item() == pytest.approx(2 * 384**-0.5 / 0.87962566, rel=0.01)


@pytest.mark.parametrize("name", ["deit3", "vit5"])
def test_gradients_of_a_sigmoid_loss_are_clipped_as_those_of_its_mean_over_the_classes(name: str) -> None:
    """DeiT III and ViT-5 clip at 1 what `BCEWithLogitsLoss` gives, the mean over classes and images."""
    training, classes = recipe(name).config.training, recipe(name).config.model.num_classes
    assert classes
    labels = torch.arange(8)
    targets = nn.functional.one_hot(labels, classes).float()
    torch.manual_seed(0)
    gradients = []
    for scale in (1.0, 1000.0):  # within their limit, and beyond it
        ours, theirs = (nn.Linear(4, classes) for _ in range(2))
        theirs.load_state_dict(ours.state_dict())
        features = scale * torch.randn(8, 4)
        sigmoid_loss(ours(features), labels, 0.0).backward()
        nn.functional.binary_cross_entropy_with_logits(theirs(features), targets).backward()
        norms = []
        for layer, limit in ((ours, training.optimizer.clip_norm), (theirs, 1.0)):
            norms.append(float(nn.utils.clip_grad_norm_(layer.parameters(), limit)))
        gradients.append(norms[1])
        # Adam is blind to a factor that is the same in every step.
        assert torch.allclose(ours.weight.grad, classes * theirs.weight.grad, rtol=1e-3, atol=1e-6)
    assert gradients[0] < 1 < gradients[1]


def test_positions_of_the_mae_recipe_are_those_of_its_authors() -> None:
    """pos_embed.py divides i by D / 4, so that the lowest frequency stops short of 1/10000."""
    config = find_recipe("mae").config.model
    assert isinstance(config, ViTConfig)
    assert isinstance(config.position, SinCosPositionConfig)
    ours = sincos_2d(config.grid, config.width, config.position.temperature)
    assert torch.allclose(ours, sincos_of_mae(config.grid, config.width), atol=1e-5)


@pytest.mark.parametrize("name", ["deit3", "vit5"])
def test_both_classes_of_a_mixed_image_count_in_full_for_a_sigmoid_loss(name: str) -> None:
    """engine.py of DeiT and ViT-5 sets every target above zero to one."""
    config = recipe(name).config.augmentation.mix
    assert config
    targets = torch.eye(8)
    for step in range(4):
        random = BatchRandom(0, 0, step, size=8)
        _, mixed = mix(torch.rand(8, 3, 8, 8), targets, config, random)
        partners = targets[torch.arange(8) ^ 1]
        assert torch.equal(mixed, targets + partners)
