"""Learning from scratch on made sets: the recipe that `vitreous train FOLDER` chooses, beside a small CNN.

    python benchmarks/from_scratch.py --sets signs strokes --minutes 4 10 --out FILE.json

Both learn from the same images, changed in the same way, for as long; validation shows looks that training
never does (see made_sets.py). The CNN has six 3x3 convolutions with BatchNorm and the same optimizer,
schedule and label smoothing; both multiply in bf16 where the processor does. Time is processor time on one
thread, `--share` of what the minutes hold on two cores, so that other work on the machine changes little: two
threads are not quite twice as fast as one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from made_sets import SETS, write_set
from record import write_results
from torch import Tensor, nn

from vitreous.data.dataset import ImageDataset, Splits, Subset
from vitreous.data.image_samples import Batch, evaluation_loader, image_loader
from vitreous.data.loading import DevicePrefetcher
from vitreous.models.preprocessing import Preprocessing
from vitreous.tasks import task_named
from vitreous.training.config import RunConfig, TrainingConfig
from vitreous.training.initial_model import starting_model
from vitreous.training.learner import Learner
from vitreous.training.machine import WIDE, pick_precision
from vitreous.training.objectives import classification
from vitreous.training.step import LossOf, TrainStep
from vitreous.training.trainer import Trainer

CORES = 2
CNN_RATE = 2e-3  # not tuned
FITTED = 600  # images of the training set, on which the accuracy is measured, too


class SmallCNN(nn.Module):
    """Six 3x3 convolutions, every second one with stride 2, and the mean over the image. Channels come last
    in memory, which makes its step a quarter faster."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for wide, stride in zip((32, 32, 64, 64, 128, 128), (1, 2, 1, 2, 1, 2), strict=True):
            layers += [nn.Conv2d(channels, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()]
            channels = wide
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(channels, classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images.contiguous(memory_format=torch.channels_last)))
        return logits


def changed(config: TrainingConfig, **settings: Any) -> TrainingConfig:
    return config.model_copy(update=settings)


def loader_of(config: RunConfig, splits: Splits) -> DevicePrefetcher[Batch]:
    return image_loader(
        splits.train,
        preprocessing=config.prepared,
        augmentation=config.augmentation,
        batch_size=config.training.batch_size,
        seed=config.seed,
        config=config.data,
    )


def train_and_measure(
    make: Any, config: RunConfig, splits: Splits, *, budget: float, training: TrainingConfig
) -> dict[str, Any]:
    """Train for `budget` seconds of the processor; accuracy on the validation looks, and on training images
    as they are: where it is 1, the images are learned, and more time could not fit them better."""
    assert splits.test is not None
    model = make()
    width = getattr(getattr(model, "config", None), "width", WIDE)
    precision = pick_precision(training.precision, torch.device("cpu"), width)
    training = changed(training, length=f"{budget / 60} minutes", precision=precision)
    loader = loader_of(config.model_copy(update={"training": training}), splits)
    learner = Learner.begin(model, training)
    loss, started = LossOf(model, classification(training)), time.process_time()
    step = TrainStep(learner, loss, training, seed=config.seed)
    Trainer(step, loader, clock=time.process_time).fit()
    spent = time.process_time() - started
    fitted = Subset(splits.train, np.array(splits.train.sample(FITTED)))
    model = learner.result.eval()
    return {
        "accuracy": round(accuracy(model, config.prepared, splits.test), 4),
        "training_accuracy": round(accuracy(model, config.prepared, fitted), 4),
        "epochs": round(learner.step / loader.steps_per_epoch, 1),
        "processor_seconds": round(spent),
        "milliseconds_per_image": round(1000 * spent / learner.step / training.batch_size, 2),
    }


@torch.inference_mode()
def accuracy(model: nn.Module, preprocessing: Preprocessing, images: ImageDataset) -> float:
    loader = evaluation_loader(images, preprocessing=preprocessing, batch_size=100)
    hits = sum(int((model(batch.images).argmax(dim=1) == batch.targets).sum()) for batch in loader)
    return hits / len(images)


def one_set(name: str, folder: Path, minutes: float, share: float, models: Sequence[str]) -> dict[str, Any]:
    """Both models on one set, or one of them."""
    planned = task_named("classification").plan(str(write_set(name, folder / name)), {})
    config, splits = planned.config, planned.data
    budget = 60 * minutes * CORES * share
    labels = splits.train.classes

    def vit() -> nn.Module:
        return starting_model(config, labels)

    def cnn() -> nn.Module:
        torch.manual_seed(config.seed)
        return SmallCNN(config.model.channels, len(labels))

    plain = changed(config.training, ema=None, peak_lr=CNN_RATE)
    ways = {"vitreous": (vit, config.training), "cnn": (cnn, plain)}
    measured = {
        model: train_and_measure(make, config, splits, budget=budget, training=training)
        for model, (make, training) in ways.items()
        if model in models
    }
    return {"set": name, "minutes": minutes, **measured, "recipe": planned.reasons}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--minutes", nargs="+", type=float, default=[4, 10])
    parser.add_argument("--models", nargs="+", choices=("vitreous", "cnn"), default=("vitreous", "cnn"))
    parser.add_argument("--share", type=float, default=0.8)
    parser.add_argument("--note", default="", help="kept with the results: what else the machine was doing")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {
        "share": options.share,
        "note": options.note,
        "rows": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        for minutes in options.minutes:
            for name in options.sets:
                row = one_set(name, Path(folder), minutes, options.share, options.models)
                print(json.dumps(row), flush=True)
                results["rows"].append(row)
                write_results(results, options.out, seeds=[0], shown=False)


if __name__ == "__main__":
    main()
