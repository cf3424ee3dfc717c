"""What studies measure of a trained model, beside its accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from vitreous.addons.studies.world import WorldOptions
from vitreous.evaluation.features import Features
from vitreous.evaluation.probes import fewshot
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.measures import attention_distance, patch_distances
from vitreous.inspection.model_figures import position_rows, position_similarity
from vitreous.layers.embedding import from_patches, to_patches
from vitreous.models.model import Model
from vitreous.models.vit import ViT
from vitreous.rng import torch_generator

CHUNK = 256  # images at a time
LOOKED_AT = 128  # images, where attention or single layers are computed
SHOTS = 5
SHIFTS = 4  # pixels: a patch


@dataclass(frozen=True)
class LabeledImages:
    """Test images with all their labels; the first quarter is for selection."""

    pixels: Float[Tensor, "N 3 H W"]
    factors: Mapping[str, NDArray[np.int64]]
    labels: str
    seed: int


def outputs(run: Callable[[Tensor], Tensor], pixels: Float[Tensor, "N 3 H W"]) -> Float[Tensor, "N D"]:
    return torch.cat([run(chunk).float().flatten(1) for chunk in torch.split(pixels, CHUNK)])


def accuracy(model: Model, images: LabeledImages) -> dict[str, float]:
    """Return the accuracy on the last three quarters; "validation" is that of the first."""
    targets = torch.from_numpy(images.factors[images.labels]).to(images.pixels.device)
    hits = (outputs(model, images.pixels).argmax(1) == targets).float()
    quarter = len(hits) // 4
    return {"accuracy": float(hits[quarter:].mean()), "validation": float(hits[:quarter].mean())}


def few_shot(model: Model, images: LabeledImages) -> dict[str, float]:
    """Return the 5-shot linear accuracy as the paper measures it, on test images, which look different from
    those that were learned. The images with labels are from the first half, and the others are classified:
    the last three eighths of all; "few-shot-validation" is that of the eighth before them."""
    values = outputs(model.features, images.pixels).cpu().numpy()
    targets = images.factors[images.labels]
    half, classes = len(targets) // 2, int(targets.max()) + 1
    labeled = Features(values[:half], targets[:half])

    def accuracy_of(start: int, stop: int) -> float:
        tested = Features(values[start:stop], targets[start:stop])
        return fewshot(labeled, tested, classes=classes, shots=(SHOTS,))[SHOTS].mean

    end = half + len(targets) // 8
    return {"few-shot": accuracy_of(end, len(targets)), "few-shot-validation": accuracy_of(half, end)}


def heads(model: Model, images: LabeledImages) -> dict[str, float]:
    """Return the slope of the attention distance over the layers, as a share of uniform attention's, and the
    nearest and the farthest head of the first layer (Fig. 7, right)."""
    assert isinstance(model, ViT)
    grid, patch = model.config.grid, model.config.patch_size
    with capture_attention(model) as attention:
        model.features(images.pixels[:LOOKED_AT])
    even = float(patch_distances(grid, patch).mean())
    distances: list[Tensor] = []  # of each head
    for layer in attention.maps:
        distances.append(attention_distance(layer, grid=grid, patch=patch).mean(0) / even)
    means = [float(layer.mean()) for layer in distances]
    slope = float(np.polyfit(np.arange(len(means)), means, 1)[0])
    ends = {"farthest-head": float(distances[0].max()), "nearest-head": float(distances[0].min())}
    return {"distance-slope": slope, **ends}


def position_plane(model: Model, images: LabeledImages) -> dict[str, float]:
    """Return minus the correlation between the distance of two patches and the similarity of their positions
    (Fig. 7, center): `nearness`.

    Where objects stand in the middle, positions tell apart the rings around it, and near patches are often in
    one ring. `nearness-in-rings` compares only pairs of the same two rings: it is 0 for positions that know
    nothing but their distance from the middle.
    """
    assert isinstance(model, ViT)
    rows, grid = position_rows(model), model.config.grid
    assert rows is not None
    similar = position_similarity(rows, grid).reshape(len(rows), -1).cpu().numpy()
    far = patch_distances(grid, (1, 1)).numpy()
    apart = far > 0
    places = np.indices(grid).reshape(2, -1) - (np.array(grid)[:, None] - 1) / 2
    _, ring = np.unique((places**2).sum(axis=0), return_inverse=True)
    _, pair = np.unique((ring[:, None] * len(ring) + ring)[apart], return_inverse=True)
    far, similar = far[apart], similar[apart]
    within = [values - (np.bincount(pair, values) / np.bincount(pair))[pair] for values in (far, similar)]
    in_rings = np.mean(within[0] * within[1]) / (within[0].std() * similar.std())
    return {"nearness": -float(np.corrcoef(far, similar)[0, 1]), "nearness-in-rings": -float(in_rings)}


def shuffled(model: Model, images: LabeledImages) -> dict[str, float]:
    """Return the largest change of the features where the tokens of the patches are shuffled, as a share of
    their length: what knows no positions computes the same. In fp64, where sums in another order agree to
    1e-12."""
    assert isinstance(model, ViT)
    exact = model.double()
    pixels = images.pixels[:LOOKED_AT].double()
    generator = torch_generator(images.seed, "shuffled patches")
    patches = to_patches(pixels, model.config.patch_size)
    order = torch.randperm(patches.shape[1], generator=generator)
    moved = from_patches(patches[:, order], model.config.grid, model.config.patch_size)
    before, after = exact.features(pixels), exact.features(moved)
    change = ((after - before).norm(dim=1) / before.norm(dim=1)).max()
    model.float()
    return {"shuffle-change": float(change) if change > 1e-9 else 0.0}


def equivariance(model: Model, images: LabeledImages) -> dict[str, float]:
    """Return how much the features change when the window that is seen moves by 1 to 4 pixels over a larger
    image, relative to how much those of different images differ: 0 is invariant, 1 as different as another
    image. What enters the window is image: no border does."""
    height, width = model.config.image_size
    top, left = height // 2, width // 2
    seen: list[Tensor] = []  # the features of each window
    for shift in range(SHIFTS + 1):
        rows, columns = slice(top + shift, top + shift + height), slice(left + shift, left + shift + width)
        seen.append(outputs(model.features, images.pixels[:LOOKED_AT, :, rows, columns]))
    still = seen[0]
    other = (still - still.roll(1, 0)).norm(dim=1).mean()
    errors: dict[str, float] = {}
    for shift, moved in enumerate(seen[1:], 1):
        errors[f"equivariance-{shift}"] = float((moved - still).norm(dim=1).mean() / other)
    return {"equivariance": float(np.mean(list(errors.values()))), **errors}


def as_learned(world: WorldOptions) -> WorldOptions:
    return world


def larger_canvas(world: WorldOptions) -> WorldOptions:
    """Return the accuracy on objects in the middle of images of twice the size, as large and with as fine a
    texture as before."""
    return replace(
        world,
        size=2 * world.size,
        scale=world.scale / 2,
        cycles=2 * world.cycles,
        shift=0.0,
        test_shift=-1.0,
        test=LOOKED_AT,
    )


# By name: the measure, what of the world is changed for its test images, and their side in that of the model.
MEASURES: dict[
    str, tuple[Callable[[Model, LabeledImages], dict[str, Any]], Callable[[WorldOptions], WorldOptions], int]
] = {
    "accuracy": (accuracy, as_learned, 1),
    "few-shot": (few_shot, as_learned, 1),
    "heads": (heads, as_learned, 1),
    "positions": (position_plane, as_learned, 1),
    "shuffled": (shuffled, as_learned, 1),
    "shifts": (equivariance, larger_canvas, 2),
    "moved": (
        lambda model, images: {"moved": accuracy(model, images)["accuracy"]},
        lambda world: replace(world, test_shift=1.0),
        1,
    ),
}
