"""Every command of the README runs, in its order, in a folder that has nothing but pictures.

`make demo` is held to be `vitreous train`; `make test` is what runs this. Training is cut to two epochs here:
what a full one reaches is tested in test_demo.py.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    lines = "\n".join(blocks("sh")).splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.strip()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/ with two classes of twelve pictures that differ in colour."""
    where = tmp_path_factory.mktemp("readme")
    random = np.random.default_rng(0)
    for shade, name in enumerate(("apples", "pears")):
        (where / "photos" / name).mkdir(parents=True)
        for number in range(12):
            pixels = random.integers(0, 80, (48, 64, 3), dtype=np.uint8)
            pixels[..., shade] += 150
            Image.fromarray(pixels).save(where / "photos" / name / f"{number}.jpg")
    return where


def test_the_demo_is_training_without_arguments() -> None:
    assert commands()[:2] == ["make demo", "make test"]
    plan = subprocess.run(["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert plan.stdout.splitlines()[-1] == ".venv/bin/vitreous train"


def test_every_command_runs(folder: Path) -> None:
    ran = []
    for command in commands()[2:]:
        words = shlex.split(command)
        assert words[0] == "vitreous", command
        if words[:2] == ["vitreous", "train"] and "--resume" not in words:
            words += ["--set", "training.epochs=2"]
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        ran.append(words[1])
    assert {"train", "evaluate", "predict", "describe", "inspect", "convert"} <= set(ran)


def test_every_python_block_runs(folder: Path) -> None:
    for block in blocks("python"):
        small = block.replace('"ViT-B/16"', '"ViT-Ti/16"').replace("image_size=384", "image_size=256")
        done = subprocess.run(
            [sys.executable, "-c", small], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block}\n{done.stderr}"
