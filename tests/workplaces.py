"""A place with a run, images and data, as the examples in `--help` name them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from vitreous.cli import run as run_command


class Outcome(NamedTuple):
    """What one command did."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/mine and runs/other: runs on the digits that never trained. photos/: two classes. photo.jpg."""
    place = tmp_path_factory.mktemp("workplace")
    write_run(place / "runs" / "mine")
    write_run(place / "runs" / "other", seed=1)
    write_photos(place / "photos")
    Image.open(place / "photos" / "3" / "0.jpg").save(place / "photo.jpg")
    return place


def write_run(path: Path, seed: int = 0, depth: int = 2) -> None:
    """A run directory as training leaves it, with a tiny model that has learned nothing."""
    from vitreous.models.config import ViTConfig
    from vitreous.models.preprocessing import Preprocessing
    from vitreous.models.vit import ViT
    from vitreous.training.config import RunConfig
    from vitreous.training.run import RunDirectory

    config = ViTConfig(
        image_size=8, channels=1, patch_size=4, width=8, depth=depth, heads=2, mlp_dim=16, num_classes=10
    )
    preprocessing = Preprocessing(size=(8, 8), channels=1, mean=(0.3,), std=(0.4,))
    run = RunDirectory.create(path, RunConfig(source="digits", model=config, preprocessing=preprocessing))
    torch.manual_seed(seed)
    model = ViT(config, preprocessing=preprocessing, labels=[str(digit) for digit in range(10)])
    torch.nn.init.normal_(model.head.weight)  # type: ignore[arg-type]
    run.save_model(model)


def write_photos(folder: Path) -> None:
    """Twelve images of each of two classes that the run knows."""
    generator = np.random.default_rng(0)
    for label, low in (("3", 0), ("7", 120)):
        (folder / label).mkdir(parents=True)
        for number in range(12):
            pixels = generator.integers(low, low + 120, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number}.jpg")


@pytest.fixture
def command(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """Run a command in the workplace, in this process."""
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments: str | os.PathLike[str]) -> Outcome:
        capsys.readouterr()
        code = run_command([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
