"""Every program of benchmarks/ starts: what it imports exists, and --help says what it measures."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
# The rest is imported by these; call_paths.py takes no options and is run by test_structure.py.
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


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_the_benchmark_of_a_gpu_runs_to_its_end_without_one(processes: int, tmp_path: Path) -> None:
    """And in two processes with shards."""
    launched = "-m torch.distributed.run --standalone --nproc-per-node 2" if processes > 1 else ""
    small = "--device cpu --models ViT-Ti/16 --batch 2 --images 16 --steps 1 --rounds 1"
    out = tmp_path / "gpu.json"
    more = ["--shard"] if processes > 1 else []
    program = [*launched.split(), str(FOLDER / "gpu_training.py"), *small.split(), *more, "--out", str(out)]
    subprocess.run([sys.executable, *program], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = json.loads(out.read_text())
    row = found["rows"]["ViT-Ti/16"]
    assert (found["processes"], row["batch"]) == (processes, 2 * processes)
    ways = ["vitreous", "vitreous, constant batch"]
    ways += ["vitreous, MAE", "vitreous, DINO", "huggingface"] if processes == 1 else []
    assert all(row[way]["images_per_second"] > 0 for way in ways)
    assert row["checkpoint"]["gib"] > 0.05


def test_every_stored_result_is_explained() -> None:
    explained = (FOLDER / "results" / "README.md").read_text("utf-8")
    stored = {path.name for path in (FOLDER / "results").glob("*.json")}
    assert {name for name in stored if name not in explained} == set()
