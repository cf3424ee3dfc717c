"""Batches: for training, deterministic in (seed, epoch, step); for evaluation, every image exactly once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor
from functools import partial
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.augmentation import augment
from vitreous.data.augmentation.geometry import flip_
from vitreous.data.augmentation.mixing import mix, soft
from vitreous.data.config import AugmentationConfig, DataConfig
from vitreous.data.dataset import BadFiles, BadImage, ImageDataset, Indices, blocks_of
from vitreous.data.decoding import EncodedImage
from vitreous.data.memory import tried
from vitreous.data.randomness import BatchChance
from vitreous.data.sampling import Order, balanced, repeated, shuffled, shuffled_by_blocks
from vitreous.data.threads import in_order, pool
from vitreous.data.training_images import TrainingImages
from vitreous.data.transforms import evaluation_pixels, normalize
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing

AHEAD = 3  # batches in the making while the model works
CHUNK = 8  # images that a thread takes at a time
MANY = 400  # images: for fewer, loading the compiled loops takes longer than they save
ASSEMBLERS = 2  # threads that put batches together, so that one's decoding fills the other's gaps


class Batch(NamedTuple):
    """images: normalized and augmented, float32 (B, C, H, W). targets: class numbers int64 (B,), or soft or
    several labels float32 (B, classes). indices: the images' numbers, int64 (B,)."""

    images: Float[Tensor, "B C H W"]
    targets: Tensor
    indices: Int64[Tensor, " B"]


class TrainLoader:
    """Shuffled, augmented batches. Batch `step` of an epoch depends on (seed, epoch, step) alone, so that
    `epoch(number, start=step)` goes on exactly where another run stopped, without decoding what was before.

    batch_size: images of one process; `world_size` processes share each batch of batch_size x world_size.
    workers: threads that decode (0: the caller's). Nothing is copied for them.
    device: where normalizing and the changes of whole batches are done.
    """

    def __init__(
        self,
        images: ImageDataset,
        *,
        preprocessing: Preprocessing,
        augmentation: AugmentationConfig,
        batch_size: int,
        seed: int,
        workers: int = 0,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = True,
        config: DataConfig | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        config = config or DataConfig()
        total = batch_size * world_size
        if drop_last and len(images) < total:
            raise InputError(
                f"a batch of {total} is more than the {len(images)} training images: set "
                f"training.batch_size to at most {max(len(images) // world_size, 1)}"
            )
        self.images = images
        self.preprocessing = preprocessing
        self.augmentation = augmentation
        self.batch_size = batch_size
        self.seed = seed
        self.workers = workers
        self.rank = rank
        self.world_size = world_size
        self.class_balance = config.class_balance
        self.device = torch.device(device)
        self.bad = BadFiles(strict=config.strict)
        self.wait_seconds = 0.0
        whole, rest = divmod(len(images), total)
        self.steps_per_epoch = whole + (rest > 0 and not drop_last)
        self.targets = torch.from_numpy(np.ascontiguousarray(images.targets))
        self.source = TrainingImages(
            images,
            preprocessing=preprocessing,
            augmentation=augmentation,
            seed=seed,
            in_memory=config.in_memory,
            processes=world_size,
        )

    def epoch(self, number: int, start: int = 0) -> Generator[Batch]:
        """The batches of an epoch from step `start` on. `wait_seconds` becomes the time that they were waited
        for, in this epoch. Raises InputError when over 1 % of the images are bad."""
        self.wait_seconds = 0.0
        batches = self.batches(number, start)
        while True:
            began = perf_counter()
            batch = next(batches, None)
            self.wait_seconds += perf_counter() - began
            if batch is None:
                return
            yield batch

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """Made here, or by threads a few steps ahead."""
        with pool(self.workers) as executor:
            self.source.keep(self.bad, executor)
            order = self.order(epoch)
            steps = range(start, self.steps_per_epoch)
            if executor is None or self.source.at_once:
                yield from (self.batch(order, epoch, step) for step in steps)
                return
            with pool(ASSEMBLERS) as assemblers:
                assert assemblers is not None
                make = partial(self.batch, order, epoch, executor=executor)
                yield from in_order(assemblers, make, steps, ahead=AHEAD)

    def order(self, epoch: int) -> Order:
        """Which images, in which order; the same in every process."""
        if self.class_balance:
            order = balanced(self.images.targets, seed=self.seed, epoch=epoch)
        elif (blocks := blocks_of(self.images)) is not None:
            order = shuffled_by_blocks(blocks, seed=self.seed, epoch=epoch)
        else:
            order = shuffled(len(self.images), seed=self.seed, epoch=epoch)
        if self.augmentation.repeated_augmentation > 1:
            order = repeated(
                order, self.augmentation.repeated_augmentation, self.batch_size * self.world_size
            )
        return order

    def batch(self, order: Order, epoch: int, step: int, executor: Executor | None = None) -> Batch:
        """This process's rows of one batch."""
        indices, copies, size = self.rows(order, step)
        pixels, indices = self.pixels(epoch, indices, copies, executor)
        chance = BatchChance(self.seed, epoch, step, size=size, rank=self.rank, world_size=self.world_size)
        pixels = pixels.to(self.device, non_blocking=True)
        if self.augmentation.flip:
            flip_(pixels, self.augmentation.flip, chance)
        images = augment(normalize(pixels, self.preprocessing), self.augmentation, chance)
        numbers = torch.from_numpy(indices)
        targets = self.targets[numbers].to(self.device)
        if self.augmentation.mixes:
            images, targets = mix(images, soft(targets, len(self.images.classes)), self.augmentation, chance)
        return Batch(images, targets, numbers)

    def rows(self, order: Order, step: int) -> tuple[Indices, Indices, int]:
        """(indices, copies, how many). A last, shorter batch is filled from the epoch's beginning until every
        process has as many."""
        total = self.batch_size * self.world_size
        count = min(total, len(order.indices) - step * total)
        size = -(-count // self.world_size)
        place = step * total + self.rank * size + np.arange(size)
        place %= len(order.indices)
        return order.indices[place], order.copies[place], size

    def pixels(
        self, epoch: int, indices: Indices, copies: Indices, executor: Executor | None
    ) -> tuple[UInt8[Tensor, "B C H W"], Indices]:
        """The batch's bytes and numbers. A bad image's place is taken by the next good one of the batch, so
        that every batch is full."""
        if self.source.at_once:
            chosen = indices[stand_ins(self.source.good(indices))]
            return self.source.stacked(chosen), chosen
        drawn = each(partial(self.source.draw, epoch), indices, copies, executor=executor)
        for pixels in drawn:
            if isinstance(pixels, BadImage):
                self.bad.add(pixels)
        self.bad.check(len(self.images))
        places = stand_ins(np.array([isinstance(pixels, Tensor) for pixels in drawn]))
        return torch.stack([drawn[place] for place in places]), indices[places]


class EvaluationLoader:
    """Every image exactly once and in order, as `Preprocessing` shows it; bad ones are left out and listed
    in `bad`. Of several processes, each has its part."""

    def __init__(
        self,
        images: ImageDataset,
        *,
        preprocessing: Preprocessing,
        batch_size: int,
        workers: int = 0,
        rank: int = 0,
        world_size: int = 1,
        strict: bool = False,
    ) -> None:
        self.images = images
        self.preprocessing = preprocessing
        self.workers = workers
        self.bad = BadFiles(strict=strict)
        mine = np.arange(rank, len(images), world_size)
        self.steps = [mine[first : first + batch_size] for first in range(0, len(mine), batch_size)]
        self.targets = torch.from_numpy(np.ascontiguousarray(images.targets))

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Batch]:
        with pool(self.workers) as executor, pool(ASSEMBLERS if executor else 0) as assemblers:
            make = partial(self.batch, executor=executor)
            batches = (
                in_order(assemblers, make, self.steps, ahead=AHEAD) if assemblers else map(make, self.steps)
            )
            yield from (batch for batch in batches if len(batch.indices))

    def decode(self, index: int) -> UInt8[Tensor, "C H W"]:
        """One image. Raises BadImage."""
        encoded = EncodedImage(self.images, index, self.preprocessing.channels)
        return evaluation_pixels(encoded, self.preprocessing, compiled=len(self.images) >= MANY)

    def batch(self, indices: Indices, executor: Executor | None) -> Batch:
        """The good images among these; perhaps none."""
        good, kept = [], []
        for index, pixels in zip(indices, each(self.decode, indices, executor=executor), strict=True):
            if isinstance(pixels, BadImage):
                self.bad.add(pixels)
            else:
                good.append(pixels)
                kept.append(int(index))
        numbers = torch.tensor(kept, dtype=torch.int64)
        empty = torch.empty(0, self.preprocessing.channels, *self.preprocessing.size, dtype=torch.uint8)
        images = normalize(torch.stack(good) if good else empty, self.preprocessing)
        return Batch(images, self.targets[numbers], numbers)


def each(
    draw: Callable[..., Tensor], *numbers: Indices, executor: Executor | None
) -> list[Tensor | BadImage]:
    """draw(*numbers) for each image, several at a time."""
    rows = list(zip(*(column.tolist() for column in numbers), strict=True))
    if executor is None:
        return [tried(draw, *row) for row in rows]
    parts = [rows[first : first + CHUNK] for first in range(0, len(rows), CHUNK)]
    drawn = executor.map(lambda part: [tried(draw, *row) for row in part], parts)
    return [pixels for part in drawn for pixels in part]


def stand_ins(good: NDArray[np.bool_]) -> Indices:
    """For each place of a batch itself if it is good, or the next good one; the last ones take the first."""
    places = np.flatnonzero(good)
    if not len(places):
        raise InputError("no image of a whole batch can be read: see the list with `vitreous data check`")
    return places[np.searchsorted(places, np.arange(len(good))) % len(places)]
