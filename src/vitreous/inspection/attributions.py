"""Attributions of a prediction to patches, by four methods side by side, each with a sanity check.

Integrated gradients: Sundararajan et al., arXiv 1703.01365. The check with randomized weights: Adebayo et
al., arXiv 1810.03292. A map that stays the same when the weights are drawn again shows the image alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from markupsafe import Markup
from torch import Tensor, nn

from vitreous.evaluation.outputs import ProgressCallback
from vitreous.inspection.images import Pixels, contact_sheet, overlay
from vitreous.inspection.measures import map_words, readout_of, rollout_map
from vitreous.inspection.page import HTML, Exhibit, exhibit
from vitreous.inspection.relevance import relevance
from vitreous.languages import phrase
from vitreous.models.vit import ViT
from vitreous.rng import torch_generator

METHODS = ("rollout", "relevance", "attention-gradient", "integrated-gradients")
STEPS = 16  # of integrated gradients
SAME, PARTLY = 0.5, 0.25  # rank correlations: a map above hardly, or only in part, depends on the weights
MOST_SHOWN = 4  # images, each with all methods
BUDGET = 4e12  # operations of a page's attributions: about a minute on two cores
AttributionMaps = Mapping[str, Float[Tensor, "B rows columns"]]


@dataclass(frozen=True)
class Attribution:
    """Which patches a class is attributed to.

    Attributes:
        classes: which is explained, for each image.
        maps: of each method; not negative.
        correlation: of the ranks of the patches in these and in those of the model with weights that were
            drawn again, for each method and image: 1 for the same order.
        total: what the integrated gradients of an image add up to.
        difference: of the logit at the image and at the baseline, which they should add up to.
        steps: of integrated gradients.
    """

    classes: Int[Tensor, "B"]
    maps: AttributionMaps
    correlation: Mapping[str, Float[Tensor, "B"]]
    total: Float[Tensor, "B"]
    difference: Float[Tensor, "B"]
    steps: int


def attribute_batch(
    model: ViT,
    images: Float[Tensor, "B C H W"],
    classes: Int[Tensor, "B"] | None = None,
    *,
    steps: int = STEPS,
    seed: int = 0,
    progress: ProgressCallback | None = None,
) -> Attribution:
    """Attribute the logit of `classes`, by default of each image's prediction, to patches, image by image.

    Args:
        steps: of integrated gradients.
        seed: of the randomized weights.
        progress: is called with the images done and all of them, of both models.
    """
    device = next(model.parameters()).device
    singly = torch.split(images, 1)
    if classes is None:
        with torch.no_grad():
            classes = torch.cat([model(image.to(device)).argmax(dim=-1).cpu() for image in singly])
    other = randomized(model, seed)
    own: dict[str, list[Tensor]] = {name: [] for name in METHODS}
    drawn: dict[str, list[Tensor]] = {name: [] for name in METHODS}
    sums: list[Tensor] = []  # of the model itself
    for number, (image, target) in enumerate(zip(singly, torch.split(classes, 1), strict=True)):
        for done, (each, parts) in enumerate(((model, own), (other, drawn)), start=2 * number + 1):
            maps, added = all_maps(each, image.to(device), target.to(device), steps)
            if each is model:
                sums.append(added)
            for name in METHODS:
                parts[name].append(maps[name])
            if progress:
                progress(done, 2 * len(images))
    total, difference = torch.cat(sums, dim=1)
    found = {name: torch.cat(parts) for name, parts in own.items()}
    correlation = {name: rank_correlation(maps, torch.cat(drawn[name])) for name, maps in found.items()}
    return Attribution(classes, found, correlation, total, difference, steps)


def all_maps(
    model: ViT, image: Float[Tensor, "1 C H W"], target: Int[Tensor, "1"], steps: int
) -> tuple[AttributionMaps, Float[Tensor, "2 1"]]:
    """Return the map of each method for one image, and what integrated gradients add up to, and should."""
    evidence = relevance(model, image, target)
    pixels, difference = integrated_gradients(model, image, target, steps=steps)
    maps = {
        "rollout": rollout_map(model, image, readout_of(model, image)),
        "relevance": evidence.patches.cpu(),
        "attention-gradient": evidence.gradient.cpu(),
        # What speaks for the class; a patch that speaks against it has none.
        "integrated-gradients": per_patch(pixels, model.config.grid).clamp_min(0).cpu(),
    }
    return maps, torch.stack([pixels.sum(dim=(1, 2, 3)), difference]).cpu()


def integrated_gradients(
    model: nn.Module,
    images: Float[Tensor, "B C H W"],
    classes: Int[Tensor, "B"],
    *,
    steps: int,
) -> tuple[Float[Tensor, "B C H W"], Float[Tensor, "B"]]:
    """Return the integrated gradients of each pixel, and the difference of the logits at the image and at the
    baseline, to which they add up but for the error of the integral (completeness).

    The baseline is an image of the mean color, which is zero after the normalization. The integral over the
    straight path from it is that of Gauss and Legendre.

    Args:
        model: any module from images to logits (B, classes), in evaluation mode.
        steps: points of the integral, one forward and backward pass each.
    """
    with torch.no_grad():
        logits, at_baseline = model(images), model(torch.zeros_like(images))
    target = classes.to(logits.device)[:, None]
    points, weights = np.polynomial.legendre.leggauss(steps)
    total = torch.zeros_like(images)
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        between = (float(point) * images).detach().requires_grad_()
        with torch.enable_grad():
            score = model(between).gather(1, target).sum()
        total += float(weight) * torch.autograd.grad(score, between)[0]
    return total * images, (logits - at_baseline).gather(1, target)[:, 0]


def per_patch(pixels: Float[Tensor, "B C H W"], grid: tuple[int, int]) -> Float[Tensor, "B rows columns"]:
    """Return the sums of the pixels of each patch; what a last patch lacks counts as zero."""
    rows, columns = grid
    height, width = -(-pixels.shape[2] // rows), -(-pixels.shape[3] // columns)
    summed = F.pad(
        pixels.sum(dim=1), (0, columns * width - pixels.shape[3], 0, rows * height - pixels.shape[2])
    )
    return summed.reshape(-1, rows, height, columns, width).sum(dim=(2, 4))


def randomized(model: ViT, seed: int = 0) -> ViT:
    """Return a copy whose weights are all drawn again, each tensor with its own mean and deviation."""
    other = deepcopy(model)
    rng = torch_generator(seed, "randomized-weights")
    with torch.no_grad():
        for parameter in other.parameters():
            drawn = torch.randn(parameter.shape, generator=rng)
            spread = parameter.float().std(correction=0) if parameter.numel() > 1 else 0.0
            parameter.copy_((parameter.float().mean() + spread * drawn.to(parameter.device)).to(parameter))
    return other.eval()


def rank_correlation(
    first: Float[Tensor, "B rows columns"], second: Float[Tensor, "B rows columns"]
) -> Float[Tensor, "B"]:
    """Return Spearman's correlation of the patches' ranks, image by image; 0 where a map is even."""
    a, b = average_ranks(first.flatten(1)), average_ranks(second.flatten(1))
    a, b = a - a.mean(dim=1, keepdim=True), b - b.mean(dim=1, keepdim=True)
    scale = a.norm(dim=1) * b.norm(dim=1)
    return torch.where(scale > 0, (a * b).sum(dim=1) / scale.clamp_min(1e-12), 0.0).float()


def average_ranks(values: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    """Return the rank of each value in its row; equal values share the mean of their ranks."""
    below = (values[:, None, :] < values[:, :, None]).sum(dim=2)
    equal = (values[:, None, :] == values[:, :, None]).sum(dim=2)
    return (below + (equal - 1) / 2).double()


def affordable(model: ViT, count: int) -> int:
    """Return how many of `count` images can be attributed in about a minute on a few cores."""
    config = model.config
    weights = sum(each.numel() for each in model.parameters())
    operations = 6 * weights * config.sequence_length * 2 * STEPS  # forward and backward, of both models
    return int(min(count, MOST_SHOWN, BUDGET // max(operations, 1)))


def attributions_figure(found: Attribution, images: Sequence[tuple[Pixels, str]]) -> Exhibit:
    """Show the maps of each image side by side, each with its rank correlation with the randomized model."""
    rows, files = [], []
    for place, (image, caption) in enumerate(images[: len(found.total)]):
        sums = {"total": float(found.total[place]), "difference": float(found.difference[place])}
        tiles, notes = [(image, caption)], [phrase("attributions.sums", **sums)]
        for name in METHODS:
            values, correlation = found.maps[name][place], float(found.correlation[name][place])
            tiles.append((overlay(image, values), phrase(f"attributions.{name}")))
            notes.append(f"{map_words(values)}; {correlation_in_words(correlation, values.numel())}")
        rows.append(HTML.image_row(tiles, notes, [caption] * len(tiles)))
        files += [tile for tile, _ in tiles]
    arrays = {f"attribution_{name.replace('-', '_')}": maps.numpy() for name, maps in found.maps.items()}
    patches = found.maps[METHODS[0]][0].numel()
    means = []
    for name, correlations in found.correlation.items():
        means.append(
            f"{phrase(f'attributions.{name}')}: {correlation_in_words(float(correlations.mean()), patches)}"
        )
    return exhibit(
        "attributions",
        Markup().join(rows),
        file=contact_sheet(files, columns=1 + len(METHODS), least=128),
        heat=True,
        arrays=arrays,
        count=len(found.total),
        steps=found.steps,
        means="; ".join(means),
    )


def correlation_in_words(correlation: float, patches: int) -> str:
    """Return what a rank correlation with the map of randomized weights says; of few patches, little."""
    # This is two standard deviations of the correlation of unrelated ranks.
    by_chance = 2 / max(patches - 1, 1) ** 0.5
    verdict = "depends"
    if correlation > max(SAME, by_chance):
        verdict = "same"
    elif correlation > max(PARTLY, by_chance):
        verdict = "partly"
    return phrase(
        "attributions.correlation",
        value=round(correlation, 2) + 0.0,
        verdict=phrase(f"attributions.{verdict}"),
    )
