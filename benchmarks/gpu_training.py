"""Training on one GPU in one command of less than eight minutes, which keeps each number once it has it.

    python benchmarks/gpu_training.py --out benchmarks/results/gpu.json
    torchrun --nproc-per-node 8 benchmarks/gpu_training.py --only "ViT-B/16, FSDP2" --out gpus.json

What matters most comes first (ITEMS): ViT-B/16 at 224 in bf16, compiled, beside timm's model in the usual
loop with the same optimizer, autocast and `torch.compile`; the loader against a constant batch; other sizes;
FSDP2; how long training waits for a checkpoint; the steps of MAE and DINO. Each item runs in a process of its
own: one that crashes, in Python or below, leaves its error and the last lines of its output in the results,
and the next one begins. One that would begin after `--minutes` is left out, and named.

What is reported is the median of blocks of steps. The peak is what a product of large bf16 matrices reaches
on the same GPU; the model's operations are three times those of the forward pass, two for each product and
sum. `--device cpu --tiny` runs the program itself where there is no GPU; its numbers say nothing then.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from loader import PREPROCESSING, TRAINING, write_images
from peers import import_timm
from record import write_results
from torch import nn

import vitreous as vt
from vitreous.addons.self_supervision.tasks import of_views
from vitreous.addons.self_supervision.views import ViewReader, ViewsConfig, multi_crop
from vitreous.data.config import AugmentationConfig, DataConfig, ReadingConfig
from vitreous.data.image_samples import Batch, image_loader
from vitreous.data.loading import DevicePrefetcher
from vitreous.data.packing import Packing, pack
from vitreous.data.sources import open_data
from vitreous.data.workers import loading_workers
from vitreous.models.description import describe
from vitreous.tasks.pretraining.task import build_objective, self_supervised
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.config import TrainingConfig
from vitreous.training.distributed import World, process_group, shards_for
from vitreous.training.learner import Learner
from vitreous.training.machine import numerics
from vitreous.training.objectives import classification
from vitreous.training.step import LossOf, Objective, TrainStep, data_parallel

CLASSES, IMAGES = 1000, 4096
BATCHES = {"ViT-Ti/16": 1024, "ViT-S/16": 512, "ViT-B/16": 256, "ViT-L/16": 128}
TIMM = {"ViT-Ti/16": "tiny", "ViT-S/16": "small", "ViT-B/16": "base", "ViT-L/16": "large"}
LAST_LINES = 30  # of the output of an item that failed
Numbers = dict[str, float]


class Machine(NamedTuple):
    """Where an item runs, and on what."""

    device: torch.device
    world: World
    data: Path  # shards of images
    tiny: bool  # tries the program alone

    def name(self, name: str) -> str:
        return "ViT-Ti/16" if self.tiny else name

    def batch(self, name: str) -> int:
        return 2 if self.tiny else BATCHES[name]

    @property
    def blocks(self) -> tuple[int, int]:
        """Blocks, and the steps of each."""
        return (1, 1) if self.tiny else (5, 10)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def ours(
    name: str,
    machine: Machine,
    *,
    objective: str | None = None,
    compiled: bool = True,
    shard: bool = False,
    **training: Any,
) -> TrainStep:
    """Return the step that `vitreous train` takes, or with an objective `vitreous pretrain`."""
    device = machine.device
    compiled = compiled and device.type == "cuda"
    config = TrainingConfig.model_validate({"precision": "bf16", "machine": {"shard": shard}, **training})
    model: nn.Module = vt.create(name, num_classes=CLASSES)
    learned: Objective = classification(config)
    if objective:
        model = build_objective(vt.create(name), objective, steps=1000)
        learned = of_views if objective == "dino" else self_supervised
    shards = shards_for(model, config, machine.world, device, compiled=compiled)
    learner = Learner.begin(model if shards else model.to(device), config, shards)
    loss = data_parallel(LossOf(learner.model, learned), shards, config, machine.world, compiled=compiled)
    return TrainStep(learner, loss, config, seed=0, world=machine.world)


def timm_step(name: str, machine: Machine) -> Callable[[Batch], None]:
    """timm's model in the usual loop."""
    device = machine.device
    model = import_timm().create_model(f"vit_{TIMM[name]}_patch16_224", num_classes=CLASSES)
    model = model.to(device).train()
    forward = torch.compile(model) if device.type == "cuda" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05, fused=True)
    criterion = nn.CrossEntropyLoss()

    def step(batch: Batch) -> None:
        images, targets = (tensor.to(device, non_blocking=True) for tensor in (batch.images, batch.targets))
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = criterion(forward(images), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def loader_of(
    name: str, machine: Machine, *, reader: Any = None, augmentation: AugmentationConfig = TRAINING
) -> DevicePrefetcher[Any]:
    return image_loader(
        open_data(str(machine.data), DataConfig(test_fraction=0)).train,
        preprocessing=PREPROCESSING,
        augmentation=augmentation,
        batch_size=machine.batch(name) * machine.world.size,
        seed=0,
        workers=loading_workers(None),
        rank=machine.world.rank,
        world_size=machine.world.size,
        config=DataConfig(reading=ReadingConfig(in_memory=False)),
        device=machine.device,
        reader=reader,
    )


def endless(loader: DevicePrefetcher[Any]) -> Iterator[Any]:
    for epoch in itertools.count():
        yield from loader.epoch(epoch)


def constant(name: str, machine: Machine) -> Iterator[Batch]:
    """The same batch on the device, again and again."""
    count, device = machine.batch(name), machine.device
    images = torch.randn(count, 3, 224, 224, device=device)
    targets = torch.randint(CLASSES, (count,), device=device)
    batch = Batch(images, targets, torch.ones(count, dtype=torch.bool, device=device))
    return itertools.repeat(batch)


def rate(step: Callable[[Any], object], batches: Iterator[Any], name: str, machine: Machine) -> float:
    """Images a second of the median block, after compiling and allocation."""
    blocks, steps = machine.blocks
    for _ in range(3):
        step(next(batches))
    seconds = []
    for _ in range(blocks):
        machine.wait()
        began = time.perf_counter()
        for _ in range(steps):
            step(next(batches))
        machine.wait()
        seconds.append(time.perf_counter() - began)
    return steps * machine.batch(name) * machine.world.size / statistics.median(seconds)


# Items: each yields its numbers one by one.


def peak(machine: Machine) -> Iterator[Numbers]:
    """Operations a second of the best of some products of two matrices in bf16."""
    side, best = 1024 if machine.tiny else 8192, float("inf")
    a, b = (torch.randn(side, side, device=machine.device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(2 if machine.tiny else 12):
        machine.wait()
        began = time.perf_counter()
        for _ in range(8):
            a @ b
        machine.wait()
        best = min(best, (time.perf_counter() - began) / 8)
    yield {"matrix_peak_teraflops": 2 * side**3 / best / 1e12}


def training(machine: Machine, name: str, **options: Any) -> Iterator[Numbers]:
    name = machine.name(name)
    images = rate(ours(name, machine, **options), constant(name, machine), name, machine)
    operations = 3 * 2 * describe(vt.create(name, num_classes=CLASSES).config).macs
    found = {"images_per_second": images, "teraflops": images * operations / 1e12}
    if machine.device.type == "cuda":
        found["gpu_memory_gib"] = torch.cuda.max_memory_allocated(machine.device) / 2**30
    yield found


def in_timm(machine: Machine, name: str) -> Iterator[Numbers]:
    name = machine.name(name)
    yield {"images_per_second": rate(timm_step(name, machine), constant(name, machine), name, machine)}


def from_loader(machine: Machine, name: str) -> Iterator[Numbers]:
    """Images that are read, cropped and flipped meanwhile; and what the loader makes without a model."""
    name = machine.name(name)
    batches = endless(loader_of(name, machine))
    yield {"images_per_second": rate(ours(name, machine), batches, name, machine)}
    yield {"loader_alone_images_per_second": rate(lambda batch: batch, batches, name, machine)}


def objective(machine: Machine, name: str, kind: str) -> Iterator[Numbers]:
    name = machine.name(name)
    batches: Iterator[Any] = constant(name, machine)
    if kind == "dino":
        reader = ViewReader(
            open_data(str(machine.data), DataConfig(test_fraction=0)).train,
            3,
            multi_crop(vt.create(name).config, ViewsConfig()),
        )
        batches = endless(loader_of(name, machine, reader=reader, augmentation=AugmentationConfig()))
    step = ours(name, machine, objective=kind)
    yield {"images_per_second": rate(step, batches, name, machine)}


def checkpoint(machine: Machine, name: str) -> Iterator[Numbers]:
    """Seconds that training waits for a checkpoint, and in which it is written meanwhile; and its size."""
    step, world = ours(machine.name(name), machine, compiled=False), machine.world
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
    yield {"gib": size / 2**30, "waited_seconds": waited, "written_seconds": written}


B, S, L = "ViT-B/16", "ViT-S/16", "ViT-L/16"
ITEMS: dict[str, Callable[[Machine], Iterator[Numbers]]] = {
    "matrices": peak,
    B: partial(training, name=B),
    f"{B}, timm": partial(in_timm, name=B),
    f"{B}, loader": partial(from_loader, name=B),
    S: partial(training, name=S),
    f"{S}, timm": partial(in_timm, name=S),
    L: partial(training, name=L),
    f"{L}, timm": partial(in_timm, name=L),
    f"{B}, FSDP2": partial(training, name=B, shard=True),
    f"{B}, checkpoint": partial(checkpoint, name=B),
    f"{B}, MAE": partial(objective, name=B, kind="mae"),
    f"{S}, DINO": partial(objective, name=S, kind="dino"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="+", choices=ITEMS, default=list(ITEMS), help="by default all")
    parser.add_argument("--minutes", type=float, default=7.5, help="no item goes on after that")
    parser.add_argument("--tiny", action="store_true", help="try the program: two images, one step")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    parser.add_argument("--item", choices=ITEMS, help=argparse.SUPPRESS)  # the process of an item
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.item:
        run_item(options)
    elif "RANK" in os.environ:  # under torchrun this is the item's process already
        with tempfile.TemporaryDirectory() as folder:
            options.data = shards(Path(folder), options.tiny)
            for item in options.only:
                options.item = item
                run_item(options)
    else:
        run_all(options)


def run_item(options: argparse.Namespace) -> None:
    """Print the numbers of an item, a line of JSON each."""
    with (
        process_group(torch.device(options.device)) as (world, device),
        numerics(device, "bf16", deterministic=False),
    ):
        for numbers in ITEMS[options.item](Machine(device, world, options.data, options.tiny)):
            if world.first:
                print(json.dumps({name: round(value, 3) for name, value in numbers.items()}), flush=True)
                if options.out:
                    write_results({"processes": world.size, options.item: numbers}, options.out, shown=False)


def shards(folder: Path, tiny: bool) -> Path:
    jpegs = folder / "jpegs"
    write_images(jpegs, 16 if tiny else IMAGES, 375, 500)
    pack(open_data(str(jpegs), DataConfig(test_fraction=0)), folder / "shards", Packing(size=256, raw=True))
    return folder / "shards"


def run_all(options: argparse.Namespace) -> None:
    """Run each item in a process of its own, and write the results after each number."""
    deadline = time.monotonic() + 60 * options.minutes
    gpu = torch.cuda.get_device_name() if options.device == "cuda" and torch.cuda.is_available() else "no GPU"
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "shards"
        for item in options.only:
            row = rows[item] = {}
            left = deadline - time.monotonic()
            if left <= 0:
                row["left_out"] = f"{options.minutes:g} minutes are over"
            else:
                if "loader" in item or "DINO" in item:  # made when it is first needed
                    data = data if data.exists() else shards(Path(folder), options.tiny)
                command = [sys.executable, __file__, "--item", item, "--device", options.device]
                command += ["--data", str(data), *(["--tiny"] if options.tiny else [])]
                follow(command, row, left, lambda: keep(rows, options.out, gpu))
            keep(rows, options.out, gpu)
            print(item, json.dumps(row), flush=True)


def follow(command: list[str], row: dict[str, Any], seconds: float, each: Callable[[], None]) -> None:
    """Add what a process prints to a row, line by line, and why it ended if it failed."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        stopped = Stopped(process, seconds)
        assert process.stdout
        for line in process.stdout:
            if line.startswith("{"):
                row |= json.loads(line)
                each()
        code = process.wait()
        stopped.cancel()
        if stopped.done:
            row["left_out"] = "the time was over before it ended"
        elif code:
            errors.seek(0)
            row["failed"] = f"exit code {code}"
            row["output"] = errors.read().splitlines()[-LAST_LINES:]


class Stopped:
    """Ends a process after some seconds."""

    def __init__(self, process: subprocess.Popen[str], seconds: float) -> None:
        from threading import Timer

        self.done = False
        self.process = process
        self.timer = Timer(seconds, self.end)
        self.timer.daemon = True
        self.timer.start()

    def end(self) -> None:
        self.done = True
        self.process.kill()

    def cancel(self) -> None:
        self.timer.cancel()


def keep(rows: dict[str, dict[str, Any]], out: Path | None, gpu: str) -> None:
    """Write all that is known, with the share of the peak where both numbers are."""
    best = rows.get("matrices", {}).get("matrix_peak_teraflops")
    for row in rows.values():
        if best and "teraflops" in row:
            row["share_of_peak"] = round(row["teraflops"] / best, 3)
    write_results({"rows": rows}, out, machine=gpu, packages=("timm", "triton"), shown=False)


if __name__ == "__main__":
    main()
