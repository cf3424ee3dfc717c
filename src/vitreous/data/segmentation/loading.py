"""Images with masks in batches: changed together for training, each exactly once for evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64, Integer, UInt8
from PIL import Image
from torch import Tensor

from vitreous.data.config import AugmentationConfig
from vitreous.data.dataset import BadFiles, Indices
from vitreous.data.decoding import BadImage
from vitreous.data.image_augmentation import change_colors
from vitreous.data.sampling import Rows
from vitreous.data.segmentation.masked import Mask, MaskedDataset
from vitreous.data.transforms import random_crop
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing, to_tensor, upright


class MaskBatch(NamedTuple):
    """images: normalized, float32 (B, C, H, W). masks: class numbers, 255 where there is none. (Both are
    bytes before the transform.)"""

    images: Float[Tensor, "B C H W"] | UInt8[Tensor, "B C H W"]
    masks: Integer[Tensor, "B H W"]


class MaskEvaluationBatch(NamedTuple):
    """images: as in training. masks: of the masks' own sizes. indices: the images' numbers."""

    images: Float[Tensor, "B C H W"] | UInt8[Tensor, "B C H W"]
    masks: tuple[Mask, ...]
    indices: Int64[Tensor, " B"]


class MaskReader:
    """Images at the model's size, with their masks.

    For training an image and its mask are cropped and mirrored alike, the mask's values never mixed; colors
    and noise change the image alone. For evaluation, without `augmentation`, masks have their own sizes.
    """

    def __init__(
        self,
        images: MaskedDataset,
        preprocessing: Preprocessing,
        augmentation: AugmentationConfig | None = None,
    ) -> None:
        self.images, self.preprocessing, self.augmentation = images, preprocessing, augmentation

    def prepare(self, bad: BadFiles, executor: Executor | None) -> bool:
        """Images with masks are not cached."""
        return False

    def read(
        self, index: int, rng: np.random.Generator | None
    ) -> tuple[UInt8[Tensor, "C h w"], UInt8[np.ndarray, "H W"]]:
        """Return an image at the model's size and its mask. Raises BadImage."""
        image, mask = self.opened(index)
        if self.augmentation is None:
            return to_tensor(self.preprocessing.image(image)), mask
        crop, (tall, wide) = self.augmentation.random_resized_crop, self.preprocessing.size
        top, left, height, width = random_crop(mask.shape, crop, rng) if crop and rng else (0, 0, *mask.shape)
        box = (left, top, left + width, top + height)
        kernel = Image.Resampling[self.preprocessing.interpolation.upper()]
        pixels = to_tensor(image.resize((wide, tall), kernel, box))
        values = Image.fromarray(mask).resize((wide, tall), Image.Resampling.NEAREST, box)
        if self.augmentation.changes_colors and rng:
            pixels = change_colors(pixels, self.augmentation, rng)
        return pixels, np.array(values, dtype=np.uint8)

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

    def collate(
        self, samples: Sequence[tuple[Tensor, np.ndarray]], indices: Indices, rows: Rows
    ) -> MaskBatch | MaskEvaluationBatch:
        """Return samples as a batch."""
        pixels, masks = zip(*samples, strict=True)
        if self.augmentation is None:
            return MaskEvaluationBatch(torch.stack(pixels), masks, torch.from_numpy(indices))
        return MaskBatch(torch.stack(pixels), torch.from_numpy(np.stack(masks)))
