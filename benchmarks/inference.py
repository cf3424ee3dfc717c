"""Inference speed of the eager model beside timm's, in one run on one machine.

    python benchmarks/inference.py --model ViT-Ti/16 --batch 16 --rounds 15

The two models take turns, call by call, and what is reported is the median of the ratios of neighboring
calls, so that a machine that slows down slows both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from datetime import date
from pathlib import Path

import torch
from peers import import_timm

import vitreous as vt

TIMM_NAMES = {
    "ViT-Ti/16": "vit_tiny_patch16_224",
    "ViT-S/16": "vit_small_patch16_224",
    "ViT-B/16": "vit_base_patch16_224",
}


def timm_model(name: str) -> torch.nn.Module:
    timm = import_timm()
    return timm.create_model(TIMM_NAMES[name], num_classes=1000)


def seconds(model: torch.nn.Module, images: torch.Tensor) -> float:
    start = time.perf_counter()
    with torch.inference_mode():
        model(images)
    return time.perf_counter() - start


def compare(name: str, batch: int, rounds: int, threads: int) -> dict[str, object]:
    """Images a second of both, and the median over rounds of timm's time divided by ours."""
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    ours, theirs = vt.create(name).eval(), timm_model(name).eval()
    images = torch.randn(batch, 3, 224, 224)
    for model in (ours, theirs):
        seconds(model, images)
    pairs = []
    for turn in range(rounds):
        order = (ours, theirs) if turn % 2 else (theirs, ours)
        timed = {id(model): seconds(model, images) for model in order}
        pairs.append((timed[id(ours)], timed[id(theirs)]))
    ratios = sorted(theirs / ours for ours, theirs in pairs)
    return {
        "model": name,
        "batch": batch,
        "vitreous_images_per_second": round(batch / statistics.median(ours for ours, _ in pairs), 2),
        "timm_images_per_second": round(batch / statistics.median(theirs for _, theirs in pairs), 2),
        "speed_of_vitreous_over_timm": round(statistics.median(ratios), 3),
        "ratio_quartiles": [round(ratios[len(ratios) // 4], 3), round(ratios[3 * len(ratios) // 4], 3)],
        "rounds": rounds,
        "threads": threads,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", nargs="+", default=["ViT-Ti/16", "ViT-B/16"], choices=TIMM_NAMES)
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    results = {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {
            "torch": torch.__version__,
            "timm": import_timm().__version__,
            "vitreous": vt.__version__,
        },
        "rows": [
            compare(name, batch, options.rounds, options.threads)
            for name in options.model
            for batch in options.batch
        ],
    }
    text = json.dumps(results, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
