"""The calibration error of runs with the defaults, on many new images: with the temperature that `train` fits
on its validation part, and without it.

    python benchmarks/calibration.py [--sets letters shapes ...] [--out benchmarks/results/calibration.json]

A model is trained on `--images` images of each class by the settings that `vitreous.train` chooses itself,
but for its size, and with `--epochs` for as long. Then `--fresh` new images of the same kind are made, since
the error of a few images is mostly chance. Rows that the JSON file has are not computed again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from broken_runs import SMALL, letters, many, night, pale, scans, shapes, stripes, write
from record import write_results

import vitreous as vt
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.evaluation.calibration import calibrate_model, scale_head

SETS = {
    "letters": (letters, 8),
    "shapes": (shapes, 4),
    "pale": (pale, 4),
    "stripes": (stripes, 4),
    "scans": (scans, 4),
    "night": (night, 4),
    "many-classes": (many, 20),
}
PARTS = {"test_fraction": 0.0, "validation_fraction": 0.0}


def measured(name: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train on one set, and evaluate on new images of it."""
    subject, classes = SETS[name]
    images = write(folder / "images", subject, classes, options.images, seed=2)
    fresh = write(folder / "fresh", subject, classes, options.fresh // classes, seed=3)
    settings = {**SMALL, **({"training.epochs": options.epochs} if options.epochs else {})}
    run = vt.train(str(images), out=folder / "run", settings=settings, progress=False, precision="fp32")
    model = run.model
    row = {"images": classes * options.images, "epochs": round(run.metrics[-1]["epoch"], 1)}
    row["temperature"] = round(model.temperature, 3)
    for way in ("calibrated", "without a temperature"):
        found = vt.evaluate(model, str(fresh), settings={"data": PARTS}, progress=False)
        row |= {"accuracy": round(found.accuracy, 3), "count": found.count}
        row[way] = round(found.metrics["calibration_error"].value, 4)
        scale_head(model, 1 / model.temperature)
    _, found = calibrate_model(model, open_data(str(fresh), DataConfig(**PARTS)).train)
    row["the best temperature for them"] = round(model.temperature, 3)
    row["with that"] = round(found.calibration.ece, 4)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--images", type=int, default=80, help="of each class")
    parser.add_argument("--fresh", type=int, default=2000, help="new images")
    parser.add_argument("--epochs", type=float, help="by default as many as the recipe has")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file, beside those it has")
    options = parser.parse_args()
    rows: dict[str, Any] = {}
    if options.out and options.out.exists():
        rows = json.loads(options.out.read_text("utf-8"))["rows"]
    for name in options.sets:
        if name in rows:
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = measured(name, options, Path(folder))
        print(name, json.dumps(rows[name]), flush=True)
        write_results({"rows": rows}, options.out, shown=False)


if __name__ == "__main__":
    main()
