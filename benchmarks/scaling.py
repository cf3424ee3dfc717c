"""What a training on many nodes costs besides its steps: start-up, memory, checkpoints and data traffic.

    python benchmarks/scaling.py [--nodes 64] [--gpus 8] [--out benchmarks/results/scaling.json]

A simulation, not a measurement of such a cluster. What this machine can measure is measured first: the time
to import, to open a cached index, to copy a state into memory, to write and to checksum it, and what a packed
image takes. What it cannot measure are options, with values that vendors publish; each result names its
inputs, so that you can put in your own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from record import write_results

import vitreous as vt
from vitreous.checkpoints.whole_files import checksum, flush
from vitreous.models.description import describe
from vitreous.training.config import TrainingConfig
from vitreous.training.learner import Learner
from vitreous.training.memory import stager

GIB = 2**30
MODELS = ("ViT-B/16", "ViT-L/16", "ViT-H/14")


def seconds_to_import() -> float:
    """The core seconds in which a process imports what it trains with."""
    code = "import os, vitreous.tasks.running, vitreous.tasks.pretraining.task; print(sum(os.times()[:2]))"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)


def state_costs() -> dict[str, float]:
    """Core seconds a GiB of copying a state, writing it, and its checksum; of ViT-Ti/16 with its EMA."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    learner = Learner.begin(vt.create("ViT-Ti/16", num_classes=1000), TrainingConfig(ema_decay=0.9999))
    for parameter in learner.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    learner.optimizers[0].step()
    tensors = learner.state().tensors
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) / GIB
    stage = stager(torch.device("cpu"))
    stage(tensors)  # the first time it allocates
    spent = [time.process_time()]
    stage(tensors)
    spent.append(time.process_time())
    with tempfile.TemporaryDirectory() as folder:
        save(
            dict(tensors),
            storage_writer=HuggingFaceStorageWriter(folder, save_distributed=True),
            no_dist=True,
        )
        for file in Path(folder).iterdir():
            flush(file)
        spent.append(time.process_time())
        for file in Path(folder).iterdir():
            checksum(file)
        spent.append(time.process_time())
    names = ("copy", "write", "checksum")
    return {n: round((b - a) / size, 3) for n, a, b in zip(names, spent, spent[1:], strict=False)}


def plan(name: str, given: argparse.Namespace, measured: dict[str, float]) -> dict[str, object]:
    """The costs of one model."""
    with torch.device("meta"):
        model = vt.create(name, num_classes=given.classes)
    described = describe(model.config)
    parameters = sum(weight.numel() for weight in model.parameters())
    world, weights = given.nodes * given.gpus, 4 * parameters
    state = 4 * weights  # weights, their average, AdamW's two
    step_flops = 6 * described.macs * given.batch / world
    step = step_flops / (given.efficiency * given.teraflops * 1e12)
    images = given.batch / step
    # Gradients in fp32: a ring sends them twice; between nodes over each GPU's own network card.
    exchange = 2 * weights * (world - 1) / world / (given.network * 1e9 / 8)
    blocked = state / (given.pcie * 1e9)
    written = measured["write"] + measured["checksum"]
    traffic = images * given.image_kb * 1000
    return {
        "parameters_m": round(parameters / 1e6, 1),
        "step_ms": round(1000 * step, 1),
        "images_per_second": round(images),
        "gradient_exchange_ms": round(1000 * exchange, 1),
        "memory_gib_a_gpu": {
            "replicated": round((state + weights) / GIB, 1),
            "sharded_in_a_node": round((state + weights) / given.gpus / GIB, 2),
        },
        "checkpoint": {
            "gib": round(state / GIB, 2),
            "blocked_seconds": round(blocked, 2),
            "written_in_the_background_seconds": round(written * state / GIB, 1),
            "written_sharded_seconds": round(written * state / GIB / world, 2),
            "share_of_time_at_60_s": round(blocked / 60, 4),
        },
        "data": {
            "gigabytes_per_second_in_all": round(traffic / 1e9, 2),
            "megabytes_per_second_a_node": round(traffic / 1e6 / given.nodes, 1),
            "decoding_cores_a_gpu": round(images / world * measured["core_ms_an_image"] / 1000, 2),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--gpus", type=int, default=8, help="of a node")
    parser.add_argument("--batch", type=int, default=32_768, help="images in a step, over all GPUs")
    parser.add_argument("--classes", type=int, default=21_841)
    parser.add_argument("--teraflops", type=float, default=989, help="of a GPU in bf16 (H100, data sheet)")
    parser.add_argument("--efficiency", type=float, default=0.4, help="share of that which a step reaches")
    parser.add_argument("--network", type=float, default=400, help="Gbit/s of each GPU between nodes")
    parser.add_argument("--pcie", type=float, default=25, help="GB/s from a GPU into pinned memory")
    parser.add_argument("--image-kb", type=float, default=30, help="kB of an image packed at 256 pixels")
    parser.add_argument(
        "--core-ms", type=float, help="core milliseconds an image; default: benchmarks/results"
    )
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    given = parser.parse_args()
    results = Path(__file__).parent / "results"
    index = json.loads((results / "shard_index.json").read_text("utf-8"))
    loader = json.loads((results / "loader.json").read_text("utf-8"))
    core_ms = given.core_ms or round(1000 / loader["rows"]["train_packed_256"]["ours_per_second"], 3)
    opened = index["opening"]["validation shards"]
    measured = {
        "import_core_seconds": round(seconds_to_import(), 2),
        "open_index_seconds": opened["open_core_seconds"],
        "index_own_gib_a_process": opened["own_gib"],
        "core_ms_an_image": core_ms,
        **state_costs(),
    }
    found = {
        "measured_here": measured,
        "given": {name: value for name, value in vars(given).items() if name != "out"},
        "start_up": {
            "processes": given.nodes * given.gpus,
            "seconds": round(measured["import_core_seconds"] + measured["open_index_seconds"], 1),
            "indexed_images": opened["images"],
        },
        "models": {name: plan(name, given, measured) for name in MODELS},
    }
    write_results(found, given.out)


if __name__ == "__main__":
    main()
