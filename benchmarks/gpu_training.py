"""Training on one GPU, fed by the real loader: images a second, and the share of the GPU's own peak.

    python benchmarks/gpu_training.py --models ViT-S/16 ViT-B/16 ViT-L/16 --out benchmarks/results/gpu.json
    torchrun --nproc-per-node 8 benchmarks/gpu_training.py [--shard] --out benchmarks/results/gpus.json

Ours is the step that `vitreous train` takes in bf16, compiled (MAE and DINO on a GPU only); timm's and HF's
are their models in the usual loop with the same optimizer, autocast and `torch.compile`. All are fed
by one loader that reads, crops and flips images while the GPU works; DINO by one of its own, which cuts ten
views of each. They take turns, block by block; what is reported is the median block. The peak is what a
product of large bf16 matrices reaches on the same GPU in the same run; the model's operations are three times
those of the forward pass, two for each product and sum. In the same way are measured: the loader alone, a
constant batch, fp8 where the GPU has it, the steps of MAE and DINO, and how long training waits for a
checkpoint, and how long that takes to be written.

With torchrun only our own step is taken, by all processes (DDP; with --shard FSDP2), and images are those of
all of them. `--device cpu` runs the program itself where there is no GPU; its numbers say nothing then.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from loader import PREPROCESSING, TRAINING, write_images
from peers import import_timm
from record import write_results
from torch import nn

import vitreous as vt
from vitreous.addons.self_supervision.tasks import of_views
from vitreous.addons.self_supervision.views import ViewReader, Views, ViewsConfig, multi_crop
from vitreous.data.config import AugmentationConfig, DataConfig
from vitreous.data.image_samples import Batch, image_loader
from vitreous.data.loading import BatchT, DevicePrefetcher
from vitreous.data.packing import Packing, pack
from vitreous.data.sources import open_data
from vitreous.data.workers import loading_workers
from vitreous.errors import InputError
from vitreous.models.description import describe
from vitreous.tasks.pretraining.task import build_objective, self_supervised
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.config import TrainingConfig
from vitreous.training.distributed import ALONE, World, process_group
from vitreous.training.learner import Learner
from vitreous.training.objectives import classification
from vitreous.training.parallel import shards_for
from vitreous.training.precision import check_float8, numerics, to_float8
from vitreous.training.step import Objective, TrainStep

CLASSES = 1000
PEERS = ("timm", "transformers")
SIZES = {"ViT-Ti/16": "tiny", "ViT-S/16": "small", "ViT-B/16": "base", "ViT-L/16": "large"}
BATCHES = {"ViT-Ti/16": 1024, "ViT-S/16": 512, "ViT-B/16": 256, "ViT-L/16": 128}
Step = Callable[[Batch], object]


def ours(
    name: str,
    device: torch.device,
    world: World = ALONE,
    *,
    objective: str | None = None,
    **training: Any,
) -> TrainStep:
    """Return the step that `vitreous train` takes, or with an objective `vitreous pretrain`."""
    compiled = device.type == "cuda" or objective is None
    config = TrainingConfig.model_validate({"precision": "bf16", "compile": compiled, **training})
    model: nn.Module = vt.create(name, num_classes=CLASSES)
    loss: Objective = classification(config)
    if objective:
        model = build_objective(vt.create(name), objective, steps=1000)
        loss = of_views if objective == "dino" else self_supervised
    if config.precision == "fp8":
        to_float8(model)
    shards = shards_for(model, config, world, device)
    learner = Learner.begin(model if shards else model.to(device), config, shards)
    return TrainStep(learner, loss, config, seed=0, world=world)


def state_cost(step: TrainStep, world: World) -> dict[str, float]:
    """Seconds that training waits for a checkpoint, and in which it is written meanwhile; and its size."""
    with tempfile.TemporaryDirectory() as folder:
        states = Checkpointer(Path(world.broadcast(folder)))
        for number in (1, 2):  # the first time memory is allocated for it
            step.learner.step = number
            began = time.perf_counter()
            states.save(step.learner, world, wait=False)
            waited = time.perf_counter() - began
            states.finish()
            written = time.perf_counter() - began
        size = sum(path.stat().st_size for path in states.folder.glob("step-000000002.shards/*"))
        world.gather(size)  # until then the first process's folder is there
    return {
        "gib": round(size / 2**30, 3),
        "waited_seconds": round(waited, 3),
        "written_seconds": round(written, 3),
    }


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


def float8_step(name: str, device: torch.device) -> Step:
    check_float8(device)
    return ours(name, device, precision="fp8")


WAYS: dict[str, Callable[[str, torch.device], Step]] = {
    "vitreous": ours,
    "vitreous, MAE": partial(ours, objective="mae"),
    "vitreous, DINO": partial(ours, objective="dino"),
    "timm": timm_step,
    "huggingface": huggingface_step,
    "vitreous, fp8": float8_step,
}


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


def endless(loader: DevicePrefetcher[BatchT]) -> Iterator[BatchT]:
    for epoch in itertools.count():
        yield from loader.epoch(epoch)


def with_views(step: Any, loader: DevicePrefetcher[Views]) -> Step:
    """Return a step that takes its own batches."""
    batches = endless(loader)
    return lambda _: step(next(batches))


def ways_of(
    name: str,
    device: torch.device,
    world: World,
    views: DevicePrefetcher[Views],
    *,
    shard: bool,
    chosen: Sequence[str],
) -> dict[str, Step]:
    """Return the chosen steps, but for those that this machine cannot take."""
    if world.size > 1:
        return {"vitreous": ours(name, device, world, shard=shard)}
    ways: dict[str, Step] = {}
    for way in chosen:
        try:
            ways[way] = WAYS[way](name, device)
        except (ImportError, InputError) as error:
            print(f"without {way}: {error}", flush=True)
    if "vitreous, DINO" in ways:
        ways["vitreous, DINO"] = with_views(ways["vitreous, DINO"], views)
    return ways


def compare(
    ways: dict[str, Step],
    operations: int,
    loader: DevicePrefetcher[Batch],
    device: torch.device,
    steps: int,
    rounds: int,
) -> dict[str, dict[str, float]]:
    """For each way: images a second of the median block of `steps`; operations a second where these are those
    of the whole model."""
    batches = endless(loader)
    images = loader.loader.sampler.batch_size
    constant = next(batches)
    ways = {**ways, "vitreous, constant batch": lambda _: ways["vitreous"](constant)}
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
            rates[way].append(steps * images / (time.perf_counter() - began))
    found = {way: {"images_per_second": round(statistics.median(taken), 1)} for way, taken in rates.items()}
    for way, row in found.items():
        if way not in ("vitreous, MAE", "vitreous, DINO"):
            row["teraflops"] = round(row["images_per_second"] * operations / 1e12, 3)
    return found


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
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS, default=list(WAYS), help="vitreous is always there"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, help="images; by default what suits the model on a large GPU")
    parser.add_argument("--images", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=20, help="of a block")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shard", action="store_true", help="FSDP2, with torchrun")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    with (
        process_group(torch.device(options.device)) as (world, device),
        numerics(device, "bf16", deterministic=False),
    ):
        measure(options, world, device)


def measure(options: argparse.Namespace, world: World, device: torch.device) -> None:
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU"
    peak = matrix_peak(device, 8192 if device.type == "cuda" else 1024)
    rows: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        jpegs, shards = Path(folder) / "jpegs", Path(folder) / "shards"
        write_images(jpegs, options.images, 375, 500)
        pack(open_data(str(jpegs), DataConfig(test_fraction=0)), shards, Packing(size=256, raw=True))
        images = open_data(str(shards), DataConfig(test_fraction=0)).train
        for name in options.models:
            load = partial(
                image_loader,
                images,
                preprocessing=PREPROCESSING,
                batch_size=options.batch or BATCHES[name],
                seed=0,
                workers=loading_workers(None),
                rank=world.rank,
                world_size=world.size,
                config=DataConfig(in_memory=False),
                device=device,
            )
            loader = load(augmentation=TRAINING)
            crops = multi_crop(vt.create(name), ViewsConfig())
            views = load(augmentation=AugmentationConfig(), reader=ViewReader(images, 3, crops))
            operations = 3 * 2 * describe(vt.create(name, num_classes=CLASSES).config).macs
            chosen = dict.fromkeys(["vitreous", *options.ways])
            ways = ways_of(name, device, world, views, shard=options.shard, chosen=list(chosen))
            found = compare(ways, operations, loader, device, options.steps, options.rounds)
            for row in found.values():
                if "teraflops" in row:
                    row["share_of_peak"] = round(row["teraflops"] * 1e12 / peak / world.size, 3)
            step = ways["vitreous"]
            assert isinstance(step, TrainStep)
            rows[name] = {
                "batch": loader.loader.sampler.batch_size,
                "loader_alone_images_per_second": alone(loader, options.steps),
                "checkpoint": state_cost(step, world),
                **found,
            }
            if world.first:  # after each model, since all of them take long
                print(name, json.dumps(rows[name]), flush=True)
                facts = {"processes": world.size, "sharded": options.shard}
                facts["matrix_peak_teraflops"] = round(peak / 1e12, 2)
                write_results({**facts, "rows": rows}, options.out, machine=gpu, packages=PEERS, shown=False)


if __name__ == "__main__":
    main()
