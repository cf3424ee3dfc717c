"""Processor seconds from a photograph's JPEG to a training batch, beside Pillow, SPDL and torchcodec, and at
which quality.

    pip install spdl torchcodec  # SPDL needs FFmpeg: apt-get install libavfilter8 libavdevice59
    python benchmarks/loader_peers.py [--rounds 8] [--out benchmarks/results/loader_peers.json]

Each image is resized as a whole to 224 x 224, bicubic with antialiasing, and normalized: the largest crop of
RandomResizedCrop, so that all compute the same. Pillow decodes each JPEG in full, as torchvision's
ImageFolder does, or to a part of its size (`draft`); SPDL (Meta; threads and FFmpeg) decodes and resizes in
FFmpeg's filters; torchcodec decodes, and torch resizes. Ours decodes to an eighth, a quarter or a half of
the size where that is enough.

mean_difference: of a pixel, of 255, from what Pillow makes of the fully decoded image. All take turns, batch
by batch, in one process, and what counts is its processor time, all threads together. The images are those
of loader.py.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from loader import PREPROCESSING, STREAM, WARM_UP, load, write_images
from PIL import Image
from record import write_results
from torch import Tensor

from vitreous.data.config import AugmentationConfig, DataConfig, RandomResizedCropConfig
from vitreous.data.image_samples import image_loader
from vitreous.data.sources import open_data
from vitreous.training.machine import keep_freed_memory

SIDE = 224
WHOLE = AugmentationConfig(random_resized_crop=RandomResizedCropConfig(scale=(1, 1), ratio=(4 / 3, 4 / 3)))
SIZES = {"500x375": (96, 375, 500, 32), "12 megapixels": (8, 3000, 4000, 4)}  # images, H, W, a batch
Pixels = Callable[[Path], Tensor]  # of an image, (3, 224, 224) bytes
Batches = Iterator[tuple[Sequence[Path], Tensor]]  # and the files that they are of


def with_pillow(path: Path, *, draft: bool = False) -> Tensor:
    """Decode in full, or to the least part of the size that is no smaller than what is needed; resize."""
    if draft:
        opened = Image.open(path)
        opened.draft("RGB", (SIDE, SIDE))
        image = opened.convert("RGB")
    else:
        image = load(str(path))
    resized = image.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(resized)).permute(2, 0, 1)


def with_spdl() -> Pixels:
    """Raises ImportError or RuntimeError: it is not there, or FFmpeg's libraries are not."""
    import spdl.io

    filters = f"scale={SIDE}:{SIDE}:flags=bicubic,format=rgb24"
    to_numpy = spdl.io.to_numpy  # looks for FFmpeg

    def pixels(path: Path) -> Tensor:
        found = to_numpy(spdl.io.load_image(str(path), filter_desc=filters))
        return torch.from_numpy(found).permute(2, 0, 1)

    return pixels


def with_torchcodec() -> Pixels:
    """Raises ImportError or OSError: it is not there, or was built for another PyTorch."""
    from torchcodec.decoders import decode_image

    def pixels(path: Path) -> Tensor:
        values = decode_image(str(path))[None].float()
        resized = torch.nn.functional.interpolate(values, (SIDE, SIDE), mode="bicubic", antialias=True)
        return resized[0].round().clamp(0, 255).to(torch.uint8)

    return pixels


def batches_of(pixels: Pixels, paths: Sequence[Path], batch: int) -> Batches:
    """Yield batches of a way to read one image, again and again."""
    while True:
        for first in range(0, len(paths), batch):
            some = paths[first : first + batch]
            yield some, PREPROCESSING.normalize(torch.stack([pixels(path) for path in some]))


def our_batches(root: Path, batch: int) -> Batches:
    """Yield those of `vitreous train`, epoch after epoch."""
    images = open_data(str(root), DataConfig(test_fraction=0, validation_fraction=0)).train
    loader = image_loader(
        images, preprocessing=PREPROCESSING, augmentation=WHOLE, batch_size=batch, seed=0, config=STREAM
    )
    epoch = 0
    while True:
        for each in loader.epoch(epoch):
            yield [root / images.key(int(number)) for number in each.indices], each.images
        epoch += 1


def measure(ways: dict[str, Batches], batch: int, rounds: int) -> dict[str, Any]:
    """Return milliseconds of an image, times Pillow's, and the difference of its pixels."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(WARM_UP + rounds):
        for name, batches in ways.items():
            began = time.process_time()
            _, images = next(batches)
            seconds = time.process_time() - began
            assert images.shape == (batch, 3, SIDE, SIDE)
            if turn >= WARM_UP:
                spent[name].append(seconds)
    found = {}
    for name, batches in ways.items():
        paths, images = next(batches)
        truth = torch.stack([with_pillow(path) for path in paths]).float()
        ratios = sorted(b / a for a, b in zip(spent[name], spent["pillow"], strict=True))
        found[name] = {
            "milliseconds": round(1000 * statistics.median(spent[name]) / batch, 2),
            "times_pillow": round(statistics.median(ratios), 2),
            "quartiles": [round(ratios[len(ratios) // 4], 2), round(ratios[3 * len(ratios) // 4], 2)],
            "mean_difference": round(float((PREPROCESSING.denormalize(images) - truth).abs().mean()), 2),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--machine", default="", help="what is to be known of it besides its processor")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    readers: dict[str, Pixels] = {"pillow": with_pillow, "pillow, draft": partial(with_pillow, draft=True)}
    missing = {}
    for name, make in (("spdl", with_spdl), ("torchcodec", with_torchcodec)):
        try:
            readers[name] = make()
        except (ImportError, OSError, RuntimeError) as error:
            library = importlib.util.find_spec(name)
            folder = str(Path(library.origin).parent.parent) + "/" if library and library.origin else ""
            missing[name] = " ".join(str(error).split()).replace(folder, "")[-300:]
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for size, (count, height, width, batch) in SIZES.items():
            root = Path(folder) / size
            write_images(root, count, height, width)
            paths = sorted(root.rglob("*.jpg"))
            ways = {name: batches_of(pixels, paths, batch) for name, pixels in readers.items()}
            rows[size] = measure({**ways, "vitreous": our_batches(root, batch)}, batch, options.rounds)
    packages = ("pillow", "numba", "simplejpeg", "spdl", "torchcodec")
    write_results({"missing": missing, "rows": rows}, options.out, machine=options.machine, packages=packages)


if __name__ == "__main__":
    main()
