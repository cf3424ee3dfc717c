"""Images and masks in batches: changed together for training, every one exactly once for judging."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from PIL import Image
from torch import Tensor

from vitreous.data.augmentation.per_image import change_colors
from vitreous.data.config import AugmentationConfig
from vitreous.data.dataset import BadFiles, BadImage
from vitreous.data.randomness import BatchChance, image_chance, order_chance
from vitreous.data.segmentation.masked import Mask, MaskedDataset
from vitreous.data.threads import in_order, pool
from vitreous.data.transforms import random_crop
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing, to_tensor, upright

AHEAD = 3  # batches in the making while the model works


class MaskBatch(NamedTuple):
    """images: normalized, float32 (B, C, H, W). masks: class numbers, 255 where there is none."""

    images: Float[Tensor, "B C H W"]
    masks: Int64[Tensor, "B H W"]


class MaskLoader:
    """Shuffled batches for training. Batch `step` of an epoch depends on (seed, epoch, step) alone.

    The image and its mask are cropped and mirrored alike, the mask's values never mixed; colors and noise
    change the image alone. Images or masks that cannot be read are replaced by others of their batch and
    recorded in `bad`; more than 1 % of them are an error.

    batch_size: images of one process; `world_size` processes share each batch.
    workers: threads that decode (0: the caller's).
    """

    def __init__(
        self,
        images: MaskedDataset,
        *,
        preprocessing: Preprocessing,
        augmentation: AugmentationConfig,
        batch_size: int,
        seed: int,
        workers: int = 0,
        rank: int = 0,
        world_size: int = 1,
        strict: bool = False,
    ) -> None:
        self.total = batch_size * world_size
        if len(images) < self.total:
            raise InputError(
                f"a batch of {self.total} is more than the {len(images)} images to train on: set "
                f"training.batch_size to at most {max(len(images) // world_size, 1)}"
            )
        self.images, self.preprocessing, self.augmentation = images, preprocessing, augmentation
        self.batch_size, self.seed, self.workers = batch_size, seed, workers
        self.rank, self.world_size = rank, world_size
        self.bad = BadFiles(strict=strict)

    @property
    def steps_per_epoch(self) -> int:
        return len(self.images) // self.total

    def epoch(self, number: int, start: int = 0) -> Iterator[MaskBatch]:
        """The batches of an epoch from step `start` on. Raises InputError when over 1 % cannot be read."""
        order = order_chance(self.seed, number).permutation(len(self.images))
        steps = range(start, self.steps_per_epoch)
        with pool(self.workers) as executor, pool(min(self.workers, 1)) as assembler:
            make = partial(self.batch, order, number, executor)
            if assembler is None:
                yield from map(make, steps)
            else:
                yield from in_order(assembler, make, steps, ahead=AHEAD)

    def batch(self, order: np.ndarray, epoch: int, executor: Executor | None, step: int) -> MaskBatch:
        """This process's rows of one batch."""
        first = step * self.total + self.rank * self.batch_size
        rows = [int(row) for row in order[first : first + self.batch_size]]
        draw = partial(self.draw, epoch)
        drawn = list(executor.map(draw, rows) if executor else map(draw, rows))
        for each in drawn:
            if isinstance(each, BadImage):
                self.bad.add(each)
        self.bad.check(len(self.images))
        good = [each for each in drawn if not isinstance(each, BadImage)]
        if not good:
            raise InputError("no image of a whole batch can be read: look at bad_files.txt")
        good += [good[place % len(good)] for place in range(len(rows) - len(good))]
        images = self.preprocessing.normalize(torch.stack([pixels for pixels, _ in good]))
        if self.augmentation.noise:
            chance = BatchChance(
                self.seed, epoch, step, size=self.batch_size, rank=self.rank, world_size=self.world_size
            )
            images += self.augmentation.noise * chance.normal(*images.shape[1:])
        return MaskBatch(images, torch.from_numpy(np.stack([mask for _, mask in good])).long())

    def draw(self, epoch: int, index: int) -> tuple[UInt8[Tensor, "C H W"], Mask] | BadImage:
        """One image and its mask at the model's size, both changed in the same way; or why not."""
        chance = image_chance(self.seed, epoch, index, 0)
        try:
            image, mask = opened(self.images, index, self.preprocessing.channels)
        except BadImage as bad:
            return bad
        crop = self.augmentation.random_resized_crop
        top, left, height, width = random_crop(mask.shape, crop, chance) if crop else (0, 0, *mask.shape)
        box = (left, top, left + width, top + height)
        pixels = to_tensor(resized(image, self.preprocessing, box))
        tall, wide = self.preprocessing.size
        cut = Image.fromarray(mask).resize((wide, tall), Image.Resampling.NEAREST, box)
        values = np.array(cut, dtype=np.uint8)
        if chance.random() < self.augmentation.flip:
            pixels, values = pixels.flip(-1), values[:, ::-1].copy()
        if self.augmentation.changes_colors:
            pixels = change_colors(pixels, self.augmentation, chance)
        return pixels, values


class MaskedEvaluation:
    """Every image exactly once and in order, as the model sees it, with its mask at the mask's own size;
    what cannot be read is left out and listed in `bad`."""

    def __init__(self, images: MaskedDataset, *, preprocessing: Preprocessing, batch_size: int) -> None:
        self.images, self.preprocessing, self.batch_size = images, preprocessing, batch_size
        self.bad = BadFiles()

    def __iter__(self) -> Iterator[tuple[Float[Tensor, "B C H W"], Sequence[Mask], Sequence[int]]]:
        """(images, masks, the images' numbers) of each batch."""
        for start in range(0, len(self.images), self.batch_size):
            found = []
            for index in range(start, min(start + self.batch_size, len(self.images))):
                try:
                    image, mask = opened(self.images, index, self.preprocessing.channels)
                except BadImage as bad:
                    self.bad.add(bad)
                    continue
                found.append((to_tensor(self.preprocessing.image(image)), mask, index))
            if found:
                pixels, masks, numbers = zip(*found, strict=True)
                yield self.preprocessing.normalize(torch.stack(pixels)), masks, numbers


def opened(images: MaskedDataset, index: int, channels: int) -> tuple[Image.Image, Mask]:
    """An image, upright, and its mask. Raises BadImage, and InputError where they differ in size."""
    image, mask = images.pair(index)
    try:
        image = upright(image, channels)
    except Exception as error:  # whatever a broken file makes Pillow stumble on
        raise BadImage(images.name(index), str(error)) from error
    if (image.height, image.width) != mask.shape:
        raise InputError(
            f"{images.name(index)} is {image.height}x{image.width}, its mask {mask.shape[0]}x"
            f"{mask.shape[1]}: make them the same size"
        )
    return image, mask


def resized(image: Image.Image, preprocessing: Preprocessing, box: tuple[int, int, int, int]) -> Image.Image:
    """A part of an image at the model's size."""
    height, width = preprocessing.size
    kernel = Image.Resampling[preprocessing.interpolation.upper()]
    return image.resize((width, height), kernel, box)
