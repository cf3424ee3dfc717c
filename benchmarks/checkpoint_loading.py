"""How long a ViT-L/16 (1.2 GB) takes to load, and how much memory, from each format's file.

    python benchmarks/checkpoint_loading.py [--model ViT-L/16] [--out benchmarks/results]

Each load runs in a process of its own. The yardstick is the least that any loader can do: read the file and
copy its bytes once. The two take turns; what counts is processor time (the files lie in the page cache),
since other work on the machine adds less to it than to the clock, and the median of the ratios of neighbors.
Bounds: 1.2 times the yardstick, a peak of memory of 1.3 times the weights.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from record import write_results

import vitreous as vt
from vitreous.checkpoints.formats import formats
from vitreous.checkpoints.weights import load_weights, meta_model, stored
from vitreous.models.names import config_of

FORMATS = {
    "vitreous": ("model", {}),
    "google": ("model.npz", {}),
    "timm": ("timm", {}),
    "huggingface": ("huggingface", {}),
    "torchvision": ("model.pth", {"heads": 16}),
}


def peak() -> int:
    """Bytes that this process has had in memory at most, since it began to run this program."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


def load_once(path: str, fields: str) -> None:
    """In a process of its own: load, look at every number once, tell time and memory."""
    vt.create("ViT-Ti/16", depth=1)  # everything is imported
    before, start = peak(), time.process_time()
    model = vt.load(path, **json.loads(fields))
    seconds = time.process_time() - start
    for parameter in model.parameters():
        parameter.detach().sum()
    weights = sum(4 * parameter.numel() for parameter in model.parameters())
    print(json.dumps({"seconds": seconds, "memory": peak() - before, "weights": weights}))


def copy_once(path: str) -> None:
    """In a process of its own: read the file and copy its bytes once."""
    content = torch.empty(Path(path).stat().st_size, dtype=torch.uint8)
    start = time.process_time()
    with open(path, "rb") as file:
        file.readinto(memoryview(content.numpy()))  # type: ignore[arg-type]
    content.clone()
    print(json.dumps({"seconds": time.process_time() - start}))


def run(*arguments: str) -> dict[str, float]:
    """What a process of its own printed."""
    command = [sys.executable, __file__, *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def measure(format: str, model: vt.ViT, folder: Path, rounds: int) -> dict[str, object]:
    """One row of the results."""
    name, fields = FORMATS[format]
    path = folder / name
    formats()[format].write(model, path)
    file = path / "model.safetensors" if path.is_dir() else path
    loads, copies = [], []
    for _ in range(rounds):
        copies.append(run("--copy", str(file)))
        loads.append(run("--load", str(path), json.dumps(fields)))
    pairs = zip(loads, copies, strict=True)
    row = {
        "format": format,
        "file_gb": file.stat().st_size / 1e9,
        "seconds": min(load["seconds"] for load in loads),
        "read_and_copy_seconds": min(copy["seconds"] for copy in copies),
        "time_ratio": statistics.median(load["seconds"] / copy["seconds"] for load, copy in pairs),
        "peak_over_weights": max(load["memory"] / load["weights"] for load in loads),
    }
    file.unlink()
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="ViT-L/16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for format in FORMATS:
            mlp = "gelu_tanh" if format == "google" else "gelu"
            model = meta_model(config_of(options.model, mlp=mlp))
            load_weights(
                model, {name: torch.full(w.shape, 0.01) for name, w in stored(model).items()}, where="here"
            )
            rows.append(measure(format, model, Path(folder), options.rounds))
            print(rows[-1], flush=True)
    results = {"model": options.model, "rows": rows}
    write_results(results, options.out / "checkpoint_loading.json", shown=False)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--load"]:
        load_once(*sys.argv[2:4])
    elif sys.argv[1:2] == ["--copy"]:
        copy_once(sys.argv[2])
    else:
        main()
