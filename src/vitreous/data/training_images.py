"""One training image: decoded or remembered, cropped, and changed in color; still bytes."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Literal

import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.augmentation.per_image import change_colors
from vitreous.data.config import AugmentationConfig
from vitreous.data.dataset import BadFiles, BadImage, ImageDataset, Indices, sampled
from vitreous.data.decoding import EncodedImage
from vitreous.data.memory import Kept, budget
from vitreous.data.randomness import image_chance
from vitreous.data.transforms import (
    crop_encoded,
    crop_pixels,
    evaluation_pixels,
    random_crop,
    shorter_side,
)
from vitreous.models.preprocessing import Preprocessing

ENOUGH = 1.5  # times the model's size: the shorter side of a kept image that will be cropped
SAMPLE = 32  # images whose size is looked at, to know whether all fit


class TrainingImages:
    """Images as the model's training sees them, each drawn by (seed, epoch, index, copy)."""

    def __init__(
        self,
        images: ImageDataset,
        *,
        preprocessing: Preprocessing,
        augmentation: AugmentationConfig,
        seed: int,
        in_memory: bool | Literal["auto"] = "auto",
        processes: int = 1,
    ) -> None:
        self.images = images
        self.preprocessing = preprocessing
        self.augmentation = augmentation
        self.seed = seed
        self.keeps = in_memory if in_memory != "auto" else processes * self.estimate() < budget()
        self.kept: Kept | None = None

    def keep(self, bad: BadFiles, executor: Executor | None) -> None:
        """Decode everything, once. Does nothing if it has been done, or if it would not fit."""
        if self.keeps and self.kept is None:
            self.kept = Kept(len(self.images), self.decode_to_keep, bad=bad, executor=executor)

    def estimate(self) -> float:
        """Bytes that all images would take, judged by some of them."""
        areas = []
        for index in sampled(self.images, SAMPLE):
            try:
                height, width = EncodedImage(self.images, index, self.preprocessing.channels).size
            except BadImage:
                continue  # counted when it is decoded
            scale = min(shorter_side(self.preprocessing, ENOUGH) / min(height, width), 1)
            areas.append(height * width * scale**2)
        if not self.augmentation.random_resized_crop:
            areas = [self.preprocessing.size[0] * self.preprocessing.size[1]]
        return float(np.mean(areas or [0])) * self.preprocessing.channels * len(self.images)

    def decode_to_keep(self, index: int) -> UInt8[Tensor, "C H W"]:
        """At the model's size; or large enough to be cropped, if it will be."""
        encoded = EncodedImage(self.images, index, self.preprocessing.channels)
        if not self.augmentation.random_resized_crop:
            return evaluation_pixels(encoded, self.preprocessing)
        return encoded.shrunk(shorter_side(self.preprocessing, ENOUGH))

    @property
    def at_once(self) -> bool:
        """Whether nothing is left to do image by image: all are kept at the model's size."""
        return self.kept is not None and self.kept.uniform and not self.augmentation.per_image

    def good(self, indices: Indices) -> NDArray[np.bool_]:
        """Which of these could be read."""
        assert self.kept is not None
        return self.kept.good[indices]

    def stacked(self, indices: Indices) -> UInt8[Tensor, "B C H W"]:
        """Good images, all at once."""
        assert self.kept is not None
        return self.kept.stacked(indices)

    def draw(self, epoch: int, index: int, copy: int) -> UInt8[Tensor, "C H W"]:
        """One image at the model's size. Raises BadImage."""
        chance = image_chance(self.seed, epoch, index, copy)
        pixels = self.cropped(index, chance)
        if not self.augmentation.changes_colors:
            return pixels
        return change_colors(pixels, self.augmentation, chance)

    def cropped(self, index: int, chance: np.random.Generator) -> UInt8[Tensor, "C H W"]:
        """By the random crop, or as for evaluation."""
        crop = self.augmentation.random_resized_crop
        if self.kept is not None:
            if not self.kept.good[index]:
                raise BadImage(self.images.name(index), "found bad before")
            pixels = self.kept.pixels(index)
            if not crop:
                return pixels
            size = (pixels.shape[1], pixels.shape[2])
            return crop_pixels(pixels, random_crop(size, crop, chance), size, self.preprocessing)
        encoded = EncodedImage(self.images, index, self.preprocessing.channels)
        if not crop:
            return evaluation_pixels(encoded, self.preprocessing)
        return crop_encoded(encoded, random_crop(encoded.size, crop, chance), self.preprocessing)
