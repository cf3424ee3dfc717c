"""Peak memory of `vitreous inspect` on many photographs, and with a large model.

    python benchmarks/inspection_memory.py [--model ViT-Ti/16] [--image-size 224] [--images 500]
        [--precision fp32]

Makes photographs of 12 megapixels (36 MB each, decoded) in a temporary folder, and inspects them in a process
of its own, whose peak is what the operating system says.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (4000, 3000)  # 12 megapixels, as phones take them
DIFFERENT = 10  # photographs; the others are the same files under other names


def make(folder: Path, images: int) -> None:
    """Smooth noise as JPEG."""
    for number in range(images):
        path = folder / f"{number:04}.jpg"
        if number >= DIFFERENT:
            path.hardlink_to(folder / f"{number % DIFFERENT:04}.jpg")
            continue
        small = np.random.default_rng(number).integers(0, 255, (60, 80, 3), dtype=np.uint8)
        Image.fromarray(small).resize(SIZE, Image.Resampling.BICUBIC).save(path, quality=85)


def inspect(
    folder: str, model: str, image_size: int, attributions: int | None, precision: str
) -> dict[str, float]:
    """Peak in mebibytes before and after, and seconds."""
    import torch

    import vitreous as vt

    torch.set_num_threads(2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        found = vt.inspect(
            model,
            folder,
            out=f"{out}/page",
            image_size=image_size,
            attributions=attributions,
            precision=precision,
            progress=False,
        )
        page = found.report.stat().st_size
    return {
        "images": found.summary["images"],
        "seconds": round(time.perf_counter() - began, 1),
        "peak_mebibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "peak_mebibytes_before": before,
        "page_mebibytes": round(page / 2**20, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="ViT-Ti/16")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--attributions", type=int)
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), options.images)
        with get_context("spawn").Pool(1) as pool:
            given = (
                folder,
                options.model,
                options.image_size,
                options.attributions,
                options.precision,
            )
            found = pool.apply(inspect, given)
            print(json.dumps({"model": options.model, "precision": options.precision, **found}))


if __name__ == "__main__":
    main()
