"""`vitreous compare`: runs of every kind of task on the same examples, as people and programs see it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, tzinfo
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vitreous as vt
from vitreous.training import run as training_run
from vitreous.training.run import default_run_path

Command = Callable[..., tuple[int, str, str]]
TINY = ("--set", "model.depth=1", "--set", "model.width=16", "--set", "model.mlp_dim=16", "--epochs", "2")


def test_two_runs(command: Command, workplace: Path) -> None:
    code, out, err = command("compare", "runs/mine", "runs/other", "--out", "compared/page.html")
    assert code == 0, err
    assert "All runs are compared on the same 360 held-out examples." in out
    assert re.search(r"^accuracy +\d", out, re.MULTILINE)
    assert re.search(r"^other (is (better|worse) than mine|and mine do not differ)", out, re.MULTILINE)
    assert re.search(r"^different answers to \d+ of 360 examples$", out, re.MULTILINE)
    page = (workplace / "compared" / "page.html").read_text(encoding="utf-8")
    assert {"runs", "changes", "disagreements"} <= set(re.findall(r'<section id="([\w-]+)"', page))
    assert "all runs have the same settings" in page
    assert "vitreous compare runs/mine runs/other" in page
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page)


def test_what_is_compared_with_other_data(command: Command) -> None:
    code, out, err = command("compare", "runs/mine", "runs/other", "--data", "photos", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["count"] == 24
    assert found["score"] == "accuracy"
    assert [row["run"] for row in found["runs"]] == ["mine", "other"]
    alone = json.loads(command("evaluate", "runs/other", "photos", "--json").out)  # type: ignore[attr-defined]
    assert found["runs"][1]["accuracy"] == alone["test_accuracy"]
    assert found["runs"][1]["held_out"]["accuracy"]["value"] == alone["test_accuracy"]
    difference = found["differences"][0]
    assert difference["difference"] == pytest.approx(
        found["runs"][1]["accuracy"] - found["runs"][0]["accuracy"]
    )
    right = [
        [row["true"] == each for each in row["answers"]]
        for row in found["differing"]
        if row["true"] in row["answers"]
    ]
    assert difference["better"] == sum(not first and second for first, second in right)
    assert Path(found["report"]).is_file()


def test_runs_of_different_tasks_are_refused(command: Command, workplace: Path) -> None:
    config = workplace / "runs" / "mine" / "config.toml"
    other = workplace / "runs" / "of-several-labels"
    other.mkdir()
    text = config.read_text().replace('task = "classification"', 'task = "multilabel"')
    (other / "config.toml").write_text(text)
    code, _, err = command("compare", "runs/mine", "runs/of-several-labels")
    assert code == 2
    assert "runs/mine is a run of classification and runs/of-several-labels one of multilabel" in err
    assert "only runs of one task can be compared" in err


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "ko"])
def test_every_task_can_be_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: object, language: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = {"numbers": ["path,label"], "labels": ["path,label"]}
    for i in range(80):
        shade = int(rng.integers(0, 255))
        Image.fromarray(np.full((16, 16, 3), shade, np.uint8)).save(f"{i}.png")
        lines["numbers"].append(f"{i}.png,{shade / 10}")
        lines["labels"].append(
            f"{i}.png,{'dark' if shade < 120 else 'light'}" + ("|middle" if 60 < shade < 190 else "")
        )
    for name, rows in lines.items():
        Path(f"{name}.csv").write_text("\n".join(rows) + "\n")
    tiny = {"model.depth": 1, "model.width": 16, "model.mlp_dim": 16, "model.heads": 2}
    quick = {"epochs": 2, "settings": tiny, "progress": False, "language": language}
    small = {**quick, "model": "ViT-Ti/8", "image_size": 16}
    plain = {"progress": False, "language": language}
    steps = {"training.length": "2 steps", "training.batch_size": 4}
    translating = {
        "model.width": 64,
        "model.depth": 1,
        "model.encoder_depth": 1,
        "tokenizer.vocabulary": 300,
    }
    pairs = [f"word {i}\tWort {i}" for i in range(200)]
    Path("pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    makers = {
        "multilabel": lambda seed: vt.train("labels.csv", seed=seed, **small),
        "regression": lambda seed: vt.train("numbers.csv", task="regression", seed=seed, **small),
        "segmentation": lambda seed: vt.train(
            None, task="segmentation", seed=seed, image_size=32, settings={**steps, **tiny}, **plain
        ),
        "translation": lambda seed: vt.train_translator(
            "pairs.tsv", seed=seed, steps=3, batch_size=8, settings=translating, **plain
        ),
        "mae": lambda seed: vt.pretrain("digits", objective="mae", seed=seed, settings=steps, **plain),
    }
    for task, make in makers.items():
        found = vt.compare(make(0), make(1), out=f"{task}.html", progress=False, language=language)
        assert found.task == task
        assert "seed" in found.settings
        # Without labels there are no answers; the bundled lines of digits are others for another seed.
        assert len(found.differences) == (task != "mae")
        assert (found.count > 0) == bool(found.differences)
        json.dumps(found.to_json(), default=float)
        tab = browser.new_page(viewport={"width": 390, "height": 844})  # type: ignore[attr-defined]
        errors: list[str] = []
        tab.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
        tab.goto(Path(f"{task}.html").resolve().as_uri(), timeout=1_000_000)
        tab.wait_for_timeout(300)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, task
        assert [
            (each["id"], each["nodes"][0]["html"][:200]) for each in Axe().run(tab).response["violations"]
        ] == []
        assert errors == []
        tab.close()


def test_two_pages_of_one_second_have_two_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Clock:
            return cls(2026, 1, 2, 3, 4, 5)

    monkeypatch.setattr(training_run, "datetime", Clock)
    monkeypatch.chdir(tmp_path)
    first = default_run_path("runs/a", Path("comparisons"), ".html")
    first.parent.mkdir()
    first.touch()
    second = default_run_path("runs/a", Path("comparisons"), ".html")
    assert first.name == "a-20260102-030405.html"
    assert second.name == "a-20260102-030405-2.html"
