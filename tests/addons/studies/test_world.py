"""The generated image world: deterministic, balanced, as it says, and opened by name."""

from __future__ import annotations

import numpy as np
import pytest

from vitreous.addons.studies.world import (
    GLYPHS,
    LABELS,
    WorldImages,
    WorldOptions,
    glyph,
    parse_world,
    shapes,
    templates,
)
from vitreous.data.config import DataConfig, SplitByName
from vitreous.data.sources import open_data
from vitreous.errors import InputError


def drawn(rest: str, part: str = "train", seed: int = 0, count: int = 8) -> np.ndarray:
    return WorldImages(parse_world(rest), part, seed).draw(np.arange(count))


def test_an_image_depends_on_seed_part_and_index_alone() -> None:
    whole = WorldImages(parse_world("shapes:40@24"), "train", 0)
    longer = WorldImages(parse_world("shapes:400@24"), "train", 0)
    together = whole.draw(np.arange(40))
    np.testing.assert_array_equal(longer.draw(np.array([39]))[0], together[39])
    np.testing.assert_array_equal(np.asarray(whole.image(39)), together[39])  # kept in blocks
    longer.pixels = None  # as where there are too many to keep
    np.testing.assert_array_equal(np.asarray(longer.image(39)), together[39])
    assert (drawn("shapes@24", seed=1) != together[:8]).mean() > 0.5
    assert (drawn("shapes@24", part="test") != together[:8]).mean() > 0.5


def test_all_labels_are_labels_of_the_same_images() -> None:
    for labels in set(LABELS) - {"glyphs"}:
        np.testing.assert_array_equal(drawn(f"{labels}@24"), drawn("shapes@24"))
    images = WorldImages(parse_world("objects:64"), "train", 0)
    for index in range(64):
        shape = list(shapes())[images.factors["shapes"][index]]
        assert images.label(index).endswith(f"-{shape}")


@pytest.mark.parametrize("labels", LABELS)
def test_classes_are_balanced(labels: str) -> None:
    images = WorldImages(parse_world(f"{labels}:1152"), "train", 3)
    counts = np.bincount(images.targets.strata(), minlength=len(images.classes))
    assert counts.max() - counts.min() <= (20 if labels == "objects" else 1)


def test_templates_differ() -> None:
    for kind, count in (("shapes", 16), ("glyphs", GLYPHS)):
        masks = templates(kind, 24).reshape(count, -1)
        overlaps = np.minimum(masks[:, None], masks).sum(2) / np.maximum(masks[:, None], masks).sum(2)
        np.fill_diagonal(overlaps, 0)
        assert overlaps.max() < 0.85
    assert glyph(5).mean() > 0.05


def test_factors_are_seen_in_the_pixels() -> None:
    plain = WorldOptions("colors", size=32, clutter=0, shift=0.0, scale=1.0, test=64)
    images = WorldImages(plain, "train", 0)
    pixels = images.draw(np.arange(200)).astype(float)
    center = pixels[:, 12:20, 12:20].max(axis=(1, 2))  # a ring has a hole there
    reds, blues = (center[images.factors["colors"][:200] == number] for number in (0, 5))
    assert reds[:, 0].mean() > reds[:, 2].mean() + 60
    assert blues[:, 2].mean() > blues[:, 0].mean() + 60
    moved = WorldImages(WorldOptions("positions", size=32, clutter=0, shift=1.0, scale=0.3), "train", 0)
    pixels = moved.draw(np.arange(200)).max(axis=3)
    left = moved.factors["positions"][:200] % 3 == 0
    assert pixels[left, :, :16].max(axis=(1, 2)).mean() > pixels[left, :, 16:].max(axis=(1, 2)).mean() + 40


def test_test_images_can_be_shifted_and_look_the_same() -> None:
    moved, learned = "shapes@24,shift=0,test_shift=1", drawn("shapes@24,shift=0")
    np.testing.assert_array_equal(drawn(moved), learned)
    np.testing.assert_array_equal(drawn(moved, "test"), drawn("shapes@24,shift=1", "test"))
    assert (drawn(moved, "test") != drawn("shapes@24,shift=0", "test")).mean() > 0.1
    same, other = drawn("shapes@24,looks=same", "test"), drawn("shapes@24", "test")
    assert same.std() > other.std() + 2  # less saturated


def test_opened_by_name() -> None:
    splits = open_data("world:textures:300@16,test=50", DataConfig())
    assert (splits.summary.classes, splits.summary.height, splits.summary.channels) == (8, 16, 3)
    assert splits.test is not None
    assert len(splits.test) == 50
    again = open_data("world:textures:300@16,test=50", DataConfig(split=SplitByName(seed=1)))
    assert np.asarray(again.train.image(0)).tobytes() != np.asarray(splits.train.image(0)).tobytes()


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("shape", "did you mean"),
        ("shapes:many", "count is 'many', not a number"),
        ("shapes@4", "size is 4: pass 8 ... 512"),
        ("shapes,cluter=3", "unknown option 'cluter'"),
        ("shapes,looks=odd", "use other or same"),
    ],
)
def test_mistakes_are_named(rest: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_world(rest)
