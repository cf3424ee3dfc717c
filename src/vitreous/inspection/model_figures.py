"""What several reports show of a model: a line about it, attention, and what the weights alone show: filters
and position-embedding similarity (paper, Fig. 7)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vitreous.inspection.images import Pixels, contact_sheet, heat, overlay, rgb, stretched
from vitreous.inspection.measures import Lens, Survey, map_words, survey, to_grid
from vitreous.inspection.page import HTML, Exhibit, LeftOut, exhibit, left_out
from vitreous.languages import in_language, phrase
from vitreous.layers.embedding import AddedPositions
from vitreous.models.config import ViTConfig
from vitreous.models.ensemble import Ensemble
from vitreous.models.model import Model, WithEncoder
from vitreous.models.vit import ViT

MOST_TILES = 16  # position maps along one side of the sheet
FEWEST_TILES = 6  # at a side, for a structure to be seen
UNDECIDED = 0.95  # of the largest entropy of the class probabilities, above which there is no answer


def model_summary(model: Model) -> str:
    """Return the model in a line."""
    if isinstance(model, Ensemble):
        line = model.config.title[:1].upper() + model.config.title[1:]
        network = model.network()
        if network is None:
            return line
        return phrase("models.on-network", line=line, network=model_summary(network))
    if not isinstance(model, ViT | WithEncoder):
        return phrase("models.bit", c=model.config)
    return phrase("models.vit", c=model.config, stem=in_language(model.config.stem.title))


def network_to_show(model: Model) -> Model:
    """Return the network of an ensemble that has one; any other model itself."""
    network = model.network() if isinstance(model, Ensemble) else None
    return model if network is None else network


def model_exhibits(
    model: Model, images: Float[Tensor, "B C H W"], names: Sequence[str]
) -> list[Exhibit | LeftOut]:
    """Return what every model shows: attention for a few images with their names, positions, filters."""
    return [attention_figure(model, images, names), positions_figure(model), filters_figure(model)]


def filters_figure(model: Model) -> Exhibit | LeftOut:
    """Show the principal components of the first layer's filters (Fig. 7 left)."""
    if isinstance(model, Ensemble):
        return left_out("filters", "no-network", of_patches=False)
    weight = first_filters(model)
    if weight is None:
        return left_out("filters", "no-convolution")
    weight = weight.cpu()
    height, width = weight.shape[-2:]
    if height == width == 1:
        return left_out("filters", "one-pixel", of_patches=isinstance(model, ViT))
    filters, explained = principal_filters(weight, count=28)
    return exhibit(
        "filters",
        contact_sheet([rgb(tile) for tile in stretched(filters)], columns=7),
        arrays={"filters": filters.numpy(), "filters_explained": explained.numpy()},
        of_patches=isinstance(model, ViT),
        count=len(filters),
        filters=len(weight),
        height=height,
        width=width,
        share=f"{100 * explained.sum():.0f}",
    )


def positions_figure(model: Model) -> Exhibit | LeftOut:
    """Show the similarity of position embeddings (Fig. 7 center and Fig. 10), where there are enough of them
    for a structure to be seen."""
    if isinstance(model, Ensemble):
        return left_out("positions", "no-network")
    if not isinstance(model, ViT):
        return left_out("positions", "positions.convolutional")
    rows = position_rows(model)
    if rows is None and type(model) is not ViT:
        return left_out("positions", "positions.unknown")
    if rows is None:
        kind = model.config.position.kind
        return left_out("positions", f"positions.{'none' if kind == 'none' else 'inside'}", kind=kind)
    rows_of_grid, columns = model.config.grid
    if min(rows_of_grid, columns) < FEWEST_TILES:
        return left_out("positions", "positions.few", rows=rows_of_grid, columns=columns)
    similarity = position_similarity(rows, model.config.grid).cpu()
    steps = [-(-side // MOST_TILES) for side in model.config.grid]
    shown = similarity[:: steps[0], :: steps[1]]
    tiles = [heat((tile + 1) / 2) for tile in shown.flatten(0, 1)]
    arrays = {"position_similarity": similarity.numpy()}
    sheet = contact_sheet(tiles, columns=shown.shape[1])
    return exhibit("positions", sheet, arrays=arrays, step=max(steps))


def attention_figure(
    model: Model, images: Float[Tensor, "B C H W"], names: Sequence[str]
) -> Exhibit | LeftOut:
    """Show attention and rollout for a few images with their names (Fig. 6)."""
    if isinstance(model, Ensemble):
        return left_out("attention", "no-network")
    if not isinstance(model, ViT):
        return left_out("attention", "no-attention")
    if model.has_untrained_layers:
        return left_out("attention", "untrained-layers")
    shown = [rgb(each) for each in model.preprocessing.denormalize(images)]
    seen = survey(model, images, patch=(0, 0), close=len(images))
    captions = with_predictions(names, model.labels or (), seen.lens)
    return attention_triples(model.config, list(zip(shown, captions, strict=True)), seen)


def with_predictions(names: Sequence[str], labels: Sequence[str], lens: Lens | None) -> list[str]:
    """Return the names of images with their predictions where the names are labels: "✓ cat, predicted cat
    (98.0%)". A sign shows what is right, not a color alone."""
    if lens is None or not set(names) <= set(labels):
        return list(names)
    captions = []
    answers, numbers = predicted_labels(lens, labels), lens.classes[:, 0].tolist()
    for name, answer, is_open, number in zip(names, answers, is_undecided(lens), numbers, strict=True):
        if is_open:
            captions.append(phrase("images.open", name=name, answer=answer))
        else:
            sign = "✓" if labels[number] == name else "✗"
            captions.append(phrase("images.labeled", sign=sign, label=name, answer=answer))
    return captions


def is_undecided(lens: Lens | None) -> list[bool]:
    """Return for each image whether its classes are about equally probable; nothing without classes."""
    return [] if lens is None else (lens.entropy > UNDECIDED).tolist()


def predicted_labels(lens: Lens | None, labels: Sequence[str]) -> list[str]:
    """Return the prediction for each image with its probability, or that there is none; nothing without
    classes."""
    if lens is None:
        return []
    answers = []
    numbers, probabilities = lens.classes[:, 0].tolist(), lens.probabilities[:, -1, 0].tolist()
    for number, probability, is_open in zip(numbers, probabilities, is_undecided(lens), strict=True):
        if is_open:
            answers.append(phrase("images.undecided", probability=probability))
        else:
            answers.append(phrase("images.answer", label=labels[number], probability=probability))
    return answers


def attention_triples(config: ViTConfig, images: Sequence[tuple[Pixels, str]], seen: Survey) -> Exhibit:
    """Show the first images of a survey (with words), with the last layer's attention, and the rollout."""
    last, through = to_grid(seen.reading[:, -1].mean(dim=1), config), seen.rollout[: len(images)]
    triples, notes = [], []
    sheet: list[Pixels] = []
    for (image, caption), near, far in zip(images, last, through, strict=False):
        tiles = image, overlay(image, near), overlay(image, far)
        triples.append((tiles, caption))
        sheet += tiles
        notes.append(
            phrase("images.attention-and-rollout", attention=map_words(near), rollout=map_words(far))
        )
    kinds = [phrase(f"images.{name}") for name in ("image", "last-attention", "rollout")]
    return exhibit(
        "attention",
        HTML.image_triples(triples, kinds, notes),
        file=contact_sheet(sheet, columns=6),
        arrays={
            "attention_last": last.numpy(),
            "attention_rollout": through.numpy(),
            "readout_attention": to_grid(seen.reading, config).numpy(),
        },
        readout=phrase(f"readouts.{config.pooling.kind}"),
        entropy=float(seen.entropy[:, -1].mean()),
        heat=True,
    )


@singledispatch
def first_filters(model: Model) -> Float[Tensor, "D C P Q"] | None:
    """Return the kernels of the first layer, the patch projection E or a stem's first convolution, which each
    stem returns as its `first_filters`; None of a module that has no convolution."""
    for module in model.modules():
        if filters := getattr(module, "first_filters", None):
            return filters().detach().float()
    raise TypeError(f"{type(model).__name__} has no layer with a method first_filters")


def principal_filters(
    weight: Float[Tensor, "D C P Q"], count: int
) -> tuple[Float[Tensor, "n C P Q"], Float[Tensor, "n"]]:
    """Return the first `count` principal components of the D filters, or as many as there are, as small
    images of unit norm; and the share of the filters' variance along each.

    The sign of a component is arbitrary; the largest value is made positive, so that results are
    reproducible.
    """
    flat = weight.flatten(1)
    centered = flat - flat.mean(dim=0)
    _, singular, directions = torch.linalg.svd(centered, full_matrices=False)
    peak = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    filters = (directions * peak.sign()).reshape(-1, *weight.shape[1:])
    variance = singular.square()
    return filters[:count], (variance / variance.sum().clamp_min(1e-12))[:count]


@singledispatch
def position_rows(model: ViT) -> Float[Tensor, "N D"] | None:
    """Return the position embedding of each patch; of the first layer, where every layer has its own; None
    where none are added to the tokens."""
    for module in (model.position, getattr(model.blocks[0], "position", None)):
        if isinstance(module, AddedPositions):
            return module.rows()[module.extra :].detach().float()
    return None


def position_similarity(
    rows: Float[Tensor, "N D"], grid: tuple[int, int]
) -> Float[Tensor, "rows columns rows columns"]:
    """Return at [i, j, k, l] the cosine similarity of the embeddings of the patches at (i, j) and (k, l), in
    fp32 whatever the precision of the model's products is."""
    unit = F.normalize(rows, dim=-1)
    with torch.autocast(unit.device.type, enabled=False):
        return (unit @ unit.T).reshape(*grid, *grid)
