"""A model's answer to every image of a set, in the order of the set."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitreous.data.dataset import ImageDataset
from vitreous.data.image_samples import evaluation_loader
from vitreous.errors import InputError
from vitreous.models.names import Model

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Answers:
    """Logits of the images that could be decoded.

    Attributes:
        indices: where each image stands in its source.
        names: its name there.
        failed: images that could not be decoded, and why.
        seconds: from the first image to the last.
    """

    indices: Int[np.ndarray, " N"]
    names: tuple[str, ...]
    logits: Float[Tensor, "N classes"]
    failed: Mapping[str, str]
    seconds: float


def ask(
    model: Model,
    images: ImageDataset,
    *,
    device: str | torch.device,
    batch_size: int,
    workers: int,
    progress: Progress | None,
) -> Answers:
    """Every one of `images` through the model once, in evaluation mode; the model's mode is given back."""
    loader = evaluation_loader(
        images, preprocessing=model.preprocessing, batch_size=batch_size, workers=workers, device=device
    )
    started = time.perf_counter()
    indices: list[Tensor] = []
    logits: list[Tensor] = []
    training = model.training
    model.to(device).eval()
    with torch.inference_mode():
        for batch in loader:
            logits.append(model(batch.images).float().cpu())
            indices.append(batch.indices.cpu())
            if progress:
                progress(sum(map(len, indices)), len(images))
    model.train(training)
    if not logits:
        raise InputError("none of the images could be decoded: there is nothing to evaluate")
    rows = torch.cat(indices).numpy()
    return Answers(
        indices=rows,
        names=tuple(images.name(row) for row in rows.tolist()),
        logits=torch.cat(logits),
        failed=dict(loader.bad),
        seconds=time.perf_counter() - started,
    )


def class_labels(model: Model, images: ImageDataset) -> tuple[str, ...]:
    """The label of each output of the model; every class of `images` is among them.

    The images may show some of the model's classes only. A model without labels takes those of the
    images, when their number is right.
    """
    outputs = model.config.num_classes
    if outputs is None:
        raise InputError("the model has no head, so it cannot classify: train one, or use vitreous probe")
    if model.labels is None:
        if len(images.classes) != outputs:
            raise InputError(
                f"the data has {len(images.classes)} classes, the model {outputs} without names: "
                "evaluate it on data with the same classes"
            )
        return tuple(images.classes)
    strange = [label for label in images.classes if label not in model.labels]
    if strange:
        raise InputError(
            f"the model does not know {listing(strange)}; its classes are {listing(model.labels)}: "
            "name the classes of the data as the model does"
        )
    return tuple(model.labels)


def listing(names: list[str], shown: int = 5) -> str:
    """The first few names, and how many more there are."""
    first = ", ".join(repr(name) for name in names[:shown])
    return first if len(names) <= shown else f"{first} and {len(names) - shown} more"
