"""The calibration error of runs with the defaults, on many new images: with the temperature that `train` fits
on its validation part, and without it.

    python benchmarks/calibration.py [--sets textures ...] [--out benchmarks/results/calibration.json]

A model is trained on generated images by the settings that `vitreous.train` chooses itself, but for its size,
and with `--epochs` for as long. The sets are ones that it classifies with mistakes: where there are none, the
error only says how confident the model is. In `other looks` the new images look different, which no
temperature that is fitted on images of the old look can know. Rows that the JSON file has are not computed
again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from broken_runs import SMALL
from record import write_results

import vitreous as vt
from vitreous.evaluation.calibration import scale_head

SETS = {
    "textures": "world:textures:640@32,clutter=1,looks=same,test=2000",
    "shapes": "world:shapes:640@32,clutter=1,looks=same,test=2000",
    "glyphs": "world:glyphs:640@32,clutter=1,looks=same,test=2000",
    "other looks": "world:textures:640@32,clutter=1,test=2000",
}


def measured(name: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train on one set, and evaluate on its new images."""
    settings = {**SMALL, "model.image_size": 32, "data.validation_fraction": 0.2}
    settings |= {"training.epochs": options.epochs} if options.epochs else {}
    run = vt.train(SETS[name], out=folder / "run", settings=settings, progress=False, precision="fp32")
    model, row = run.model, dict[str, Any]()
    row["epochs"] = round(run.metrics[-1]["epoch"], 1)
    row["temperature"] = round(model.temperature, 3)
    for way in ("calibrated", "without a temperature"):
        found = vt.evaluate(model, SETS[name], progress=False)
        row |= {"accuracy": round(found.accuracy, 3), "count": found.count}
        row[way] = round(found.metrics["calibration_error"].value, 4)
        scale_head(model, 1 / model.temperature)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
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
