"""Figures of a model that both reports show: filters, positions, what it looks at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from markupsafe import Markup
from torch import Tensor

from vitreous.errors import InputError
from vitreous.inspection import captions
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.filters import first_filters, principal_filters
from vitreous.inspection.images import Pixels, contact_sheet, heat, overlay, rgb, stretched
from vitreous.inspection.page import Exhibit, LeftOut, img, sheet
from vitreous.inspection.readout import readout_attention, readout_name, readout_of, to_grid
from vitreous.inspection.rollout import flow, rollout
from vitreous.inspection.similarity import position_rows, position_similarity
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model
from vitreous.models.vit import ViT

MOST_TILES = 16  # position maps along one side of the sheet


def filters_figure(model: Model, count: int = 28) -> Exhibit | LeftOut:
    """Fig. 7 left."""
    title = "What the first layer looks for"
    weight = first_filters(model)
    if weight.shape[-2:] == (1, 1):
        return LeftOut(title, "patches of one pixel have filters without a shape")
    components = principal_filters(weight, count)
    tiles = [rgb(tile) for tile in stretched(components.filters)]
    tiled = contact_sheet(tiles, columns=7)
    height, width = weight.shape[-2:]
    shares = np.cumsum(components.explained.numpy())
    return Exhibit(
        name="filters",
        title=title,
        caption=captions.FILTERS.format(
            count=len(tiles), filters=len(weight), height=height, width=width, share=100 * shares[-1]
        ),
        html=sheet(tiled, "principal components of the first layer's filters"),
        files={"filters": tiled},
        arrays={
            "filters": components.filters.numpy(),
            "filters_explained": components.explained.numpy(),
        },
    )


def positions_figure(model: Model) -> Exhibit | LeftOut:
    """Fig. 7 center and Fig. 10."""
    title = "Which places look alike to the model"
    try:
        rows = position_rows(model)
    except InputError as reason:
        return LeftOut(title, str(reason))
    assert isinstance(model, ViT)  # position_rows refuses everything else
    similarity = position_similarity(rows, model.config.grid)
    steps = [-(-side // MOST_TILES) for side in model.config.grid]
    shown = similarity[:: steps[0], :: steps[1]]
    tiles = [heat((tile + 1) / 2) for tile in shown.flatten(0, 1)]
    tiled = contact_sheet(tiles, columns=shown.shape[1])
    every = "" if max(steps) == 1 else f" Every {max(steps)}th patch of a side is shown."
    return Exhibit(
        name="positions",
        title=title,
        caption=captions.POSITIONS.format(every=every),
        html=sheet(tiled, "cosine similarity of position embeddings"),
        files={"positions": tiled},
        arrays={"position_similarity": similarity.numpy()},
    )


def attention_figure(
    model: Model, images: Float[Tensor, "B C H W"], names: Sequence[str]
) -> Exhibit | LeftOut:
    """Fig. 6 for a few images, whose names stand below them."""
    if not isinstance(model, ViT):
        return LeftOut("What it looks at", "a convolutional network has no attention")
    shown = [rgb(each) for each in model.preprocessing.denormalize(images)]
    return attention_triples(model.config, list(zip(shown, names, strict=True)), *look(model, images))


def attention_triples(
    config: ViTConfig,
    images: Sequence[tuple[Pixels, str]],
    last: Float[Tensor, "B rows columns"],
    whole: Float[Tensor, "B rows columns"],
) -> Exhibit:
    """Each image (with words), the last layer's attention over it, and the rollout of all layers."""
    triples = [
        (image, overlay(image, last[i]), overlay(image, whole[i])) for i, (image, _) in enumerate(images)
    ]
    rows = Markup("").join(
        Markup('<figure class="triple">{}<figcaption>{}</figcaption></figure>').format(
            img(image, words)
            + img(attended, "attention of the last layer")
            + img(through, "attention rollout"),
            words,
        )
        for (image, attended, through), (_, words) in zip(triples, images, strict=True)
    )
    return Exhibit(
        name="attention",
        title="What it looks at",
        caption=captions.ATTENTION.format(readout=readout_name(config)),
        html=Markup('<div class="triples">{}</div>').format(rows),
        files={"attention": contact_sheet([tile for triple in triples for tile in triple], columns=6)},
        arrays={"attention_last": last.numpy(), "attention_rollout": whole.numpy()},
    )


@torch.inference_mode()
def look(
    model: ViT, images: Float[Tensor, "B C H W"]
) -> tuple[Float[Tensor, "B rows columns"], Float[Tensor, "B rows columns"]]:
    """What the tokens that the head reads attend to in the last layer (mean of heads), and through all."""
    weights = readout_of(model, images)

    def keep(maps: Tensor) -> tuple[Tensor, Tensor]:
        return readout_attention(maps.float(), weights).mean(dim=1).cpu(), flow(maps.float()).cpu()

    with capture_attention(model, reduce=keep) as attention:
        model(images)
    rows, flows = zip(*attention.maps, strict=True)
    through = torch.einsum("bt,bts->bs", weights, rollout(flows))
    return to_grid(rows[-1], model.config), to_grid(through, model.config)
