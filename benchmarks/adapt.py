"""An encoder before and after it was adapted to images without labels, on a part that is never looked at.

    python benchmarks/adapt.py --sets elpv tuxpaint emoji letters --minutes 1 --out results/adapt.json

Sets and splits are those of `real_images.py`. `vitreous pretrain train/ --init ENCODER` decides by itself
whether the adapted encoder is kept; the three probes of both encoders are of the test set. unlabeled: the
images are given as one heap, so that nothing but the images themselves can decide.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import time
from pathlib import Path
from typing import Any

from real_images import SETS, make_folders
from record import write_results

import vitreous as vt
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.evaluation.features import cached_features
from vitreous.evaluation.probes import fewshot, knn_hits, linear_hits

SHOTS = 5


def probes(encoder: Any, data: Path) -> dict[str, float]:
    """Return the accuracies of an encoder's features on the test set, in percent."""
    splits = open_data(str(data), DataConfig(validation_fraction=0.0))
    assert splits.test is not None
    learned, asked = (cached_features(encoder, part) for part in (splits.train, splits.test))
    classes, count = len(splits.train.classes), len(asked.targets)
    few = fewshot(learned, asked, classes=classes, shots=[SHOTS], seeds=range(5))[SHOTS].mean
    neighbors = knn_hits(learned, asked, classes=classes) / count
    linear = linear_hits(learned, asked) / count
    found = {"5-shot": few, "k-NN": neighbors, "linear": linear}
    return {name: round(100 * value, 2) for name, value in found.items()}


def heap(data: Path) -> Path:
    """Return a folder of the training images without their classes."""
    out = data.parent / f"{data.name}-heap"
    for number, path in enumerate(sorted((data / "train").rglob("*.png"))):
        out.mkdir(exist_ok=True)
        if not (target := out / f"{number}.png").exists():
            shutil.copy(path, target)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["elpv", "tuxpaint", "emoji", "letters"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--minutes", type=float, default=1.0, help="of each training")
    parser.add_argument("--encoder", default="vitreous:small")
    parser.add_argument("--unlabeled", action="store_true")
    parser.add_argument("--data", type=Path, default=Path("real_images"), help="where packages are unpacked")
    parser.add_argument("--note", default="", help="what else the machine did")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    earlier = json.loads(options.out.read_text()) if options.out and options.out.is_file() else {}
    found = earlier.get("sets", {})
    kind = "without labels" if options.unlabeled else "labels decide"
    for seed, name in itertools.product(options.seeds, options.sets):
        data = make_folders(name, 0, options.data)
        source = heap(data) if options.unlabeled else data
        out = options.data / "runs" / f"adapt-{name}"
        shutil.rmtree(out, ignore_errors=True)
        began = time.process_time()
        before = probes(vt.load(options.encoder), data)
        run = vt.pretrain(
            source, init=options.encoder, minutes=options.minutes, seed=seed, out=out, progress=False
        )
        after = probes(run.model, data)
        steps = run.metrics[-1]["step"]
        row = {"before": before, "after": after, "kept": after != before, "steps": steps}
        row |= {"minutes": options.minutes, "core_seconds": round(time.process_time() - began)}
        found.setdefault(name, {}).setdefault(kind, {})[str(seed)] = row | {"note": options.note}
        write_results(
            {"encoder": options.encoder, "sets": found},
            options.out,
            machine="one thread",
            seeds=options.seeds,
        )


if __name__ == "__main__":
    main()
