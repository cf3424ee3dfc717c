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


@pytest.mark.timeout(3600)
def test_every_block_runs(folder: Path) -> None:
    ran = set()
    for language, text in blocks()[1:]:
        if language == "python":  # a small model at a small size, or this would take gigabytes
            small = text.replace('"ViT-B/16"', '"ViT-Ti/16"').replace("image_size=384", "image_size=256")
            small = small.replace("epochs=30", "epochs=2")
            run([sys.executable, "-c", small], folder)
            continue
        for command in commands(text):
            words = shlex.split(command)
            if words[:2] == ["pip", "install"]:  # tests/test_packaging.py
                continue
            assert words[0] == "vitreous", command
            ran.add(words[1])
            if words[1] == "serve":
                serve([sys.executable, "-m", *words, "--port", "0"], folder)
                continue
            if "--task" in words or words[1:3] == ["translate", "train"]:
                words += ["--set", "training.steps=2"]
            elif words[1] in ("train", "pretrain") and "--resume" not in words:
                words += ["--set", "training.epochs=2"]
            run([sys.executable, "-m", *words], folder)
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


def serve(command: list[str], folder: Path) -> None:
    """Starts, says where, and ends when it is told to."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        assert "http://" in server.stdout.readline()
        server.terminate()
    assert server.returncode == 0


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stderr}"
