"""The experiment of benchmarks/crossing.py, both of its scales at the size of a toy, on made drawings."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield import_module("crossing")
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)


def made_drawings(program: Any, side: int) -> Any:
    """Twelve families of thirty drawings."""
    rng = np.random.default_rng(0)
    families = np.repeat(np.arange(12), 30)
    pixels = rng.integers(0, 256, (360, side, side), dtype=np.uint8)
    return program.Drawings(pixels, rng.integers(0, 21, 360), families, tuple("abcdefghijkl"))


@pytest.mark.parametrize("name", ["cpu", pytest.param("gpu", marks=pytest.mark.slow)])
def test_an_experiment_ends_goes_on_and_writes_what_it_found(
    program: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(program, "SAMPLES", 100)
    real = program.SCALES[name]
    scale = real._replace(sizes=(400,), steps=1, batch=8, rates=(1e-3, 3e-3), test=12, device="cpu")
    known, seeds, about = made_drawings(program, scale.side), [5, 6], {"design": "a commit"}
    program.experiment(name, scale, known, seeds, time.monotonic(), about, tmp_path)
    assert json.loads((tmp_path / f"{name}.json").read_text("utf-8"))["rows"] == {}
    capsys.readouterr()
    program.experiment(name, scale, known, seeds, math.inf, about, tmp_path)
    third = [*seeds, 7]  # one that is not complete counts nowhere
    rows = json.loads((tmp_path / f"{name}.json").read_text("utf-8"))["rows"]
    rows["ViT"]["400"]["7"] = 0.5
    assert {row["seeds"] for row in program.summary(scale, {}, rows, third)["accuracies"]} == {2}
    found = json.loads((tmp_path / f"{name}.json").read_text("utf-8"))
    assert {"date", "machine", "versions", "commit", "command", "seeds", "digest"} <= set(found)
    assert found["seeds"] == seeds
    tried = found["pilot"]["ViT"]["400"]
    assert len(tried) == 3  # the best of two is at an edge: one more
    assert [len(by_size["400"]) for by_size in found["rows"].values()] == [2] * 4
    assert [row["seeds"] for row in found["comparisons"]] == [2] * 3
    costs = [row["macs"] for row in found["models"]]
    assert max(costs) / min(costs) < 1.1
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert "ViT minus ResNet" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="another design"):
        program.experiment(name, scale, known, seeds, time.monotonic(), {"design": "another"}, tmp_path)


def test_no_family_is_learned_from_chosen_on_and_tested(program: Any) -> None:
    known = made_drawings(program, 4)
    pilot = program.split_of(known, program.PILOT, 12)
    choosing = set(known.families[pilot.held_out])
    assert len(choosing) == 2
    for seed in (1, 2):
        learned, held_out = program.split_of(known, seed, 12)
        sides = [set(known.families[learned]), set(known.families[held_out]), choosing]
        assert sum(map(len, sides)) == len(set().union(*sides)) == 12
        assert len(set(learned)) == len(learned) == 180


def test_where_a_curve_stays_above_zero(program: Any) -> None:
    sizes = (100, 1000, 10_000)
    crossing = program.crossing
    assert crossing(sizes, np.array([-1.0, -1.0, 1.0])) == pytest.approx(10**3.5)
    assert crossing(sizes, np.array([-1.0, 3.0, 1.0])) == pytest.approx(10**2.25)
    assert crossing(sizes, np.array([1.0, -1.0, 1.0])) == pytest.approx(10**3.5)
    assert crossing(sizes, np.array([1.0, 1.0, 0.0])) == -math.inf
    assert crossing(sizes, np.array([1.0, 1.0, -1.0])) == math.inf


def test_vowels(program: Any) -> None:
    assert [program.vowel_of(ord(each)) for each in "가각개기까힣"] == [0, 0, 1, 20, 0, 20]


def test_crops_are_within_the_image_and_keep_the_whole_of_it(program: Any) -> None:
    import torch

    images = torch.linspace(-1, 1, 24).expand(50, 1, 24, 24)
    rng = np.random.default_rng(0)
    assert torch.allclose(program.cropped(images, (1.0, 1.0), rng), images, atol=1e-5)
    parts = program.cropped(images, (0.25, 0.25), rng)
    widths = parts[:, 0, 0, -1] - parts[:, 0, 0, 0]
    assert torch.allclose(widths, torch.ones_like(widths), atol=0.05)
