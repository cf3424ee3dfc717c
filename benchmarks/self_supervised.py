"""Does pre-training without labels pay? 5,000 made pictures, 20 of each class with a label.

    python benchmarks/self_supervised.py --out benchmarks/results/self_supervised.json

A picture is 28x28 and grey: a handwritten digit (of scikit-learn's) of random size, angle and place, light on
a dark ground or dark on a light one, over pieces of other digits, with noise. The digits of the test pictures
are none of those in the training pictures. The same small ViT (4 layers of width 64, patches of 4x4) is
fine-tuned from scratch and from encoders that saw the 5,000 pictures without labels, with the same settings.
Every seed draws other weights, masks and labels; intervals are Student's, over the seeds.

What was measured so far says no: benchmarks/results/self_supervised.json. The encoder that was pre-trained
as a masked autoencoder fits the few labels sooner and generalises worse than one from scratch.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np
import torch
from few_labels import Comparison, Outcome, compare, mean_and_interval
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

import vitreous as vt
from vitreous.data.pictures import ArrayPictures, Splits
from vitreous.data.sources import summarise
from vitreous.training.config import ScheduleConfig, TrainingConfig

SIDE = 28
CLASSES = tuple("0123456789")
Rng = np.random.Generator


def made_splits(unlabelled: int, test: int) -> Splits:
    """Training and test pictures, composed of different digits."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))
    parts = []
    for seed, count, chosen in ((1, unlabelled, order[:1297]), (2, test, order[1297:])):
        pixels, targets = made(
            count, digits.images[chosen], digits.target[chosen], np.random.default_rng(seed)
        )
        parts.append(ArrayPictures(pixels, targets, CLASSES, name=f"made-{seed}"))
    return Splits(parts[0], None, parts[1], "made", summarise(parts[0]))


def made(
    count: int, digits: NDArray[np.float64], targets: NDArray[np.int64], rng: Rng
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    chosen = rng.integers(len(digits), size=count)
    return np.stack([picture(digits, index, rng) for index in chosen]), targets[chosen].astype(np.int64)


def picture(digits: NDArray[np.float64], index: int, rng: Rng) -> NDArray[np.uint8]:
    """A ground of two shades, clutter, the digit, noise."""
    dark = rng.random() < 0.5
    shades = rng.uniform(*((0, 110) if dark else (145, 255)), (2, 2)).astype(np.uint8)
    canvas = Image.fromarray(shades).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    for _ in range(rng.integers(2, 5)):
        piece = digits[rng.integers(len(digits))][2:6, 2:6]
        stamp(canvas, piece, (6, 10), 180.0, rng.uniform(0, 255), rng)
    stamp(canvas, digits[index], (15, 22), 15.0, rng.uniform(*((190, 255) if dark else (0, 65))), rng)
    noise = rng.normal(0, 8, (SIDE, SIDE))
    return (np.asarray(canvas) + noise).clip(0, 255).astype(np.uint8)


def stamp(
    canvas: Image.Image,
    ink: NDArray[np.float64],
    sizes: tuple[int, int],
    turn: float,
    shade: float,
    rng: Rng,
) -> None:
    """`ink` in one shade, turned by up to `turn` degrees, at a random place."""
    size = int(rng.integers(*sizes))
    mask = Image.fromarray((ink * 15.9).astype(np.uint8)).resize((size, size), Image.Resampling.BICUBIC)
    mask = mask.rotate(rng.uniform(-turn, turn), Image.Resampling.BICUBIC)
    left, top = (int(place) for place in rng.integers(0, SIDE - size + 1, 2))
    canvas.paste(int(shade), (left, top), mask)


def comparison(splits: Splits, options: argparse.Namespace) -> Comparison:
    return Comparison(
        splits=splits,
        labelled=20,
        pretraining={
            "model": {"width": 64, "depth": 4, "heads": 4, "mlp_dim": 128},
            "training": {"epochs": options.epochs, "batch_size": 128, "peak_lr": 2e-3, "log_every": 39},
            "evaluation": {"every_epochs": 1000},
            "pretraining": {"masked_patch": {"target": "pixels"}},
        },
        training=TrainingConfig(
            epochs=options.fine_tuning_epochs,
            batch_size=50,
            peak_lr=options.rate,
            schedule=ScheduleConfig(warmup=0.1),
            label_smoothing=0.1,
            log_every=1000,
        ),
    )


def outcomes_of(runs: Path, options: argparse.Namespace, seed: int) -> list[Outcome]:
    """Every way with one seed, on one core."""
    torch.set_num_threads(1)
    plan = comparison(made_splits(5000, 2000), options)
    found = []
    for each in compare(runs, plan, objectives=options.objectives, seeds=[seed], device=torch.device("cpu")):
        print(f"{each.variant.name}: {each.accuracy:.2%}", file=sys.stderr, flush=True)
        found.append(each)
    return found


def table(outcomes: list[Outcome]) -> list[dict[str, object]]:
    """One row for each way, over its seeds."""
    rows: list[dict[str, object]] = []
    for objective in dict.fromkeys(each.variant.objective for each in outcomes):
        mine = [each for each in outcomes if each.variant.objective == objective]
        accuracies = [each.accuracy for each in mine]
        mean, low, high = mean_and_interval(accuracies)
        rows.append(
            {
                "pre-training": objective or "none, from scratch",
                "accuracy": round(mean, 4),
                "interval": [round(low, 4), round(high, 4)],
                "by seed": [round(each, 4) for each in accuracies],
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objectives", nargs="*", default=["mae"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=float, default=40)
    parser.add_argument("--fine-tuning-epochs", type=float, default=120)
    parser.add_argument("--rate", type=float, default=1e-3, help="peak learning rate of fine-tuning")
    parser.add_argument("--runs", type=Path, help="keep the runs here; finished ones are not run again")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(len(options.seeds)) as pool:
        one_seed = partial(outcomes_of, options.runs or Path(scratch), options)
        outcomes = [each for found in pool.map(one_seed, options.seeds) for each in found]
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    results = {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread for each seed",
        "versions": {"torch": torch.__version__, "vitreous": vt.__version__},
        "cpu_seconds": round(spent.ru_utime + spent.ru_stime),
        "settings": {key: str(value) for key, value in vars(options).items() if key not in ("runs", "out")},
        "rows": table(outcomes),
    }
    text = json.dumps(results, indent=1)
    print(text)
    if options.out:
        options.out.parent.mkdir(exist_ok=True)
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
