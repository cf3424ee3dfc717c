"""Training on one GPU, fed by the real loader: images a second, and the share of the GPU's own peak.

    python benchmarks/gpu_training.py --models ViT-S/16 ViT-B/16 ViT-L/16 --out benchmarks/results/gpu.json

Ours is the step that `vitreous train` takes in bf16, compiled; timm's and Hugging Face's are their models in
the usual loop with the same optimizer, autocast and `torch.compile`. All are fed by one loader that reads,
crops and flips images while the GPU works. They take turns, block by block; what is reported is the median
block. The peak is what a product of large bf16 matrices reaches on the same GPU in the same run; the model's
operations are three times those of the forward pass, two for each product and sum.

`--device cpu` runs the program itself where there is no GPU; its numbers say nothing then.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import torch
from loader import PREPROCESSING, TRAINING, write_images
from peers import import_timm
from torch import nn

import vitreous as vt
from vitreous.data.config import DataConfig
from vitreous.data.image_samples import Batch, image_loader
from vitreous.data.loading import DevicePrefetcher
from vitreous.data.packing import Packing, pack
from vitreous.data.sources import open_data
from vitreous.models.description import describe
from vitreous.training.config import TrainingConfig
from vitreous.training.learner import Learner
from vitreous.training.objectives import classification
from vitreous.training.step import TrainStep

CLASSES = 1000
SIZES = {"ViT-Ti/16": "tiny", "ViT-S/16": "small", "ViT-B/16": "base", "ViT-L/16": "large"}
BATCHES = {"ViT-Ti/16": 1024, "ViT-S/16": 512, "ViT-B/16": 256, "ViT-L/16": 128}
Step = Callable[[Batch], object]


def ours(name: str, device: torch.device) -> Step:
    config = TrainingConfig(precision="bf16", compile=True)
    learner = Learner.begin(vt.create(name, num_classes=CLASSES).to(device), config)
    return TrainStep(learner, classification(config), config, seed=0)


def usual(model: nn.Module, logits: Callable[[object], torch.Tensor], device: torch.device) -> Step:
    """The usual loop."""
    model = model.to(device).train()
    forward = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05, fused=True)
    criterion = nn.CrossEntropyLoss()

    def step(batch: Batch) -> None:
        images, targets = (tensor.to(device, non_blocking=True) for tensor in (batch.images, batch.targets))
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = criterion(logits(forward(images)), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def timm_step(name: str, device: torch.device) -> Step:
    model = import_timm().create_model(f"vit_{SIZES[name]}_patch16_224", num_classes=CLASSES)
    return usual(model, lambda output: output, device)  # type: ignore[arg-type, return-value]


def huggingface_step(name: str, device: torch.device) -> Step:
    from transformers import ViTConfig, ViTForImageClassification

    config = vt.create(name).config
    theirs = ViTConfig(
        hidden_size=config.width,
        num_hidden_layers=config.depth,
        num_attention_heads=config.heads,
        intermediate_size=config.mlp_dim,
        num_labels=CLASSES,
        attn_implementation="sdpa",
    )
    return usual(ViTForImageClassification(theirs), lambda output: output.logits, device)  # type: ignore[attr-defined]


def matrix_peak(device: torch.device, side: int) -> float:
    """Operations a second of the best of some products of two side x side matrices in bf16."""
    a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    best = float("inf")
    for _ in range(12):
        wait(device)
        began = time.perf_counter()
        for _ in range(8):
            a @ b
        wait(device)
        best = min(best, (time.perf_counter() - began) / 8)
    return 2 * side**3 / best


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def endless(loader: DevicePrefetcher[Batch]) -> Iterator[Batch]:
    for epoch in itertools.count():
        yield from loader.epoch(epoch)


def compare(
    name: str, loader: DevicePrefetcher[Batch], device: torch.device, steps: int, rounds: int
) -> dict[str, object]:
    """For each way: images a second and operations a second, of the median block of `steps`."""
    operations = 3 * 2 * describe(vt.create(name, num_classes=CLASSES).config).macs
    ways: dict[str, Step] = {
        "vitreous": ours(name, device),
        "timm": timm_step(name, device),
        "huggingface": huggingface_step(name, device),
    }
    batches = endless(loader)
    for step in ways.values():
        for _ in range(3):  # compiling, and the optimizers' memory
            step(next(batches))
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds):
        order = list(ways.items())
        for way, step in order if turn % 2 else reversed(order):
            wait(device)
            began = time.perf_counter()
            for _ in range(steps):
                step(next(batches))
            wait(device)
            rates[way].append(steps * loader.loader.sampler.batch_size / (time.perf_counter() - began))
    return {
        way: {
            "images_per_second": round(statistics.median(taken), 1),
            "teraflops": round(statistics.median(taken) * operations / 1e12, 2),
        }
        for way, taken in rates.items()
    }


def alone(loader: DevicePrefetcher[Batch], steps: int) -> float:
    """Images a second that the loader makes without a model."""
    batches = endless(loader)
    next(batches)
    began = time.perf_counter()
    for _ in range(steps):
        next(batches)
    return round(steps * loader.loader.sampler.batch_size / (time.perf_counter() - began), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=SIZES, default=["ViT-S/16", "ViT-B/16", "ViT-L/16"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, help="images; by default what suits the model on a large GPU")
    parser.add_argument("--images", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=20, help="of a block")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    device = torch.device(options.device)
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU"
    peak = matrix_peak(device, 8192 if device.type == "cuda" else 1024)
    rows: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        jpegs, shards = Path(folder) / "jpegs", Path(folder) / "shards"
        write_images(jpegs, options.images, 375, 500)
        pack(open_data(str(jpegs), DataConfig(test_fraction=0)), shards, Packing(size=256, raw=True))
        images = open_data(str(shards), DataConfig(test_fraction=0)).train
        for name in options.models:
            loader = image_loader(
                images,
                preprocessing=PREPROCESSING,
                augmentation=TRAINING,
                batch_size=options.batch or BATCHES[name],
                seed=0,
                workers=os.cpu_count() or 1,
                config=DataConfig(in_memory=False),
                device=device,
            )
            ways = compare(name, loader, device, options.steps, options.rounds)
            for way in ways.values():
                way["share_of_peak"] = round(way["teraflops"] * 1e12 / peak, 3)  # type: ignore[index, operator]
            rows[name] = {
                "batch": loader.loader.sampler.batch_size,
                "loader_alone_images_per_second": alone(loader, options.steps),
                **ways,
            }
            print(name, json.dumps(rows[name]), flush=True)
    results = {
        "date": date.today().isoformat(),
        "machine": f"{gpu}, {platform.machine()}, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "matrix_peak_teraflops": round(peak / 1e12, 2),
        "rows": rows,
    }
    text = json.dumps(results, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
