"""Figures of a model that several reports show: filters, position embeddings, attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vitreous.errors import InputError
from vitreous.inspection import captions
from vitreous.inspection.attention_metrics import (
    flow,
    readout_attention,
    readout_name,
    readout_of,
    rollout,
    to_grid,
)
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.images import Pixels, contact_sheet, heat, overlay, rgb, stretched
from vitreous.inspection.learned_weights import (
    first_filters,
    position_rows,
    position_similarity,
    principal_filters,
)
from vitreous.inspection.page import Exhibit, LeftOut, image_triples, sheet
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model
from vitreous.models.vit import ViT

MOST_TILES = 16  # position maps along one side of the sheet
ATTENTION_TITLE = "Attention and attention rollout"


def filters_figure(model: Model, count: int = 28) -> Exhibit | LeftOut:
    """Show the principal components of the first layer's filters (Fig. 7 left)."""
    title = "Patch-embedding filters" if isinstance(model, ViT) else "First-layer filters"
    weight = first_filters(model)
    if weight.shape[-2:] == (1, 1):
        return LeftOut(title, "filters of one pixel have no spatial structure")
    components = principal_filters(weight, count)
    tiled = contact_sheet([rgb(tile) for tile in stretched(components.filters)], columns=7)
    height, width = weight.shape[-2:]
    return Exhibit(
        name="filters",
        title=title,
        subtitle="what the first layer looks for",
        caption=captions.FILTERS.format(
            count=len(components.filters),
            filters=len(weight),
            height=height,
            width=width,
            share=100 * np.cumsum(components.explained.numpy())[-1],
        ),
        html=sheet(tiled, "principal components of the first layer's filters"),
        files={"filters": tiled},
        arrays={
            "filters": components.filters.numpy(),
            "filters_explained": components.explained.numpy(),
        },
    )


def positions_figure(model: Model) -> Exhibit | LeftOut:
    """Show the similarity of position embeddings (Fig. 7 center and Fig. 10)."""
    title = "Position-embedding similarity"
    try:
        rows = position_rows(model)
    except InputError as reason:
        return LeftOut(title, str(reason))
    assert isinstance(model, ViT)  # position_rows refuses everything else
    similarity = position_similarity(rows, model.config.grid)
    steps = [-(-side // MOST_TILES) for side in model.config.grid]
    shown = similarity[:: steps[0], :: steps[1]]
    tiled = contact_sheet([heat((tile + 1) / 2) for tile in shown.flatten(0, 1)], columns=shown.shape[1])
    every = "" if max(steps) == 1 else f" Every {max(steps)}th patch of a side is shown."
    return Exhibit(
        name="positions",
        title=title,
        subtitle="which positions look alike to the model",
        caption=captions.POSITIONS.format(every=every),
        html=sheet(tiled, "cosine similarity of position embeddings"),
        files={"positions": tiled},
        arrays={"position_similarity": similarity.numpy()},
    )


def attention_figure(
    model: Model, images: Float[Tensor, "B C H W"], names: Sequence[str]
) -> Exhibit | LeftOut:
    """Show attention and rollout for a few images with their names (Fig. 6)."""
    if not isinstance(model, ViT):
        return LeftOut(ATTENTION_TITLE, "a convolutional network has no attention")
    shown = [rgb(each) for each in model.preprocessing.denormalize(images)]
    named = list(zip(shown, names, strict=True))
    return attention_triples(model.config, named, *head_attention(model, images))


def attention_triples(
    config: ViTConfig,
    images: Sequence[tuple[Pixels, str]],
    last: Float[Tensor, "B rows columns"],
    whole: Float[Tensor, "B rows columns"],
) -> Exhibit:
    """Show each image (with words), the last layer's attention over it, and the rollout of all layers."""
    triples = [
        ((image, overlay(image, last[i]), overlay(image, whole[i])), words)
        for i, (image, words) in enumerate(images)
    ]
    return Exhibit(
        name="attention",
        title=ATTENTION_TITLE,
        subtitle="what the model looks at",
        caption=captions.ATTENTION.format(readout=readout_name(config)),
        html=image_triples(triples, ("image", "attention of the last layer", "attention rollout")),
        files={"attention": contact_sheet([tile for row, _ in triples for tile in row], columns=6)},
        arrays={"attention_last": last.numpy(), "attention_rollout": whole.numpy()},
    )


@torch.inference_mode()
def head_attention(
    model: ViT, images: Float[Tensor, "B C H W"]
) -> tuple[Float[Tensor, "B rows columns"], Float[Tensor, "B rows columns"]]:
    """Return what the tokens that the head reads attend to: in the last layer (mean of heads), and by
    rollout."""
    weights = readout_of(model, images)

    def reduce(maps: Tensor) -> tuple[Tensor, Tensor]:
        return readout_attention(maps.float(), weights).mean(dim=1).cpu(), flow(maps.float()).cpu()

    with capture_attention(model, reduce=reduce) as attention:
        model(images)
    rows, flows = zip(*attention.maps, strict=True)
    through = torch.einsum("bt,bts->bs", weights, rollout(flows))
    return to_grid(rows[-1], model.config), to_grid(through, model.config)
