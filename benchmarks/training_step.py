"""Training steps a second beside timm's, in one run on one machine.

    python benchmarks/training_step.py --rounds 9

Ours is the step that `vitreous train` takes (loss, gradient, clipping, fused AdamW); timm's is its model in
the usual loop with the same optimizer. All take turns, step by step; what is reported is the median of the
ratios to timm's eager fp32 step of the same round, so that a machine that slows down slows all of them.

`--agree 12` also trains on the bundled digits in each of our settings, for so many epochs, and gives the
largest difference of an epoch's loss from fp32's, relative to how far the loss fell.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peers import import_timm
from record import write_results

import vitreous as vt
from vitreous.data.image_samples import Batch
from vitreous.training.config import TrainingConfig
from vitreous.training.distributed import ALONE
from vitreous.training.learner import Learner
from vitreous.training.objectives import classification
from vitreous.training.step import LossOf, TrainStep, data_parallel

TIMM_NAMES = {"ViT-Ti/16": "vit_tiny_patch16_224", "ViT-S/16": "vit_small_patch16_224"}
SETTINGS: dict[str, dict[str, Any]] = {
    "fp32": {"precision": "fp32"},
    "bf16": {"precision": "bf16"},
    "bf16, compiled": {"precision": "bf16", "machine": {"compile": True}},
}
CLASSES = 1000
Step = Callable[[Batch], object]


def ours(name: str, settings: dict[str, Any]) -> TrainStep:
    torch.manual_seed(0)
    config = TrainingConfig(**settings)
    learner = Learner.begin(vt.create(name, num_classes=CLASSES), config)
    loss = data_parallel(
        LossOf(learner.model, classification(config)),
        None,
        config,
        ALONE,
        compiled=bool(config.machine_config.compile),
    )
    return TrainStep(learner, loss, config, seed=0)


def theirs(name: str, *, bf16: bool = False, compiled: bool = False) -> Step:
    model = import_timm().create_model(TIMM_NAMES[name], num_classes=CLASSES)
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05, fused=True)
    criterion = torch.nn.CrossEntropyLoss()

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = criterion(forward(batch.images), batch.targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def random_batch(size: int, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(size, 3, 224, 224, generator=generator)
    return Batch(images, torch.randint(CLASSES, (size,), generator=generator), torch.arange(size))


def compare(name: str, size: int, rounds: int) -> dict[str, dict[str, float]]:
    """For each setting: images a second, and how many times faster than timm's eager fp32."""
    steps: dict[str, Step] = {
        "timm fp32": theirs(name),
        "timm bf16, compiled": theirs(name, bf16=True, compiled=True),
    }
    steps |= {f"vitreous {label}": ours(name, settings) for label, settings in SETTINGS.items()}
    batch = random_batch(size)
    for step in steps.values():
        step(batch)  # compiling, and the optimizers' memory
    times: dict[str, list[float]] = {label: [] for label in steps}
    for turn in range(rounds):
        order = list(steps.items())
        for label, step in order if turn % 2 else reversed(order):
            started = time.perf_counter()
            step(batch)
            times[label].append(time.perf_counter() - started)
    reference = times["timm fp32"]
    return {
        label: {
            "images_per_second": round(size / statistics.median(taken), 2),
            "times_timm_fp32": round(
                statistics.median(theirs / mine for theirs, mine in zip(reference, taken, strict=True)), 3
            ),
        }
        for label, taken in times.items()
    }


def agreement(epochs: int) -> dict[str, float]:
    """The largest difference of an epoch's loss from fp32's, as a share of how far the loss fell: the bundled
    digits, learned by `vitreous train` as it is, from the same seed."""
    curves = {label: losses(settings, epochs) for label, settings in SETTINGS.items()}
    reference = curves["fp32"]
    fall = max(reference) - min(reference)
    return {
        label: round(max(abs(a - b) for a, b in zip(curve, reference, strict=True)) / fall, 4)
        for label, curve in curves.items()
    }


def losses(settings: dict[str, object], epochs: int) -> list[float]:
    """The loss of each epoch."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "vitreous",
            "train",
            "--out",
            f"{folder}/run",
            "--epochs",
            str(epochs),
        ]
        for name, value in settings.items():
            command += ["--set", f"training.{name}={str(value).lower()}"]
        subprocess.run(command, check=True, capture_output=True)
        lines = Path(f"{folder}/run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [row["loss"] for row in map(json.loads, lines) if "loss" in row]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="ViT-Ti/16", choices=TIMM_NAMES)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--agree", type=int, default=0, help="epochs to compare the losses of")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results: dict[str, object] = {
        "model": options.model,
        "batch": options.batch,
        "rounds": options.rounds,
        "threads": options.threads,
        "steps": compare(options.model, options.batch, options.rounds),
    }
    if options.agree:
        results["loss_difference"] = agreement(options.agree)
        results["loss_difference_of"] = f"{options.agree} epochs of the bundled digits"
    write_results(results, options.out, machine=f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
