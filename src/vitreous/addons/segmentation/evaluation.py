"""A segmenter against masks that are known: intersection over union (IoU) of each class.

IoU = hits / (pixels of the class + pixels predicted as it - hits), summed over all images. A class that no
evaluated pixel has and that is never predicted has no IoU and is left out of the mean. One that is absent but
predicted has 0. Pixels of 255 in a mask are not evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Unpack

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from vitreous.addons.segmentation.masked import IGNORED, Mask, MaskedDataset, MaskEvaluationBatch, MaskReader
from vitreous.addons.segmentation.model import Segmenter, argmax_at_size
from vitreous.evaluation.outputs import Batching, compute_outputs
from vitreous.evaluation.result import Answers, Evaluation, Metric, TextTable
from vitreous.evaluation.scores import ExampleScores, Interval, confusion_matrix, quantile_interval, resamples
from vitreous.languages.terminal import said, word
from vitreous.models.stored import ImageLike, stored
from vitreous.results import percent

BACKGROUND = "background"  # the name of class 0 that makes "something or nothing" a question of its own


@dataclass(frozen=True, kw_only=True)
class SegmentationEvaluation(Evaluation):
    """What a segmenter made of each image.

    Attributes:
        classes: their names.
        confusions: (images, classes, classes): pixels of class [row] that were called [column].
    """

    task, per_example = "segmentation", ("confusions",)
    gap = ("gap-miou", "miou", "miou")

    classes: tuple[str, ...]
    confusions: Int[np.ndarray, "images classes classes"]

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
        return float(mean_ious(self.confusion))

    @cached_property
    def resampled(self) -> Float[np.ndarray, "resamples classes"]:
        """The IoU of each class when the images are sampled again, with replacement (bootstrap)."""
        count, classes = self.confusions.shape[:2]
        # Exact in float64, since counts of pixels stay below 2^53.
        again = resamples(count) @ self.confusions.reshape(count, -1).astype(float)
        return ious(again.reshape(-1, classes, classes))

    @property
    def interval(self) -> Interval:
        """95% of the mean IoU."""
        return quantile_interval(means(self.resampled))

    @property
    def class_intervals(self) -> list[Interval]:
        """95% of the IoU of each class; NaN where nothing can be said."""
        known = [values[~np.isnan(values)] for values in self.resampled.T]
        return [quantile_interval(each) if len(each) else Interval(math.nan, math.nan) for each in known]

    @property
    def pixel_accuracy(self) -> float:
        """The share of evaluated pixels that have the right class."""
        return float(self.confusion.trace() / max(self.confusion.sum(), 1))

    @property
    def foreground_miou(self) -> float | None:
        """The mean IoU of two classes, background and all else; None where class 0 is not background."""
        if self.classes[0].lower() != BACKGROUND or len(self.classes) == 1:
            return None
        edges = [0, 1]
        two = np.add.reduceat(np.add.reduceat(self.confusion, edges, axis=0), edges, axis=1)
        return float(mean_ious(two))

    @property
    def always_first(self) -> float:
        """The mean IoU of a program that calls every pixel class 0."""
        nothing = np.zeros_like(self.confusion)
        nothing[:, 0] = self.confusion.sum(axis=1)
        return float(mean_ious(nothing))

    @property
    def image_mious(self) -> Float[np.ndarray, " images"]:
        """The mean IoU of each image by itself."""
        return mean_ious(self.confusions)

    def scores(self) -> ExampleScores:
        return ExampleScores("image_miou", self.image_mious)

    def by_class(self) -> dict[str, float]:
        return {name: iou for name, iou, _ in self.rows() if iou == iou}

    def answers(self) -> Answers:
        values = self.image_mious
        return Answers((), [""] * self.count, [percent(each) for each in values], 1 - values)

    @property
    def metrics(self) -> dict[str, Metric]:
        found = {
            "miou": Metric(self.miou, "mean IoU", self.interval),
            "pixel_accuracy": Metric(self.pixel_accuracy, "pixel accuracy"),
        }
        if self.foreground_miou is not None:
            found["foreground_miou"] = Metric(self.foreground_miou, "mean IoU of background and the rest")
        return found

    def details(self) -> dict[str, object]:
        classes: list[dict[str, object]] = []
        for (name, iou, count), interval in zip(self.rows(), self.class_intervals, strict=True):
            classes.append(
                {"label": name, "iou": float(iou), "iou_interval": list(interval), "pixels": count}
            )
        return {"per_class": classes, "baseline_miou": self.always_first}

    def tables(self) -> list[TextTable]:
        title = said(
            "mean IoU if every pixel is predicted as {name}: {miou}",
            name=self.classes[0],
            miou=percent(self.always_first),
        )
        rows = []
        for (name, iou, count), (low, high) in zip(self.rows(), self.class_intervals, strict=True):
            interval = said("{low} to {high}", low=percent(low), high=percent(high))
            rows.append((name, percent(iou), interval, f"{count:,}"))
        headers = (word("class"), "IoU", said("95% interval"), word("pixels"))
        return [TextTable(title, headers, rows)]

    def rows(self) -> list[tuple[str, float, int]]:
        """Return (name, IoU, pixels) of each class."""
        pixels = self.confusion.sum(axis=1).tolist()
        return list(zip(self.classes, self.iou.tolist(), pixels, strict=True))


def ious(confusions: Num[np.ndarray, "*N classes classes"]) -> Float[np.ndarray, "*N classes"]:
    """Return the intersection over union of each class; NaN where the union is empty."""
    hits = confusions.diagonal(axis1=-2, axis2=-1)
    unions = confusions.sum(axis=-2) + confusions.sum(axis=-1) - hits
    return np.divide(hits, unions, out=np.full(hits.shape, math.nan), where=unions > 0)


def mean_ious(confusions: Num[np.ndarray, "*N classes classes"]) -> Float[np.ndarray, "*N"]:
    """Return the mean over the classes that have an IoU; NaN where none has."""
    return means(ious(confusions))


def means(values: Float[np.ndarray, "*N classes"]) -> Float[np.ndarray, "*N"]:
    """Return the mean over the classes that are not NaN; NaN where all are."""
    known = ~np.isnan(values)
    counts = np.asarray(known.sum(axis=-1))
    totals = np.where(known, values, 0.0).sum(axis=-1)
    return np.divide(totals, counts, out=np.full(counts.shape, math.nan), where=counts > 0)


def confusion_of(mask: Mask, found: Mask, classes: int) -> Int[np.ndarray, "classes classes"]:
    """Return the pixels of class [row] that were called [column], without the ignored ones."""
    known = mask != IGNORED
    return confusion_matrix(mask[known].astype(np.int64), found[known].astype(np.int64), classes)


def evaluate_segmenter(
    model: Segmenter, images: MaskedDataset, **batching: Unpack[Batching]
) -> SegmentationEvaluation:
    """Evaluate every image once, at its mask's own size. Raises InputError: not one image can be read."""

    def confusions(batch: MaskEvaluationBatch) -> Tensor:
        found = []
        for logits, mask in zip(model(batch.images).float(), batch.masks, strict=True):
            classes = argmax_at_size(logits, (mask.shape[0], mask.shape[1])).cpu().numpy()
            found.append(confusion_of(mask, classes, len(images.classes)))
        return torch.from_numpy(np.stack(found))

    reader = MaskReader(images, model.preprocessing)
    outputs = compute_outputs(model, images, confusions, reader=reader, **batching)
    return SegmentationEvaluation(
        classes=images.classes,
        confusions=outputs.values.numpy(),
        **outputs.evaluation_fields,
    )


@torch.inference_mode()
def masks_of(model: Segmenter, images: Sequence[ImageLike]) -> list[Mask]:
    """Return the class number of each pixel of each image, at the image's own size, upright."""
    device = next(model.parameters()).device
    found = []
    for logits, image in zip(model(model.preprocessing(images).to(device)).float(), images, strict=True):
        size = stored(image, channels=model.config.channels).size
        found.append(argmax_at_size(logits, size).cpu().numpy())
    return found
