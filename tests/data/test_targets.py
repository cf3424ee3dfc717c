"""Targets of each kind: as text, as tensors, counted, and numbered by other classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vitreous.data.dataset import ClassTargets, LabelTargets, NumberTargets, Targets

CLASSES = ("cat", "dog", "emu")
ONE = ClassTargets(np.array([2, 0, 0, 1]), CLASSES)
SEVERAL = LabelTargets.of([{0: 1.0, 2: 0.5}, {}, {1: 0.25}, {0: 0.5, 1: 1.0}], CLASSES)
NUMBERS = NumberTargets(np.array([1.5, -2.0, 0.0, 7.25], dtype=np.float32))


@pytest.mark.parametrize(
    ("targets", "texts", "named"),
    [
        (ONE, ["emu", "cat", "cat", "dog"], [{"emu"}, {"cat"}, {"cat"}, {"dog"}]),
        (
            SEVERAL,
            ["cat|emu:0.5", "", "dog:0.25", "cat:0.5|dog"],
            [{"cat", "emu"}, set(), {"dog"}, {"cat", "dog"}],
        ),
        (NUMBERS, ["1.5", "-2", "0", "7.25"], [set()] * 4),
    ],
)
def test_a_text_names_the_classes(targets: Targets, texts: list[str], named: list[set[str]]) -> None:
    assert [targets.text(row) for row in range(len(targets))] == texts
    assert [targets.classes_in(text) for text in texts] == named
    some = targets.at(np.array([3, 0]))
    assert [some.text(0), some.text(1), len(some)] == [texts[3], texts[0], 2]
    assert torch.equal(some.tensor(), targets.tensor(np.array([3, 0])))


def test_tensors_are_what_a_loss_takes() -> None:
    assert ONE.tensor().tolist() == [2, 0, 0, 1]
    assert SEVERAL.tensor().tolist() == [[1, 0, 0.5], [0, 0, 0], [0, 0.25, 0], [0.5, 1, 0]]
    assert [each.tensor().dtype for each in (ONE, SEVERAL, NUMBERS)] == [
        torch.int64,
        torch.float32,
        torch.float32,
    ]


def test_images_are_counted_and_split_by_class() -> None:
    assert ONE.counts().tolist() == [2, 1, 1]
    assert SEVERAL.counts().tolist() == [2, 2, 1]  # one with several counts for each
    assert NUMBERS.counts().tolist() == []
    assert SEVERAL.strata().tolist() == [0, 0, 1, 1]  # the strongest
    assert NUMBERS.strata(slice(1, 3)).tolist() == [0, 0]


def test_other_classes_have_other_numbers() -> None:
    classes, columns = ("emu", "cat", "dog", "yak"), np.array([1, 2, 0])
    for targets in (ONE, SEVERAL):
        renumbered = targets.with_classes(classes, columns)
        assert renumbered.classes == classes
        for row in range(4):
            assert targets.classes_in(renumbered.text(row)) == targets.classes_in(targets.text(row))
    without_emus = SEVERAL.with_classes(("cat", "dog"), np.array([0, 1, -1]))
    assert [without_emus.text(row) for row in range(4)] == ["cat", "", "dog:0.25", "cat:0.5|dog"]
