"""Mean IoU against a case that was computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vitreous.addons.segmentation.evaluation import (
    SegmentationEvaluation,
    confusion_of,
    evaluate_segmenter,
    ious,
    masks_of,
)
from vitreous.addons.segmentation.masked import MaskedDataset, MaskedSubset
from vitreous.addons.segmentation.model import Segmenter, SegmenterConfig
from vitreous.data.dataset import ClassTargets
from vitreous.errors import InputError
from vitreous.models.stored import BadImage, stored
from vitreous.tasks import task_named

TRUE = np.array([[0, 0, 1, 1], [0, 0, 1, 255]], dtype=np.uint8)
FOUND = np.array([[0, 2, 1, 1], [0, 1, 0, 1]], dtype=np.uint8)


def evaluation(*confusions: np.ndarray, classes=("background", "a", "b", "c")) -> SegmentationEvaluation:
    names = [str(number) for number in range(len(confusions))]
    return SegmentationEvaluation(
        classes=classes,
        indices=range(len(names)),
        names=names,
        confusions=np.stack(confusions),
        failed={},
        seconds=0.0,
    )


def test_iou_by_hand():
    """Class 0: 2 hits of 4 true and 3 called, 2/5. Class 1: 2 hits of 3 true and 3 called, 2/4. Class 2:
    called once, never there: 0. Class 3: neither: no IoU, and not in the mean. The pixel of 255 counts
    nowhere, though it was called 1."""
    counts = confusion_of(TRUE, FOUND, 4)
    assert counts.sum() == 7
    found = ious(counts)
    assert found[:3].tolist() == pytest.approx([2 / 5, 2 / 4, 0.0])
    assert math.isnan(found[3])
    judged = evaluation(counts)
    assert judged.miou == pytest.approx((2 / 5 + 2 / 4 + 0) / 3)
    assert judged.pixel_accuracy == pytest.approx(4 / 7)
    # Background against all else: 2 of 5; else 2 hits and 3 pixels true, 4 called: the pixel that is 0 and
    # was called 2, and the one that was called 1, are wrong: 2 / (3 + 4 - 2).
    assert judged.foreground_miou == pytest.approx((2 / 5 + 2 / 5) / 2)
    assert judged.always_first == pytest.approx((4 / 7 + 0) / 2)
    row = judged.to_json()["per_class"][1]
    assert row == {"label": "a", "iou": pytest.approx(0.5), "iou_interval": [0.5, 0.5], "pixels": 3}


def test_pixels_are_summed_over_images_before_they_are_divided():
    one, other = np.diag([10, 0, 0, 0]), np.zeros((4, 4), dtype=int)
    other[1, 0] = 10
    judged = evaluation(one, other)
    assert judged.iou[:2].tolist() == [pytest.approx(0.5), 0.0]
    assert judged.image_mious.tolist() == [1.0, 0.0]


def test_the_interval_holds_the_mean_and_narrows_with_images():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 30, (40, 4, 4)) + 200 * np.eye(4, dtype=int) * rng.integers(0, 3, (40, 1, 1))
    low, high = evaluation(*images).interval
    assert low < evaluation(*images).miou < high
    low4, high4 = evaluation(*np.repeat(images, 4, axis=0)).interval
    assert high4 - low4 < 0.7 * (high - low)


def test_each_class_has_an_interval_of_its_own():
    confusions = np.zeros((20, 3, 3), dtype=np.int64)
    confusions[:, 0, 0] = 10
    confusions[:10, 1, 1], confusions[10:, 1, 0] = 8, 8
    found = evaluation(*confusions, classes=("a", "b", "c"))
    first, second, third = found.class_intervals
    assert second.low < found.iou[1] < second.high
    assert second.high - second.low > first.high - first.low > 0
    assert np.isnan(third).all(), "neither there nor predicted"
    rows = found.to_json()["per_class"]
    assert rows[1]["iou_interval"] == list(second)


def test_without_a_background_there_is_no_foreground():
    counts = np.eye(2, dtype=int)
    assert evaluation(counts, classes=("sky", "road")).foreground_miou is None
    assert "test_foreground_miou" not in evaluation(counts, classes=("sky", "road")).to_json()


class Three(MaskedDataset):
    """Three images of sizes of their own, one of which cannot be read."""

    targets = ClassTargets(np.zeros(3, dtype=np.int64), ("background", "a", "b"))

    def name(self, index):
        return f"image {index}"

    def pair(self, index, how=3):
        if index == 1:
            raise BadImage(self.name(index), "torn")
        rng = np.random.default_rng(index)
        size = (20 + index, 31)
        mask = rng.integers(0, 3, size, dtype=np.uint8)
        mask[:2] = 255
        return stored(
            rng.integers(0, 255, size, dtype=np.uint8),
            self.name(index),
            how if isinstance(how, int) else how.channels,
        ), mask


def test_each_image_is_judged_once_at_its_own_size():
    torch.manual_seed(0)
    config = SegmenterConfig(image_size=16, patch_size=8, num_classes=3, width=8, depth=1, heads=1, mlp_dim=8)
    model = Segmenter(config)
    judged = evaluate_segmenter(model, Three(), batch_size=2)
    assert judged.confusions.sum(axis=(1, 2)).tolist() == [18 * 31, 20 * 31]
    assert list(judged.indices) == [0, 2]
    assert judged.failed == {"image 1": "torn"}
    image, mask = Three().pair(2)
    by_hand = confusion_of(mask, masks_of(model.eval(), [image])[0], 3)
    assert np.array_equal(judged.confusions[1], by_hand)


def test_nothing_to_judge_is_said():
    config = SegmenterConfig(image_size=16, patch_size=8, num_classes=3, width=8, depth=1, heads=1, mlp_dim=8)
    with pytest.raises(InputError, match="none of the 1 images can be read: image 1: torn"):
        evaluate_segmenter(Segmenter(config), MaskedSubset(Three(), np.array([1])))


def test_the_bundled_pages_have_a_part_to_judge_on():
    config = SegmenterConfig(image_size=16, patch_size=8, width=8, depth=1, heads=1, mlp_dim=8)
    model = Segmenter(config)
    found = task_named("segmentation").open_held_out("Seg-Ti/16", model, "digit-pages", {})
    assert (found.source, found.part) == ("digit-pages", "held-out part")
    with pytest.raises(InputError, match="name the data"):
        task_named("segmentation").open_held_out("Seg-Ti/16", model, None, {})
