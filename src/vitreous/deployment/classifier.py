"""What a trained model answers to images: the most probable labels; the share of each class of pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress

import torch
from jaxtyping import Float
from torch import Tensor

from vitreous.deployment.answers import Choice, Prediction, probability_columns
from vitreous.errors import InputError, Param, nearest
from vitreous.evaluation.outputs import AveragedViews
from vitreous.extensions import outputs_of
from vitreous.models.model import Runnable, WithEncoder, as_probabilities, check_finite


def output_labels(model: Runnable | AveragedViews) -> list[str]:
    """Return the labels of a model's classes, or their numbers where it has no labels. Raises InputError: the
    model has no classes, or another number of labels."""
    classes = model.config.num_classes
    if classes is None:
        raise InputError("the model has no head, so it has no classes: train one with vitreous train")
    labels = list(model.labels or map(str, range(classes)))
    if len(labels) != classes:
        raise InputError(
            f"the model has {classes} outputs and {len(labels)} labels: set model.labels to one name for "
            "each output"
        )
    return labels


class ClassPredictor:
    """A model ready to classify.

    Args:
        model: with a head. Where each class is a question of its own, as those of several labels are, the
            probabilities need not sum to one.
        device: where to compute.
        top: labels that an answer names.
        threshold: an answer names all labels with this probability or more as well; of each label its own,
            0.5 where it has none.

    Raises:
        InputError: the model has no head, or another number of labels than outputs; or a threshold is of
            another label.
    """

    def __init__(
        self,
        model: Runnable | AveragedViews,
        device: str | torch.device = "cpu",
        *,
        top: int = 5,
        threshold: int | float | Mapping[str, float] | None = None,
    ) -> None:
        if isinstance(model, WithEncoder):
            raise InputError(
                f"a {type(model).__name__} does not predict a class for an image: use vitreous.predict"
            )
        self.labels = output_labels(model)
        self.model = model.to(device).eval()
        self.device, self.top = device, top
        self.outputs = outputs_of(self.model)
        self.threshold = None if threshold is None else self.least(threshold).to(device)

    @torch.inference_mode()
    def probabilities(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B classes"]:
        """Return the probability of each class of preprocessed images. Raises InputError: the model's outputs
        are not finite."""
        logits = check_finite(self.model(images.to(self.device)).float())
        return as_probabilities(logits, self.outputs)

    def columns(self, images: Float[Tensor, "B C H W"]) -> dict[str, object]:
        """Return the most probable label of each preprocessed image, its probability, and those of all."""
        return probability_columns(self.probabilities(images).cpu().numpy(), self.labels)

    @torch.inference_mode()
    def __call__(self, paths: Sequence[str], images: Float[Tensor, "B C H W"]) -> list[Prediction]:
        """Return the answer to each preprocessed image."""
        probabilities = self.probabilities(images)
        choices = self.most_probable(probabilities, self.top)
        if self.threshold is None:
            return [Prediction.of(path, top) for path, top in zip(paths, choices, strict=True)]
        named = (probabilities >= self.threshold).tolist()
        found: list[Prediction] = []
        for path, best, row in zip(paths, choices, named, strict=True):
            found.append(Prediction.of(path, best, tuple(compress(self.labels, row))))
        return found

    def least(self, threshold: int | float | Mapping[str, float]) -> Float[Tensor, " classes"]:
        """Return the least probability with which each label is named."""
        own = threshold if isinstance(threshold, Mapping) else dict.fromkeys(self.labels, threshold)
        if others := own.keys() - set(self.labels):
            near = nearest(min(others), self.labels)
            raise InputError(f"{Param('threshold')} names {min(others)!r}, which is not a label: {near}")
        return torch.tensor([float(own.get(label, 0.5)) for label in self.labels])

    def most_probable(self, probabilities: Tensor, top: int) -> list[tuple[Choice, ...]]:
        values, classes = probabilities.topk(min(top, probabilities.shape[-1]), dim=-1)
        found: list[tuple[Choice, ...]] = []
        for shares, numbers in zip(values.tolist(), classes.tolist(), strict=True):
            labels = [self.labels[number] for number in numbers]
            found.append(tuple(map(Choice, labels, shares)))
        return found
