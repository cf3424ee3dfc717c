"""The share of an epoch's time in which training waits for data, from the second epoch on.

    python benchmarks/waiting.py [--epochs 3] [--out benchmarks/results/waiting.json]

Runs `vitreous train` with the recipe that it chooses itself, on the bundled digits and on 2,000 made JPEGs of
500x375, and reads what the run wrote down. (The first epoch decodes everything, once.)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
from datetime import date
from pathlib import Path

import torch
from loader import write_images

import vitreous
from vitreous.cli import run


def waiting(data: str, folder: Path, epochs: int, settings: list[str]) -> dict[str, float]:
    """The mean share after the first epoch, and the speed."""
    arguments = ["train", data, "--out", str(folder), "--set", f"training.epochs={epochs}", *settings]
    if run(arguments):
        raise SystemExit(f"vitreous {' '.join(arguments)} failed")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    later = [line for line in lines if line.get("epoch", 0) > 1 and "waiting" in line]
    return {
        "epochs": epochs,
        "share_of_time_waiting": round(statistics.mean(line["waiting"] for line in later), 4),
        "images_per_second": round(statistics.median(line["images_per_second"] for line in later), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--machine", default=f"{platform.machine()}, {os.cpu_count()} cores")
    parser.add_argument("--set", action="append", default=[], help="more settings of the runs")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    settings = [part for setting in options.set for part in ("--set", setting)]
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder) / "jpegs", options.images, 375, 500)
        rows = {
            "digits": waiting("digits", Path(folder) / "digits", options.epochs, settings),
            "jpegs_500x375": waiting(f"{folder}/jpegs", Path(folder) / "run", options.epochs, settings),
        }
    results = {
        "date": date.today().isoformat(),
        "machine": options.machine,
        "versions": {"torch": torch.__version__, "vitreous": vitreous.__version__},
        "rows": rows,
    }
    text = json.dumps(results, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
