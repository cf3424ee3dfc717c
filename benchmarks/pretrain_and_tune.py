"""`vitreous pretrain DATA`, then `train DATA --init RUN`, against `train DATA` alone, with the defaults.

    python benchmarks/pretrain_and_tune.py --sets digits shapes strokes --out FILE.json

The made sets (made_sets.py) have as many images of each class as `--images` says, and validation shows looks
that training never does. "supervised" begins from a run on another made set instead. Every training of a made
set takes `--epochs` epochs, a fifth of what the defaults would choose for so few images, and pre-training
`--pretraining-epochs`. Rows of other sets and seeds that the JSON file has are kept.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from made_sets import SETS, write_set
from record import write_results

import vitreous as vt


def learned(train: Any, data: str, out: Path, **options: Any) -> vt.Run:
    """Return the run at `out`, which is trained to its end unless it has been."""
    if (out / "report.html").exists():
        return vt.Run(out)
    if (out / "checkpoints").exists():
        return vt.Run(out).resume(progress=False)
    return train(data, out=out, progress=False, **options)


def trained(data: str, out: Path, **options: Any) -> dict[str, Any]:
    """Return what a classifier's run reaches on the held-out part."""
    found = vt.evaluate(learned(vt.train, data, out, **options).path, progress=False)
    return {
        "accuracy": round(found.accuracy, 4),
        "calibration error": round(found.metrics["calibration_error"].value, 4),
        "images": len(found.names),
    }


def one(name: str, folder: Path, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Train on one set with one seed, in each way."""
    data, more = name, dict[str, Any](seed=seed)
    if name != "digits":
        place = folder / f"{name}-{options.images}"
        data = str(place if place.exists() else write_set(name, place, images=options.images, validation=25))
        more["epochs"] = options.epochs
    own: dict[str, Any] = dict(each.split("=") for each in options.settings)
    row: dict[str, Any] = {"set": name, "seed": seed}
    if name != "digits":
        row |= {"images of a class": options.images, "epochs": options.epochs}
    stem = f"{name}-{options.images}-{seed}"
    row["train"] = trained(data, folder / f"{stem}-scratch", **more)
    if "pretrain" in options.ways:
        first = folder / f"{stem}-pretrain"
        epochs = {} if name == "digits" else {"epochs": options.pretraining_epochs}
        learned(vt.pretrain, data, first, seed=seed, **epochs)
        row["pretrain, train --init"] = trained(
            data, folder / f"{stem}-tuned{options.tag}", init=first, settings=own, **more
        )
    if "supervised" in options.ways:
        row["train --init (other classes)"] = trained(
            data, folder / f"{stem}-transfer{options.tag}", init=options.encoder, settings=own, **more
        )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--sets", nargs="+", choices=("digits", *SETS), default=["digits", "shapes", "strokes"]
    )
    parser.add_argument("--ways", nargs="+", choices=("pretrain", "supervised"), default=["pretrain"])
    parser.add_argument("--encoder", type=Path, help="the run that is fine-tuned on other classes")
    parser.add_argument("--images", type=int, default=20, help="of each class")
    parser.add_argument("--epochs", type=float, default=60)
    parser.add_argument("--pretraining-epochs", type=float, default=60)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--settings", nargs="*", default=[], help="of the fine-tuning, to tune on other sets")
    parser.add_argument("--tag", default="", help="of the runs with these settings")
    parser.add_argument("--runs", type=Path, help="keep the runs here; finished ones are not run again")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    results: dict[str, Any] = {
        "settings": {
            name: str(value) for name, value in vars(options).items() if name not in ("runs", "out")
        },
        "rows": [],
    }
    if options.out and options.out.exists():
        measured = {(name, seed) for name in options.sets for seed in options.seeds}
        results["rows"] = [
            row
            for row in json.loads(options.out.read_text("utf-8"))["rows"]
            if (row["set"], row["seed"]) not in measured
        ]
    with tempfile.TemporaryDirectory() as scratch:
        for seed in options.seeds:
            for name in options.sets:
                results["rows"].append(one(name, options.runs or Path(scratch), options, seed))
                print(json.dumps(results["rows"][-1]), flush=True)
                write_results(results, options.out, seeds=options.seeds, shown=False)


if __name__ == "__main__":
    main()
