"""The bundled digits are split as scikit-learn splits them."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from vitreous.data.config import DataConfig, SplitByName
from vitreous.data.sources import open_data


def test_the_held_out_part_is_scikit_learns():
    values, targets = load_digits(return_X_y=True)
    _, expected, _, answers = train_test_split(
        values, targets, test_size=0.2, stratify=targets, random_state=3
    )
    test = open_data("digits", DataConfig(split=SplitByName(seed=3))).test
    pixels = np.stack([np.asarray(test.image(index)) for index in range(len(test))])
    assert np.array_equal(test.targets.strata(), answers)
    assert np.array_equal(np.rint(pixels.reshape(-1, 64) * (16 / 255)), expected)


def test_classes_are_the_digits_and_images_gray_8x8():
    splits = open_data("digits", DataConfig(validation_fraction=0.2))
    assert splits.train.classes == tuple("0123456789")
    assert splits.test.image(0).mode == "L"
    assert splits.test.image(0).size == (8, 8)
    assert len(splits.train) + len(splits.validation) == 1437
    assert splits.summary.channels == 1
