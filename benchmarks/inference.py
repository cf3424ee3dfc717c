"""Inference speed of every engine beside timm's model, in one run on one machine.

    pip install 'vitreous[cpu,export]' timm
    python benchmarks/inference.py --model ViT-Ti/16 --batch 16 --rounds 15

Each way to compute has a process of its own, since the thread pools of PyTorch, OpenVINO and ONNX Runtime
disturb each other in one process; only one process computes at a time. All take turns, call by call, and what
is reported is the median of the ratios of neighboring calls, so that a machine that slows down slows all of
them. Weights are random, since sizes decide the speed; int8 is calibrated on noise, so accuracy is not
measured here (`vitreous optimize` does so for a trained model).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peers import import_timm
from record import write_results

import vitreous as vt
from vitreous.addons.optimize.engines import BackendConfig, prepared_module
from vitreous.addons.optimize.measuring import open_candidate
from vitreous.addons.optimize.openvino import openvino_compute
from vitreous.deployment.programs import open_exported
from vitreous.training.machine import keep_freed_memory

TIMM_NAMES = {
    "ViT-Ti/16": "vit_tiny_patch16_224",
    "ViT-S/16": "vit_small_patch16_224",
    "ViT-B/16": "vit_base_patch16_224",
}
PEERS = ("eager fp32", "eager bf16", "compiled bf16", "openvino fp32", "openvino bf16")
WAYS = (
    BackendConfig("eager", "fp32"),
    BackendConfig("eager", "bf16"),
    BackendConfig("onnx", "fp32"),
    BackendConfig("openvino", "fp32"),
    BackendConfig("openvino", "bf16"),
    BackendConfig("openvino", "int8"),
    BackendConfig("openvino", "bf16", 52),
    BackendConfig("openvino", "int8", 52),
)
SAMPLES = 16  # images of noise that int8 is calibrated on
BASE = "timm eager fp32"
PACKAGES = ("timm", "openvino", "nncf", "onnxruntime")
Call = Callable[[torch.Tensor], object]


def autocast(model: Call, images: torch.Tensor) -> object:
    with torch.autocast("cpu", torch.bfloat16):
        return model(images)


def labels(compute: Callable[..., object], images: torch.Tensor) -> object:
    """Compute the first output alone, as `vitreous predict` does."""
    return compute(images.numpy(), 1)


def timm_call(name: str, way: str) -> Call:
    """timm's model by itself, compiled with its weights frozen, or converted by OpenVINO."""
    model = import_timm().create_model(TIMM_NAMES[name], num_classes=1000).eval()
    engine, precision = way.split()
    if engine == "openvino":
        import openvino

        with torch.inference_mode():
            graph = openvino.convert_model(model, example_input=torch.randn(1, 3, 224, 224))
        return partial(labels, openvino_compute(graph, full=precision == "fp32"))
    if engine == "compiled":
        model = torch.compile(model, options={"freezing": True})
    return partial(autocast, model) if precision == "bf16" else model


def own_call(name: str, way: BackendConfig, file: Path) -> Call:
    """The model of vitreous, as `vitreous optimize` would compute it."""
    model = vt.create(name, seed=0).eval()
    if way.engine == "eager":
        return model if way.precision == "fp32" else prepared_module(model, way)
    open_candidate(model, way, file, [torch.randn(1, 3, 224, 224).numpy() for _ in range(SAMPLES)])
    return partial(labels, open_exported(file).compute)


def compute_when_asked(
    pipe: Connection, make: Callable[..., Call], arguments: tuple[Any, ...], threads: int, cpu_time: bool
) -> None:
    """A process: for each number of images that arrives, answer the seconds that they take."""
    torch.set_num_threads(threads)
    keep_freed_memory()
    clock = time.process_time if cpu_time else time.perf_counter
    with torch.no_grad():
        call = make(*arguments)
    pipe.send(None)
    while batch := pipe.recv():
        images = torch.randn(batch, 3, 224, 224)
        with torch.inference_mode():
            start = clock()
            call(images)
            pipe.send(clock() - start)


def ask(pipe: Connection, batch: int) -> float:
    pipe.send(batch)
    return float(pipe.recv())


def compare(name: str, batch: int, rounds: int, pipes: dict[str, Connection]) -> dict[str, object]:
    """Images a second of each, and the median over the rounds of timm's time divided by its own."""
    for pipe in pipes.values():
        for _ in range(3):
            ask(pipe, batch)
    times: dict[str, list[float]] = {each: [] for each in pipes}
    load = os.getloadavg()[0]
    for turn in range(rounds):
        for each in pipes if turn % 2 else reversed(pipes):
            ask(pipes[each], batch)  # caches hold what others have computed
            times[each].append(ask(pipes[each], batch))
    found = {}
    for each, taken in times.items():
        ratios = sorted(theirs / ours for ours, theirs in zip(taken, times[BASE], strict=True))
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
    processes = multiprocessing.get_context("spawn")
    rows = []
    for name in options.model:
        with TemporaryDirectory() as folder:
            ways: dict[str, tuple[Callable[..., Call], tuple[Any, ...]]] = {
                f"timm {way}": (timm_call, (name, way)) for way in PEERS
            }
            for number, way in enumerate(WAYS):
                file = Path(folder) / f"{number}{'.onnx' if way.engine == 'onnx' else '-openvino'}"
                ways[str(way)] = (own_call, (name, way, file))
            pipes = {}
            for each, (make, arguments) in ways.items():
                pipes[each], theirs = processes.Pipe()
                settings = (theirs, make, arguments, options.threads, options.cpu_time)
                processes.Process(target=compute_when_asked, args=settings, daemon=True).start()
                theirs.close()
                pipes[each].recv()
            rows += [compare(name, batch, options.rounds, pipes) for batch in options.batch]
            for pipe in pipes.values():
                pipe.send(0)
    results = {
        "clock": "CPU time of one core" if options.cpu_time else "wall",
        "rows": rows,
    }
    write_results(results, options.out, packages=PACKAGES)


if __name__ == "__main__":
    main()
