"""Inference speed of every engine beside timm's eager model, in one run on one machine.

    pip install 'vitreous[cpu,export]' timm
    python benchmarks/inference.py --model ViT-Ti/16 --batch 16 --rounds 15

All take turns, call by call, and what is reported is the median of the ratios of neighboring calls, so that a
machine that slows down slows all of them. Weights are random: sizes decide the speed. int8 is calibrated on
noise, and says nothing about accuracy; `vitreous optimize` measures that of a trained model.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peers import import_timm

import vitreous as vt
from vitreous.deployment.engines import open_exported
from vitreous.deployment.optimizing import Candidate, opened, prepared_module
from vitreous.training.memory import keep_freed_memory

TIMM_NAMES = {
    "ViT-Ti/16": "vit_tiny_patch16_224",
    "ViT-S/16": "vit_small_patch16_224",
    "ViT-B/16": "vit_base_patch16_224",
}
WAYS = (
    Candidate("eager", "bf16"),
    Candidate("onnx", "fp32"),
    Candidate("openvino", "fp32"),
    Candidate("openvino", "bf16"),
    Candidate("openvino", "int8"),
    Candidate("openvino", "int8", 13),
)
SAMPLES = 16  # images of noise that int8 is calibrated on
Call = Callable[[torch.Tensor], object]
Clock = Callable[[], float]


def autocast(model: torch.nn.Module, images: torch.Tensor) -> object:
    with torch.autocast("cpu", torch.bfloat16):
        return model(images)


def from_file(compute: Callable[[Any], object], images: torch.Tensor) -> object:
    return compute(images.numpy())


def contenders(name: str, folder: Path) -> dict[str, Call]:
    """What computes the same images: timm, and vitreous in every way."""
    torch.manual_seed(0)
    ours = vt.create(name, seed=0).eval()
    theirs = import_timm().create_model(TIMM_NAMES[name], num_classes=1000).eval()
    samples = [torch.randn(1, 3, 224, 224).numpy() for _ in range(SAMPLES)]
    calls: dict[str, Call] = {"timm eager fp32": theirs, "timm eager bf16": partial(autocast, theirs)}
    calls["eager fp32"] = ours
    for number, way in enumerate(WAYS):
        if way.engine == "eager":
            calls[str(way)] = prepared_module(ours, way)
            continue
        file = folder / f"{number}{'.onnx' if way.engine == 'onnx' else '-openvino'}"
        opened(ours, way, file, samples)
        calls[str(way)] = partial(from_file, open_exported(file).compute)
    return calls


@torch.inference_mode()
def seconds(call: Call, images: torch.Tensor, clock: Clock) -> float:
    start = clock()
    call(images)
    return clock() - start


def compare(name: str, batch: int, rounds: int, calls: dict[str, Call], clock: Clock) -> dict[str, object]:
    """Images a second of each, and the median over the rounds of timm's time divided by its own."""
    images = torch.randn(batch, 3, 224, 224)
    for call in calls.values():
        seconds(call, images, clock)
    times: dict[str, list[float]] = {each: [] for each in calls}
    load = os.getloadavg()[0]
    for turn in range(rounds):
        for each in calls if turn % 2 else reversed(calls):
            times[each].append(seconds(calls[each], images, clock))
    base = times["timm eager fp32"]
    found = {}
    for each, taken in times.items():
        ratios = sorted(theirs / ours for ours, theirs in zip(taken, base, strict=True))
        found[each] = {
            "images_per_second": round(batch / statistics.median(taken), 2),
            "times_timm": round(statistics.median(ratios), 3),
            "quartiles": [round(ratios[len(ratios) // 4], 3), round(ratios[3 * len(ratios) // 4], 3)],
        }
    return {"model": name, "batch": batch, "rounds": rounds, "load": round(load, 1), "contenders": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", nargs="+", default=["ViT-Ti/16", "ViT-B/16"], choices=TIMM_NAMES)
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="with `taskset -c 0`: on a machine with other work",
    )
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    clock = time.process_time if options.cpu_time else time.perf_counter
    rows = []
    for name in options.model:
        with TemporaryDirectory() as folder:
            calls = contenders(name, Path(folder))
            rows += [compare(name, batch, options.rounds, calls, clock) for batch in options.batch]
    results = {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {
            "torch": torch.__version__,
            "timm": import_timm().__version__,
            "vitreous": vt.__version__,
        },
        "clock": "CPU time of one core" if options.cpu_time else "wall",
        "rows": rows,
    }
    text = json.dumps(results, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
