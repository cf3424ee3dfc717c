"""The kept differences of recipes from the code that they cite, and the program that finds them."""

from __future__ import annotations

import json
import math
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from vitreous.tasks.pretraining.rules import recipe_names
from vitreous.training.recipes import MEASURED

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
DOCS = Path(__file__).parents[2] / "docs"
ROWS = json.loads(MEASURED.read_text(encoding="utf-8"))["rows"]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield import_module("provenance")
    for name in [name for name in sys.modules if name.startswith("provenance")] + ["peers", "record"]:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['recipe']}-{row['quantity']}")
def test_a_recipe_does_what_its_source_does_or_the_reason_is_known(row: dict[str, Any]) -> None:
    assert row["difference"] <= row["limit"] or row["why"]


@pytest.mark.parametrize(
    ("moment", "steps", "explained"),
    [(1 + 4e-6, 20, True), (1 + 1e-5, 20, False), (1.0, 21, False), (1.0, -1, False)],
    ids=["rounding", "another moment", "another number of steps", "no state"],
)
def test_a_state_that_rounding_does_not_explain_is_apart(
    moment: float, steps: int, explained: bool, program: Any
) -> None:
    """The source is 1e-6 apart from itself; each of 20 steps rounds anew."""
    rows = import_module("provenance_rows")

    def state(moment: float, steps: int) -> Any:
        return {
            "exp_avg": {"weight": torch.tensor([moment])},
            "step": {"weight": torch.tensor([float(steps)])},
        }

    ours = rows.Follower({"weight": torch.ones(1)}, {}, {}, [], state(moment, steps), {})
    theirs = rows.Follower({}, {}, {}, [], state(1.0, 20), state(1 + 1e-6, 20))
    row = rows.states_apart("deit", "a source", ours, theirs, 20)
    assert (row.difference <= row.limit) == explained
    assert row.null == pytest.approx(1e-6, rel=0.1)


def test_every_state_is_beside_a_null() -> None:
    rows = [row for row in ROWS if row["quantity"] == "state"]
    assert rows
    for row in rows:
        steps = 2522 if row["recipe"] == "dino" else 20
        assert row["limit"] == pytest.approx(math.ceil(math.sqrt(steps)) * row["null"])


def test_recipes_that_were_run_are_recipes() -> None:
    assert {row["recipe"] for row in ROWS} <= set(recipe_names())
    assert {row["quantity"] for row in ROWS} >= {"weights", "crops", "colors", "batch", "angle", "loss"}


def test_every_cell_has_a_number_or_the_reason_why_there_is_none(program: Any) -> None:
    found = {(row["recipe"], row["quantity"]) for row in ROWS if not row["peer"]}
    cells = {(name, quantity) for name in program.RECIPES for quantity in program.QUANTITIES}
    assert found | set(program.NONE) == cells
    assert not found & set(program.NONE)


def test_the_numbers_of_tensorflow_are_those_of_the_recipes_today(program: Any) -> None:
    """Operations, pixels and epochs, computed again here; boxes are in test_what_sources_do.py and below."""
    kept = {(row["recipe"], row["quantity"]): row["difference"] for row in ROWS if not row["peer"]}
    pixels = (*program.colors_of_big_vision(), *program.resizing_of_tensorflow())
    for row in (*pixels, *program.epochs_of_tensorflow(), *program.epochs_of_torch(), *program.copies(None)):
        assert row.difference == pytest.approx(kept[row.recipe, row.quantity], abs=0.02), row


@pytest.mark.slow
@pytest.mark.peers
def test_crops_are_those_that_tensorflow_drew(program: Any) -> None:
    for row in program.crops_of_tensorflow():
        assert row.difference <= row.limit, row


@pytest.mark.slow
@pytest.mark.peers
def test_images_look_as_after_the_draws_of_big_vision_and_timm(program: Any) -> None:
    pytest.importorskip("timm")
    for row in (*program.draws_of_big_vision(), *program.draws_of_timm()):
        assert row.difference <= row.limit or program.reason(row), row


@pytest.mark.slow
@pytest.mark.peers
def test_a_recipe_trains_as_timm_does(program: Any) -> None:
    pytest.importorskip("timm")
    for row in program.from_timm(None):
        assert row.difference <= row.limit, row


@pytest.mark.slow
@pytest.mark.peers
def test_crops_and_operations_are_those_of_torchvision_and_timm(program: Any) -> None:
    pytest.importorskip("torchvision")
    pytest.importorskip("timm")
    for row in (
        *program.crops_of_torchvision(),
        *program.colors_of_timm(),
        *program.resizing_of_torchvision(None),
    ):
        assert row.difference <= row.limit, row


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_table_of_the_documentation_is_that_of_the_program(language: str, program: Any) -> None:
    """Words are each page's own; rows, their order and their numbers are those of the program."""
    text = (DOCS / language / "reference" / "recipes.md").read_text(encoding="utf-8")
    numbers = [row.split("|")[2:] for row in text.splitlines() if row.startswith("| `")]
    expected = [row.split("|")[2:] for row in program.markdown(ROWS).splitlines()[2:]]
    begin = numbers.index(expected[0])
    assert numbers[begin : begin + len(expected)] == expected
    assert language == "ko" or program.markdown(ROWS) in text
