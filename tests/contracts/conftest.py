"""What the contracts of extension points share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vitreous as vt
from vitreous.cli import run as command


@contextmanager
def hint(where: str) -> Iterator[None]:
    """Add to whatever fails inside which file a contributor has to edit."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"-> edit {where}")
        raise


@pytest.fixture
def edit() -> Callable[[str], AbstractContextManager[None]]:
    return hint


@pytest.fixture
def vitreous(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Run a command, and return its JSON; with `refused` expect a sentence and return nothing."""

    def run(*words: object, refused: bool = False) -> dict[str, Any]:
        capsys.readouterr()
        code = command([str(word) for word in (*words, "--json")])
        out, err = capsys.readouterr()
        if refused:
            assert (code, out) == (2, ""), f"{words[0]} is not refused: {out}{err}"
            return {}
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    return run


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two classes of twelve images that differ in brightness, and manifests of the same images:
    with numbers, with several labels, with texts, with grades; masks; pairs of texts; and a model."""
    root = tmp_path_factory.mktemp("contract")
    rng = np.random.default_rng(0)
    rows: dict[str, list[str]] = {kind: ["path,label"] for kind in ("numbers", "several", "texts", "grades")}
    for number in range(24):
        name = ("dark", "light")[number % 2]
        pixels = rng.integers(0, 60, (20, 20, 3)) + 120 * (number % 2)
        for folder in (root / "photos" / name, root / "pixels" / "images", root / "pixels" / "masks"):
            folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(pixels.astype(np.uint8))
        image.save(root / "photos" / name / f"{number}.png")
        image.save(root / "pixels" / "images" / f"{number}.png")
        mask = Image.fromarray((pixels[..., 0] > 90).astype(np.uint8))
        mask.save(root / "pixels" / "masks" / f"{number}.png")
        path = f"photos/{name}/{number}.png"
        rows["numbers"].append(f"{path},{pixels.mean():.2f}")
        rows["several"].append(f"{path},{name};{'even' if number % 4 < 2 else 'odd'}")
        rows["texts"].append(f"{path},a {name} image")
        rows["grades"].append(f"{path},{number % 4}")
    for kind, lines in rows.items():
        (root / f"{kind}.csv").write_text("\n".join(lines) + "\n")
    (root / "pairs.tsv").write_text("".join(f"word {n}\tWort {n}\n" for n in range(60)))
    vt.save(vt.create("ViT-Ti/8", image_size=16, num_classes=2), root / "teacher")
    return root
