"""Images with masks in batches: changed together for training, each exactly once for evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64, Integer, UInt8
from PIL import Image
from torch import Tensor

from vitreous.data.augmentation.batch import BatchTransform
from vitreous.data.augmentation.per_image import change_colors
from vitreous.data.config import AugmentationConfig
from vitreous.data.dataset import BadFiles, BadImage, Indices
from vitreous.data.loading import BatchLoader
from vitreous.data.prefetching import DevicePrefetcher
from vitreous.data.sampling import Rows, Sampler, sequential, shuffled
from vitreous.data.segmentation.masked import Mask, MaskedDataset
from vitreous.data.transforms import random_crop
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing, to_tensor, upright

Pair = tuple[UInt8[Tensor, "C H W"], Mask]
EvaluationPair = tuple[UInt8[Tensor, "C H W"], UInt8[np.ndarray, "_ _"]]  # the mask of its own size


class MaskBatch(NamedTuple):
    """images: normalized, float32 (B, C, H, W). masks: class numbers, 255 where there is none. (Both are
    bytes before the transform.)"""

    images: Float[Tensor, "B C H W"] | UInt8[Tensor, "B C H W"]
    masks: Integer[Tensor, "B H W"]


class MaskEvaluationBatch(NamedTuple):
    """images: normalized, float32 (B, C, H, W). masks: of the masks' own sizes. indices: the images'
    numbers."""

    images: Float[Tensor, "B C H W"] | UInt8[Tensor, "B C H W"]
    masks: tuple[Mask, ...]
    indices: Int64[Tensor, " B"]


def mask_loader(
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
    device: str | torch.device = "cpu",
) -> DevicePrefetcher[MaskBatch]:
    """Return shuffled batches for training.

    An image and its mask are cropped and mirrored alike, the mask's values never mixed; colors and noise
    change the image alone.

    Args:
        batch_size: images of one process; `world_size` processes share each batch.
    """
    reader = MaskReader(images, preprocessing, augmentation)
    loader = BatchLoader(
        Sampler(
            lambda epoch: shuffled(len(images), seed=seed, epoch=epoch),
            len(images),
            batch_size=batch_size * world_size,
            rank=rank,
            world_size=world_size,
        ),
        reader.read,
        collate_masks,
        workers,
        seed=seed,
        bad=BadFiles(strict=strict),
    )
    transform = BatchTransform(preprocessing, augmentation, seed=seed, rank=rank, world_size=world_size)
    return DevicePrefetcher(loader, transform, device)


def mask_evaluation_loader(
    images: MaskedDataset,
    *,
    preprocessing: Preprocessing,
    batch_size: int,
    workers: int = 0,
    device: str | torch.device = "cpu",
) -> DevicePrefetcher[MaskEvaluationBatch]:
    """Return every image exactly once and in order, as the model sees it, with its mask at the mask's own
    size; those that cannot be read are left out and listed in `bad`."""
    reader = MaskReader(images, preprocessing)
    sampler = Sampler(lambda epoch: sequential(len(images)), len(images), batch_size=batch_size, exact=True)
    loader = BatchLoader(sampler, reader.read_for_evaluation, collate_for_evaluation, workers)
    return DevicePrefetcher(loader, BatchTransform(preprocessing), device)


class MaskReader:
    """Images at the model's size, with their masks."""

    def __init__(
        self,
        images: MaskedDataset,
        preprocessing: Preprocessing,
        augmentation: AugmentationConfig | None = None,
    ) -> None:
        self.images, self.preprocessing = images, preprocessing
        self.augmentation = augmentation or AugmentationConfig()

    def read(self, index: int, rng: np.random.Generator) -> Pair:
        """Return an image and its mask at the model's size, cropped alike. Raises BadImage."""
        image, mask = self.opened(index)
        crop, (tall, wide) = self.augmentation.random_resized_crop, self.preprocessing.size
        top, left, height, width = random_crop(mask.shape, crop, rng) if crop else (0, 0, *mask.shape)
        box = (left, top, left + width, top + height)
        kernel = Image.Resampling[self.preprocessing.interpolation.upper()]
        pixels = to_tensor(image.resize((wide, tall), kernel, box))
        values = Image.fromarray(mask).resize((wide, tall), Image.Resampling.NEAREST, box)
        if self.augmentation.changes_colors:
            pixels = change_colors(pixels, self.augmentation, rng)
        return pixels, np.array(values, dtype=np.uint8)

    def read_for_evaluation(self, index: int, rng: None) -> tuple[UInt8[Tensor, "C h w"], Mask]:
        """Return an image at the model's size and its mask as it is. Raises BadImage."""
        image, mask = self.opened(index)
        return to_tensor(self.preprocessing.image(image)), mask

    def opened(self, index: int) -> tuple[Image.Image, Mask]:
        """Return an image, upright, and its mask. Raises BadImage, and InputError where their sizes
        differ."""
        image, mask = self.images.pair(index)
        try:
            image = upright(image, self.preprocessing.channels)
        except Exception as error:  # whatever a broken file makes Pillow stumble on
            raise BadImage(self.images.name(index), str(error)) from error
        if (image.height, image.width) != mask.shape:
            raise InputError(
                f"{self.images.name(index)} is {image.height}x{image.width}, its mask {mask.shape[0]}x"
                f"{mask.shape[1]}: make them the same size"
            )
        return image, mask


def collate_masks(samples: Sequence[Pair], indices: Indices, rows: Rows) -> MaskBatch:
    pixels, masks = zip(*samples, strict=True)
    return MaskBatch(torch.stack(pixels), torch.from_numpy(np.stack(masks)))


def collate_for_evaluation(
    samples: Sequence[EvaluationPair], indices: Indices, rows: Rows
) -> MaskEvaluationBatch:
    pixels, masks = zip(*samples, strict=True)
    return MaskEvaluationBatch(torch.stack(pixels), masks, torch.from_numpy(indices))
