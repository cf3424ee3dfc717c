"""Every command of the README runs, in its order, in a folder that has nothing but images.

`make demo` is held to be `vitreous train`; `make test` is what runs this. Training is cut to two epochs here:
what a full one reaches is tested in test_demo.py.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from vitreous.cli import run

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks() -> list[tuple[str, str]]:
    """(language, text) of every block, in order."""
    return re.findall(r"```(sh|python)\n(.*?)```", README, re.DOTALL)


def commands(text: str) -> list[str]:
    return [line.split("  #")[0].strip() for line in text.splitlines() if line.strip()]


def test_the_demo_is_training_without_arguments() -> None:
    assert commands(blocks()[0][1]) == ["make demo", "make test"]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    plan = subprocess.run(
        ["make", "-n", "demo"], cwd=ROOT, env=alone, capture_output=True, text=True, check=True
    )
    assert plan.stdout.splitlines()[-1] == ".venv/bin/vitreous train"


def test_every_block_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, but for the server: that a program starts is tested in tests/cli."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("VITREOUS_CACHE", str(folder / "cache"))
    ran = set()
    for language, text in blocks()[1:]:
        if language == "python":  # a small model at a small size, or this would take gigabytes
            small = text.replace('"ViT-B/16"', '"ViT-Ti/16"').replace("image_size=384", "image_size=256")
            small = small.replace("epochs=30", "epochs=2")
            exec(compile(small, "README.md", "exec"), {"__name__": "readme"})
            continue
        for command in commands(text):
            words = shlex.split(command)
            if words[:2] == ["pip", "install"]:  # tests/test_packaging.py
                continue
            assert words[0] == "vitreous", command
            ran.add(words[1])
            if words[1] == "serve":
                serve([sys.executable, "-m", *words, "--port", "0"])
                continue
            if "--task" in words or words[1:3] == ["translate", "train"]:
                words += ["--set", "training.steps=2"]
            elif words[1] in ("train", "pretrain") and "--resume" not in words:
                words += ["--set", "training.epochs=2"]
            words = ["3" if word == "90" else word for word in words]
            assert run(words[1:]) == 0, command
    assert {
        "train",
        "evaluate",
        "predict",
        "describe",
        "inspect",
        "convert",
        "export",
        "pretrain",
        "serve",
    } <= ran


def serve(command: list[str]) -> None:
    """Starts, says where, and ends when it is told to."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        assert "http://" in server.stdout.readline()
        server.terminate()
    assert server.returncode == 0
