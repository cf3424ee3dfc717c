"""Exported classifiers that answer without PyTorch: images are prepared by Pillow and NumPy, and computed by
ONNX Runtime or what an add-on has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from vitreous.data.dataset import ImageDataset
from vitreous.data.image_list import ImageRows
from vitreous.data.workers import map_in_order, worker_count
from vitreous.deployment.answers import AnswerColumns, Choice, Prediction, probability_columns
from vitreous.deployment.programs import PIXELS, Exported, format_of, open_exported
from vitreous.errors import utf8_name
from vitreous.extensions import CLASSES, outputs_of_task
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.stored import BadImage, Stored

PreparedImage = NDArray[Any]  # pixels as the file takes them, (H, W, C); or as its model does, (C, H, W)
MANY = 4000  # images: for more, loading PyTorch and compiled loops is worth it
BATCH = 8  # images: what a CPU computes fastest, or nearly so


class TorchlessClassifier:
    """An exported classifier at work; threads decode the next images while the engine computes.

    Attributes:
        task_name: of its task.
        about: what its answers have in common.
    """

    def __init__(self, exported: Exported, top: int, batch_size: int | None, workers: int | None) -> None:
        self.exported, self.top = exported, top
        self.batch_size, self.workers = batch_size or BATCH, worker_count(workers) or 1
        self.takes_pixels = exported.metadata["inputs"] == PIXELS
        self.preprocessing, self.labels = exported.preprocessing, exported.labels
        self.task_name: str = exported.metadata["task"]
        self.about: dict[str, object] = {}

    def is_slow_for(self, images: int) -> bool:
        """Return whether PyTorch's way of decoding so many images is worth its loading."""
        return images >= MANY and not self.takes_pixels

    def rows(self, images: ImageDataset) -> Iterator[ImageRows]:
        """Yield images as `probabilities` takes them, in batches and in order."""

        def read(index: int) -> tuple[PreparedImage, str | None] | BadImage:
            try:
                opened = images.opened(index, self.preprocessing)
                image = opened.array() if self.takes_pixels else prepare_image(opened, self.preprocessing)
                return image, opened.damage
            except BadImage as bad:
                return bad

        with ThreadPoolExecutor(self.workers) as threads:
            found = map_in_order(threads, read, range(len(images)), ahead=2 * self.batch_size)
            for start in range(0, len(images), self.batch_size):
                batch = list(islice(found, self.batch_size))
                names = [utf8_name(images.name(start + place)) for place in range(len(batch))]
                good: list[PreparedImage] = []
                failed: dict[int, str] = {}
                damaged: dict[int, str] = {}
                for place, one in enumerate(batch):
                    if isinstance(one, BadImage):
                        failed[place] = one.reason
                        continue
                    image, damage = one
                    good.append(image)
                    if damage:
                        damaged[place] = damage
                yield ImageRows(names, good, failed, damaged)

    def answers(self, names: list[str], images: list[PreparedImage]) -> list[Prediction]:
        """Return the most probable labels of each image of a batch."""
        answers: list[Prediction] = []
        for name, row in zip(names, probabilities(self.exported, images), strict=True):
            answers.append(Prediction.of(name, choices(self.labels, row, self.top)))
        return answers

    def columns(self, names: list[str], images: list[PreparedImage]) -> AnswerColumns:
        """Return the most probable label of each image, its probability, and those of all."""
        return probability_columns(probabilities(self.exported, images), self.labels)


def open_torchless(file: Path) -> Exported | None:
    """Open an exported classifier that is computed without PyTorch; None for any other file."""
    format = format_of(file)
    if format is None or format.package is None:
        return None
    found = open_exported(file)
    of_classes = outputs_of_task(found.metadata["task"]) in CLASSES
    return found if of_classes and found.metadata["model"].get("num_classes") else None


def prepare_image(image: Stored, how: Preprocessing) -> Float[np.ndarray, "C H W"]:
    """Return an image as the model takes it: what `how` makes of it, in NumPy. Raises BadImage."""
    pixels = how.array(image).astype(np.float32)
    mean, std = np.array(how.mean, dtype=np.float64), np.array(how.std, dtype=np.float64)
    factor, shift = (1 / (255 * std)).astype(np.float32), (-mean / std).astype(np.float32)
    return np.ascontiguousarray((pixels * factor + shift).transpose(2, 0, 1))


def probabilities(found: Exported, images: Sequence[PreparedImage]) -> Float[np.ndarray, "B classes"]:
    """Return the probability of each label of images."""
    if found.metadata["inputs"] == PIXELS:  # of its own size each
        return np.concatenate([found.compute(image[None], 1)[0] for image in images])
    logits = found.compute(np.stack(images), 1)[0].astype(np.float32)
    if outputs_of_task(found.metadata["task"]) == "sigmoid":
        return np.exp(-np.logaddexp(0, -logits))  # without an overflow
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def choices(labels: Sequence[str], row: NDArray[np.float32], top: int) -> tuple[Choice, ...]:
    """Return the most probable labels, in descending order."""
    order = np.argsort(-row, kind="stable")[:top]
    return tuple(Choice(labels[number], float(row[number])) for number in order.tolist())
