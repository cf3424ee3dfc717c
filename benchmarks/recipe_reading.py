"""What reading costs: milliseconds of one core an image, by recipe, and how many cores of nothing else the
time asks for that the header of the recipe states.

    python benchmarks/recipe_reading.py --out benchmarks/results/recipe_reading.json

A recipe's own reader and augmentation decode and crop JPEGs of 500x375 pixels and about 110 kB, which is
ImageNet's mean, in one thread, whose processor time counts; what a GPU does there (normalization, flips,
mixing, erasing) is left out. Recipes take turns, batch by batch, and the median of their batches counts.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from loader import STREAM, write_images
from record import write_results

from vitreous.data.config import DataConfig
from vitreous.data.dataset import Splits
from vitreous.data.image_samples import image_loader
from vitreous.data.sources import open_data
from vitreous.data.transforms import LOOPS
from vitreous.tasks import task_named
from vitreous.tasks.pretraining.rules import find_recipe
from vitreous.training.machine import keep_freed_memory

BATCH, WARM_UP = 16, 3
QUALITY = 98  # of the JPEGs, for files as large as ImageNet's
IMAGENET, IMAGENET_21K, JFT = 1_281_167, 14_197_122, 303_000_000
HOUR, DAY = 3600.0, 86_400.0
# What the headers of recipes state: so many images in so many seconds.
STATED = {
    "s16-baseline": (90 * IMAGENET, HOUR),
    "augreg": (300 * IMAGENET_21K, 5 * DAY),
    "deit": (300 * IMAGENET, 3 * HOUR),
    "deit-distilled": (300 * IMAGENET, 6.4 * HOUR),  # with the teacher's 3.4
    "deit3": (400 * IMAGENET, 4 * HOUR),
    "vit5": (800 * IMAGENET, 8 * HOUR),
    "paper-imagenet1k": (300 * IMAGENET, 11 * HOUR),
    "paper-imagenet21k": (90 * IMAGENET_21K, 37 * HOUR),
    "paper-jft": (7 * JFT, 11 * DAY),
    "paper-masked-patch": (1_000_000 * 4096, 22 * DAY),
    "paper-fine-tuning": (500 * 512, 11 * 60),
    "paper-fine-tuning-imagenet": (20_000 * 512, 3 * DAY),
    "vtab-1k": (2500 * 512, HOUR),
    "bit-hyperrule": (500 * 512, HOUR / 2),
    "mae": (800 * IMAGENET, DAY),
    "mae-fine-tuning": (100 * IMAGENET, 4 * HOUR),
    "linear-probe": (30 * 50_000, 7 * 60),
    "dino": (100 * IMAGENET, DAY),
}


def batches(name: str, data: Splits) -> Iterator[Any]:
    """What a recipe's threads make for the device, epoch after epoch."""
    config: Any = find_recipe(name).config
    task: Any = task_named(config.task)
    prefetcher = image_loader(
        data.train,
        preprocessing=config.prepared,
        augmentation=config.augmentation,
        batch_size=BATCH,
        seed=0,
        config=STREAM,
        reader=task.reader(config, data),
    )
    epoch = 0
    while True:
        yield from prefetcher.loader.epoch(epoch)
        epoch += 1


def measured(data: Splits, rounds: int) -> dict[str, float]:
    """Milliseconds of one core an image, by recipe."""
    ways = {name: batches(name, data) for name in STATED}
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(WARM_UP + rounds):
        for name, way in ways.items():
            began = time.thread_time()
            next(way)
            if turn >= WARM_UP:
                spent[name].append(time.thread_time() - began)
    return {name: 1000 * statistics.median(seconds) / BATCH for name, seconds in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--machine", default="", help="what is to be known of it besides its processor")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    LOOPS.load()
    with tempfile.TemporaryDirectory() as folder:
        kilobytes = write_images(Path(folder), 240, 375, 500, QUALITY)
        data = open_data(folder, DataConfig(test_fraction=0, validation_fraction=0))
        rows = {}
        for name, milliseconds in measured(data, options.rounds).items():
            images, seconds = STATED[name]
            rows[name] = {
                "milliseconds": round(milliseconds, 1),
                "images": images,
                "seconds": seconds,
                "cores": math.ceil(images / seconds * milliseconds / 1000),
            }
    about = {
        "kilobytes_of_an_image": kilobytes,
        "images": f"500x375 JPEGs, quality {QUALITY}",
        "recipes": rows,
    }
    write_results(about, options.out, machine=options.machine, packages=("pillow", "numba", "simplejpeg"))


if __name__ == "__main__":
    main()
