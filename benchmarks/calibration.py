"""The calibration error of runs on many new images: with the temperature that `train` fits on its validation
part, and without it.

    python benchmarks/calibration.py --sets "few digits" elpv --steps 400 --out calibration.json

A model is trained from scratch by the settings that `vitreous.train` chooses itself, but for its size, and
with `--steps` for as long. The sets are ones that it classifies with mistakes: where there are none, the
error only says how confident the model is. `few digits` are 500 of MNIST, tested on 2,000 others; `elpv`,
`tuxpaint` and `emoji` are those of real_images.py; the others are generated. In `other looks` the new
images look different, which no temperature that is fitted on images of the old look can know.

Each error has the interval of its difference from that without a temperature (95 %, 2,000 bootstrap samples
of the test images), and the error that would be measured if every probability were right: by chance it is
not 0. Rows that the JSON file has are not computed again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from broken_runs import SMALL
from real_images import make_folders
from record import write_results

import vitreous as vt
from vitreous.evaluation.calibration import scale_head
from vitreous.evaluation.scores import calibrate

SETS = {
    "textures": "world:textures:640@32,clutter=1,looks=same,test=2000",
    "shapes": "world:shapes:640@32,clutter=1,looks=same,test=2000",
    "glyphs": "world:glyphs:640@32,clutter=1,looks=same,test=2000",
    "other looks": "world:textures:640@32,clutter=1,test=2000",
}
REAL = {"few digits": "mnist5k", "elpv": "elpv", "tuxpaint": "tuxpaint", "emoji": "emoji"}
FEW, TESTED = 50, 200  # images of each class of `few digits`
SAMPLES = 2000


def source_of(name: str, data: Path, folder: Path) -> str:
    """DATA of a set; of the few digits a folder of links."""
    if name in SETS:
        return SETS[name]
    made = make_folders(REAL[name], 0, data)
    if name != "few digits":
        return str(made)
    rng = np.random.default_rng(0)
    for label in range(10):
        files = sorted(made.glob(f"*/{label}/*"))
        for place, number in enumerate(rng.permutation(len(files))[: FEW + TESTED]):
            part = folder / "digits" / ("train" if place < FEW else "test") / str(label)
            part.mkdir(parents=True, exist_ok=True)
            (part / files[number].name).symlink_to(files[number].resolve())
    return str(folder / "digits")


def if_right(confidence: np.ndarray, rng: np.random.Generator) -> float:
    """The mean error that is measured where each prediction is right as often as it says."""
    drawn = (calibrate(confidence, rng.random(len(confidence)) < confidence).ece for _ in range(200))
    return float(np.mean([*drawn]))


def difference(before: Any, after: Any, rng: np.random.Generator) -> list[float]:
    """The 95 % interval of the change of the error, over samples of the same images."""
    found = []
    for _ in range(SAMPLES):
        rows = rng.integers(before.count, size=before.count)
        errors = [calibrate(each.confidence[rows], each.correct[rows]).ece for each in (before, after)]
        found.append(errors[1] - errors[0])
    return [round(float(each), 4) for each in np.quantile(found, [0.025, 0.975])]


def measured(name: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train on one set, and evaluate on its new images."""
    source = source_of(name, options.data, folder)
    settings = {**SMALL, "model.image_size": 32, "data.validation_fraction": 0.2}
    settings |= {"training.steps": options.steps} if options.steps else {}
    run = vt.train(
        source, init="none", out=folder / "run", settings=settings, progress=False, precision="fp32"
    )
    model, rng = run.model, np.random.default_rng(0)
    row: dict[str, Any] = {"epochs": round(run.metrics[-1]["epoch"], 1)}
    row["temperature"] = round(model.temperature, 3)
    after = vt.evaluate(model, source, progress=False)
    scale_head(model, 1 / model.temperature)
    before = vt.evaluate(model, source, progress=False)
    row |= {"accuracy": round(after.accuracy, 3), "count": after.count}
    for way, found in (("calibrated", after), ("without a temperature", before)):
        row[way] = round(found.calibration.ece, 4)
        row[f"{way}, if it were right"] = round(if_right(found.confidence, rng), 4)
    return row | {"change": difference(before, after, rng)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=[*SETS, *REAL], default=[*SETS, *REAL])
    parser.add_argument("--steps", type=int, help="by default as many as the recipe has")
    parser.add_argument("--data", type=Path, default=Path("real-images"), help="folder of the packages")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file, beside those it has")
    options = parser.parse_args()
    torch.set_num_threads(1)
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
