"""Images a second of one core, beside the usual way: torchvision's ImageFolder with its v1 transforms.

    python benchmarks/loader.py [--rounds 8] [--out benchmarks/results/loader.json]

The usual way is torchvision's own code where it can be imported. Where not, it is written out below with
Pillow and torch, operation by operation as RandomResizedCrop, Resize, CenterCrop, RandomHorizontalFlip,
ToTensor, Normalize and the default collation do it, on Pillow images, bicubic on both sides; what
torchvision's own Python calls add is then left out, in its favor. The results say which one it was.

Evaluation is measured as it is after a few thousand images, with compiled loops; before, Pillow resizes.

The two ways take turns, batch by batch, in one thread; what counts is that thread's processor time, since
other work on the machine adds less to it. Freed memory is kept, as `vitreous train` does; both ways gain
by it. A ratio is the median of the ratios of neighboring batches; that of the fastest batches stands beside
it, since on a busy machine caches and hyperthreads are shared. The
images are parts of scikit-learn's two photographs, resized and compressed at quality 90; the kilobytes of a
mean file are in the results, since the more there is to decode, the less the rest weighs.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import import_torchvision
from PIL import Image
from record import write_results
from sklearn.datasets import load_sample_images
from torch import Tensor

from vitreous.data.config import AugmentationConfig, DataConfig, RandomResizedCropConfig, ReadingConfig
from vitreous.data.dataset import ImageDataset
from vitreous.data.image_samples import evaluation_loader, image_loader
from vitreous.data.packing import Packing, pack
from vitreous.data.sources import open_data
from vitreous.data.transforms import LOOPS
from vitreous.models.preprocessing import Preprocessing
from vitreous.training.machine import keep_freed_memory

BICUBIC = Image.Resampling.BICUBIC
PREPROCESSING = Preprocessing(size=(224, 224), crop_fraction=0.875)
TRAINING = AugmentationConfig(random_resized_crop=RandomResizedCropConfig(), flip=0.5)
WARM_UP = 3  # batches: the first one opens, plans, perhaps keeps, perhaps compiles; then memory settles
STREAM = DataConfig(reading=ReadingConfig(in_memory=False))
Row = dict[str, float | list[float]]
PEER = import_torchvision()


def write_images(root: Path, count: int, height: int, width: int, quality: int = 90) -> float:
    """JPEGs in two class folders; the kilobytes of a mean one."""
    photographs = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    total = 0
    for index in range(count):
        generator = np.random.default_rng(index)
        source = photographs[index % 2]
        part = generator.uniform(0.6, 1.0)
        w, h = round(source.width * part), round(source.height * part)
        left, top = (int(generator.integers(side + 1)) for side in (source.width - w, source.height - h))
        image = source.resize((width, height), BICUBIC, box=(left, top, left + w, top + h))
        folder = root / f"class-{index // 2 % 2}"  # each class has both, so that each batch is alike
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{index:05}.jpg"
        image.save(file, quality=quality)
        total += file.stat().st_size
    return round(total / count / 1000, 1)


def usual_training(path: str) -> Tensor:
    """RandomResizedCrop(224), RandomHorizontalFlip, ToTensor, Normalize."""
    image = load(path)
    width, height = image.size
    for _ in range(10):
        area = height * width * torch.empty(1).uniform_(0.08, 1.0).item()
        ratio = math.exp(torch.empty(1).uniform_(math.log(3 / 4), math.log(4 / 3)).item())
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            top = int(torch.randint(0, height - h + 1, (1,)).item())
            left = int(torch.randint(0, width - w + 1, (1,)).item())
            break
    else:
        top, left, h, w = 0, 0, height, width
    image = image.crop((left, top, left + w, top + h)).resize((224, 224), BICUBIC)
    if torch.rand(1).item() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return usual_tensor(image)


def usual_evaluation(path: str) -> Tensor:
    """Resize(256), CenterCrop(224), ToTensor, Normalize."""
    image = load(path)
    width, height = image.size
    scale = 256 / min(width, height)
    wide, tall = max(int(width * scale), 256), max(int(height * scale), 256)
    left, top = round((wide - 224) / 2), round((tall - 224) / 2)
    image = image.resize((wide, tall), BICUBIC).crop((left, top, left + 224, top + 224))
    return usual_tensor(image)


def load(path: str) -> Image.Image:
    """ImageFolder's pil_loader."""
    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


def usual_tensor(image: Image.Image) -> Tensor:
    """ToTensor and Normalize."""
    pixels = torch.from_numpy(np.array(image, copy=True)).view(image.height, image.width, 3)
    values = pixels.permute((2, 0, 1)).contiguous().to(torch.float32).div(255)
    mean, std = torch.tensor(PREPROCESSING.mean), torch.tensor(PREPROCESSING.std)
    return values.clone().sub_(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1))


def usual_batches(paths: list[str], transform: Callable[[str], Tensor], batch: int) -> Iterator[Tensor]:
    """The default collation of a DataLoader without workers, again and again."""
    while True:
        order = torch.randperm(len(paths)).tolist()
        for first in range(0, len(paths) - batch + 1, batch):
            yield torch.stack([transform(paths[index]) for index in order[first : first + batch]])


def torchvision_batches(root: Path, transform: list[Any], batch: int) -> Iterator[Tensor]:
    """torchvision's own, again and again."""
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import Compose, Normalize, ToTensor

    tensor = [ToTensor(), Normalize(PREPROCESSING.mean, PREPROCESSING.std)]
    folder = ImageFolder(str(root), Compose([*transform, *tensor]))
    while True:
        loader = torch.utils.data.DataLoader(folder, batch, shuffle=True, drop_last=True)
        yield from (images for images, _ in loader)


def usual(root: Path, batch: int, *, training: bool) -> Iterator[Tensor]:
    """The peer."""
    if PEER is None:
        paths = sorted(str(path) for path in root.rglob("*.jpg"))
        return usual_batches(paths, usual_training if training else usual_evaluation, batch)
    transforms = PEER.transforms
    bicubic = transforms.InterpolationMode.BICUBIC
    if training:
        steps = [transforms.RandomResizedCrop(224, interpolation=bicubic), transforms.RandomHorizontalFlip()]
    else:
        steps = [transforms.Resize(256, interpolation=bicubic), transforms.CenterCrop(224)]
    return torchvision_batches(root, steps, batch)


def training_batches(images: ImageDataset, batch: int, config: DataConfig) -> Iterator[Tensor]:
    """Ours, epoch after epoch."""
    loader = image_loader(
        images, preprocessing=PREPROCESSING, augmentation=TRAINING, batch_size=batch, seed=0, config=config
    )
    epoch = 0
    while True:
        yield from (each.images for each in loader.epoch(epoch))
        epoch += 1


def evaluation_batches(images: ImageDataset, batch: int) -> Iterator[Tensor]:
    """Ours, again and again."""
    while True:
        loader = evaluation_loader(images, preprocessing=PREPROCESSING, batch_size=batch)
        yield from (each.images for each in loader if len(each.indices) == batch)


def compare(ours: Iterator[Tensor], usual: Iterator[Tensor], batch: int, rounds: int) -> Row:
    """Images per second of processor time, and the ratio."""
    spent: dict[str, list[float]] = {"ours": [], "usual": []}
    for turn in range(WARM_UP + rounds):
        for name, batches in (("ours", ours), ("usual", usual)):
            began = time.thread_time()
            images = next(batches)
            seconds = time.thread_time() - began
            assert images.shape == (batch, 3, 224, 224)
            if turn >= WARM_UP:
                spent[name].append(seconds)
    ratios = sorted(b / a for a, b in zip(spent["ours"], spent["usual"], strict=True))
    return {
        "ours_per_second": round(batch / statistics.median(spent["ours"]), 1),
        "usual_per_second": round(batch / statistics.median(spent["usual"]), 1),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_of_the_fastest": round(min(spent["usual"]) / min(spent["ours"]), 2),
        "ratio_quartiles": [round(ratios[len(ratios) // 4], 2), round(ratios[3 * len(ratios) // 4], 2)],
    }


def measure(folder: Path, rounds: int) -> tuple[dict[str, float], dict[str, Row]]:
    """(kilobytes of the images, all comparisons)."""
    small, large, packed, raw = (folder / name for name in ("small", "large", "packed", "raw"))
    kilobytes = {
        "500x375": write_images(small, 480, 375, 500),
        "12 megapixels": write_images(large, 8, 3000, 4000),
    }
    for shards, as_pixels in ((packed, False), (raw, True)):
        pack(open_data(str(small), DataConfig()), shards, Packing(size=256, raw=as_pixels))
    everything = DataConfig(test_fraction=0)
    photos, phones = (open_data(str(root), everything).train for root in (small, large))
    jpegs, pixels = (open_data(str(root), everything).train for root in (packed, raw))
    kept = DataConfig(reading=ReadingConfig(in_memory=True))
    return kilobytes, {
        "train_500x375": compare(
            training_batches(photos, 32, STREAM), usual(small, 32, training=True), 32, rounds
        ),
        "evaluate_500x375": compare(
            evaluation_batches(photos, 32), usual(small, 32, training=False), 32, rounds
        ),
        "train_12_megapixels": compare(
            training_batches(phones, 4, STREAM), usual(large, 4, training=True), 4, rounds
        ),
        "train_packed_256": compare(
            training_batches(jpegs, 32, STREAM), usual(small, 32, training=True), 32, rounds
        ),
        "train_packed_raw_256": compare(
            training_batches(pixels, 32, STREAM), usual(small, 32, training=True), 32, rounds
        ),
        "evaluate_packed_raw_256": compare(
            evaluation_batches(pixels, 32), usual(small, 32, training=False), 32, rounds
        ),
        "train_in_memory": compare(
            training_batches(photos, 32, kept), usual(small, 32, training=True), 32, rounds
        ),
    }


TARGETS = {
    "train_500x375": 2.4,
    "evaluate_500x375": 3.2,
    "train_12_megapixels": 4.0,
    "train_packed_256": 4.0,
    "train_packed_raw_256": 4.0,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--machine", default="", help="what is to be known of it besides its processor")
    parser.add_argument("--out", type=Path, help="keep the results in this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    LOOPS.load()
    with tempfile.TemporaryDirectory() as folder:
        kilobytes, rows = measure(Path(folder), options.rounds)
    about = {
        "peer": f"torchvision {PEER.__version__}" if PEER else "its operations, written out",
        "kilobytes_of_an_image": kilobytes,
        "rows": {name: {**row, "target": TARGETS.get(name)} for name, row in rows.items()},
    }
    write_results(about, options.out, machine=options.machine, packages=("pillow", "numba"))


if __name__ == "__main__":
    main()
