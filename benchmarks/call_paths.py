"""How far a reader has to go to follow three paths through vitreous: counted, not estimated.

    python benchmarks/call_paths.py [--out benchmarks/results]

- train: from a folder of images to changed weights: opening the folder, and what is called from the end of
  one optimizer step to the end of the third one after it (progress is printed in between).
- load: from a timm checkpoint folder to a model (`vt.load`).
- predict: from images to the answers of a ViT that was loaded before (`vt.predict`).

Of each: the files with a function that is called, the functions, and the calls upward, from a function to one
of a higher layer (those of import-linter in pyproject.toml), which import nothing there: they were handed the
function. `sys.setprofile` records every call in src/vitreous, in all threads, after one pass has imported
what the path needs. What a comprehension or a generator expression runs is not a function of its own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from record import write_results

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "vitreous"
RESULT = "call_paths.json"
INNER = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>")


def layers() -> list[str]:
    """Return the packages of the core, the lowest first."""
    tree = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (contract,) = (each for each in tree["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    return [each.strip("()") for each in reversed(contract["layers"])]


class Reached(BaseException):
    """The end of the path; no handler in between catches it."""


class Calls:
    """The functions of src/vitreous that were called while `counting`, each with its callers there."""

    def __init__(self) -> None:
        self.callers: dict[CodeType, set[CodeType]] = {}

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not is_own(frame.f_code):
            return
        callers = self.callers.setdefault(frame.f_code, set())
        above = frame.f_back
        while above is not None and not is_own(above.f_code):  # such as a module's __call__
            above = above.f_back
        if above is not None:
            callers.add(above.f_code)

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
        order = layers()
        functions: dict[str, list[str]] = {}
        upward: set[str] = set()
        for code, callers in self.callers.items():
            file = place(code)
            functions.setdefault(file, []).append(code.co_qualname)
            for caller in callers:
                low, high = place(caller).partition("/")[0], file.partition("/")[0]
                if low in order and high in order and order.index(low) < order.index(high):
                    upward.add(f"{place(caller)}: {caller.co_qualname} -> {file}: {code.co_qualname}")
        counts = {"files": len(functions), "functions": len(self.callers), "upward": len(upward)}
        named = {file: sorted(functions[file]) for file in sorted(functions)}
        return {**counts, "functions_by_file": named, "calls_upward": sorted(upward)}


def is_own(code: CodeType) -> bool:
    return code.co_filename.startswith(f"{SOURCE}/") and code.co_name not in INNER


def place(code: CodeType) -> str:
    """Return the file of a function, below src/vitreous."""
    return str(Path(code.co_filename).relative_to(SOURCE))


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


def training_path(folder: Path) -> Calls:
    """What `vitreous train FOLDER --init none` calls to open the folder, and to take a step."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from vitreous.cli import run
    from vitreous.data.config import DataConfig
    from vitreous.data.sources import open_data

    images = write_images(folder / "images")
    called = Calls()
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
        where = ["--out", str(folder / "run"), "--device", "cpu"]
        code = run(["train", str(images), "--init", "none", *where])  # a busy machine may skip the network
        raise AssertionError(f"vitreous train ended with {code} before its ninth step")
    except Reached:
        return called
    finally:
        called.stop()
        hook.remove()


def loading_path(folder: Path) -> Calls:
    """What `vt.load` of a timm folder calls."""
    import vitreous as vt

    checkpoint = folder / "timm"
    vt.save(vt.create("ViT-Ti/16", num_classes=10, image_size=32), checkpoint, format="timm")
    vt.load(checkpoint)  # imports
    called = Calls()
    with called.counting():
        vt.load(checkpoint)
    return called


def answering_path(folder: Path) -> Calls:
    """What the second `vt.predict` calls with a model and images."""
    import vitreous as vt

    images, model = sorted(write_images(folder / "asked").rglob("*.png")), folder / "model"
    vt.save(vt.create("ViT-Ti/16", num_classes=10, image_size=32), model)
    vt.predict(model, images, device="cpu")  # imports, and the weights
    called = Calls()
    with called.counting():
        vt.predict(model, images, device="cpu")
    return called


def count_paths(paths: dict[str, Callable[[Path], Calls]]) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as temporary:
        return {name: path(Path(temporary)).to_json() for name, path in paths.items()}


PATHS: dict[str, Callable[[Path], Calls]] = {
    "load": loading_path,
    "train": training_path,
    "predict": answering_path,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="a folder for the results")
    given = parser.parse_args()
    write_results(count_paths(PATHS), given.out and given.out / RESULT, machine="counts, the same on each")
