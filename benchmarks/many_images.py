"""Many images on one machine: `vitreous embed MODEL DATA --out FOLDER` by one process and by two.

    python benchmarks/many_images.py --out benchmarks/results/many_images.json

100,000 made JPEGs of 32x32 pixels in 100 tar shards, and a small ViT. For each way: images per second, with
and without the start of the processes, and the largest memory of any one process. In the last row the
process is killed (SIGKILL) in the middle and started again. After each, every image has one row. A row that
is in --out already is not measured again.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset
import torch
from PIL import Image
from record import write_results

import vitreous as vt

SHARDS, EACH = 100, 1000
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
# How: the launcher, the share of shards that are answered, and whether a process is killed.
WAYS: dict[str, tuple[list[str], float, bool]] = {
    "one process, a tenth of the images": ([], 0.1, False),
    "one process": ([], 1, False),
    "torchrun, two processes": (TORCHRUN, 1, False),
    "one process, killed and started again": ([], 1, True),
}


def write_shards(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"x-{shard:03d}.tar", "w") as archive:
            for number in range(EACH):
                small = rng.integers(0, 255, (4, 4, 3), dtype=np.uint8)
                buffer = io.BytesIO()
                Image.fromarray(small).resize((32, 32)).save(buffer, "JPEG")
                member = tarfile.TarInfo(f"{shard:03d}-{number:04d}.jpg")
                member.size = buffer.tell()
                buffer.seek(0)
                archive.addfile(member, buffer)


def family(process: int) -> dict[int, str]:
    """A process and those below it, with their command lines."""
    parents, lines = {}, {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(stat[1])
                lines[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    found = {process}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return {each: lines[each] for each in found if each in lines}


class Memory(threading.Thread):
    """The largest resident memory of a process that answers."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process, self.most = process, 0.0

    def run(self) -> None:
        while True:
            for each, line in family(self.process).items():
                if "python" not in line:
                    continue
                try:
                    status = Path(f"/proc/{each}/status").read_text()
                except OSError:
                    continue
                for text in status.splitlines():
                    if text.startswith("VmRSS"):
                        self.most = max(self.most, int(text.split()[1]) / 1024)
            time.sleep(0.5)


def measure(name: str, model: Path, shards: Path, folder: Path) -> dict[str, Any]:
    """A row of the results."""
    launcher, share, killed = WAYS[name]
    wanted = int(SHARDS * share)
    data = str(shards / f"x-{{000..{wanted - 1:03d}}}.tar")
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    command = [
        sys.executable,
        *launcher,
        "-m",
        "vitreous",
        "embed",
        str(model),
        data,
        "--out",
        str(out),
    ]
    began = time.perf_counter()
    process = subprocess.Popen(command, start_new_session=True)
    memory = Memory(process.pid)
    memory.start()
    first, kills = None, int(killed)
    while process.poll() is None:
        done = len([*out.glob("*.parquet")]) if out.exists() else 0
        if done and first is None:
            first = time.perf_counter(), done
        if kills and done > wanted // 2:
            kills = 0
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process = subprocess.Popen(command, start_new_session=True)
        time.sleep(0.05)
    ended = time.perf_counter()
    assert process.returncode == 0
    assert first is not None
    paths = pyarrow.dataset.dataset(out).to_table(columns=["path"])["path"].to_pylist()
    assert len(paths) == len(set(paths)) == wanted * EACH, "each image has one row"
    return {
        "way": name,
        "images": len(paths),
        "seconds": round(ended - began, 1),
        "images_per_second": round(len(paths) / (ended - began)),
        "images_per_second_after_start": round((wanted - first[1]) * EACH / (ended - first[0])),
        "largest_process_mib": round(memory.most),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="keep the results in this JSON file")
    options = parser.parse_args()
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        config = vt.ViTConfig(
            image_size=32, patch_size=8, width=64, depth=2, heads=2, mlp_dim=128, num_classes=10
        )
        vt.save(vt.ViT(config), folder / "model")
        (folder / "shards").mkdir()
        write_shards(folder / "shards")
        for way in WAYS:
            if way in [row["way"] for row in rows]:
                continue
            rows.append(measure(way, folder / "model", folder / "shards", folder))
            print(rows[-1], flush=True)
            results = {
                "rows": rows,
            }
            write_results(results, options.out, shown=False)


if __name__ == "__main__":
    main()
