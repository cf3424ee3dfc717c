"""Prediction: a trained classifier on unlabeled images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vitreous.data.image_list import Failure, ImageList
from vitreous.data.image_samples import evaluation_loader
from vitreous.errors import InputError
from vitreous.models.names import Model
from vitreous.models.segmenter import Segmenter


@dataclass(frozen=True)
class Choice:
    """A label, and what probability the model gives it."""

    label: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The most probable labels of one image, in descending order."""

    path: str
    top: tuple[Choice, ...]

    @property
    def label(self) -> str:
        return self.top[0].label

    @property
    def probability(self) -> float:
        return self.top[0].probability

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "label": self.label,
            "probability": self.probability,
            "top": [asdict(choice) for choice in self.top],
        }

    def line(self) -> str:
        """Return the prediction for people, in a line."""
        others = ", ".join(f"{each.label} {each.probability:.1%}" for each in self.top[1:])
        return f"{self.path}  {self.label}  {self.probability:.1%}  ({others})"


class Predictor:
    """A model ready to classify.

    Args:
        model: with a head. Its own preprocessing is used, so an image is seen as in training. Where its task
            is "multilabel", each class is a question of its own, and the probabilities need not sum to one.
        device: where to compute.

    Raises:
        InputError: the model has no head, or another number of labels than outputs.
    """

    def __init__(self, model: Model, device: str | torch.device = "cpu") -> None:
        classes = model.config.num_classes
        if isinstance(model, Segmenter):
            raise InputError("the model gives each pixel a class, not the image: use SegmentPredictor")
        if classes is None:
            raise InputError("the model has no head, so it cannot classify: train one with vitreous train")
        self.model = model.to(device).eval()
        self.device = device
        self.labels = model.labels or [str(number) for number in range(classes)]
        if len(self.labels) != classes:
            raise InputError(
                f"the model has {classes} outputs and {len(self.labels)} labels: set model.labels to one "
                "name for each output"
            )

    def predict(
        self,
        images: Sequence[Any] | ImageList,
        *,
        top: int = 5,
        batch_size: int = 64,
        workers: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[list[Prediction], list[Failure]]:
        """Classify images; those that cannot be decoded are failures, and do not stop the others.

        Args:
            images: paths of files, or what else an `ImageList` takes.
            top: how many of the most probable labels to return.
            progress: called after each batch with the number of files done and in total.
        """
        files = images if isinstance(images, ImageList) else ImageList(images)
        loader = evaluation_loader(
            files,
            preprocessing=self.model.preprocessing,
            batch_size=batch_size,
            workers=workers,
            device=self.device,
        )
        predictions: list[Prediction] = []
        for batch in loader:
            choices = self.choices(batch.images, top=top)
            indices = batch.indices.tolist()
            predictions += [
                Prediction(files.name(index), best) for index, best in zip(indices, choices, strict=True)
            ]
            if progress:
                progress(len(predictions) + len(loader.bad), len(files))
        reasons = dict(loader.bad)
        names = map(files.name, range(len(files)))
        return predictions, [Failure(name, reasons[name]) for name in names if name in reasons]

    @torch.inference_mode()
    def choices(self, images: Float[Tensor, "B C H W"], *, top: int = 5) -> list[tuple[Choice, ...]]:
        """Return the most probable labels of every image of a batch, in descending order."""
        logits = self.model(images.to(self.device)).float()
        probabilities = logits.sigmoid() if self.model.task == "multilabel" else logits.softmax(dim=-1)
        values, classes = probabilities.topk(min(top, probabilities.shape[-1]), dim=-1)
        return [
            tuple(Choice(self.labels[number], value) for value, number in zip(*row, strict=True))
            for row in zip(values.tolist(), classes.tolist(), strict=True)
        ]
