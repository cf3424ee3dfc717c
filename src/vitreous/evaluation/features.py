"""Frozen features: what a model's head sees of every image, extracted once and kept by content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from vitreous.checkpoints.whole_files import whole
from vitreous.data.dataset import BadImage, ImageDataset
from vitreous.data.image_samples import evaluation_loader
from vitreous.errors import InputError
from vitreous.models.names import Model
from vitreous.training.precision import answering_precision, computing


@dataclass(frozen=True)
class Features:
    """Of the images that could be decoded: what the head would see, and the class."""

    values: Float[np.ndarray, "N D"]
    targets: Int[np.ndarray, " N"]


def cache_folder() -> Path:
    """$VITREOUS_CACHE, or ~/.cache/vitreous."""
    return Path(os.environ.get("VITREOUS_CACHE") or Path.home() / ".cache" / "vitreous")


def cached_features(
    model: Model,
    images: ImageDataset,
    *,
    device: str | torch.device = "cpu",
    precision: str = "fp32",
    batch_size: int = 64,
    workers: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Features:
    """`extract`, but never twice for the same weights, precision, preprocessing and images: the result is
    kept in `cache_folder`, named by a hash of all four. A damaged file is made again."""
    precision = answering_precision(precision, torch.device(device))
    path = cache_folder() / "features" / f"{content_key(model, images, precision)}.safetensors"
    if path.is_file():
        try:
            kept = load_file(path)
        except SafetensorError:
            path.unlink()
        else:
            return Features(kept["values"], kept["targets"])
    with computing(precision, torch.device(device)):
        features = extract(
            model, images, device=device, batch_size=batch_size, workers=workers, progress=progress
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as beside:
        save_file({"values": features.values, "targets": features.targets}, beside)
    return features


def extract(
    model: Model,
    images: ImageDataset,
    *,
    device: str | torch.device = "cpu",
    batch_size: int = 64,
    workers: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Features:
    """The features of every image once, in evaluation mode; the model's mode is given back.

    Raises:
        InputError: images with several labels, or none that can be decoded.
    """
    if images.targets.ndim != 1:
        raise InputError("a probe needs one class for each image, and these images have several labels")
    values, indices, _ = embed_dataset(
        model, images, device=device, batch_size=batch_size, workers=workers, progress=progress
    )
    return Features(values, images.targets[indices].astype(np.int64))


def embed_dataset(
    model: Model,
    images: ImageDataset,
    *,
    device: str | torch.device = "cpu",
    batch_size: int = 64,
    workers: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Float[np.ndarray, "N D"], Int[np.ndarray, " N"], dict[str, str]]:
    """Compute the features of every image once, in evaluation mode; the model's mode is restored.

    Returns:
        the features, the index of each one's image, and why other images could not be decoded, by name.

    Raises:
        InputError: no image can be decoded.
    """
    loader = evaluation_loader(
        images, preprocessing=model.preprocessing, batch_size=batch_size, workers=workers, device=device
    )
    values: list[np.ndarray] = []
    indices: list[np.ndarray] = []
    training = model.training
    model.to(device).eval()
    with torch.inference_mode():
        for batch in loader:
            values.append(model.features(batch.images).flatten(1).float().cpu().numpy())
            indices.append(batch.indices.cpu().numpy())
            if progress:
                progress(sum(map(len, indices)), len(images))
    model.train(training)
    if not values:
        raise InputError("none of the images could be decoded: there are no features to compute")
    return np.concatenate(values), np.concatenate(indices), dict(loader.bad)


def content_key(model: Model, images: ImageDataset, precision: str = "fp32") -> str:
    """A hash of the weights, the function they are part of, its precision, the preprocessing, and every
    image's bytes."""
    digest = hashlib.blake2b(digest_size=20)
    digest.update(repr((model.config, model.preprocessing)).encode())
    if precision != "fp32":
        digest.update(precision.encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    digest.update(np.ascontiguousarray(images.targets).tobytes())
    for index in range(len(images)):
        digest.update(image_bytes(images, index))
    return digest.hexdigest()


def image_bytes(images: ImageDataset, index: int) -> bytes:
    """What an image is made of: its file, or its size and pixels."""
    try:
        encoded = images.encoded(index)
        if encoded is not None:
            return hashlib.blake2b(encoded, digest_size=20).digest()
        image = images.image(index)
    except BadImage:
        return b"bad"
    return repr((image.mode, image.size)).encode() + image.tobytes()
