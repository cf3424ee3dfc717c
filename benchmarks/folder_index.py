"""The index of a folder of 1.3 million images: time to build, time from the cache, memory for each image.

    python benchmarks/folder_index.py [--images 1300000] [--classes 1000]

Makes empty files with ImageNet's names in a temporary folder, and removes them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from vitreous.data.config import DataConfig
from vitreous.data.held_out import split
from vitreous.data.sources.folders import class_folder


def make(root: Path, classes: int, images: int) -> None:
    """Empty files; their time is set back, as that of a folder that is not being written to."""
    for number in range(classes):
        folder = root / f"n{number:08}"
        folder.mkdir()
        for index in range(images // classes):
            os.close(os.open(f"{folder}/{folder.name}_{index:06}.JPEG", os.O_CREAT | os.O_WRONLY))
        os.utime(folder, (0, 1_700_000_000))


def resident() -> int:
    """Bytes of this process's memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(root: Path) -> dict[str, float]:
    """Seconds for the first and the second time, and bytes for each image."""
    before = resident()
    began = time.perf_counter()
    images = class_folder(root, DataConfig())
    build = time.perf_counter() - began
    began = time.perf_counter()
    again = class_folder(root, DataConfig())
    cached = time.perf_counter() - began
    assert np.array_equal(images.paths, again.paths)
    del again
    train, _, test = split({"train": images}, DataConfig(), where=str(root))
    assert test is not None
    index = images.paths.nbytes + images.targets.strata().nbytes
    arrays = index + 2 * 8 * (len(train) + len(test))
    return {
        "images": len(images),
        "build_seconds": round(build, 2),
        "cached_seconds": round(cached, 3),
        "bytes_each_index": round(index / len(images), 1),
        "bytes_each_with_split": round(arrays / len(images), 1),
        "resident_bytes_each": round((resident() - before) / len(images), 1),
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1_300_000)
    parser.add_argument("--classes", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        root = Path(folder) / "train"
        root.mkdir()
        make(root, options.classes, options.images)
        print(json.dumps(measure(root)))


if __name__ == "__main__":
    main()
