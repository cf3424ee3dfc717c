"""Every number that README, a page or the header of a recipe prints has a kept file that shows it."""

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    yield import_module("claims")
    sys.modules.pop("claims")


def test_every_printed_number_is_that_of_its_file(claims: Any) -> None:
    assert claims.faults() == []


SENTENCE = "The model has 81.5% (95%)."
REASON = '"file.json" = "a speed"'


def gate(tmp_path: Path, text: str, unchecked: str = REASON, **kept: Any) -> list[str]:
    """What the gate says of a README with one sentence, which claims 81.5% of a file: its program in a
    repository that has nothing else."""
    folder = tmp_path / "benchmarks"
    (folder / "results").mkdir(parents=True)
    program = shutil.copy(Path(__file__).parents[1] / "benchmarks" / "claims.py", folder)
    spec = spec_from_file_location("claims_of_another_repository", program)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(claims := module_from_spec(spec))
    for page in ("README.md", "README.ko.md"):
        (tmp_path / page).write_text(text)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n")
    facts = dict.fromkeys(claims.FACTS, "known")
    rows = [{"set": "a", "right": 0.815}]
    (folder / "results" / "file.json").write_text(json.dumps({**facts, "rows": rows, **kept}))
    (folder / "claims.toml").write_text(
        '[contaminated]\n"file.json: leak" = "its test images are learned from"\n'
        '[given]\n"README.md" = ["95%"]\n'
        '[[claims]]\npage = "README.md"\nline = "model"\nfile = "file.json"\n'
        f'[claims.numbers]\n"81.5%" = "{"leak" if "leak" in kept else "rows/set=a/right"}"\n'
        f"[unchecked]\n{unchecked}\n"
    )
    found: list[str] = claims.faults()
    return found


@pytest.mark.parametrize(
    ("text", "kept", "fault"),
    [
        (SENTENCE, {}, None),
        ("The model has 81.5% (95%), another 82.1%.", {}, "82.1: neither measured by a file nor given"),
        ("| the model | 81.5 | 95% |\n| another | 82.1 |", {}, "82.1: neither measured"),
        ("The model has 81.6% (95%).", {}, "no such line"),
        (SENTENCE, {"rows": [{"set": "a", "right": 0.812}]}, "file.json has 81.2"),
        (SENTENCE, {"rows": []}, "has no rows/set=a/right"),
        (SENTENCE, {"commit": None}, "lacks commit"),
        (SENTENCE, {"leak": 0.815}, "its test images are learned from"),
        ("The model has 81.5%.", {}, "given and not printed: 95"),
    ],
)
def test_a_number_without_a_file_that_shows_it_is_refused(
    text: str, kept: dict[str, Any], fault: str | None, tmp_path: Path
) -> None:
    found = gate(tmp_path, text, **kept)
    assert any(fault in each for each in found) if fault else not found, found


def test_a_file_of_a_commit_that_is_not_in_the_history_is_refused(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        whole = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(whole, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    here = git("rev-parse", "HEAD")
    git("commit", "-q", "--allow-empty", "-m", "rebased", "--amend")
    assert gate(tmp_path, SENTENCE, commit=f"{git('rev-parse', 'HEAD')}+") == []
    shutil.rmtree(tmp_path / "benchmarks")
    assert gate(tmp_path, SENTENCE, commit=here) == [
        f"file.json: its commit {here[:8]} is not in the history"
    ]


def test_the_history_is_not_asked_for_where_it_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a clone without all commits, and where there is no Git."""
    whole, shallow = tmp_path / "whole", tmp_path / "shallow"
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "init", "-q", whole], check=True)
    for name in ("first", "second"):
        commit = ("commit", "-q", "--allow-empty", "-m", name)
        subprocess.run(["git", *author, *commit], cwd=whole, check=True)
    subprocess.run(["git", "clone", "-q", "--depth", "1", whole.as_uri(), shallow], check=True)
    assert gate(whole, SENTENCE, commit="0" * 40) == ["file.json: its commit 00000000 is not in the history"]
    assert gate(shallow, SENTENCE, commit="0" * 40) == []
    shutil.rmtree(whole / "benchmarks")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gate(whole, SENTENCE, commit="0" * 40) == []


def checked(way: str, *errors: str) -> dict[str, Any]:
    """What a file keeps of `vitreous data check`."""
    return {"data_check": {way: {"error": list(errors), "warning": ["few: a class has 8 images"]}}}


@pytest.mark.parametrize(
    ("kept", "unchecked", "fault"),
    [
        (checked("rows/set=a"), "", None),
        ({}, REASON, None),
        ({}, "", "no data check of rows/set=a/right, and claims.toml no reason"),
        (checked("rows/set"), "", "no data check of rows/set=a/right"),
        (checked("rows/set=b"), "", "no data check of rows/set=a/right"),
        (checked("rows/set=a", "leak: 23 pairs of images"), "", "leak: 23 pairs of images"),
        (checked("rows/set=a", "leak: 23 pairs of images"), REASON, "leak: 23 pairs of images"),
        ({}, f'{REASON}\n"other.json" = "a speed"', "no number stands on other.json"),
    ],
)
def test_a_number_of_images_that_are_learned_and_tested_is_refused(
    kept: dict[str, Any], unchecked: str, fault: str | None, tmp_path: Path
) -> None:
    found = gate(tmp_path, SENTENCE, unchecked, **kept)
    assert any(fault in each for each in found) if fault else not found, found


def test_a_file_keeps_what_data_check_says_of_its_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    rng = np.random.default_rng(0)
    for part, name in itertools.product(("train", "test"), ("cat", "dog")):
        (tmp_path / part / name).mkdir(parents=True)
        for number in range(3):
            pixels = rng.integers(0, 256, (24, 24, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / part / name / f"{number}.png")
    record = import_module("record")
    assert not record.data_check(str(tmp_path))["error"]
    shutil.copy(tmp_path / "train/cat/0.png", tmp_path / "test/cat/9.png")
    (error,) = record.data_check(str(tmp_path))["error"]
    assert "two splits" in error
