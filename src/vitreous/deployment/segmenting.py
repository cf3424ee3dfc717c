"""Prediction of masks: a trained segmenter on unlabeled images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image

from vitreous.data.segmentation.masked import Mask, mask_image, overlaid, palette
from vitreous.evaluation.segmentation import masks_of
from vitreous.models.preprocessing import upright
from vitreous.models.segmenter import Segmenter


class SegmentPredictor:
    """A segmenter ready to predict.

        predictor = SegmentPredictor(vt.load("runs/pages"), "cpu")
        masks = predictor.predict([Image.open("page.png")])     # [(H, W) uint8, the class of each pixel]
        predictor.classes[masks[0][10, 20]], predictor.palette[masks[0][10, 20]]

    Attributes:
        classes: the name of each class number.
        palette: its RGB color, (classes, 3) uint8.
    """

    def __init__(self, model: Segmenter, device: str | torch.device = "cpu") -> None:
        self.model = model.to(device).eval()
        count = model.config.num_classes or 0
        self.classes = tuple(model.labels or (str(number) for number in range(count)))
        self.palette = palette(count)

    def predict(self, images: Sequence[Image.Image], *, batch_size: int = 16) -> list[Mask]:
        """Return the class number of each pixel of each image, at the image's own size after applying its
        EXIF orientation.

        Args:
            images: Pillow images of any size and mode.
        """
        found: list[Mask] = []
        for first in range(0, len(images), batch_size):
            found += masks_of(self.model, images[first : first + batch_size])
        return found

    def shares(self, mask: Mask) -> dict[str, float]:
        """Return the share of the pixels of each class that occurs, largest first."""
        counts = np.bincount(mask.ravel(), minlength=len(self.classes)) / mask.size
        return {
            self.classes[number]: float(counts[number]) for number in np.argsort(-counts) if counts[number]
        }

    def image(self, mask: Mask) -> Image.Image:
        """Return a mask as a palette image: the values are the class numbers, the palette their colors."""
        return mask_image(mask, len(self.classes))

    def overlay(self, image: Image.Image, mask: Mask) -> Image.Image:
        """Return the image in gray under the colors of the classes; class 0 is transparent."""
        return Image.fromarray(overlaid(np.asarray(upright(image)), mask, len(self.classes)))
