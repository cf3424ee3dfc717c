"""Images that formulas draw."""

import hashlib

import numpy as np
import pytest

from vitreous.addons.studies.formulas import FAMILIES, draw_formula
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.errors import InputError


def test_parts_do_not_overlap_and_classes_take_turns() -> None:
    data = open_data("formulas:8x3@16", DataConfig())
    assert data.test is not None
    assert data.validation is None
    assert data.train.targets.strata().tolist() == [*range(8)] * 3
    assert len(data.test) == 16
    assert data.train.name(9) == "formulas@16[contour-0001, 1]"
    assert {data.train.name(k) for k in range(24)}.isdisjoint(data.test.name(k) for k in range(16))
    assert np.array_equal(data.test.image(1), draw_formula(1, 3, 16))
    assert (data.summary.classes, data.summary.channels, data.summary.height) == (8, 3, 16)


@pytest.mark.parametrize("family", range(4), ids=[family.__name__ for family in FAMILIES])
def test_a_class_is_a_formula(family: int) -> None:
    """Images depend on their class and number alone; those of a class differ in look, and their masks are
    nearer to each other than to another class's where nothing else is drawn."""
    image = draw_formula(family, 5, 32)
    assert image.size == (32, 32)
    assert image.mode == "RGB"
    assert image.tobytes() == draw_formula(family, 5, 32).tobytes()
    looks = {hashlib.sha256(draw_formula(family, number, 32).tobytes()).digest() for number in range(6)}
    assert len(looks) == 6
    mask = FAMILIES[family](family, 64, np.random.default_rng(0))
    assert mask.shape == (64, 64)
    assert mask.min() >= 0
    assert mask.max() <= 1
    assert 0.01 < mask.mean() < 0.9  # something is drawn, and not everywhere
    other = FAMILIES[family](family + 4, 64, np.random.default_rng(0))
    assert np.abs(mask - other).mean() > 0.01  # the same random numbers, another formula


def test_images_are_the_same_everywhere() -> None:
    """What a kept encoder has seen: coarse means, which no library's rounding changes."""
    means = [np.asarray(draw_formula(group, 1, 32), float).mean() for group in range(4)]
    assert means == pytest.approx(MEANS, abs=0.5)


MEANS = [113.3, 79.3, 39.6, 162.8]


@pytest.mark.parametrize("rest", ["", "10", "1x5@32", "4x4", "4x4@8"])
def test_another_form_is_refused(rest: str) -> None:
    with pytest.raises(InputError, match="write formulas:CLASSESxIMAGES@SIZE"):
        open_data(f"formulas:{rest}", DataConfig())
