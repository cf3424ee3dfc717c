"""Frozen features: what a model's head sees of every image, extracted once and cached by content."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor, nn

from vitreous.data.dataset import ImageDataset, LabelTargets
from vitreous.data.image_samples import Batch
from vitreous.errors import InputError, cache_folder
from vitreous.evaluation.outputs import Batching, ModelOutputs, compute_outputs
from vitreous.models.model import Runnable
from vitreous.models.stored import BadImage
from vitreous.training.machine import answering_precision, computing
from vitreous.whole_files import whole


@dataclass(frozen=True)
class Features:
    """Of the images that could be decoded: what the head would see, the class, the number, and the group
    (images of one are equal or look alike); None: each is alone."""

    values: Float[np.ndarray, "N D"]
    targets: Int[np.ndarray, " N"]
    rows: Int[np.ndarray, " N"] = field(default_factory=lambda: np.zeros(0, np.int64))
    groups: Int[np.ndarray, " N"] | None = None


def cached_features(
    model: Runnable | nn.Module,
    images: ImageDataset,
    *,
    precision: str = "fp32",
    **batching: Unpack[Batching],
) -> Features:
    """Return `extract`'s features, cached by a hash of the weights, precision, preprocessing and images."""
    device = torch.device(batching.get("device", "cpu"))
    precision = answering_precision(precision, device)
    path = cache_folder() / "features" / f"{content_key(model, images, precision)}.safetensors"
    # Nothing may be there, or something damaged or old.
    with suppress(OSError, SafetensorError, KeyError):
        cached = load_file(path)
        rows = cached["rows"]
        return Features(cached["values"], cached["targets"], rows, images.together(rows))
    features = extract(model, images, precision=precision, **batching)
    # A cache that cannot be written stops nothing.
    with suppress(OSError, SafetensorError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as partial:
            found = {"values": features.values, "targets": features.targets, "rows": features.rows}
            save_file(found, partial)
    return features


def extract(
    model: Runnable | nn.Module,
    images: ImageDataset,
    *,
    precision: str | None = None,
    **batching: Unpack[Batching],
) -> Features:
    """Compute the features of every image once, in a precision; None: in that of the caller.

    Raises:
        InputError: images with several labels, or none that can be decoded.
    """
    if isinstance(images.targets, LabelTargets):
        raise InputError("a probe needs one class for each image, but these images have several labels")
    device = torch.device(batching.get("device", "cpu"))
    with nullcontext() if precision is None else computing(precision, device):
        outputs = feature_outputs(model, images, **batching)
    rows = outputs.indices
    return Features(outputs.values.numpy(), images.targets.strata(rows), rows, images.together(rows))


def feature_outputs(
    model: Runnable | nn.Module, images: ImageDataset, **batching: Unpack[Batching]
) -> ModelOutputs:
    """Compute what the head of a model sees of every image, (N, D). Raises InputError: no image is good."""
    encoder: Any = model

    def features(batch: Batch) -> Tensor:
        return encoder.features(batch.images).flatten(1).float()

    return compute_outputs(model, images, features, **batching)


def content_key(model: Runnable | nn.Module, images: ImageDataset, precision: str = "fp32") -> str:
    """Return a hash of the model, its precision, and every image's bytes."""
    digest = hashlib.blake2b(model_digest(model), digest_size=20)
    if precision != "fp32":
        digest.update(precision.encode())
    digest.update(images.targets.strata().tobytes())
    for index in range(len(images)):
        digest.update(image_bytes(images, index))
    return digest.hexdigest()


def model_digest(model: Runnable | nn.Module) -> bytes:
    """Return a hash of the weights, the function that they are part of, and the preprocessing."""
    digest = hashlib.blake2b(digest_size=20)
    digest.update(repr((getattr(model, "config", None), getattr(model, "preprocessing", None))).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.digest()


def image_bytes(images: ImageDataset, index: int) -> bytes:
    """Return what an image is made of: its file, or its size and pixels."""
    try:
        encoded = images.encoded(index)
        if encoded is not None:
            return hashlib.blake2b(encoded, digest_size=20).digest()
        image = images.image(index)
    except BadImage:
        return b"bad"
    return repr((image.mode, image.size)).encode() + image.tobytes()
