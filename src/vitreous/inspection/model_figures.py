"""What several reports show of a model: a line about it, attention, and what the weights alone show: filters
and position-embedding similarity (paper, Fig. 7), and the architecture as a diagram, the stages of `vitreous
describe` with the distribution of their weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import singledispatch
from itertools import groupby
from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.inspection.images import Pixels, contact_sheet, heat, overlay, rgb, stretched
from vitreous.inspection.measures import map_words, to_grid
from vitreous.inspection.page import HTML, Exhibit, LeftOut, exhibit, left_out
from vitreous.inspection.survey import Lens, Survey, survey
from vitreous.inspection.survey_figures import predicted_labels, undecided
from vitreous.languages import filled, phrase, words
from vitreous.layers.embedding import AddedPositions, ConvolutionStem, LinearPatchStem, PatchStem
from vitreous.layers.resnet import ResNet
from vitreous.models.config import ViTConfig
from vitreous.models.description import Stage, describe
from vitreous.models.model import Model, WithEncoder
from vitreous.models.vit import ViT
from vitreous.results import si

MOST_TILES = 16  # position maps along one side of the sheet
FEWEST_TILES = 6  # at a side, for a structure to be seen


def model_summary(model: Model) -> str:
    """Return the model in a line."""
    if not isinstance(model, ViT | WithEncoder):
        return phrase("models.bit", c=model.config)
    stem = words("models.stems")[model.config.stem.kind]
    return phrase("models.vit", c=model.config, stem=f" {stem}" if stem else "")


def model_exhibits(
    model: Model, images: Float[Tensor, "B C H W"], names: Sequence[str]
) -> list[Exhibit | LeftOut]:
    """Return what every model shows: attention for a few images with their names, positions, filters."""
    return [attention_figure(model, images, names), positions_figure(model), filters_figure(model)]


def filters_figure(model: Model, count: int = 28) -> Exhibit | LeftOut:
    """Show the principal components of the first layer's filters (Fig. 7 left)."""
    weight = first_filters(model)
    if weight is None:
        return left_out("filters", "no-convolution")
    weight = weight.cpu()
    height, width = weight.shape[-2:]
    if height == width == 1:
        return left_out("filters", "one-pixel", of_patches=isinstance(model, ViT))
    filters, explained = principal_filters(weight, count)
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
    if not isinstance(model, ViT):
        return left_out("attention", "no-attention")
    shown = [rgb(each) for each in model.preprocessing.denormalize(images)]
    seen = survey(model, images, patch=(0, 0), close=len(images))
    captions = with_predictions(names, model.labels or (), seen.lens)
    return attention_triples(model.config, list(zip(shown, captions, strict=True)), seen)


def with_predictions(names: Sequence[str], labels: Sequence[str], lens: Lens | None) -> list[str]:
    """Return the names of images with their predictions where the names are labels: "✓ cat, predicted cat
    (98.0 %)". A sign shows what is right, not a color alone."""
    if lens is None or not set(names) <= set(labels):
        return list(names)
    captions = []
    answers, open_answers, numbers = (
        predicted_labels(lens, labels),
        undecided(lens),
        lens.classes[:, 0].tolist(),
    )
    for name, answer, is_open, number in zip(names, answers, open_answers, numbers, strict=True):
        if is_open:
            captions.append(phrase("images.open", name=name, answer=answer))
        else:
            sign = "✓" if labels[number] == name else "✗"
            captions.append(phrase("images.labeled", sign=sign, label=name, answer=answer))
    return captions


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
    """Return the kernels of the first layer: the patch projection E, or a stem's first convolution; None of a
    module that has no convolution."""
    for module in model.modules():
        match module:
            case PatchStem():
                return module.projection.weight.detach().float()
            case LinearPatchStem():
                return rearrange(
                    module.projection.weight.detach().float(),
                    "D (p q C) -> D C p q",
                    p=module.patch[0],
                    q=module.patch[1],
                )
            case ConvolutionStem():
                return next(module.convolutions.parameters()).detach().float()
            case ResNet():
                return module.root.standardized().detach().float()
    raise TypeError(f"{type(model).__name__} has no known first layer")


def principal_filters(
    weight: Float[Tensor, "D C P Q"], count: int = 28
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


BINS = 41  # of a histogram
REACH = 4  # standard deviations to both sides of the mean


class Histogram(NamedTuple):
    """The distribution of weights.

    Attributes:
        name, shape: of the parameter; of all parameters of a stage together empty.
        outline: of the histogram, as the points of a polygon in a box of BINS x 1.
        low, high: the range of the histogram.
    """

    name: str
    shape: str
    outline: str
    mean: float
    std: float
    least: float
    most: float
    low: float
    high: float


class StageRow(NamedTuple):
    """A stage, what it has as words, its share of the parameters, and the distribution of its weights."""

    stage: Stage
    name: str
    shape: str
    parameters: str
    macs: str
    share: float
    whole: Histogram | None
    parts: Sequence[Histogram]


def architecture_figure(model: nn.Module) -> Exhibit:
    """Show every stage of a forward pass from the input to the output, with histograms of its weights."""
    described = describe(model)
    weights = {name: each.detach() for name, each in model.named_parameters()}
    rows = []
    for stage in described.stages:
        whole, parts = histograms({name: weights[name] for name in stage.weights})
        rows.append(
            StageRow(
                stage,
                stage_words(stage.name),
                stage_words(stage.written_shape),
                si(stage.parameters) if stage.parameters else "",
                si(stage.macs) if stage.macs else "",
                stage.parameters / max(described.parameters, 1),
                whole,
                parts,
            )
        )
    groups = [(times, list(some)) for times, some in groupby(rows, lambda row: row.stage.times)]
    return exhibit(
        "architecture",
        HTML.architecture(groups),
        parameters=si(described.parameters),
        macs=si(described.macs),
        reach=REACH,
    )


def stage_words(described: str) -> str:
    """Return the name or the shape of a stage, as `vitreous describe` has it, in the language of the page."""
    name = re.sub(r"\d+", "n", described.lower().replace(",", "").replace(" ", "-"))
    return filled(words("stages").get(name, described), {"n": re.findall(r"\d+", described)})


@torch.inference_mode()
def histograms(weights: dict[str, Tensor]) -> tuple[Histogram | None, list[Histogram]]:
    """Return the histogram of all of a stage's parameters, and that of each in the same range."""
    if not weights:
        return None, []
    flat = {name: each.flatten().float().cpu() for name, each in weights.items()}
    size = sum(each.numel() for each in flat.values())
    mean = sum(float(each.sum(dtype=torch.float64)) for each in flat.values()) / size
    squares = sum(float((each - mean).square().sum(dtype=torch.float64)) for each in flat.values())
    std = (squares / size) ** 0.5
    low, high = (mean - REACH * std, mean + REACH * std) if std else (mean - 1, mean + 1)
    total = torch.zeros(BINS)
    parts = []
    for name, values in flat.items():
        counts = torch.histc(values, BINS, low, high)
        counts[0] += (values < low).sum()  # what is beyond the range is in the last bins
        counts[-1] += (values > high).sum()
        total += counts
        shape = "x".join(map(str, weights[name].shape))
        own_std, own_mean = (float(each) for each in torch.std_mean(values, correction=0))
        least, most = (float(each) for each in torch.aminmax(values))
        parts.append(Histogram(name, shape, outline(counts), own_mean, own_std, least, most, low, high))
    least, most = min(part.least for part in parts), max(part.most for part in parts)
    return Histogram("", "", outline(total), mean, std, least, most, low, high), parts


def outline(counts: Float[Tensor, " bins"]) -> str:
    """Return the steps of a histogram whose highest bin is 1, from the left to the right, upside down as SVG
    counts."""
    heights = (1 - counts / counts.max().clamp_min(1)).tolist()
    steps = " ".join(f"{i},{each:.3g} {i + 1},{each:.3g}" for i, each in enumerate(heights))
    return f"0,1 {steps} {BINS},1"
