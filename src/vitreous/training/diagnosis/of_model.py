"""Checks of a model on images: what it is shown, what comes out of each layer, what it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.data.dataset import ImageDataset
from vitreous.data.decoding import BadImage
from vitreous.data.findings import Finding
from vitreous.data.image_samples import evaluation_loader
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model

SAMPLE = 128  # images that are looked at
FEWEST_TOKENS = 4
EXPLODING = 1e3  # times as large after a layer as before the first
VANISHING = 1e-7  # of the largest gradient


def model_findings(model: Model, images: ImageDataset, *, learned: bool = True) -> Iterator[Finding]:
    """All checks, on a sample of `images`.

    Args:
        learned: whether it has been trained at all: a fresh head of zeros answers the same to everything.
    """
    some = images.subset(np.array(images.sample(SAMPLE)))
    batch, targets, _ = next(
        iter(evaluation_loader(some, preprocessing=model.preprocessing, batch_size=SAMPLE))
    )
    yield from normalization(model, batch)
    yield from geometry(model, images)
    broken = list(origin_of_nan(model, batch))
    yield from broken
    if not broken and learned and targets.ndim == 1:
        yield from layers(model, batch, targets)
        yield from one_class(model, batch, targets)


def normalization(model: Model, images: Float[Tensor, "B C H W"]) -> Iterator[Finding]:
    """Values should be about 0 on average, and vary by about 1."""
    mean, std = images.mean(dim=(0, 2, 3)), images.std(dim=(0, 2, 3))
    if bool((mean.abs() < 1.5).all() and (std > 0.1).all() and (std < 5).all()):
        return
    yield Finding(
        "normalization",
        "error",
        f"the model sees values of mean {words(mean)} and standard deviation {words(std)}, from "
        f"preprocessing.mean={list(model.preprocessing.mean)} and std={list(model.preprocessing.std)}",
        "set preprocessing.mean and preprocessing.std to those of the images, of values in 0 ... 1",
    )


def words(values: Tensor) -> str:
    return ", ".join(f"{value:.3g}" for value in values.tolist())


def geometry(model: Model, images: ImageDataset) -> Iterator[Finding]:
    """Patches against the image, and the image against what there is to see."""
    config = model.config
    height, width = config.image_size
    if isinstance(config, ViTConfig) and config.grid[0] * config.grid[1] < FEWEST_TOKENS:
        yield Finding(
            "patch size",
            "warning",
            f"{height}x{width} images in patches of {config.patch_size[0]}x{config.patch_size[1]} are "
            f"{config.grid[0] * config.grid[1]} patches: attention has nothing to compare",
            f"set model.patch_size={max(1, min(height, width) // 8)}, or show larger images (--image-size)",
        )
    sides = []
    for index in images.sample(16):
        with suppress(BadImage):  # counted and named by the loader
            sides.append(min(images.opened(index, 3).size))
    if sides and (median := float(np.median(sides))) * 3 < min(height, width):
        yield Finding(
            "image size",
            "warning",
            f"images of about {median:.0f} pixels are blown up to {height}x{width}",
            f"use --image-size {max(16, round(median / 16) * 16)}: the rest of the pixels is made up",
        )


def origin_of_nan(model: Model, images: Float[Tensor, "B C H W"]) -> Iterator[Finding]:
    """The first place where a number is not finite: an image, a weight, or a layer's output."""
    if not torch.isfinite(images).all():
        yield Finding(
            "origin of NaN",
            "error",
            "the images themselves are not finite once they are normalized",
            "fix preprocessing.mean and preprocessing.std: no std may be next to 0",
        )
        return
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            yield Finding(
                "origin of NaN",
                "error",
                f"the weight {name} is not finite",
                "go back to an earlier checkpoint (vitreous train --resume) and set a lower training.peak_lr",
            )
            return
    first: list[str] = []

    def note(name: str, output: object) -> None:
        if isinstance(output, Tensor) and not torch.isfinite(output).all() and not first:
            first.append(name)

    handles = [
        module.register_forward_hook(lambda _, __, output, name=name: note(name, output))
        for name, module in model.named_modules()
        if not list(module.children())
    ]
    with torch.no_grad():
        model.eval()(images)
    for handle in handles:
        handle.remove()
    if first:
        yield Finding(
            "origin of NaN",
            "error",
            f"numbers stop being finite after {first[0]}",
            "use training.precision=fp32, or model.qk_norm=true if it is an attention",
        )


def layers(model: Model, images: Float[Tensor, "B C H W"], targets: Int[Tensor, " B"]) -> Iterator[Finding]:
    """Layers whose output explodes, and those that no gradient reaches."""
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, nn.ModuleList) or not len(blocks):
        return
    sizes: list[float] = []
    handles = [
        block.register_forward_hook(lambda _, inputs, output: sizes.append(ratio(output, inputs[0])))
        for block in blocks
    ]
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    model.zero_grad()
    torch.autograd.backward(F.cross_entropy(model(images), targets))
    for handle in handles:
        handle.remove()
    growth = np.cumprod(sizes)
    if growth.max() > EXPLODING:
        layer = int(np.argmax(growth > EXPLODING))
        yield Finding(
            "exploding layer",
            "error",
            f"after layer {layer + 1} the tokens are {growth[layer]:.0f} times as large as before layer 1",
            "set a lower training.peak_lr, more weight_decay, model.layer_scale=1e-4 or model.qk_norm=true",
        )
    reached = gradient_sizes(model)
    dead = [
        i for i in range(len(blocks)) if reached.get(i, 0.0) <= VANISHING * max(reached.values(), default=0)
    ]
    if dead and not frozen:
        yield Finding(
            "dead layer",
            "error",
            f"no gradient reaches layer{'s' if len(dead) > 1 else ''} {', '.join(str(i + 1) for i in dead)}",
            "train again with a lower training.peak_lr; if it stays, use model.norm=pre",
        )
    model.zero_grad()


def ratio(output: Tensor, before: Tensor) -> float:
    """How much larger tokens are after a layer."""
    return float(output.detach().square().mean().sqrt() / before.detach().square().mean().sqrt().clamp(1e-12))


def gradient_sizes(model: nn.Module) -> dict[int, float]:
    """The largest gradient in each encoder layer."""
    largest: dict[int, float] = {}
    for name, parameter in model.named_parameters():
        if name.startswith("blocks.") and parameter.grad is not None:
            layer = int(name.split(".")[1])
            largest[layer] = max(largest.get(layer, 0.0), float(parameter.grad.abs().max()))
    return largest


@torch.no_grad()
def one_class(
    model: Model, images: Float[Tensor, "B C H W"], targets: Int[Tensor, " B"]
) -> Iterator[Finding]:
    """A model that says the same of every image."""
    answers = Counter(model.eval()(images).argmax(dim=1).tolist())
    answer, times = answers.most_common(1)[0]
    right = int((targets == answer).sum())
    if times > 0.9 * len(images) and times > 1.5 * right:
        label = model.labels[answer] if model.labels else answer
        yield Finding(
            "one class",
            "error",
            f"{times} of {len(images)} images are called {label!r}, {right} are",
            "it has not learned: change the learning rate, or set data.class_balance=true if that class is "
            "by far the largest",
        )
