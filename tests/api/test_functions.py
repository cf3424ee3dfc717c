"""The functions beside training: what they return, and that commands print what they return."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import vitreous as vt
from docstring_examples import SLOW, what_differs, write_place
from vitreous.api.cache import KINDS, cache_use, clear_cache
from vitreous.api.data_source import data_source
from vitreous.api.inspection import examples_to_show
from vitreous.cli import run
from vitreous.errors import InputError
from vitreous.models.vit import ViT
from vitreous.results import Result
from vitreous.tasks import task_named


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own: tests count, remove and clear what is in it."""
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))


def test_dir_shows_the_api_alone() -> None:
    names = dir(vt)
    assert {"create", "load", "embed", "probe", "inspect", "describe", "export", "study", "doctor"} <= set(
        names
    )
    assert not {"HOME", "Any", "TYPE_CHECKING", "import_module"} & set(names)
    for name in names:
        assert getattr(vt, name) is not None


def test_importing_costs_nothing_heavy() -> None:
    words = "import sys, vitreous; print({'torch', 'numpy', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_settings_of_a_file_change_the_model_that_answers(model: ViT, tmp_path: Path) -> None:
    image = np.zeros((32, 32, 3), np.uint8)
    (tmp_path / "larger.toml").write_text("[model]\nimage_size = 64\n")
    vt.save(model, tmp_path / "m")
    [one] = vt.predict(tmp_path / "m", image, config=tmp_path / "larger.toml", precision="fp32")
    [other] = vt.predict(tmp_path / "m", image, image_size=64, precision="fp32")
    assert one == other


def test_an_answer_imports_nothing_that_trains_and_no_other_format(model: ViT, tmp_path: Path) -> None:
    """What `vitreous predict` waits for before its first image."""
    vt.save(model, tmp_path / "m")
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    program = (
        "import sys, vitreous.cli\n"
        f"assert vitreous.cli.run(['predict', {str(tmp_path / 'm')!r}, {str(tmp_path / 'a.png')!r}]) == 0\n"
        "print([name for name in sys.modules if name.startswith('vitreous.checkpoints.formats.')])\n"
        "trains = {'trainer', 'run', 'step', 'learner', 'checkpointer', 'settings', 'objectives'}\n"
        "print({f'vitreous.training.{name}' for name in trains} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["[]", "set()"]


def test_lists() -> None:
    assert "ViT-B/16" in vt.list_models("ViT-*")
    assert not vt.list_models("BERT*")
    assert vt.list_recipes()["deit"].startswith("Data-efficient")
    assert "positions" in vt.list_studies()


def test_describe_a_name_and_a_model(model: ViT) -> None:
    by_name = vt.describe("ViT-Ti/16", image_size=32, settings={"model": {"depth": 1}})
    assert (
        by_name.parameters == vt.describe("ViT-Ti/16", image_size=32, settings={"model.depth": 1}).parameters
    )
    own = vt.describe(model)
    assert own.parameters == sum(each.numel() for each in model.parameters())
    assert isinstance(own, Result)
    assert "macs" in own._repr_html_()
    with pytest.raises(vt.InputError, match="not a setting of the model"):
        vt.describe("ViT-Ti/16", settings={"training.length": "3 epochs"})
    with pytest.raises(vt.InputError, match="`batch_size` is 0: pass at least 1"):
        vt.describe("ViT-Ti/16", batch_size=0)


def test_export(model: ViT, tmp_path: Path) -> None:
    exported = vt.export(model, tmp_path / "model.pt2")
    assert exported.path.stat().st_size == exported.bytes
    assert exported.to_json()["max_abs_difference"] < 1e-4
    with pytest.raises(vt.InputError, match="already loaded"):
        vt.export(model, tmp_path / "other.pt2", image_size=32)


@pytest.mark.slow
def test_inspect_images_in_memory(model: ViT, pixels: NDArray[np.uint8], tmp_path: Path) -> None:
    found = vt.inspect(model, pixels[:4], out=tmp_path / "out", patch=(0, 1), progress=False)
    assert found.report.is_file()
    assert found.to_json()["images"] == 4
    assert "<iframe" in found._repr_html_()
    assert not found.failed


def test_masks_of_a_model_in_memory_are_in_the_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    segmenter = vt.create("Seg-Ti/16", num_classes=3, image_size=32, depth=1)
    found = vt.predict(segmenter, [Image.new("RGB", (20, 10))], progress=False)
    assert found[0].mask.shape == (10, 20)
    assert not list(tmp_path.iterdir()), "nothing was to be written"


def test_the_true_class_of_images_is_that_of_their_folder(model: ViT, tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    Image.new("RGB", (20, 10)).save(tmp_path / "cat" / "0.png")
    task = task_named("classification")
    assert examples_to_show(task, model, model, tmp_path / "cat" / "0.png").labels == ("cat",)
    assert examples_to_show(task, model, model, [Image.new("RGB", (8, 8))]).labels == ("",)
    digits = examples_to_show(task, model, model, None)
    assert set(digits.labels) <= set("0123456789")
    assert len(digits.labels) == len(digits.examples)


@pytest.mark.parametrize("arguments", [["--device", "cpu"], ["--device", "cuda:1"]])
def test_the_study_of_complexity_refuses_what_it_does_not_have(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["study", "complexity", *arguments, "--quick"]) == 2
    assert "has no effect on the study complexity" in capsys.readouterr().err


def test_cache(pixels: NDArray[np.uint8], capsys: pytest.CaptureFixture[str]) -> None:
    data_source((pixels, ["a", "b"] * 12))
    assert run(["cache", "--json"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert before["bytes"]["data"] == before["total_bytes"] > 0
    assert run(["cache", "data", "--clear"]) == 0
    capsys.readouterr()
    assert run(["cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total_bytes"] == 0
    assert run(["cache", "dtaa", "--clear"]) == 2
    assert "did you mean 'data'" in capsys.readouterr().err
    assert run(["cache", "data"]) == 2


def test_a_cache_on_another_disk_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    for folder in ("cache", "disk"):
        (tmp_path / folder).mkdir()
    (tmp_path / "disk" / ("0" * 32)).write_bytes(b"12")
    (tmp_path / "cache" / "data").symlink_to(tmp_path / "disk")
    assert clear_cache("data").bytes == {"data": 2}
    assert [*(tmp_path / "cache" / "data").iterdir()] == []


def test_a_cache_in_a_folder_of_the_users_deletes_no_other_file(
    tmp_path: Path, pixels: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "home"))
    mine = [
        tmp_path / "home" / name for name in ("data/photos/one.jpg", "studies/thesis.md", "downloads/a.iso")
    ]
    for file in mine:
        file.parent.mkdir(parents=True)
        file.write_text("mine")
    assert sum(cache_use().bytes.values()) == 0
    stored = Path(data_source((pixels, ["a", "b"] * 12)))
    lock = tmp_path / "home" / "indexes" / f"{'0' * 32}.lock"
    lock.parent.mkdir()
    lock.write_text("1")
    assert clear_cache().bytes["data"] > 0
    assert not stored.parent.exists()
    assert not lock.parent.exists()
    assert all(file.read_text() == "mine" for file in mine)


@pytest.mark.parametrize("before", [True, False])
def test_a_file_that_another_process_removes_from_the_cache_is_no_error(
    before: bool, pixels: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = Path(data_source((pixels, ["a", "b"] * 12)))
    look = os.stat

    def stat(path: Any, **how: Any) -> os.stat_result:
        if before and path == removed:
            removed.unlink(missing_ok=True)
        found = look(path, **how)
        if path == removed:
            removed.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(os, "stat", stat)
    assert cache_use().bytes["data"] > 0  # of the images
    assert not removed.exists()


def test_a_folder_that_another_process_clears_is_no_error(
    pixels: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    data_source((pixels, ["a", "b"] * 12))
    remove, others = shutil.rmtree, [1]

    def removed_by_another(path: Path) -> None:
        remove(path)
        if others and others.pop():
            raise FileNotFoundError(path)

    monkeypatch.setattr(shutil, "rmtree", removed_by_another)
    assert clear_cache("data").bytes["data"] > 0
    assert cache_use().bytes["data"] == 0


def test_data_that_another_process_stores_at_the_same_time_are_taken(
    pixels: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = data_source((pixels, ["a", "b"] * 12))
    monkeypatch.setattr(Path, "exists", lambda path: False)  # it was not there yet
    assert data_source((pixels, ["a", "b"] * 12)) == stored


def test_every_kind_of_cached_file_is_shown_and_cleared(capsys: pytest.CaptureFixture[str]) -> None:
    source = Path(vt.__file__ or "").parent
    texts = [path.read_text(encoding="utf-8") for path in source.rglob("*.py")]
    kinds = [kind for text in texts for kind in re.findall(r"cache_folder\(\) / ([^\s)]+)", text)]
    assert len(kinds) >= len(KINDS)
    assert {*kinds} == {f'"{kind}"' for kind in KINDS}
    assert run(["cache"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert all(any(row.startswith(f"{kind} ") for row in rows) for kind in KINDS)


@pytest.mark.slow
def test_quiet_and_verbose(tmp_path: Path, model: ViT, capsys: pytest.CaptureFixture[str]) -> None:
    vt.save(model, tmp_path / "model")
    export = ["export", str(tmp_path / "model"), "--out"]
    capsys.readouterr()
    assert run([*export, "a.pt2", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.out
    assert captured.err == ""
    assert run([*export, "b.pt2"]) == 0
    assert "tracing" in capsys.readouterr().err
    assert run(["describe", "nowhere", "--quiet"]) == 2
    assert capsys.readouterr().err.count("\n") == 1, "an error is printed in any case"
    assert run(["describe", "nowhere", "--verbose"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert run(["describe", "nowhere", "-q", "-v"]) == 2
    assert "contradict" in capsys.readouterr().err


def test_completion_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "--install-completion" in capsys.readouterr().out


def test_the_model_of_1706_03762_is_described_by_its_name() -> None:
    """65 million parameters in its Table 3, with a vocabulary of about 37,000."""
    base, big = vt.describe("transformer-base"), vt.describe("transformer-big", settings={"model.depth": 5})
    assert base.parameters == 63_082_496
    assert base.sequence == (512, 512)
    assert big.sequence == (512, 1024)
    assert [stage.times for stage in base.stages if stage.name == "MLP, wide"] == [6, 6]
    with pytest.raises(InputError, match="not a multiple of 7 heads"):
        vt.describe("transformer-base", settings={"model.heads": 7})


@pytest.mark.slow
@pytest.mark.usefixtures("quick_figures")
@pytest.mark.parametrize("name", sorted(SLOW))
def test_an_example_of_what_trains_or_exports_does_what_it_says(name: str, tmp_path: Path) -> None:
    """Those of all other calls: test_docstrings.py."""
    write_place(tmp_path)
    assert what_differs(name) == ""
