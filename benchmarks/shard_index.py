"""What the index of very many images in shards costs a process: time, memory, and the order of an epoch.

    python benchmarks/shard_index.py [--images 100000000] [--out benchmarks/results/shard_index.json]

The index is made up and written into an empty cache as `vitreous` itself would write it; the shards are empty
files. A fresh process then opens the data as `vitreous train` does, and takes the first batches of an epoch's
order and some from its middle. The same again with shards that have no validation set of their own, of which
a part is held out by the hashes of the names: the first time, and when that is stored beside the index. The
time of making an index is measured with real shards.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike
from record import write_results

from vitreous.data.sources.remote import find_shards
from vitreous.data.sources.shard_index import Reading, ShardIndex, index_cache_folder

PER_SHARD = 10_000
CLASSES = 21_841
CHUNK = 5_000_000
PROGRAM = """
import json, os, sys, time
import numpy as np, torch
from vitreous.data.config import AugmentationConfig, DataConfig, ReadingConfig
from vitreous.data.image_samples import image_loader
from vitreous.data.sources import open_data
import vitreous.data.sources as sources
from vitreous.models.preprocessing import Preprocessing

def gib(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 2**20

spec, fraction = sys.argv[1], float(sys.argv[2])
before, began, spent = gib("VmHWM"), time.perf_counter(), sum(os.times()[:2])
# The shards are empty: no image is looked at.
sources.summarize = lambda images: images.targets.counts()
splits = open_data(spec, DataConfig(test_fraction=0.0, validation_fraction=fraction))
opened, spent = time.perf_counter() - began, sum(os.times()[:2]) - spent
loader = image_loader(splits.train, preprocessing=Preprocessing(size=(224, 224)), batch_size=64,
                      augmentation=AugmentationConfig(), seed=0, rank=3, world_size=64,
                      config=DataConfig(reading=ReadingConfig(in_memory=False)))
steps = loader.steps_per_epoch
began = time.perf_counter()
for start in (0, steps // 2):
    batches = loader.loader.sampler.epoch(0, start)
    for _, rows in zip(range(100), batches):
        pass
order = time.perf_counter() - began
print(json.dumps({
    "images": len(splits.train), "validation": len(splits.validation or ()), "open_seconds": round(opened, 2),
    "open_core_seconds": round(spent, 2),
    "order_ms_a_step": round(1000 * order / 200, 3), "imports_gib": round(before, 2),
    # All pages that it has looked at, and without those of the index, which all processes share.
    "peak_gib": round(gib("VmHWM"), 2), "own_gib": round(gib("RssAnon"), 2)}))
"""


def make_index(folder: Path, images: int) -> None:
    """Write a cached index of so many images, a part at a time."""
    folder.mkdir(parents=True)
    shapes: dict[str, DTypeLike] = {
        "blocks": np.uint32,
        "sizes": np.uint32,
        "names": "S13",
        "hashes": np.uint64,
        "targets": np.int64,
    }
    arrays = {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=kind, shape=(images,))
        for name, kind in shapes.items()
    }
    rng = np.random.default_rng(0)  # names, places and sizes stay zeros: no image is read
    hashes, targets = (
        rng.integers(1 << 63, size=CHUNK, dtype=np.uint64) * 2,
        rng.integers(CLASSES, size=CHUNK),
    )
    for first in range(0, images, CHUNK):
        rows = slice(first, min(first + CHUNK, images))
        arrays["hashes"][rows] = hashes[: rows.stop - first]
        arrays["targets"][rows] = targets[: rows.stop - first]
    np.save(folder / "ends.npy", np.append(np.arange(PER_SHARD, images, PER_SHARD), images))
    (folder / "classes.json").write_text(json.dumps([str(number) for number in range(CLASSES)]))
    assert {path.stem for path in folder.glob("*.npy")} == set(ShardIndex._fields)


def write_shards(folder: Path, shards: int, images: int) -> None:
    """Write tar files of small members, faster than tarfile does."""
    import tarfile

    folder.mkdir()
    for shard in range(shards):
        with (folder / f"real-{shard:03}.tar").open("wb") as file:
            for number in range(images):
                for name, size in ((f"{number:06}.jpg", 1000), (f"{number:06}.cls", 4)):
                    member = tarfile.TarInfo(name)
                    member.size = size
                    content = b"1234" if size == 4 else bytes(size)
                    file.write(member.tobuf(tarfile.USTAR_FORMAT))
                    file.write(content + bytes(-size % 512))
            file.write(bytes(1024))


def run(program: str, *arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def indexing(folder: Path) -> dict[str, float]:
    """Measure making an index of real shards, and opening it again from the cache."""
    shards, each = 100, 1_000
    write_shards(folder, shards, each)
    program = """
import json, os, sys, time
from vitreous.data.config import DataConfig
import vitreous.data.sources as sources
sources.summarize = lambda images: None
began = time.perf_counter(), sum(os.times()[:4])
sources.open_data(sys.argv[1], DataConfig(test_fraction=0.0, validation_fraction=0.0))
spent = time.perf_counter() - began[0], sum(os.times()[:4]) - began[1]
print(json.dumps({"seconds": spent[0], "core_seconds": spent[1]}))
"""
    spec = str(folder / "real-*.tar")
    made, again = (run(program, spec) for _ in range(2))
    return {
        "images": shards * each,
        "workers": len(os.sched_getaffinity(0)),
        "core_microseconds_an_image": round(1e6 * made["core_seconds"] / (shards * each), 2),
        "seconds_from_the_cache": round(again["seconds"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000_000)
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["VITREOUS_CACHE"] = f"{home}/cache"
        folder = Path(home) / "shards"
        folder.mkdir()
        for number in range(-(-options.images // PER_SHARD)):
            (folder / f"train-{number:06}.tar").touch()
        spec, began = str(folder / "*.tar"), time.perf_counter()
        make_index(index_cache_folder(find_shards(spec), ["classes"], Reading(True, 0, None)), options.images)
        print(f"made the index in {time.perf_counter() - began:.0f} s", flush=True)
        fractions = {"validation shards": "0", "1% held out by hashes": "0.01"}
        fractions["1% held out by hashes, again"] = "0.01"
        rows = {}
        for name, fraction in fractions.items():
            rows[name] = run(PROGRAM, spec, fraction)
            print(name, rows[name], flush=True)
        results = {
            "opening": rows,
            "indexing": indexing(Path(home) / "real"),
        }
    write_results(results, options.out)


if __name__ == "__main__":
    main()
