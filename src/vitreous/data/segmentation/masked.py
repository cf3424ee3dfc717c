"""What every source of segmentation yields: numbered images, each with a mask."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from vitreous.data.dataset import Indices

Mask = UInt8[np.ndarray, "H W"]
IGNORED = 255  # pixels of a mask that nobody judges


@runtime_checkable
class MaskedDataset(Protocol):
    """Images numbered from 0, each with a mask of its size: the class number of each pixel, or 255."""

    @property
    def classes(self) -> tuple[str, ...]: ...
    def __len__(self) -> int: ...
    def name(self, index: int) -> str:
        """A path, or what else tells the user which image it is."""
        ...

    def pair(self, index: int) -> tuple[Image.Image, Mask]:
        """The image as stored, of any mode and orientation, and the class numbers. Raises BadImage, and
        InputError for a mask that is none."""
        ...


class MaskedSubset:
    """Some of a source's images."""

    def __init__(self, images: MaskedDataset, indices: Indices) -> None:
        self.images, self.indices = images, indices
        self.classes = images.classes

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, index: int) -> str:
        return self.images.name(int(self.indices[index]))

    def pair(self, index: int) -> tuple[Image.Image, Mask]:
        return self.images.pair(int(self.indices[index]))


class MaskSplits(NamedTuple):
    """The parts of a source. A source with one held-out part has it as `test`. size: the median (H, W) of
    a sample. channels: 1 where all images of it are gray."""

    train: MaskedDataset
    validation: MaskedDataset | None
    test: MaskedDataset | None
    name: str
    size: tuple[int, int]
    channels: int
