"""A model's output for every image of a dataset, in its order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from jaxtyping import Int, Shaped
from PIL import Image
from torch import Tensor, nn

from vitreous.data.dataset import ImageDataset
from vitreous.data.decoding import BadImage
from vitreous.data.image_samples import SampleReader, evaluation_loader
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing
from vitreous.training.distributed import ALONE, World

Progress = Callable[[int, int], None]


class Batching(TypedDict, total=False):
    """How examples pass through a model.

    device: where it computes; by default the CPU. batch_size: by default 64. workers: threads that decode; 0,
    the default: the caller's. progress: called after each batch with the examples done and all of them.
    world: the processes that share the examples; each of them gets all outputs.
    """

    device: str | torch.device
    batch_size: int
    workers: int
    progress: Progress | None
    world: World


class Outputs(NamedTuple):
    """The outputs for the images that could be decoded.

    Attributes:
        indices: the number of each image in its dataset.
        names: its name there.
        values: a row for each, on the CPU.
        failed: images that could not be decoded, and why.
        seconds: from the first image to the last.
    """

    indices: Int[np.ndarray, " N"]
    names: tuple[str, ...]
    values: Shaped[Tensor, "N ..."]
    failed: Mapping[str, str]
    seconds: float


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Compute without gradients, with a model in evaluation mode; then restore its mode."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(training)


def compute_outputs(
    model: nn.Module,
    images: ImageDataset,
    compute: Callable[[Any], Tensor] | None = None,
    *,
    preprocessing: Preprocessing | None = None,
    reader: SampleReader | None = None,
    device: str | torch.device = "cpu",
    batch_size: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
    world: World = ALONE,
) -> Outputs:
    """Pass every image through a model once, in evaluation mode; its mode is restored.

    Args:
        compute: what is computed of a batch, a row for each image; by default the model's output in float32.
        preprocessing: by default the model's.
        reader: makes batches of another kind than `Batch`.
        device, batch_size, workers, progress, world: as in `Batching`.

    Raises:
        InputError: no image can be read.
    """
    shown: Any = preprocessing or model.preprocessing
    loader = evaluation_loader(
        images,
        preprocessing=shown,
        batch_size=batch_size,
        workers=workers,
        rank=world.rank,
        world_size=world.size,
        device=device,
        reader=reader,
    )
    compute = compute or (lambda batch: model(batch.images).float())
    started = time.perf_counter()
    indices: list[Tensor] = []
    values: list[Tensor] = []
    with evaluating(model.to(device)):
        for batch in loader:
            values.append(compute(batch).cpu())
            indices.append(batch.indices.cpu())
            if progress:
                progress(sum(map(len, indices)) + len(loader.bad), len(images))
    failed = dict(loader.bad)
    if world.size > 1:
        parts = world.gather((indices, values, failed))
        indices = [each for part in parts for each in part[0]]
        values = [each for part in parts for each in part[1]]
        failed = {name: reason for part in parts for name, reason in part[2].items()}
    if not values:
        name, why = next(iter(failed.items()))
        raise InputError(f"not one of {len(images)} images can be read: {name}: {why}")
    rows, order = torch.cat(indices).sort()
    found = torch.cat(values)[order] if world.size > 1 else torch.cat(values)
    names = tuple(images.name(row) for row in rows.tolist())
    return Outputs(rows.numpy(), names, found, failed, time.perf_counter() - started)


def image_batches(
    images: ImageDataset, batch_size: int, failed: dict[str, str]
) -> Iterator[list[tuple[int, Image.Image]]]:
    """Yield the decoded images with their numbers, a batch at a time; `failed` takes what cannot be read."""
    for start in range(0, len(images), batch_size):
        some = []
        for row in range(start, min(start + batch_size, len(images))):
            try:
                some.append((row, images.image(row)))
            except BadImage as bad:
                failed[bad.name] = bad.reason
        if some:
            yield some
