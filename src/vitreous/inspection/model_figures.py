"""Figures of a model that both reports show: filters, positions, what it looks at."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from markupsafe import Markup
from torch import Tensor

from vitreous.errors import InputError
from vitreous.inspection import captions
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.filters import first_filters, principal_filters
from vitreous.inspection.page import Exhibit, LeftOut
from vitreous.inspection.pictures import Pixels, contact_sheet, data_uri, heat, overlay, rgb, stretched
from vitreous.inspection.readout import readout_attention, readout_name, readout_weights, to_grid
from vitreous.inspection.rollout import flow, rollout
from vitreous.inspection.similarity import position_rows, position_similarity
from vitreous.models.names import Model
from vitreous.models.vit import ViT

MOST_TILES = 16  # position maps along one side of the sheet
SMALL = 64  # pictures with fewer pixels a side are shown with their pixels


def filters_figure(model: Model, count: int = 28) -> Exhibit | LeftOut:
    """Fig. 7 left."""
    title = "What the first layer looks for"
    weight = first_filters(model)
    if weight.shape[-2:] == (1, 1):
        return LeftOut(title, "patches of one pixel have filters without a shape")
    components = principal_filters(weight, count)
    tiles = [rgb(tile) for tile in stretched(components.filters)]
    height, width = weight.shape[-2:]
    shares = np.cumsum(components.explained.numpy())
    return Exhibit(
        name="filters",
        title=title,
        caption=captions.FILTERS.format(
            count=len(tiles), filters=len(weight), height=height, width=width, share=100 * shares[-1]
        ),
        html=sheet(contact_sheet(tiles, columns=7), "principal components of the first layer's filters"),
        arrays={
            "filters": components.filters.numpy(),
            "filters_explained": components.explained.numpy(),
        },
    )


def positions_figure(model: Model) -> Exhibit | LeftOut:
    """Fig. 7 centre and Fig. 10."""
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
    every = "" if max(steps) == 1 else f" Every {max(steps)}th patch of a side is shown."
    return Exhibit(
        name="positions",
        title=title,
        caption=captions.POSITIONS.format(every=every),
        html=sheet(contact_sheet(tiles, columns=shown.shape[1]), "cosine similarity of position embeddings"),
        arrays={"position_similarity": similarity.numpy()},
    )


def attention_figure(model: Model, images: Float[Tensor, "B C H W"], names: list[str]) -> Exhibit | LeftOut:
    """Fig. 6: each picture, the last layer's attention over it, and the rollout of all layers."""
    title = "What it looks at"
    if not isinstance(model, ViT):
        return LeftOut(title, "a convolutional network has no attention")
    weights = readout_weights(model.config)
    last, whole = look(model, images, weights)
    originals = [rgb(each) for each in model.preprocessing.denormalise(images)]
    rows = Markup("").join(
        Markup('<figure class="triple">{}<figcaption>{}</figcaption></figure>').format(
            Markup("").join(
                Markup('<img src="{}" alt="{}">').format(data_uri(picture), words)
                for picture, words in (
                    (original, name),
                    (overlay(original, last[i]), "attention of the last layer"),
                    (overlay(original, whole[i]), "attention rollout"),
                )
            ),
            name,
        )
        for i, (original, name) in enumerate(zip(originals, names, strict=True))
    )
    small = max(images.shape[-2:]) < SMALL
    return Exhibit(
        name="attention",
        title=title,
        caption=captions.ATTENTION.format(readout=readout_name(model.config)),
        html=Markup('<div class="{}">{}</div>').format("triples pixelated" if small else "triples", rows),
        arrays={"attention_last": last.numpy(), "attention_rollout": whole.numpy()},
    )


def look(
    model: ViT, images: Float[Tensor, "B C H W"], weights: Float[Tensor, "T"]
) -> tuple[Float[Tensor, "B rows columns"], Float[Tensor, "B rows columns"]]:
    """What the head's tokens attend to in the last layer, and through all layers."""

    def keep(maps: Tensor) -> tuple[Tensor, Tensor]:
        return readout_attention(maps.float(), weights).mean(dim=1).cpu(), flow(maps.float()).cpu()

    with torch.inference_mode(), capture_attention(model, reduce=keep) as attention:
        model(images)
    rows, flows = zip(*attention.maps, strict=True)
    through = torch.einsum("t,bts->bs", weights, rollout(flows))
    return to_grid(rows[-1], model.config), to_grid(through, model.config)


def sheet(pixels: Pixels, words: str) -> Markup:
    """A contact sheet that is enlarged with hard pixel edges."""
    return Markup('<div class="sheet pixelated"><img src="{}" alt="{}"></div>').format(
        data_uri(pixels), words
    )
