"""What waiting for data costs: training, and a folder of images that is predicted.

    python benchmarks/waiting.py [--epochs 3] [--out benchmarks/results/waiting.json]

Runs `vitreous train` with the recipe that it chooses itself, on the bundled digits and on 2,000 made JPEGs of
500x375, and reads what the run wrote down: the share of the time from the second epoch on. (The first epoch
decodes everything, once.) With --predict, `vitreous.predict` of the same JPEGs beside the model alone on as
many batches that are prepared already, in turns: the median of the ratios of their speeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch
from loader import write_images
from record import write_results

import vitreous as vt
from vitreous.cli import run
from vitreous.training.machine import computing, keep_freed_memory

BATCH = 16  # images, as `vitreous predict` computes on a CPU


def waiting(data: str, folder: Path, epochs: int, settings: list[str]) -> dict[str, float]:
    """The mean share after the first epoch, and the speed."""
    arguments = ["train", data, "--out", str(folder), "--set", f"training.length={epochs} epochs", *settings]
    if run(arguments):
        raise SystemExit(f"vitreous {' '.join(arguments)} failed")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    later = [line for line in lines if line.get("epoch", 0) > 1 and "waiting" in line]
    return {
        "epochs": epochs,
        "share_of_time_waiting": round(statistics.mean(line["waiting"] for line in later), 4),
        "images_per_second": round(statistics.median(line["images_per_second"] for line in later), 1),
    }


def predicting(folder: Path, model: str, precision: str, rounds: int) -> dict[str, float]:
    """Images a second of a folder, and as a part of the model's own speed."""
    weights = folder / f"weights-{precision}"
    vt.save(vt.create(model, num_classes=10, seed=0), weights)
    opened = vt.load(weights)
    keep_freed_memory()
    paths = [str(path) for path in sorted((folder / "jpegs").rglob("*.jpg"))]
    batch = torch.randn(BATCH, 3, *opened.config.image_size)
    alone, whole = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        with torch.inference_mode(), computing(precision, torch.device("cpu")):
            for _ in range(0, len(paths), BATCH):
                opened(batch)
        between = time.perf_counter()
        vt.predict(weights, paths, precision=precision, progress=False)
        alone.append(between - began)
        whole.append(time.perf_counter() - between)
    return {
        "images_per_second": round(len(paths) / statistics.median(whole), 1),
        "of_the_model_alone": round(statistics.median(a / w for a, w in zip(alone, whole, strict=True)), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--machine", default="", help="what is to be known of it besides its processor")
    parser.add_argument("--predict", metavar="MODEL", help="ViT-Ti/16, for example: nothing is trained")
    parser.add_argument("--rounds", type=int, default=3, help="of --predict")
    parser.add_argument("--set", action="append", default=[], help="more settings of the runs")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    settings = [part for setting in options.set for part in ("--set", setting)]
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder) / "jpegs", options.images, 375, 500)
        if options.predict:
            rows = {
                f"predict {options.predict} {precision}": predicting(
                    Path(folder), options.predict, precision, options.rounds
                )
                for precision in ("fp32", "bf16")
            }
        else:
            rows = {
                "digits": waiting("digits", Path(folder) / "digits", options.epochs, settings),
                "jpegs_500x375": waiting(f"{folder}/jpegs", Path(folder) / "run", options.epochs, settings),
            }
        if options.out and options.out.exists():
            rows = {**json.loads(options.out.read_text())["rows"], **rows}
    write_results({"rows": rows}, options.out, machine=options.machine)


if __name__ == "__main__":
    main()
