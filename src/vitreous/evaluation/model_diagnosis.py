"""Why is it not learning? Checks of a run's model on images; each finding has its fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.data.dataset import ImageDataset
from vitreous.data.findings import Finding, finding
from vitreous.data.image_samples import evaluation_loader
from vitreous.models.config import ViTConfig
from vitreous.models.ensemble import Ensemble
from vitreous.models.model import Model
from vitreous.models.stored import BadImage

SAMPLE = 128  # images that are looked at
FEWEST_TOKENS = 4
SMALLEST = 32  # pixels of a side, up to which an image may be blown up: every recipe does that
EXPLODING = 1e3  # times as large after a layer as before the first
VANISHING = 1e-7  # of the largest gradient
STEP = 1 / 255  # of a color
BLANK = 0.2  # share of images that are of one color
FAR = 6.0  # from 0: the mean of normalized values


def model_findings(
    model: Model, images: ImageDataset, *, learned: bool = True, usual: tuple[int, int] | None = None
) -> Iterator[Finding]:
    """Yield the findings of all checks, on a sample of `images`.

    Args:
        learned: whether it has been trained at all: a fresh head of zeros answers the same to everything.
        usual: the size (H, W) that the recipe shows such images at.
    """
    some = images.subset(np.array(images.sample(SAMPLE)))
    loader = evaluation_loader(some, preprocessing=model.preprocessing, batch_size=SAMPLE)
    batch, targets, *_ = next(iter(loader))
    yield from blank_images(model, batch)
    yield from normalization(model, batch)
    yield from check_geometry(model, images, usual)
    broken = list(origin_of_nan(model, batch))
    yield from broken
    if not broken and learned and targets.ndim == 1:
        # An ensemble has no layers that could have learned nothing.
        if not isinstance(model, Ensemble):
            yield from layer_findings(model, batch, targets)
        yield from constant_prediction(model, batch, targets)


def blank_images(model: Model, images: Float[Tensor, "B C H W"]) -> Iterator[Finding]:
    """Yield a finding about images that show nothing: what a broken export or a failed download leaves."""
    mean = torch.tensor(model.preprocessing.mean).view(1, -1, 1, 1)
    std = torch.tensor(model.preprocessing.std).view(1, -1, 1, 1)
    pixels = images * std + mean
    if len(images) > 1 and (pixels - pixels[:1]).abs().max() < STEP:
        yield from finding("blank images.same", count=len(images))
        return
    flat = int((pixels.flatten(1).amax(1) - pixels.flatten(1).amin(1) < 2 * STEP).sum())
    if flat > BLANK * len(images):
        yield from finding("blank images.flat", found=flat, count=len(images), severity="warning")


def normalization(model: Model, images: Float[Tensor, "B C H W"]) -> Iterator[Finding]:
    """Yield a finding about normalized values: those in 0 ... 1 should come to lie about 0, and vary by about
    1. Pale or dark images are further from that than others, and no mistake."""
    mean, std = images.mean(dim=(0, 2, 3)), images.std(dim=(0, 2, 3))
    own = model.preprocessing
    plausible = all(-0.5 <= each <= 1.5 for each in own.mean) and all(0.04 <= each <= 2 for each in own.std)
    if plausible and bool((mean.abs() < FAR).all()):
        return
    yield from finding("normalization", mean=numbers_text(mean), std=numbers_text(std), p=own)


def numbers_text(values: Tensor) -> str:
    return ", ".join(f"{value:.3g}" for value in values.tolist())


def check_geometry(
    model: Model, images: ImageDataset, usual: tuple[int, int] | None = None
) -> Iterator[Finding]:
    """Yield findings about patches against the image, and the image against what there is to see. usual: the
    size that the recipe shows such images at; no such size is found fault with."""
    config = model.config
    height, width = config.image_size
    if isinstance(config, ViTConfig) and config.grid[0] * config.grid[1] < FEWEST_TOKENS:
        yield from finding(
            "patch size",
            height=height,
            width=width,
            patch=config.patch_size,
            patches=config.grid[0] * config.grid[1],
            better=max(1, min(height, width) // 8),
            severity="warning",
        )
    sides = []
    for index in images.sample(16):
        with suppress(BadImage):  # counted and named by the loader
            sides.append(min(images.opened(index, 3).size))
    if not sides:
        return
    shorter, side = float(np.median(sides)), min(height, width)
    fit = min(usual) if usual else SMALLEST
    if shorter * 3 < side and side > fit:
        better = fit if usual else max(16, round(shorter / 16) * 16)
        yield from finding(
            "image size.small", better=better, shorter=shorter, height=height, width=width, severity="warning"
        )
    elif usual and side * 2 <= min(*usual, shorter):
        yield from finding(
            "image size.large", better=fit, shorter=shorter, height=height, width=width, severity="warning"
        )


def origin_of_nan(model: Model, images: Float[Tensor, "B C H W"]) -> Iterator[Finding]:
    """Yield a finding about the first place where a number is not finite: an image, a weight, or a layer's
    output."""
    if not torch.isfinite(images).all():
        yield from finding("origin of NaN.images")
        return
    broken = list(weights_not_finite(model.named_parameters()))
    yield from broken
    if broken:
        return
    first: list[str] = []

    def note(name: str, output: object) -> None:
        if isinstance(output, Tensor) and not torch.isfinite(output).all() and not first:
            first.append(name)

    handles = []
    for name, module in model.named_modules():
        if not list(module.children()):
            handles.append(module.register_forward_hook(lambda _, __, output, name=name: note(name, output)))
    with torch.no_grad():
        model.eval()(images)
    for handle in handles:
        handle.remove()
    if first:
        yield from finding("origin of NaN.layer", name=first[0])


def weights_not_finite(weights: Iterable[tuple[str, Tensor]]) -> Iterator[Finding]:
    """Yield a finding about the first weight that is not finite."""
    for name, weight in weights:
        if weight.is_floating_point() and not torch.isfinite(weight).all():
            yield from finding("origin of NaN.weight", name=name)
            return


def layer_findings(
    model: Model, images: Float[Tensor, "B C H W"], targets: Int[Tensor, " B"]
) -> Iterator[Finding]:
    """Yield findings about layers whose output explodes, and those that no gradient reaches."""
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, nn.ModuleList) or not len(blocks):
        return
    sizes: list[float] = []  # how much larger tokens are after each layer

    def note(block: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        before = inputs[0].detach().square().mean().sqrt().clamp(1e-12)
        sizes.append(float(output.detach().square().mean().sqrt() / before))

    handles = [block.register_forward_hook(note) for block in blocks]
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    model.zero_grad()
    torch.autograd.backward(F.cross_entropy(model(images), targets))
    for handle in handles:
        handle.remove()
    growth = np.cumprod(sizes)
    if growth.max() > EXPLODING:
        layer = int(np.argmax(growth > EXPLODING))
        yield from finding("exploding layer", layer=layer + 1, times=growth[layer])
    reached: dict[int, float] = {}  # the largest gradient in each layer
    for name, parameter in model.named_parameters():
        if name.startswith("blocks.") and parameter.grad is not None:
            layer = int(name.split(".")[1])
            reached[layer] = max(reached.get(layer, 0.0), float(parameter.grad.abs().max()))
    least = VANISHING * max(reached.values(), default=0)
    dead = [layer + 1 for layer in range(len(blocks)) if reached.get(layer, 0.0) <= least]
    if dead and not frozen:
        yield from finding("dead layer", layers=dead)
    model.zero_grad()


@torch.no_grad()
def constant_prediction(
    model: Model, images: Float[Tensor, "B C H W"], targets: Int[Tensor, " B"]
) -> Iterator[Finding]:
    """Yield a finding about a model that says the same of every image."""
    answers = Counter(model.eval()(images).argmax(dim=1).tolist())
    answer, times = answers.most_common(1)[0]
    right = int((targets == answer).sum())
    if times > 0.9 * len(images) and times > 1.5 * right:
        label = model.labels[answer] if model.labels else answer
        yield from finding("one class", found=times, count=len(images), label=label, right=right)
