"""Images as a model sees them: decoded or cached, cropped, changed in color, put into batches; still
bytes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data import sampling
from vitreous.data.batch_augmentation import BatchTransform
from vitreous.data.config import AugmentationConfig, DataConfig
from vitreous.data.dataset import ImageDataset, Indices
from vitreous.data.decoding import BadImage, EncodedImage
from vitreous.data.image_augmentation import change_colors
from vitreous.data.loading import BadFiles, BatchLoader, DevicePrefetcher
from vitreous.data.sampling import BlockOrder, Order, Rows, Sampler
from vitreous.data.transforms import (
    crop_encoded,
    crop_pixels,
    evaluation_pixels,
    random_crop,
    shorter_side,
)
from vitreous.data.workers import processes_here
from vitreous.errors import InputError
from vitreous.languages import percentage
from vitreous.models.preprocessing import NativePreprocessing, Preprocessing, padded

ENOUGH = 1.5  # times the model's size: the shorter side of a cached image that will be cropped
SAMPLE = 32  # images whose size is read, to estimate whether all fit
PART = 0.25  # of the machine's memory, for images: the model needs the rest
NAMED = 0.05  # weight of a label that is worth naming on a contact sheet
CGROUP = Path("/sys/fs/cgroup/memory.max")  # a container's own limit


class Batch(NamedTuple):
    """images: bytes from the loader; normalized and augmented, float32, from the prefetcher, (B, C, H, W).
    targets: class numbers int64 (B,), soft or several labels float32 (B, classes), or numbers float32 (B,).
    indices: the images' numbers, int64 (B,)."""

    images: UInt8[Tensor, "B C H W"] | Float[Tensor, "B C H W"]
    targets: Tensor
    indices: Int64[Tensor, " B"]


def image_loader(
    images: ImageDataset,
    *,
    preprocessing: Preprocessing,
    augmentation: AugmentationConfig,
    batch_size: int,
    seed: int,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    config: DataConfig | None = None,
    device: str | torch.device = "cpu",
    reader: SampleReader | None = None,
) -> DevicePrefetcher[Any]:
    """Return shuffled, augmented batches of images with their targets, for training.

    Args:
        batch_size: images of one process; `world_size` processes share each batch of batch_size x world_size.
        workers: threads, or processes, that decode; 0: the caller's.
        device: where batches are normalized and augmented.
        reader: makes batches of another kind than `Batch`.
    """
    config = config or DataConfig()
    processes, count, total = (rank, world_size), len(images), batch_size * world_size
    if images.blocks is not None and not config.class_balance:
        processes, count, total = (0, 1), count // world_size, batch_size  # each has its own samples

    def order(epoch: int) -> Order:
        """The same in every process, unless the images are read by blocks."""
        if config.class_balance:
            found = sampling.balanced(images.targets, seed=seed, epoch=epoch)
        elif images.blocks is not None:
            found = Order(BlockOrder(images.blocks, seed=seed, epoch=epoch, rank=rank, world_size=world_size))
        else:
            found = sampling.shuffled(count, seed=seed, epoch=epoch)
        copies = augmentation.repeated_augmentation
        return sampling.repeated(found, copies, total) if copies > 1 else found

    reader = reader or training_reader(images, preprocessing, augmentation, config.read.in_memory)
    sampler = Sampler(order, count, batch_size=total, rank=processes[0], world_size=processes[1])
    loader = BatchLoader(
        sampler,
        reader.read,
        reader.collate,
        workers,
        processes=config.read.processes,
        seed=seed if getattr(reader, "per_image", augmentation.per_image) else None,
        bad=BadFiles(allowed=config.read.bad_files),
        prepare=reader.prepare,
    )
    transform = BatchTransform(
        preprocessing, augmentation, classes=len(images.classes), seed=seed, rank=rank, world_size=world_size
    )
    return DevicePrefetcher(loader, transform, device)


def evaluation_loader(
    images: ImageDataset,
    *,
    preprocessing: Preprocessing,
    batch_size: int,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    device: str | torch.device = "cpu",
    reader: SampleReader | None = None,
) -> DevicePrefetcher[Any]:
    """Return every image exactly once and in order, as `Preprocessing` shows it; those that cannot be read
    are left out and listed in `bad`. Of several processes each has every `world_size`-th batch, so that all
    together compute what one process would, to the bit."""
    if isinstance(preprocessing, NativePreprocessing):
        reader = reader or NativeReader(images, preprocessing)
    reader = reader or DecodedImages(images, preprocessing)
    rows = np.arange(len(images))
    mine = rows[rows // batch_size % world_size == rank]
    sampler = Sampler(lambda epoch: Order(mine), len(mine), batch_size=batch_size, exact=True)
    loader = BatchLoader(sampler, reader.read, reader.collate, workers, prepare=reader.prepare)
    return DevicePrefetcher(loader, BatchTransform(preprocessing), device)


@runtime_checkable
class SampleReader(Protocol):
    """What a `BatchLoader` asks of a dataset's images: see its arguments."""

    def prepare(self, bad: BadFiles, executor: Executor | None) -> bool: ...
    def read(self, index: int, rng: np.random.Generator | None) -> Any: ...
    def collate(self, samples: Sequence[Any], indices: Indices, rows: Rows) -> Any: ...


def training_reader(
    images: ImageDataset,
    preprocessing: Preprocessing,
    augmentation: AugmentationConfig,
    in_memory: bool | Literal["auto"],
) -> DecodedImages:
    """Return what reads training images.

    Args:
        in_memory: decode once and cache; "auto": if all fit a quarter of the memory, in each of the processes
            of this machine.
    """
    cropped = augmentation.random_resized_crop is not None
    if in_memory == "auto":
        in_memory = estimated_bytes(images, preprocessing, cropped=cropped) < memory_budget()
    if augmentation.per_image:
        return AugmentedImages(images, preprocessing, augmentation, in_memory=in_memory)
    return CachedBatches(images, preprocessing) if in_memory else DecodedImages(images, preprocessing)


class DecodedImages:
    """The images of a dataset, decoded each time that they are asked for, as `Preprocessing` shows them."""

    def __init__(self, images: ImageDataset, preprocessing: Preprocessing) -> None:
        self.images, self.preprocessing = images, preprocessing
        self.bad = BadFiles()

    def prepare(self, bad: BadFiles, executor: Executor | None) -> bool:
        """Take note of where bad images are recorded. Returns whether all images are in memory."""
        self.bad = bad
        return False

    def read(self, index: int, rng: np.random.Generator | None = None) -> Any:
        """Return one image at the model's size. Raises BadImage.

        Args:
            rng: of what is changed at random; None where nothing is.
        """
        with self.opened(index) as encoded:
            return evaluation_pixels(encoded, self.preprocessing)

    def collate(self, samples: Sequence[Any], indices: Indices, rows: Rows) -> Batch:
        """Return samples as a batch."""
        targets = self.images.targets.tensor(indices)
        return Batch(self.stacked(samples, indices), targets, torch.from_numpy(indices))

    def stacked(self, samples: Sequence[Tensor], indices: Indices) -> UInt8[Tensor, "B C H W"]:
        """Return what `read` gave as one tensor."""
        return torch.stack(list(samples))

    @contextmanager
    def opened(self, index: int) -> Iterator[EncodedImage]:
        """An image to be decoded in the block. Raises BadImage, also where memory is short."""
        encoded = self.images.opened(index, self.preprocessing.channels, self.preprocessing)
        try:
            yield encoded
        except MemoryError as error:
            raise BadImage(encoded.name, "it takes more memory than there is") from error
        if encoded.repaired:
            self.bad.repaired.add(encoded.name)


class CachedBatches(DecodedImages):
    """The images of a dataset, decoded once, from which a batch is gathered in one operation."""

    cache: ImageCache | None = None

    def prepare(self, bad: BadFiles, executor: Executor | None) -> bool:
        """Decode all images at the first call."""
        self.bad = bad
        if self.cache is None:
            size = *self.preprocessing.size, self.preprocessing.channels
            self.cache = ImageCache(len(self.images), super().read, size, bad, executor)
        return True

    def read(self, index: int, rng: np.random.Generator | None = None) -> None:
        """Return nothing. Raises BadImage for an image that could not be decoded."""
        assert self.cache is not None
        self.cache.check(index)

    def stacked(self, samples: Sequence[Tensor], indices: Indices) -> UInt8[Tensor, "B C H W"]:
        assert self.cache is not None
        return self.cache.stacked(indices)


class AugmentedImages(DecodedImages):
    """The images of a dataset with random crops and changed colors. in_memory: decode once, large enough for
    the crops."""

    cache: ImageCache | None = None

    def __init__(
        self,
        images: ImageDataset,
        preprocessing: Preprocessing,
        augmentation: AugmentationConfig,
        *,
        in_memory: bool,
    ) -> None:
        super().__init__(images, preprocessing)
        self.augmentation, self.in_memory = augmentation, in_memory
        self.crop, self.changes_colors = augmentation.random_resized_crop, augmentation.changes_colors

    def prepare(self, bad: BadFiles, executor: Executor | None) -> bool:
        """Fill the cache at the first call."""
        self.bad = bad
        if self.in_memory and self.cache is None:
            if self.crop:
                self.cache = ImageCache(len(self.images), self.enlarged, None, bad, executor)
            else:
                size = *self.preprocessing.size, self.preprocessing.channels
                self.cache = ImageCache(len(self.images), super().read, size, bad, executor)
        return False

    def read(self, index: int, rng: np.random.Generator | None = None) -> UInt8[Tensor, "C H W"]:
        pixels = self.cropped(index, rng)
        return change_colors(pixels, self.augmentation, rng) if rng and self.changes_colors else pixels

    def cropped(self, index: int, rng: np.random.Generator | None) -> UInt8[Tensor, "C H W"]:
        """By the random crop, or as for evaluation."""
        if self.crop is None or rng is None:
            return super().read(index) if self.cache is None else self.cache.pixels(index)
        antialias = self.crop.antialias
        if self.cache is not None:
            pixels = self.cache.pixels(index)
            size = (pixels.shape[1], pixels.shape[2])
            return crop_pixels(
                pixels, random_crop(size, self.crop, rng), size, self.preprocessing, antialias=antialias
            )
        with self.opened(index) as encoded:
            box = random_crop(encoded.size, self.crop, rng)
            return crop_encoded(encoded, box, self.preprocessing, antialias=antialias)

    def enlarged(self, index: int) -> UInt8[Tensor, "C H W"]:
        """Return an image large enough to be cropped. Raises BadImage."""
        with self.opened(index) as encoded:
            return encoded.shrunk(shorter_side(self.preprocessing, ENOUGH))


def estimated_bytes(images: ImageDataset, preprocessing: Preprocessing, *, cropped: bool) -> float:
    """Return the bytes that all images would take; where they are to be cropped, estimated from some."""
    if not cropped:
        return float(math.prod(preprocessing.size) * preprocessing.channels * len(images))
    areas = []
    for index in images.sample(SAMPLE):
        try:
            height, width = images.opened(index, preprocessing.channels).size
        except BadImage:
            continue  # counted when it is decoded
        scale = min(shorter_side(preprocessing, ENOUGH) / min(height, width), 1)
        areas.append(height * width * scale**2)
    return float(np.mean(areas or [0])) * preprocessing.channels * len(images)


class NativeReader:
    """The images of a dataset in their own aspect ratio, padded to a batch with NaN."""

    def __init__(self, images: ImageDataset, preprocessing: NativePreprocessing) -> None:
        self.images, self.preprocessing = images, preprocessing

    def prepare(self, bad: BadFiles, executor: Executor | None) -> bool:
        return False

    def read(self, index: int, rng: np.random.Generator | None) -> UInt8[Tensor, "C H W"]:
        """Return one image at its own size. Raises BadImage."""
        image = self.images.image(index)
        try:
            return self.preprocessing.pixels(image)
        except InputError as error:
            raise BadImage(self.images.name(index), str(error)) from None

    def collate(self, samples: Sequence[UInt8[Tensor, "C H W"]], indices: Indices, rows: Rows) -> Batch:
        targets = self.images.targets.tensor(indices)
        return Batch(padded(samples), targets, torch.from_numpy(indices))


class ImageCache:
    """The decoded images, in memory that all threads share, channels last: what the resize is fastest on.

    Args:
        decode: returns the pixels of an image, by its number. Raises BadImage.
        size: (height, width, channels) of every image, which are then in one block; None: each has its own.
    """

    def __init__(
        self,
        count: int,
        decode: Callable[[int], UInt8[Tensor, "C H W"]],
        size: tuple[int, int, int] | None,
        bad: BadFiles,
        executor: Executor | None = None,
    ) -> None:
        def attempt(index: int) -> UInt8[Tensor, "C H W"] | BadImage:
            try:
                return decode(index)
            except BadImage as bad:
                return bad

        run = map if executor is None else executor.map
        self.block = torch.empty((count, *size) if size else 0, dtype=torch.uint8)
        self.images: dict[int, NDArray[np.uint8]] = {}
        self.bad: dict[int, BadImage] = {}
        for index, pixels in enumerate(run(attempt, range(count))):
            if isinstance(pixels, BadImage):
                bad.add(pixels)
                self.bad[index] = pixels
            elif size:
                self.block[index] = pixels.permute(1, 2, 0)
            else:
                self.images[index] = pixels.permute(1, 2, 0).contiguous().numpy()
        bad.check(count)

    def check(self, index: int) -> None:
        """Raises BadImage for an image that could not be decoded."""
        if index in self.bad:
            raise self.bad[index]

    def pixels(self, index: int) -> UInt8[Tensor, "C H W"]:
        """Return one image's bytes; not a copy. Raises BadImage."""
        self.check(index)
        pixels = torch.from_numpy(self.images[index]) if self.images else self.block[index]
        return pixels.permute(2, 0, 1)

    def stacked(self, indices: Indices) -> UInt8[Tensor, "B C H W"]:
        """Return several good images at once, where all have one size."""
        return self.block[torch.from_numpy(indices)].permute(0, 3, 1, 2)


def memory_budget() -> float:
    """Return the bytes that cached images may take in this process: a part of all memory and not of what
    happens to be free, so that a resumed run decides as the first one did."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if CGROUP.exists() and (limit := CGROUP.read_text().strip()).isdigit():
        total = min(total, int(limit))
    return PART * total / processes_here()


class ContactSheet(NamedTuple):
    """What the model sees in training: augmented images, as bytes that can be shown, with a line for each."""

    images: UInt8[Tensor, "N C H W"]
    labels: tuple[str, ...]

    @classmethod
    def of(
        cls, loader: DevicePrefetcher[Batch], preprocessing: Preprocessing, classes: Sequence[str], count: int
    ) -> ContactSheet:
        """Return the first images of an epoch, exactly as they are trained on, normalization undone."""
        images: list[Tensor] = []
        labels: list[str] = []
        with closing(loader.epoch(0)) as batches:
            for batch in batches:
                images.append(preprocessing.denormalize(batch.images).cpu())
                labels += (target_in_words(target, classes) for target in batch.targets.cpu())
                if len(labels) >= count:
                    break
        return cls(torch.cat(images)[:count], tuple(labels[:count]))


def target_in_words(target: Tensor, classes: Sequence[str]) -> str:
    """ "cat", "cat 70.0 % + dog 30.0 %", or "none"."""
    if target.ndim == 0:
        return classes[int(target)]
    names: list[str] = []
    shares: list[str] = []
    whole = True
    for weight, name in sorted(zip(target.tolist(), classes, strict=True), key=lambda pair: -pair[0]):
        if weight >= NAMED:
            names.append(name)
            shares.append(f"{name} {percentage(weight)}")
            # Of images of one class that were mixed, rounding leaves a little less than all.
            whole = whole and round(weight, 2) == 1
    return " + ".join(names if whole else shares) or "none"
