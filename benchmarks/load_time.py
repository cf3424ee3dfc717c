"""CPU seconds and memory of loading a ViT-L/16 from a folder, and of a forward pass after it, beside timm and
transformers.

    python benchmarks/load_time.py [--architecture NAME] [--repeats 5] [--out benchmarks/results]

The same random weights, as safetensors, in timm's folder and in that of transformers. Each load is a process
of its own, of a file that is in the page cache already; what is counted are the CPU seconds (user and system,
of all threads) of the load, without imports, and the largest resident memory so far (the kernel's VmHWM: the
maximum of getrusage is handed down by the process that starts another), of which the imports alone are a way
of their own. The order of the loads is rotated, so that what else the machine does meets all of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
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

RESULT = "load_time.json"


def with_safetensors(folder: Path, architecture: str) -> Any:
    """timm's class, and the file mapped by safetensors: what a short program of one's own does."""
    timm = import_timm()
    from safetensors.torch import load_file

    model = timm.create_model(architecture)
    model.load_state_dict(load_file(folder / "timm" / "model.safetensors"))
    return model.eval()


def with_timm(folder: Path, architecture: str) -> Any:
    return import_timm().create_model(f"local-dir:{folder / 'timm'}", pretrained=True).eval()


def with_transformers(folder: Path, architecture: str) -> Any:
    import_timm()
    import transformers

    return transformers.ViTForImageClassification.from_pretrained(folder / "transformers").eval()


def with_vitreous(form: str) -> Callable[[Path, str], Any]:
    def load(folder: Path, architecture: str) -> Any:
        import vitreous as vt

        return vt.load(folder / form)

    return load


def with_nothing(folder: Path, architecture: str) -> Any:
    """What the imports alone take."""
    return torch.nn.Identity()


WAYS: dict[str, Callable[[Path, str], Any]] = {
    "imports alone": with_nothing,
    "safetensors and timm's class": with_safetensors,
    "timm, local-dir": with_timm,
    "vitreous, timm's folder": with_vitreous("timm"),
    "transformers, from_pretrained": with_transformers,
    "vitreous, transformers' folder": with_vitreous("transformers"),
}


def imports() -> None:
    """What the loads import, which is not counted."""
    import_timm()
    import transformers

    import vitreous as vt
    from vitreous.checkpoints.format import checkpoint_formats

    checkpoint_formats()
    _ = transformers.ViTForImageClassification, vt.load


def largest_memory() -> float:
    """The largest resident memory of this process since it began, in GB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 2**20


def measure(way: str, folder: Path, architecture: str) -> dict[str, float]:
    """One load in this process, and a forward pass."""
    torch.set_num_threads(1)
    imports()
    before = time.process_time()
    model = WAYS[way](folder, architecture)
    loaded = time.process_time() - before
    memory = largest_memory()
    with torch.inference_mode():
        model(torch.zeros(1, 3, 224, 224))
    both = time.process_time() - before
    peak = largest_memory()
    return {"load_cpu_s": loaded, "with_forward_cpu_s": both, "load_gb": memory, "peak_gb": peak}


def write_folders(folder: Path, architecture: str) -> None:
    """The model with random weights, each folder written by the code whose form it is."""
    import_timm()
    import timm
    import transformers
    from timm.models import save_for_hf

    import vitreous as vt

    save_for_hf(timm.create_model(architecture), folder / "timm", safe_serialization=True)
    vt.save(vt.load(folder / "timm"), folder / "between", format="huggingface")
    between = transformers.ViTForImageClassification.from_pretrained(folder / "between")
    between.save_pretrained(folder / "transformers")
    shutil.rmtree(folder / "between")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--architecture", default="vit_large_patch16_224")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one[0], Path(args.one[1]), args.architecture)))
        return
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as temporary:
        write_folders(Path(temporary), args.architecture)
        ways = [*WAYS]
        for repeat in range(args.repeats):
            for way in ways[repeat % len(ways) :] + ways[: repeat % len(ways)]:
                command = [sys.executable, __file__, "--architecture", args.architecture]
                command += ["--one", way, temporary]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                found[way].append(json.loads(done.stdout.splitlines()[-1]))
                print(way, found[way][-1], file=sys.stderr, flush=True)
                write_results(  # each time, so that an interrupted run has what it measured
                    {"architecture": args.architecture, "ways": medians(found)},
                    args.out and args.out / RESULT,
                    machine="one thread",
                    packages=("timm", "transformers", "safetensors"),
                    shown=False,
                )


def medians(found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Of each way the median of each number, and all loads."""
    ways: dict[str, Any] = {}
    for way, each in found.items():
        ways[way] = {key: round(statistics.median(one[key] for one in each), 3) for key in (each or [{}])[0]}
        ways[way]["all_load_cpu_s"] = [round(one["load_cpu_s"], 3) for one in each]
    return ways


if __name__ == "__main__":
    main()
