"""What `vitreous doctor` says about runs that are broken on purpose, and about good ones.

    python benchmarks/broken_runs.py [--runs rate-x100 letters ...] [--seed 1] [--keep FOLDER]
        [--out benchmarks/results/doctor.json]

Every run is trained by `vitreous.train` with the settings that it chooses itself, but for a smaller model,
the number of epochs, a validation set, and the one thing that is broken. A run is named after what is broken
or, of a good one, after its images.
For each broken run the table has the finding that it should begin with, and what `doctor` said; about a good
run, which is as long as its recipe, it should say nothing but notes. Another seed is other images, another
split and other weights. Rows that the JSON file has are not computed again unless they are named, and runs
that `--keep` has are not trained again, so that a program that was stopped goes on, and a doctor that has
changed is asked about the same runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from record import write_results

import vitreous as vt
from vitreous.data.loading import BatchLoader

Rng = np.random.Generator
Subject = Callable[[int, Rng, int], Image.Image]  # (class, rng, side) -> an image
COLORS = (200, 40, 40), (40, 170, 60), (50, 70, 210), (220, 200, 40), (150, 50, 170)


def shape(kind: int, rng: Rng, side: int, back: tuple[int, ...], front: tuple[int, ...]) -> Image.Image:
    """A disc, a box, a triangle or a bar somewhere on a background."""
    image = Image.new("RGB", (side, side), back)
    size = side * rng.uniform(0.35, 0.6)
    x, y = rng.uniform(0, side - size, 2)
    box, draw = (x, y, x + size, y + size), ImageDraw.Draw(image)
    if kind == 0:
        draw.ellipse(box, fill=front)
    elif kind == 1:
        draw.rectangle(box, fill=front)
    elif kind == 2:
        draw.polygon([(x, y + size), (x + size, y + size), (x + size / 2, y)], fill=front)
    else:
        draw.rectangle((x, y + size * 0.4, x + size, y + size * 0.6), fill=front)
    return image


def grainy(image: Image.Image, rng: Rng, amount: float = 6) -> Image.Image:
    """With the noise of a camera, by which no two images are the same."""
    pixels = np.asarray(image, dtype=np.float32)
    return Image.fromarray((pixels + rng.normal(0, amount, pixels.shape)).clip(0, 255).astype(np.uint8))


def varied(color: tuple[int, ...], rng: Rng, by: int = 20) -> tuple[int, ...]:
    return tuple(int(np.clip(value + rng.integers(-by, by + 1), 0, 255)) for value in color)


def shapes(kind: int, rng: Rng, side: int) -> Image.Image:
    back = tuple(int(value) for value in rng.integers(0, 110, 3))
    return grainy(shape(kind % 4, rng, side, back, varied(COLORS[rng.integers(5)], rng)), rng)


def pale(kind: int, rng: Rng, side: int) -> Image.Image:
    """A product on white."""
    return grainy(shape(kind % 4, rng, side, (250, 250, 250), varied((222, 214, 205), rng, 8)), rng, 2)


def colors(kind: int, rng: Rng, side: int) -> Image.Image:
    """One thing in five colors."""
    return grainy(shape(1, rng, side, (235, 235, 235), varied(COLORS[kind], rng)), rng)


def letters(kind: int, rng: Rng, side: int) -> Image.Image:
    image = Image.new("L", (side, side), 255)
    font = ImageFont.load_default(side * rng.uniform(0.5, 0.75))
    draw = ImageDraw.Draw(image)
    place = tuple(side / 2 + rng.uniform(-0.1, 0.1, 2) * side)
    draw.text(place, "ABEKOSTX"[kind], fill=0, font=font, anchor="mm")
    return grainy(image, rng)


def night(kind: int, rng: Rng, side: int) -> Image.Image:
    """Dark, with a few lights."""
    return grainy(shape(kind % 4, rng, side, (6, 6, 12), varied((70, 64, 50), rng, 12)), rng, 3)


def stripes(kind: int, rng: Rng, side: int) -> Image.Image:
    y, x = np.mgrid[:side, :side] / side
    along = (x, y, (x + y) / 2**0.5, (x - y) / 2**0.5)[kind]
    wave = np.sin(2 * np.pi * (along * rng.uniform(3, 5) + rng.uniform()))
    base, strength = rng.integers(70, 180, 3), rng.uniform(20, 50)
    return grainy(Image.fromarray((base + strength * wave[..., None]).clip(0, 255).astype(np.uint8)), rng)


def scans(kind: int, rng: Rng, side: int) -> Image.Image:
    """Gray clouds with a bright spot, in one of four quarters."""
    clouds = Image.fromarray(rng.integers(30, 110, (6, 6), dtype=np.uint8)).resize(
        (side, side), Image.Resampling.BICUBIC
    )
    x, y = (np.array([kind % 2, kind // 2]) * 0.5 + rng.uniform(0.12, 0.38, 2)) * side
    radius = side * rng.uniform(0.07, 0.12)
    ImageDraw.Draw(clouds).ellipse((x - radius, y - radius, x + radius, y + radius), fill=200)
    return grainy(clouds, rng)


def many(kind: int, rng: Rng, side: int) -> Image.Image:
    """Four shapes in five colors: twenty classes."""
    return grainy(shape(kind % 4, rng, side, (120, 120, 120), varied(COLORS[kind // 4], rng)), rng)


def documents(kind: int, rng: Rng, side: int) -> Image.Image:
    """White pages: a letter, a table, a form with a photo."""
    image = Image.new("L", (side, side), 252)
    draw, step = ImageDraw.Draw(image), side / rng.integers(9, 13)
    for line in range(2, 9):
        y = step * line
        if kind == 1:
            for column in range(4):
                draw.line([(side * (0.1 + 0.2 * column), y), (side * (0.2 + 0.2 * column), y)], fill=90)
        else:
            draw.line([(side * 0.1, y), (side * rng.uniform(0.6, 0.9), y)], fill=90)
    if kind == 2:
        x = rng.uniform(0.5, 0.6) * side
        draw.rectangle((x, side * 0.1, x + side * 0.3, side * 0.4), fill=120)
    return grainy(image, rng, 2)


def noise(kind: int, rng: Rng, side: int) -> Image.Image:
    """Pixels that tell nothing of the class."""
    return Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8))


def write(folder: Path, subject: Subject, classes: int, images: int, side: int = 32, **options: Any) -> Path:
    """Write a folder for each class.

    Args:
        images: of each class; options["first"]: of the first class, if it has another number.
        options: wrong, the share of the labels that is wrong; and shuffled, whether all are.
    """
    rng = np.random.default_rng(options.get("seed", 0))
    for kind in range(classes):
        for number in range(options.get("first", images) if kind == 0 else images):
            image, label = subject(kind, rng, side), kind
            if options.get("shuffled") or rng.uniform() < options.get("wrong", 0.0):
                others = [each for each in range(classes) if options.get("shuffled") or each != kind]
                label = int(rng.choice(others))
            place = folder / f"class-{label:02d}"
            place.mkdir(parents=True, exist_ok=True)
            image.save(place / f"{kind:02d}-{number:04d}.png")
    return folder


def leaking(folder: Path, seed: int) -> Path:
    """train/, and val/ with a third of the same files."""
    write(folder / "train", shapes, 4, 60, seed=seed)
    for path in sorted((folder / "train").glob("*/*.png")):
        if int(path.stem[-4:]) % 3 == 0:
            copy = folder / "val" / path.parent.name / f"copy-{path.name}"
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    return folder


def blank(kind: int, rng: Rng, side: int) -> Image.Image:
    """What a loader gives that fails in silence: nothing."""
    return Image.new("RGB", (side, side))


class Case(NamedTuple):
    """A run: its images, its settings, and what `doctor` should say first; None: nothing at all."""

    data: Callable[[Path, int], Path | str]  # (folder, seed)
    first: str | None = None
    settings: Mapping[str, Any] = {}
    slow_loader: bool = False


def made(subject: Subject, classes: int = 4, images: int = 60, side: int = 32, **options: Any) -> Any:
    return lambda folder, seed: write(folder, subject, classes, images, side, seed=seed, **options)


SMALL = {
    "model.width": 48,
    "model.depth": 2,
    "model.heads": 3,
    "model.mlp_dim": 96,
    "model.stem.widths": [12, 12, 24, 24, 48, 48],
}
RATE = 2e-3  # of the recipe from-scratch
GOOD_EPOCHS = 60  # as in the recipe: a run that was ended before it has learned is not a good one
BROKEN_EPOCHS = 24
CASES = {
    "rate-x100": Case(made(shapes), "learning rate", {"training.peak_lr": 100 * RATE}),
    "rate-/1000": Case(made(shapes), "learning rate", {"training.peak_lr": RATE / 1000}),
    "shuffled-labels": Case(made(shapes, shuffled=True), "labels at random"),
    "wrong-normalization": Case(
        made(shapes),
        "normalization",
        {"preprocessing.mean": [123.7, 116.3, 103.5], "preprocessing.std": [58.4, 57.1, 57.4]},
    ),
    "overfitting": Case(
        made(noise, 2, 100), "overfitting", {"training.length": "60 epochs", "augmentation.affine": None}
    ),
    "leak": Case(leaking, "leak"),
    "wrong-labels": Case(made(shapes, images=120, wrong=0.15), "wrong labels"),
    "blank-images": Case(
        made(blank, 2), "blank images", {"data.validation_fraction": 0.0}
    ),  # there is nothing to hold out
    "slow-loader": Case(made(shapes), "loader", {"training.length": "8 epochs"}, slow_loader=True),
    "frozen-encoder": Case(made(shapes), "frozen encoder", {"training.freeze": ["backbone"]}),
    "image-too-large": Case(
        made(shapes, 2, 30), "image size", {"model.image_size": 128, "training.length": "3 epochs"}
    ),
    "image-too-small": Case(
        made(shapes, side=160),
        "image size",
        {"model.image_size": 8, "model.patch_size": 1, "model.stem.strides": [1] * 6},
    ),
    "shapes": Case(made(shapes)),
    "pale": Case(made(pale)),
    "colors": Case(made(colors, 5)),
    "letters": Case(made(letters, 8)),
    "digits": Case(lambda folder, seed: "digits"),
    "night": Case(made(night)),
    "stripes": Case(made(stripes)),
    "scans": Case(made(scans)),
    "many-classes": Case(made(many, 20, 30)),
    "documents": Case(made(documents, 3)),
    "photographs": Case(made(shapes, 3, 60, 120)),
    "imbalanced": Case(made(shapes, 3, 40, first=200)),
    "icons": Case(made(shapes, 4, 60, 9)),
}


def trained(name: str, folder: Path, seed: int) -> vt.Run:
    """Return the run of a case, which is trained unless the folder has it."""
    if (folder / "run" / "report.html").exists():
        return vt.Run(folder / "run")
    shutil.rmtree(folder, ignore_errors=True)
    case = CASES[name]
    source = case.data(folder / "images", seed)
    epochs = BROKEN_EPOCHS if case.first else GOOD_EPOCHS
    settings = {"training.length": f"{epochs} epochs", "data.validation_fraction": 0.2, **case.settings}
    if source != "digits":
        settings = {**SMALL, **settings}
    if name == "leak":
        settings.pop("data.validation_fraction")
    read = BatchLoader.batch
    if case.slow_loader:

        def slowly(loader: Any, *arguments: Any, **options: Any) -> Any:
            time.sleep(0.4)
            return read(loader, *arguments, **options)

        BatchLoader.batch = slowly  # type: ignore[method-assign, assignment]
    try:
        return vt.train(
            source, out=folder / "run", settings=settings, seed=seed, progress=False, precision="fp32"
        )
    finally:
        BatchLoader.batch = read  # type: ignore[method-assign]


def examined(name: str, folder: Path, seed: int) -> dict[str, Any]:
    """Train a run and ask doctor. A note is not an alarm, nor is `below baseline`, which compares. On a busy
    machine any run waits for its images, which counts only where the loader is slow."""
    case, began = CASES[name], time.perf_counter()
    run = trained(name, folder, seed)
    findings = [each for each in vt.doctor(run).findings if case.slow_loader or each.kind != "loader"]
    said = [[each.kind, each.problem, each.fix] for each in findings]
    alarms = [each for each in findings if each.severity != "note" and each.kind != "below baseline"]
    return {
        "expected": case.first,
        "right": said[0][0] == case.first if case.first and said else not (case.first or alarms),
        "findings": said,
        "accuracy": run.evaluation and round(run.evaluation.metrics["accuracy"].value, 3),
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", nargs="*", choices=list(CASES), help="all that --out does not have")
    parser.add_argument("--seed", type=int, default=0, help="of the images, of the split and of the weights")
    parser.add_argument("--keep", type=Path, help="keep the images and the runs in this folder")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file, beside those it has")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    if options.out and options.out.exists():
        results = json.loads(options.out.read_text("utf-8"))
    rows = results.get(f"seed {options.seed}", {})
    for name in options.runs or [name for name in CASES if name not in rows]:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) if options.keep is None else options.keep / str(options.seed)
            row = rows[name] = examined(name, place / name.replace("/", "by"), options.seed)
        print(f"{'right' if row['right'] else 'WRONG'}  {name} ({row['seconds']} s, {row['accuracy']})")
        for kind, problem, fix in row["findings"]:
            print(f"    {kind}: {problem}\n        {fix}", flush=True)
        if options.out:
            results |= {
                f"seed {options.seed}": {each: rows[each] for each in CASES if each in rows},
            }
            write_results(results, options.out, seeds=[options.seed], shown=False)


if __name__ == "__main__":
    main()
