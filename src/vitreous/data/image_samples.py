"""Images as a model sees them: decoded or cached, cropped, changed in color, put into batches; still
bytes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, UInt8
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data import sampling
from vitreous.data.batch_augmentation import BatchTransform
from vitreous.data.config import AugmentationConfig, DataConfig
from vitreous.data.dataset import ImageDataset, Indices
from vitreous.data.image_augmentation import change_colors
from vitreous.data.image_list import ImageRows
from vitreous.data.loading import BadFiles, BatchLoader, BatchRows, DevicePrefetcher, Sample, Sampler
from vitreous.data.sampling import BlockOrder, Order
from vitreous.data.transforms import (
    crop_encoded,
    crop_pixels,
    evaluation_pixels,
    random_crop,
)
from vitreous.data.workers import pool, processes_here
from vitreous.errors import utf8_name
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.stored import BadImage, Stored
from vitreous.results import percent

ENOUGH = 1.5  # times the model's size: the shorter side of a cached image that will be cropped
SAMPLE = 32  # images whose size is read, to estimate whether all fit
PART = 0.25  # of the machine's memory, for images: the model needs the rest
NAMED = 0.05  # weight of a label that is worth naming on a contact sheet
CGROUP = Path("/sys/fs/cgroup/memory.max")  # a container's own limit


class Batch(NamedTuple):
    """images: bytes from the loader; normalized and augmented, float32, from the prefetcher, (B, C, H, W).
    targets: class numbers int64 (B,), soft or several labels float32 (B, classes), or numbers float32 (B,).
    indices: the images' numbers, int64 (B,). damaged: which of them are damaged, (B,); None where images are
    composed, and so whole."""

    images: UInt8[Tensor, "B C H W"] | Float[Tensor, "B C H W"]
    targets: Tensor
    indices: Int64[Tensor, " B"]
    damaged: Bool[Tensor, " B"] | None = None


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
    count = len(images)
    by_blocks = images.blocks is not None and not config.class_balance
    sharing, place = world_size, rank  # how many processes share a batch, and which of them this one is
    # Each process reads blocks of its own, and makes its batches alone.
    if by_blocks:
        sharing, place, count = 1, 0, count // world_size

    def order(epoch: int) -> Order:
        """Return the order of an epoch: the same in every process, unless the images are read by blocks."""
        if config.class_balance:
            found = sampling.balanced_order(images.targets, seed=seed, epoch=epoch)
        elif images.blocks is not None:
            found = Order(BlockOrder(images.blocks, seed=seed, epoch=epoch, rank=rank, world_size=world_size))
        else:
            found = sampling.shuffled_order(count, seed=seed, epoch=epoch)
        copies = augmentation.repeated_augmentation
        return sampling.repeated(found, copies, batch_size * sharing) if copies > 1 else found

    bad = BadFiles(allowed=config.read.bad_files)
    if reader is None:
        cropped = augmentation.random_resized_crop is not None
        in_memory = config.read.in_memory
        if in_memory == "auto":
            in_memory = estimated_bytes(images, preprocessing, cropped=cropped) < memory_budget()
        memory = None
        if in_memory:
            memory = ImageMemory(images, preprocessing, cropped=cropped, bad=bad, workers=workers)
        reader = ImageReader(images, preprocessing, augmentation, memory)
    loader = BatchLoader(
        Sampler(order, count, batch_size=batch_size * sharing, rank=place, world_size=sharing),
        reader.read,
        reader.collate,
        workers,
        processes=config.read.processes,
        seed=seed if reader.needs_rng else None,
        bad=bad,
        in_memory=reader.in_memory,
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
    reader = reader or ImageReader(images, preprocessing)
    rows = np.arange(len(images))
    mine = rows[rows // batch_size % world_size == rank]
    sampler = Sampler(lambda epoch: Order(mine), len(mine), batch_size=batch_size, exact=True)
    loader = BatchLoader(sampler, reader.read, reader.collate, workers)

    def normalized(batch: Any, epoch: int, step: int) -> Any:
        return batch._replace(images=preprocessing.normalize(batch.images))

    return DevicePrefetcher(loader, normalized, device)


def image_rows(model: Any, images: ImageDataset, **options: Any) -> Iterator[ImageRows]:
    """Yield images as a model takes them, a tensor (B, C, H, W) for each batch, in order. options: `device`,
    `batch_size` and `workers`, as in `Batching`."""
    loader = evaluation_loader(images, preprocessing=model.preprocessing, **options)
    first = 0
    for batch in loader:
        read = batch.indices.tolist()
        yield rows_of(images, range(first, read[-1] + 1), read, batch.images, loader.bad)
        first = read[-1] + 1
    if first < len(images):
        yield rows_of(images, range(first, len(images)), [], (), loader.bad)


def rows_of(
    images: ImageDataset, rows: range, read: Collection[int], prepared: Any, bad: BadFiles
) -> ImageRows:
    """Return rows of a dataset, of which those in `read` could be read, and what is wrong with them."""
    names = [utf8_name(images.name(row)) for row in rows]
    failed: dict[int, str] = {}
    damaged: dict[int, str] = {}
    for place, (row, name) in enumerate(zip(rows, names, strict=True)):
        if row not in read:
            failed[place] = bad.reasons[name]
        elif name in bad.damaged:
            damaged[place] = bad.damaged[name]
    return ImageRows(names, prepared, failed, damaged)


@runtime_checkable
class SampleReader(Protocol):
    """What a `BatchLoader` asks of a dataset's images: see its arguments.

    needs_rng: whether what is read is changed at random. in_memory: whether reading costs next to nothing.
    """

    @property
    def needs_rng(self) -> bool: ...
    @property
    def in_memory(self) -> bool: ...
    def read(self, index: int, rng: np.random.Generator | None) -> Sample: ...
    def collate(self, samples: Sequence[Sample], indices: Indices, rows: BatchRows) -> Any: ...


def pipeline(preprocessing: Preprocessing, augmentation: AugmentationConfig | None = None) -> str:
    """Return what happens to an image, in order, in one line: what `ImageReader` does to each of them, and
    after || what `BatchTransform` does to a batch on the device."""
    change, size = augmentation or AugmentationConfig(), "{}x{}".format(*preprocessing.size)
    if crop := change.random_resized_crop:
        steps = ["decode", f"random_resized_crop({crop.scale[0]:g}-{crop.scale[1]:g}, {size})"]
    else:
        steps = ["decode", f"{preprocessing.resize}({preprocessing.crop_fraction:g}, {size})"]
    if change.policy:
        steps.append(change.policy.kind)
    if change.color_jitter:
        steps.append("color_jitter")
    later = ["flip({:g}, {:g})".format(*change.flip)] if any(change.flip) else []
    later.append("normalize")
    later += ["affine"] if change.affine else []
    later += [f"noise({change.noise:g})"] if change.noise else []
    later += [f"random_erasing({change.random_erasing:g})"] if change.random_erasing else []
    later += [f"mix(mixup {change.mix.mixup:g}, cutmix {change.mix.cutmix:g})"] if change.mix else []
    return f"{' | '.join(steps)} || {' | '.join(later)}"


class ImageReader:
    """The images of a dataset as a model sees them, with their targets; `pipeline` says what happens to
    each.

    Args:
        augmentation: what changes it at random; None, as for evaluation: nothing.
        memory: images that are decoded already, large enough for random crops; None: each is decoded when it
            is asked for.
    """

    def __init__(
        self,
        images: ImageDataset,
        preprocessing: Preprocessing,
        augmentation: AugmentationConfig | None = None,
        memory: ImageMemory | None = None,
    ) -> None:
        self.images, self.preprocessing, self.augmentation = images, preprocessing, augmentation
        self.memory = memory
        self.crop = None if augmentation is None else augmentation.random_resized_crop
        self.needs_rng = augmentation is not None and augmentation.per_image
        self.in_memory = memory is not None and not self.needs_rng

    def read(self, index: int, rng: np.random.Generator | None = None) -> Sample:
        """Return one image. Raises BadImage.

        Args:
            rng: of what is changed at random; None where nothing is.
        """
        sample = self.cropped(index, rng)
        if rng is None or self.augmentation is None or not self.augmentation.changes_colors:
            return sample
        return sample._replace(value=change_colors(sample.value, self.augmentation, rng))

    def cropped(self, index: int, rng: np.random.Generator | None) -> Sample:
        """Return one image at the model's size: by a random crop, or as for evaluation. Raises BadImage."""
        if self.memory is not None:
            sample = self.memory.sample(index)
            if self.crop is None or rng is None:
                return sample
            size = sample.value.shape[1:]
            box = random_crop(size, self.crop, rng)
            return sample._replace(value=crop_pixels(sample.value, box, size, self.preprocessing, self.crop))

        def at_size(encoded: Stored) -> UInt8[Tensor, "C H W"]:
            if self.crop is None or rng is None:
                return evaluation_pixels(encoded, self.preprocessing)
            return crop_encoded(
                encoded, random_crop(encoded.size, self.crop, rng), self.preprocessing, self.crop
            )

        return self.decoded(index, at_size)

    def decoded(self, index: int, decode: Callable[[Stored], UInt8[Tensor, "C H W"]]) -> Sample:
        """Return what `decode` makes of a stored image. Raises BadImage, also where memory is short."""
        encoded = self.images.opened(index, self.preprocessing)
        try:
            return Sample.of(decode(encoded), encoded)
        except MemoryError as error:
            raise BadImage(encoded.name, "it takes more memory than is available") from error

    def collate(self, samples: Sequence[Sample], indices: Indices, rows: BatchRows) -> Batch:
        """Return samples as a batch."""
        targets = self.images.targets.tensor(indices)
        damaged = torch.tensor([sample.damage is not None for sample in samples])
        if self.in_memory and self.memory is not None:
            stacked = self.memory.stacked(indices)
        else:
            stacked = self.preprocessing.batch([sample.value for sample in samples])
        return Batch(stacked, targets, torch.from_numpy(indices), damaged)


def estimated_bytes(images: ImageDataset, preprocessing: Preprocessing, *, cropped: bool) -> float:
    """Return the bytes that all images would take; where they are to be cropped, estimated from some."""
    if not cropped:
        return float(math.prod(preprocessing.size) * preprocessing.channels * len(images))
    areas = []
    for index in images.sample(SAMPLE):
        try:
            height, width = images.opened(index, preprocessing).size
        except BadImage:
            continue  # counted when it is decoded
        scale = min(math.ceil(ENOUGH * max(preprocessing.size)) / min(height, width), 1)
        areas.append(height * width * scale**2)
    return float(np.mean(areas or [0])) * preprocessing.channels * len(images)


class ImageMemory:
    """The decoded images, in memory that all threads share, channels last: what the resize is fastest on.

    Args:
        cropped: whether they will be cropped at random: each is kept so large that it suffices for that;
            otherwise all are kept at the model's size, in one block.
        bad: where images that cannot be read, or are damaged, are recorded.
        workers: threads that decode.

    Raises:
        InputError: too many of the images cannot be read.
    """

    def __init__(
        self,
        images: ImageDataset,
        preprocessing: Preprocessing,
        *,
        cropped: bool,
        bad: BadFiles,
        workers: int,
    ) -> None:
        reader, count = ImageReader(images, preprocessing), len(images)
        side = math.ceil(ENOUGH * max(preprocessing.size))

        def attempt(index: int) -> Sample | BadImage:
            try:
                if cropped:
                    return reader.decoded(index, lambda encoded: encoded.shrunk(side))
                return reader.read(index)
            except BadImage as error:
                return error

        size = (count, *preprocessing.size, preprocessing.channels)
        self.block = torch.empty(0 if cropped else size, dtype=torch.uint8)
        self.images: dict[int, NDArray[np.uint8]] = {}
        self.about: list[Sample | BadImage] = []  # each, without its pixels
        with pool(workers) as executor:
            run = map if executor is None else executor.map
            for index, sample in enumerate(run(attempt, range(count))):
                bad.note(sample)
                self.about.append(sample if isinstance(sample, BadImage) else sample._replace(value=None))
                if isinstance(sample, BadImage):
                    continue
                if cropped:
                    self.images[index] = sample.value.permute(1, 2, 0).contiguous().numpy()
                else:
                    self.block[index] = sample.value.permute(1, 2, 0)
        bad.check(count)

    def sample(self, index: int) -> Sample:
        """Return one image; its bytes are not a copy. Raises BadImage."""
        about = self.about[index]
        if isinstance(about, BadImage):
            raise about
        pixels = torch.from_numpy(self.images[index]) if self.images else self.block[index]
        return about._replace(value=pixels.permute(2, 0, 1))

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
    """Return "cat", "cat 70.0% + dog 30.0%", or "none"."""
    if target.ndim == 0:
        return classes[int(target)]
    names: list[str] = []
    shares: list[str] = []
    whole = True
    for weight, name in sorted(zip(target.tolist(), classes, strict=True), key=lambda pair: -pair[0]):
        if weight >= NAMED:
            names.append(name)
            shares.append(f"{name} {percent(weight)}")
            # Of images of one class that were mixed, rounding leaves a little less than all.
            whole = whole and round(weight, 2) == 1
    return " + ".join(names if whole else shares) or "none"
