"""Peak memory and time of evaluating a classifier with very many classes.

    python benchmarks/many_classes.py [--images 50000] [--out benchmarks/results/many_classes.json]

A tiny ViT on images of 8 x 8 pixels, so that hardly anything but the answers takes memory. Each number is
that of a fresh process, beside the same process with 10 classes, and the memory that all logits would take;
also where images have three labels each. What the file has of other numbers of images stays there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from record import write_results

PROGRAM = """
import json, sys, time
import numpy as np, torch
from scipy.sparse import csr_array
import vitreous as vt
from vitreous.data.dataset import ArrayImages
from vitreous.evaluation.calibration import calibrate_model
from vitreous.evaluation.classification import evaluate

images, classes, several = map(int, sys.argv[1:])
torch.set_num_threads(1)
rng = np.random.default_rng(0)
pixels = rng.integers(0, 256, (images, 8, 8, 3), dtype=np.uint8)
labels = tuple(map(str, range(classes)))
targets = rng.integers(classes, size=images * several)
if several > 1:
    rows = np.repeat(np.arange(images), several)
    targets = csr_array((np.ones(len(rows), np.float32), (rows, targets)), shape=(images, classes))
    targets.data[:] = 1
data = ArrayImages(pixels, targets, labels, name="random")
small = {"width": 16, "depth": 1, "heads": 2, "mlp_dim": 16}
model = vt.create("ViT-Ti/4", image_size=8, num_classes=classes, **small)
torch.nn.init.normal_(model.head.weight)
model.labels = labels

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20

began = time.perf_counter()
before, _ = calibrate_model(model, data)
calibrated = time.perf_counter() - began
found = evaluate(model, data)
found.to_json()
print(json.dumps({"images": images, "classes": classes, "labels": several, "peak_gib": round(peak(), 2),
                  "logits_gib": round(4 * images * classes / 2**30, 2),
                  "calibrated_on": before.count, "calibration_seconds": round(calibrated, 1),
                  "evaluation_seconds": round(found.seconds, 1)}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=21_841)
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    kept = json.loads(options.out.read_text())["rows"] if options.out and options.out.exists() else []
    rows = [row for row in kept if row["images"] != options.images]
    for classes, labels in ((10, 1), (options.classes, 1), (options.classes, 3)):
        command = [sys.executable, "-c", PROGRAM, *map(str, (options.images, classes, labels))]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(rows[-1], flush=True)
    write_results({"rows": rows}, options.out)


if __name__ == "__main__":
    main()
