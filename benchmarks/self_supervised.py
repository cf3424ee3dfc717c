"""Does pre-training without labels pay? 5,000 made images, 20 of each class with a label.

    python benchmarks/self_supervised.py --out benchmarks/results/self_supervised.json

An image is 24x24 and gray: one handwritten digit (of scikit-learn's) of random size, slant and place, light
on a dark ground, with noise. The digits of the test images are none of those in the training images. The
same small ViT (4 layers of width 64, patches of 4x4) is fine-tuned from scratch, and from an encoder that saw
the 5,000 images without labels as a masked autoencoder. Both learn the same 200 images for as many epochs
with the same augmentation and peak rate, the best one from scratch on another set; --long 5 lets the one from
scratch learn for as long as pre-training and fine-tuning take together. Every seed draws another set, other
weights, masks and labels; intervals are Student's, over the seeds, and over the gains in pairs.

results/self_supervised_clutter.json is an earlier set on which pre-training did harm, and why.
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
from typing import Any

import numpy as np
import torch
from few_labels import Comparison, Outcome, compare, mean_and_interval
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

import vitreous as vt
from vitreous.data.dataset import ArrayImages, Splits
from vitreous.data.sources import summarize
from vitreous.training.config import ScheduleConfig, TrainingConfig

SIDE = 24
UNLABELED, TEST, LABELED = 5000, 2000, 20
TRAINING_DIGITS = 1297  # of 1,797; test images are made of the others
CLASSES = tuple("0123456789")
Rng = np.random.Generator


def made_splits(seed: int) -> Splits:
    """Training and test images, composed of different digits."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.images))
    parts = []
    for name, count, chosen in (
        ("train", UNLABELED, order[:TRAINING_DIGITS]),
        ("test", TEST, order[TRAINING_DIGITS:]),
    ):
        rng = np.random.default_rng([seed, name == "test"])
        drawn = rng.choice(chosen, size=count)
        pixels = np.stack([image(digits.images[index], rng) for index in drawn])
        targets = digits.target[drawn].astype(np.int64)
        parts.append(ArrayImages(pixels, targets, CLASSES, name=f"made-{seed}-{name}"))
    return Splits(parts[0], None, parts[1], f"made-{seed}", summarize(parts[0]))


def image(digit: NDArray[np.float64], rng: Rng) -> NDArray[np.uint8]:
    """A dark ground, the digit, noise."""
    canvas = Image.new("L", (SIDE, SIDE), 20)
    height = int(rng.integers(12, 21))
    width = int(np.clip(rng.integers(12, 21), height - 4, height + 4))
    mask = Image.fromarray((digit * 15.9).astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    mask = mask.rotate(rng.uniform(-25, 25), Image.Resampling.BICUBIC)
    left, top = int(rng.integers(0, SIDE - width + 1)), int(rng.integers(0, SIDE - height + 1))
    canvas.paste(int(rng.uniform(170, 255)), (left, top), mask)
    return (np.asarray(canvas) + rng.normal(0, 12, (SIDE, SIDE))).clip(0, 255).astype(np.uint8)


def comparison(splits: Splits, options: argparse.Namespace) -> Comparison:
    tuning = TrainingConfig(
        epochs=options.fine_tuning_epochs,
        batch_size=50,
        peak_lr=options.rate,
        schedule=ScheduleConfig(warmup=0.1),
        label_smoothing=0.1,
        log_every=1000,
    )
    return Comparison(
        splits=splits,
        labeled=LABELED,
        pretraining={
            "model": {
                "image_size": SIDE,
                "patch_size": 4,
                "stem": {"kind": "patch"},
                "layer_scale": None,
                "width": 64,
                "depth": 4,
                "heads": 4,
                "mlp_dim": 128,
                "position": {"kind": "sincos-2d"},  # MAE's own
            },
            "training": {"epochs": options.epochs, "batch_size": 64, "peak_lr": 2e-3, "log_every": 78},
            "augmentation": {"affine": None},
            "evaluation": {"every_epochs": 1000},
            "pretraining": {
                "mae": {"normalize_pixels": False, "decoder_width": 64, "decoder_mlp_dim": 128},
                "masked_patch": {"target": "pixels"},
            },
        },
        training=tuning,
        from_scratch=tuning.model_copy(update={"peak_lr": options.scratch_rate}),
    )


def outcomes_of(runs: Path, options: argparse.Namespace, seed: int) -> list[Outcome]:
    """Every way with one seed, on one core."""
    torch.set_num_threads(1)
    plan = comparison(made_splits(seed), options)
    found = []
    cpu = torch.device("cpu")
    for each in compare(
        runs, plan, objectives=options.objectives, long=options.long, seeds=[seed], device=cpu
    ):
        print(
            f"{each.variant.name}: {each.accuracy:.2%}, before fine-tuning k-NN {each.knn:.2%}",
            file=sys.stderr,
            flush=True,
        )
        found.append(each)
    return found


def table(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """One row for each way, over its seeds; and the gain over learning from scratch, short and long."""
    rows: list[dict[str, Any]] = []
    ways = dict.fromkeys((each.variant.objective, each.variant.times) for each in outcomes)
    for objective, times in ways:
        mine = reached(outcomes, objective, times)
        row: dict[str, Any] = {
            "pre-training": objective or ("none" if times == 1 else f"none, {times} times the epochs"),
            "accuracy": over_seeds([each.accuracy for each in mine]),
            "k-NN accuracy before fine-tuning": over_seeds([each.knn for each in mine]),
            "seconds of pre-training": round(sum(each.pretraining_seconds for each in mine) / len(mine)),
            "seconds of fine-tuning": round(sum(each.fine_tuning_seconds for each in mine) / len(mine)),
        }
        if objective:
            for than in (each for way, each in ways if way is None):
                pairs = zip(mine, reached(outcomes, None, than), strict=True)
                name = "gain" if than == 1 else f"gain over {than} times the epochs"
                row[name] = over_seeds([ours.accuracy - theirs.accuracy for ours, theirs in pairs])
        rows.append(row)
    return rows


def reached(outcomes: list[Outcome], objective: str | None, times: int) -> list[Outcome]:
    """Those of one way, by seed."""
    chosen = [each for each in outcomes if each.variant[0] == objective and each.variant.times == times]
    return sorted(chosen, key=lambda each: each.variant.seed)


def over_seeds(values: list[float]) -> dict[str, Any]:
    mean, low, high = mean_and_interval(values)
    return {
        "mean": round(mean, 4),
        "interval": [round(low, 4), round(high, 4)],
        "by seed": [round(each, 4) for each in values],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objectives", nargs="*", default=["mae"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--epochs", type=float, default=40)
    parser.add_argument("--fine-tuning-epochs", type=float, default=200)
    parser.add_argument("--rate", type=float, default=3e-3, help="peak learning rate after pre-training")
    parser.add_argument("--scratch-rate", type=float, default=3e-3, help="the same from scratch")
    parser.add_argument("--long", type=int, default=1, help="from scratch also with so many times the epochs")
    parser.add_argument("--processes", type=int, default=2, help="seeds at a time, one thread each")
    parser.add_argument("--runs", type=Path, help="keep the runs here; finished ones are not run again")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(options.processes) as pool:
        one_seed = partial(outcomes_of, options.runs or Path(scratch), options)
        outcomes = [each for found in pool.map(one_seed, options.seeds) for each in found]
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    shown = {key: value for key, value in vars(options).items() if key not in ("runs", "out", "processes")}
    results = {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores shared with other work, one thread a seed",
        "versions": {"torch": torch.__version__, "vitreous": vt.__version__},
        "cpu_seconds": round(spent.ru_utime + spent.ru_stime),
        "settings": shown,
        "rows": table(outcomes),
    }
    text = json.dumps(results, indent=1)
    print(text)
    if options.out:
        options.out.parent.mkdir(exist_ok=True)
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
