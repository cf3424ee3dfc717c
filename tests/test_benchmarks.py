"""Every program of benchmarks/ starts: what it imports exists, and --help says what it measures."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import vitreous as vt
from vitreous.api.arguments import read_toml

FOLDER = Path(__file__).parents[1] / "benchmarks"
# The rest is imported by these.
PROGRAMS = [path for path in sorted(FOLDER.glob("*.py")) if "ArgumentParser(" in path.read_text("utf-8")]


@pytest.fixture
def _in_the_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs import modules of their folder; names such as `loader` are theirs alone."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.usefixtures("_in_the_folder")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_benchmark_says_what_it_measures(
    program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(program), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(program), run_name="__main__")
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out


@pytest.mark.usefixtures("_in_the_folder")
def test_results_are_written_beside_the_machine_and_the_versions(tmp_path: Path, capsys: Any) -> None:
    write_results, out = import_module("record").write_results, tmp_path / "new" / "results.json"
    write_results(
        {"date": "an earlier one", "rows": [1]}, out, machine="one thread", packages=("numpy", "no such")
    )
    written = json.loads(out.read_text("utf-8"))
    assert json.loads(capsys.readouterr().out) == written
    assert list(written) == ["date", "machine", "versions", "commit", "command", "seeds", "rows"]
    assert (written["date"], written["machine"][-12:]) == (date.today().isoformat(), ", one thread")
    assert list(written["versions"]) == ["torch", "vitreous", "numpy", "no such"]
    assert (written["versions"]["torch"], written["versions"]["no such"]) == (version("torch"), None)
    write_results({"rows": []}, None, shown=False)
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("_in_the_folder")
def test_loading_calls_no_more_than_was_counted(tmp_path: Path) -> None:
    """What a reader has to follow grows only where someone has looked, and counts again."""
    program = import_module("call_paths")
    kept = json.loads((FOLDER / "results" / program.RESULT).read_text("utf-8"))["load"]
    found = program.loading_path(tmp_path).to_json()
    for name in ("files", "functions", "upward"):
        assert found[name] <= kept[name], (
            f"vt.load of a timm folder meets {found[name]} {name}, {kept[name]} before: shorten the way, or "
            "write benchmarks/results/call_paths.json again: "
            f"{new_functions(found, kept)}"
        )


def new_functions(found: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """Return the functions that were not called before."""
    one, other = (
        {
            f"{file}: {function}"
            for file, functions in each["functions_by_file"].items()
            for function in functions
        }
        for each in (found, kept)
    )
    return sorted(one - other)


@pytest.mark.slow
def test_the_benchmark_of_a_gpu_runs_to_its_end_without_one(tmp_path: Path) -> None:
    """Every item but those of packages that are not here, which say why."""
    found = run_program("gpu_training", ["--device", "cpu", "--tiny", "--minutes", "30"], tmp_path)
    rows = found["rows"]
    failed = {item for item, row in rows.items() if "failed" in row or "left_out" in row}
    assert failed <= {item for item in rows if "timm" in item}, rows
    assert rows["matrices"]["matrix_peak_teraflops"] > 0
    assert rows["ViT-B/16"]["share_of_peak"] > 0
    assert rows["ViT-B/16, loader"]["loader_alone_images_per_second"] > 0
    assert rows["ViT-B/16, checkpoint"]["gib"] > 0


@pytest.mark.slow
def test_an_item_that_dies_or_takes_too_long_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    program = import_module("gpu_training")
    dying = "import os; print('{\"first\": 1}', flush=True); os.write(2, b'why'); os.abort()"
    row: dict[str, Any] = {}
    program.follow([sys.executable, "-c", dying], row, 60.0, lambda: None)
    assert (row["first"], row["failed"], row["output"]) == (1, "exit code -6", ["why"])
    slow: dict[str, Any] = {}
    program.follow([sys.executable, "-c", "import time; time.sleep(60)"], slow, 1.0, lambda: None)
    assert "the time was over" in slow["left_out"]


@pytest.mark.slow
def test_the_benchmark_of_several_gpus_takes_all_processes(tmp_path: Path) -> None:
    out = tmp_path / "gpus.json"
    words = ["--device", "cpu", "--tiny", "--only", "ViT-B/16, FSDP2", "--out", str(out)]
    launched = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = [sys.executable, *launched, str(FOLDER / "gpu_training.py"), *words]
    subprocess.run(program, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = json.loads(out.read_text())
    assert found["processes"] == 2
    assert found["ViT-B/16, FSDP2"]["images_per_second"] > 0


@pytest.mark.slow
def test_failures_of_tests_are_kept_and_one_that_ends_the_process_is_named(tmp_path: Path) -> None:
    tests = tmp_path / "test_some.py"
    tests.write_text(
        "import os\ndef test_a(): pass\ndef test_b(): assert 1 == 2\n"
        "def test_c(): os.abort()\ndef test_d(): pass\n"
    )
    found = run_program("gpu_tests", [str(tests)], tmp_path)
    assert (found["ended"], found["passed"]) == (True, 2)
    failures = {row["test"].rpartition("::")[2]: row["error"] for row in found["failures"]}
    assert failures == {"test_b": "assert 1 == 2", "test_c": "exit code -6"}


def run_program(name: str, words: list[str], folder: Path) -> dict[str, Any]:
    """What a program writes, in a process of its own."""
    out = folder / f"{name}.json"
    command = [sys.executable, str(FOLDER / f"{name}.py"), *words, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=offline(folder))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(out.read_text("utf-8"))
    return found


def offline(folder: Path) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "VITREOUS_CACHE": str(folder / "cache")}


@pytest.mark.slow
def test_pre_training_is_compared_at_equal_total_compute(tmp_path: Path) -> None:
    """Every objective, for a second each: the rows of one seed, and runs that are not trained again."""
    small = ["--unlabeled", "96", "--labels", "2", "--seeds", "1", "--runs", str(tmp_path / "runs")]
    small += ["--set", "glyphs", "--minutes", "0.02", "--tuning-minutes", "0.01"]
    words = [*small, "--objectives", *COMPARED]
    found = run_program("self_supervised", words, tmp_path)
    scratch = ["none", "none, fixed positions"]
    assert [row["pre-training"] for row in found["rows"]] == [*scratch, *COMPARED]
    for row in found["rows"][2:]:
        assert set(row["frozen"]["baselines"]) == {"raw pixels", "untrained"}
    assert {row["pairs"] for row in found["gains"]} == {1}
    runs = {path.parent.name: path for path in (tmp_path / "runs").glob("*/config.toml")}
    assert len(runs) == 10
    lengths = {tuple(read_toml(runs[name])["training"]["length"] for name in pair) for pair in PAIRS}
    assert lengths == {("0.02 minutes", "0.01 minutes")}
    assert read_toml(runs["glyphs-1-scratch-0"])["training"]["length"] == "0.03 minutes"
    assert run_program("self_supervised", words, tmp_path)["rows"] == found["rows"]


COMPARED = ("contrastive", "dino", "masked-patch", "mae")
PAIRS = [(f"glyphs-1-{name}", f"glyphs-1-{name}-tuned") for name in COMPARED]


@pytest.mark.slow
def test_an_encoder_of_formulas_is_written_and_compared(tmp_path: Path) -> None:
    run, encoder = tmp_path / "run", tmp_path / "encoders" / "tiny"
    vt.train("formulas:4x8@64", recipe="formulas", epochs=1, out=run, progress=False)
    program = [sys.executable, str(FOLDER / "formulas_encoder.py"), "--write", str(run), str(encoder)]
    subprocess.run(program, check=True, env=offline(tmp_path))
    model = vt.load(encoder)
    assert (model.task, model.config.num_classes, model.labels) == (None, None, None)
    described = json.loads((encoder / "config.json").read_text("utf-8"))
    assert described["trained_on"] == "formulas:4x8@64"
    assert {str(each.dtype) for each in load_file(encoder / "model.safetensors").values()} == {
        "torch.float16"
    }
    words = ["--init", str(encoder), "--sets", "digits", "--images", "10"]
    words += ["--seeds", "1", "2", "--seconds", "0.5"]
    found = run_program("formulas_encoder", words, tmp_path)
    assert len(found["rows"]) == 6
    (gain,) = found["gains"]
    assert gain["seeds"] == 2
    low, high = gain["interval over cnn"]
    assert low <= gain["gain over cnn"] <= high
    probed = run_program("formulas_encoder", [*words, "--frozen", "32"], tmp_path)
    assert [row["size"] for row in probed["sizes"]] == [32, 32]
    assert probed["rows"] == found["rows"]


def test_every_stored_result_is_explained() -> None:
    explained = (FOLDER / "results" / "README.md").read_text("utf-8")
    stored = {path.name for path in (FOLDER / "results").glob("*.json")}
    assert {name for name in stored if name not in explained} == set()


def test_every_stored_result_is_on_a_page() -> None:
    """What no page cites is not kept."""
    pages = [
        *(FOLDER.parent / "docs" / "en").rglob("*.*"),
        FOLDER.parent / "docs" / "extensions" / "from_program.py",
    ]
    text = "".join(page.read_text("utf-8") for page in pages if page.suffix in (".md", ".ipynb", ".py"))
    stored = {path.name for path in (FOLDER / "results").glob("*.json")}
    assert {name for name in stored if name not in text} == set()
