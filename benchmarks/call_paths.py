"""How many files a reader has to open to follow three paths through vitreous: counted, not estimated.

    python benchmarks/call_paths.py

- train: from a folder of images to changed weights: opening the folder, and what is called from the end of
  one optimizer step to the end of the third one after it (progress is printed in between).
- load: from a timm checkpoint folder to a model (`vt.load`).
- predict: from images to the answers of a ViT that was loaded before (`vt.predict`).

`sys.setprofile` records the file of every function of src/vitreous that is called, in all threads, after one
pass has imported what the path needs.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src" / "vitreous"


class Reached(BaseException):
    """The end of the path; no handler in between catches it."""


class CalledFiles:
    """The files of src/vitreous with a function that was called while `counting`."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.files.add(frame.f_code.co_filename)

    def start(self) -> None:
        threading.setprofile(self.note)
        sys.setprofile(self.note)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    @contextmanager
    def counting(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.stop()

    def to_json(self) -> dict[str, Any]:
        own = (Path(file) for file in self.files if file.startswith(f"{SOURCE}/"))
        names = sorted(str(file.relative_to(SOURCE)) for file in own)
        return {"count": len(names), "files": names}


def write_images(folder: Path) -> Path:
    """Two classes of ten images each."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in ("apples", "pears"):
        (folder / name).mkdir(parents=True)
        for number in range(10):
            pixels = rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


def training_path(folder: Path) -> CalledFiles:
    """What `vitreous train FOLDER` calls to open the folder, and to take a step."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from vitreous.cli import run
    from vitreous.data.config import DataConfig
    from vitreous.data.sources import open_data

    images = write_images(folder / "images")
    called = CalledFiles()
    open_data(str(images), DataConfig())  # imports
    with called.counting():
        open_data(str(images), DataConfig())
    steps = 0

    def step_taken(*_: object) -> None:
        nonlocal steps
        steps += 1
        if steps == 6:
            called.start()
        elif steps == 9:
            called.stop()
            raise Reached

    hook = register_optimizer_step_post_hook(step_taken)
    try:
        code = run(["train", str(images), "--out", str(folder / "run"), "--device", "cpu"])
        raise AssertionError(f"vitreous train ended with {code} before its ninth step")
    except Reached:
        return called
    finally:
        called.stop()
        hook.remove()


def loading_path(folder: Path) -> CalledFiles:
    """What `vt.load` of a timm folder calls."""
    import vitreous as vt

    checkpoint = folder / "timm"
    vt.save(vt.create("ViT-Ti/16", num_classes=10, image_size=32), checkpoint, format="timm")
    vt.load(checkpoint)  # imports
    called = CalledFiles()
    with called.counting():
        vt.load(checkpoint)
    return called


def answering_path(folder: Path) -> CalledFiles:
    """What the second `vt.predict` calls with a model and images."""
    import vitreous as vt

    images, model = sorted(write_images(folder / "asked").rglob("*.png")), folder / "model"
    vt.save(vt.create("ViT-Ti/16", num_classes=10, image_size=32), model)
    vt.predict(model, images, device="cpu")  # imports, and the weights
    called = CalledFiles()
    with called.counting():
        vt.predict(model, images, device="cpu")
    return called


def count_paths(paths: dict[str, Callable[[Path], CalledFiles]]) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as temporary:
        return {name: path(Path(temporary)).to_json() for name, path in paths.items()}


PATHS: dict[str, Callable[[Path], CalledFiles]] = {
    "load": loading_path,
    "train": training_path,
    "predict": answering_path,
}

if __name__ == "__main__":
    print(json.dumps(count_paths(PATHS), indent=1))
