"""The bundled job of segmentation beside a small U-Net that learns as long, on the same pages.

    python benchmarks/segmentation.py --out benchmarks/results/segmentation.json

Both see the same pages in the same order with the same loss, optimizer and form of schedule, one thread each;
the U-Net (1505.04597) gets as many steps as fit into the processor seconds that the Segmenter took. Its peak
rate is its own. Both are evaluated once, on pages of digits that neither has seen.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from record import write_results
from torch import Tensor, nn

from vitreous.addons.segmentation.digit_pages import CLASSES
from vitreous.addons.segmentation.evaluation import SegmentationEvaluation, evaluate_segmenter
from vitreous.addons.segmentation.model import Segmenter
from vitreous.addons.segmentation.task import segmentation
from vitreous.models.preprocessing import Preprocessing
from vitreous.tasks import task_named
from vitreous.tasks.task import Plan
from vitreous.tasks.training_run import fit, plan_of_run
from vitreous.training.learner import Learner
from vitreous.training.machine import Place
from vitreous.training.run import RunDirectory
from vitreous.training.step import LossOf, TrainStep
from vitreous.training.trainer import Trainer

PROBE = 8  # steps by which the U-Net's speed is measured


class UNet(nn.Module):
    """Three times halved and doubled again, two 3x3 convolutions with BatchNorm on each level."""

    def __init__(self, classes: int, width: int, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.preprocessing = preprocessing
        widths = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(pair(i, o) for i, o in zip([1, *widths], widths, strict=False))
        self.middle = pair(4 * width, 8 * width)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths))
        self.join = nn.ModuleList(pair(2 * w, w) for w in reversed(widths))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for level in self.down:
            x = level(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up, join, beside in zip(self.up, self.join, reversed(kept), strict=True):
            x = join(torch.cat([up(x), beside], dim=1))
        return self.head(x)


def pair(before: int, after: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for channels in (before, after):
        parts += [nn.Conv2d(channels, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*parts)


def numbers(evaluation: SegmentationEvaluation, model: nn.Module, **more: Any) -> dict[str, Any]:
    """What is kept of each."""
    return {
        "miou": evaluation.miou,
        "miou_interval": list(evaluation.interval),
        "pixel_accuracy": evaluation.pixel_accuracy,
        "foreground_miou": evaluation.foreground_miou,
        "iou": {name: float(iou) for name, iou in zip(evaluation.classes, evaluation.iou, strict=True)},
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        **more,
    }


def train_ours(planned: Plan[Any, Any], path: Path) -> dict[str, Any]:
    run = RunDirectory.create(path, planned.config)
    begun = time.process_time()
    model = fit(plan_of_run(run, planned.data)).model
    assert isinstance(model, Segmenter)
    seconds = time.process_time() - begun
    assert planned.data.test is not None
    found = evaluate_segmenter(model, planned.data.test)
    steps = planned.config.training.steps
    return numbers(found, model, steps=steps, processor_seconds=seconds, always_background=found.always_first)


def train_unet(
    planned: Plan[Any, Any], path: Path, *, seconds: float, width: int, lr: float
) -> dict[str, Any]:
    torch.manual_seed(planned.config.seed)
    run = RunDirectory(path, planned.config)  # names the data and the batches; nothing is written
    model = UNet(len(CLASSES), width, planned.config.prepared)
    training = planned.config.training.model_copy(update={"peak_lr": lr, "ema": None})
    objective = segmentation(training)
    task = task_named("segmentation")
    loader = task.prepare(run.config, planned.data, Place()).loader
    trial = Learner.begin(UNet(len(CLASSES), width, planned.config.prepared), training)
    begun = time.process_time()
    probing = training.model_copy(update={"length": f"{PROBE} steps"})
    Trainer(TrainStep(trial, LossOf(trial.model, objective), probing, seed=0), loader).fit()
    steps = round(seconds * PROBE / (time.process_time() - begun))
    learner = Learner.begin(model, training)
    begun = time.process_time()
    whole = training.model_copy(update={"length": f"{steps} steps"})
    Trainer(TrainStep(learner, LossOf(model, objective), whole, seed=0), loader).fit()
    took = time.process_time() - begun
    assert planned.data.test is not None
    found = evaluate_segmenter(model, planned.data.test)  # type: ignore[arg-type]
    return numbers(found, model, steps=steps, processor_seconds=took, peak_lr=lr, width=width)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=Path, required=True, help="a folder for the Segmenter's run")
    parser.add_argument("--steps", type=int, help="instead of the recipe's")
    parser.add_argument("--unet-seconds", type=float, help="train the U-Net alone, so long")
    parser.add_argument("--unet-width", type=int, default=16)
    parser.add_argument("--unet-lr", type=float, default=2e-3)
    parser.add_argument(
        "--validation", action="store_true", help="evaluate on pages of training digits instead"
    )
    parser.add_argument("--note", default="", help="kept with the results: what else the machine was doing")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings: dict[str, Any] = {"data": {"reading": {"workers": 0}}}
    if options.steps:
        settings["training"] = {"length": f"{options.steps} steps"}
    if options.validation:
        settings["data"]["validation_fraction"] = 0.2
    planned = task_named("segmentation").plan(None, settings)
    if options.validation:
        planned = replace(planned, data=planned.data._replace(test=planned.data.validation))
    results: dict[str, Any] = {
        "note": options.note,
    }
    seconds = options.unet_seconds
    if seconds is None:
        results["segmenter"] = train_ours(planned, options.runs / "segmenter")
        seconds = results["segmenter"]["processor_seconds"]
        print(json.dumps(results["segmenter"]), flush=True)
    results["unet"] = train_unet(
        planned, options.runs / "unet", seconds=seconds, width=options.unet_width, lr=options.unet_lr
    )
    print(json.dumps(results["unet"]), flush=True)
    known = json.loads(options.out.read_text("utf-8")) if options.out and options.out.exists() else {}
    write_results({**known, **results}, options.out, machine="one thread", seeds=[0], shown=False)


if __name__ == "__main__":
    main()
