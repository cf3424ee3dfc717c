"""A segmenter against masks that are known: intersection over union of each class, and what it is sure of.

Of a class, IoU = hits / (pixels of the class + pixels called so - hits), summed over all images. A class
that no judged pixel has and that none was called has no IoU: it is left out of the mean. One that is absent
but was called has 0. Pixels of 255 in a mask are judged nowhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from PIL import Image
from torch import nn

from vitreous.data.segmentation.loading import mask_evaluation_loader
from vitreous.data.segmentation.masked import IGNORED, Mask, MaskedDataset
from vitreous.errors import InputError
from vitreous.evaluation.result import Evaluation, Metric, TextTable, percent
from vitreous.evaluation.scores import Interval, confusion_matrix
from vitreous.models.preprocessing import upright
from vitreous.models.segmenter import Segmenter, argmax_at_size

RESAMPLES = 1000  # of the bootstrap
BACKGROUND = "background"  # the name of class 0 that makes "something or nothing" a question of its own


@dataclass(frozen=True)
class SegmentationEvaluation(Evaluation):
    """What a segmenter made of each image.

    Attributes:
        classes: their names.
        numbers: of the images that could be read.
        names: theirs.
        confusions: (images, classes, classes): pixels of class [row] that were called [column].
        failed: images that could not be read, and why.
        seconds: of judging.
    """

    task = "segmentation"

    classes: tuple[str, ...]
    numbers: Sequence[int]
    names: Sequence[str]
    confusions: Int[np.ndarray, "images classes classes"]
    failed: Mapping[str, str]
    seconds: float

    @property
    def count(self) -> int:
        return len(self.names)

    @cached_property
    def confusion(self) -> Int[np.ndarray, "classes classes"]:
        """Over all images."""
        return self.confusions.sum(axis=0)

    @property
    def iou(self) -> Float[np.ndarray, " classes"]:
        """Of each class; NaN where nothing can be said."""
        return ious(self.confusion)

    @property
    def miou(self) -> float:
        """The mean over the classes that have an IoU."""
        return mean_of(self.iou)

    @cached_property
    def interval(self) -> Interval:
        """95 % of the mean IoU when the images are sampled again, with replacement (bootstrap)."""
        count, classes = self.confusions.shape[:2]
        rng = np.random.default_rng(0)
        sampled = rng.multinomial(count, np.full(count, 1 / max(count, 1)), size=RESAMPLES)
        # In float64, whose product BLAS computes; exact, since counts of pixels stay below 2^53.
        again = sampled.astype(float) @ self.confusions.reshape(count, -1).astype(float)
        again = again.reshape(-1, classes, classes)
        low, high = np.nanquantile([mean_of(ious(each)) for each in again], (0.025, 0.975))
        return Interval(float(low), float(high))

    @property
    def pixel_accuracy(self) -> float:
        """The share of judged pixels that have the right class."""
        return float(self.confusion.trace() / max(self.confusion.sum(), 1))

    @property
    def foreground_miou(self) -> float | None:
        """The mean IoU of two classes, background and all else; None where class 0 is no background."""
        if self.classes[0].lower() != BACKGROUND or len(self.classes) == 1:
            return None
        edges = [0, 1]
        two = np.add.reduceat(np.add.reduceat(self.confusion, edges, axis=0), edges, axis=1)
        return mean_of(ious(two))

    @property
    def always_first(self) -> float:
        """The mean IoU of a program that calls every pixel class 0."""
        nothing = np.zeros_like(self.confusion)
        nothing[:, 0] = self.confusion.sum(axis=1)
        return mean_of(ious(nothing))

    @property
    def image_mious(self) -> Float[np.ndarray, " images"]:
        """The mean IoU of each image by itself."""
        return np.array([mean_of(ious(each)) for each in self.confusions])

    @property
    def metrics(self) -> dict[str, Metric]:
        found = {
            "miou": Metric(self.miou, "mean IoU", self.interval),
            "pixel_accuracy": Metric(self.pixel_accuracy, "pixel accuracy"),
        }
        if self.foreground_miou is not None:
            found["foreground_miou"] = Metric(self.foreground_miou, "mean IoU of background and the rest")
        return found

    def details(self) -> dict[str, Any]:
        return {
            "per_class": [
                {"label": name, "iou": float(iou), "pixels": count} for name, iou, count in self.rows()
            ],
            "baseline_miou": self.always_first,
        }

    def tables(self) -> list[TextTable]:
        title = f"mean IoU where every pixel is called {self.classes[0]}: {percent(self.always_first)}"
        rows = [(name, percent(iou), f"{count:,}") for name, iou, count in self.rows()]
        return [TextTable(title, ("class", "IoU", "pixels"), rows)]

    def rows(self) -> list[tuple[str, float, int]]:
        """Return (name, IoU, pixels) of each class."""
        pixels = self.confusion.sum(axis=1).tolist()
        return list(zip(self.classes, self.iou.tolist(), pixels, strict=True))


def ious(confusion: Num[np.ndarray, "classes classes"]) -> Float[np.ndarray, " classes"]:
    """Intersection over union of each class; NaN where the union is empty."""
    hits = confusion.diagonal()
    union = confusion.sum(axis=0) + confusion.sum(axis=1) - hits
    return np.divide(hits, union, out=np.full(len(hits), math.nan), where=union > 0)


def mean_of(values: Float[np.ndarray, " classes"]) -> float:
    """The mean of the numbers; NaN where there is none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def confusion_of(mask: Mask, found: Mask, classes: int) -> Int[np.ndarray, "classes classes"]:
    """Pixels of class [row] that were called [column], the judged ones alone."""
    judged = mask != IGNORED
    return confusion_matrix(mask[judged].astype(np.int64), found[judged].astype(np.int64), classes)


@torch.inference_mode()
def evaluate_segmenter(
    model: Segmenter,
    images: MaskedDataset,
    *,
    device: str | torch.device = "cpu",
    batch_size: int = 32,
    workers: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> SegmentationEvaluation:
    """Every image once, each judged at its mask's own size.

    Args:
        workers: threads that decode; 0: the caller's.
        progress: called after each batch with the images done and the images in all.

    Raises:
        InputError: not one image can be read.
    """
    begun = time.perf_counter()
    was_training = model.training
    model.to(device).eval()
    loader = mask_evaluation_loader(
        images, preprocessing=model.preprocessing, batch_size=batch_size, workers=workers, device=device
    )
    evaluated: list[int] = []
    confusions = []
    for batch in loader:
        for logits, mask in zip(model(batch.images).float(), batch.masks, strict=True):
            found = argmax_at_size(logits, (mask.shape[0], mask.shape[1])).cpu().numpy()
            confusions.append(confusion_of(mask, found, len(images.classes)))
        evaluated += batch.indices.tolist()
        if progress:
            progress(len(evaluated) + len(loader.bad), len(images))
    model.train(was_training)
    if not evaluated:
        name, why = next(iter(loader.bad))
        raise InputError(f"not one of {len(images)} images can be read: {name}: {why}")
    classes = len(images.classes)
    return SegmentationEvaluation(
        classes=images.classes,
        numbers=evaluated,
        names=[images.name(number) for number in evaluated],
        confusions=np.array(confusions, dtype=np.int64).reshape(-1, classes, classes),
        failed=dict(loader.bad),
        seconds=time.perf_counter() - begun,
    )


@torch.inference_mode()
def masks_of(model: Segmenter, images: Sequence[Image.Image]) -> list[Mask]:
    """The class number of each pixel of each image, at the image's own size, turned upright."""
    device = next(model.parameters()).device
    found = []
    for logits, image in zip(model(model.preprocessing(images).to(device)).float(), images, strict=True):
        width, height = upright(image, model.config.channels).size
        found.append(argmax_at_size(logits, (height, width)).cpu().numpy())
    return found


def segmentation_monitor(
    images: MaskedDataset | None, *, batch_size: int
) -> Callable[[nn.Module], Mapping[str, float]] | None:
    """What measures mean IoU and pixel accuracy while a model learns; None without images."""
    if images is None:
        return None

    def measure(model: nn.Module) -> Mapping[str, float]:
        assert isinstance(model, Segmenter)
        device = next(model.parameters()).device
        found = evaluate_segmenter(model, images, device=device, batch_size=batch_size)
        return {"validation_miou": found.miou, "validation_accuracy": found.pixel_accuracy}

    return measure
