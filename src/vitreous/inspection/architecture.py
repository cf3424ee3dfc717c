"""The architecture of a model as a diagram: the stages of `vitreous describe`, with the distribution of their
weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.inspection.page import HTML, Exhibit, exhibit
from vitreous.languages import words
from vitreous.models.description import Stage, describe
from vitreous.results import si

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
    parameters: str
    macs: str
    share: float
    whole: Histogram | None
    parts: Sequence[Histogram]


def architecture_figure(model: nn.Module) -> Exhibit:
    """Show every stage of a forward pass from the input to the output, with histograms of its weights."""
    described = describe(model)
    weights = {name: each.detach() for name, each in model.named_parameters()}
    rows = [
        StageRow(
            stage,
            words("stages").get(stage.name.lower().replace(",", "").replace(" ", "-"), stage.name),
            si(stage.parameters) if stage.parameters else "",
            si(stage.macs) if stage.macs else "",
            stage.parameters / max(described.parameters, 1),
            *histograms({name: weights[name] for name in stage.weights}),
        )
        for stage in described.stages
    ]
    groups = [(times, list(some)) for times, some in groupby(rows, lambda row: row.stage.times)]
    return exhibit(
        "architecture",
        HTML.architecture(groups),
        parameters=si(described.parameters),
        macs=si(described.macs),
        reach=REACH,
    )


@torch.inference_mode()
def histograms(weights: dict[str, Tensor]) -> tuple[Histogram | None, list[Histogram]]:
    """Return the histogram of all of a stage's parameters, and that of each in the same range."""
    if not weights:
        return None, []
    flat = {name: each.flatten().float().cpu() for name, each in weights.items()}
    spread = {name: torch.std_mean(each, correction=0) for name, each in flat.items()}
    edges = {name: torch.aminmax(each) for name, each in flat.items()}
    sizes = torch.tensor([each.numel() for each in flat.values()], dtype=torch.float64)
    stds, means = torch.tensor(list(spread.values()), dtype=torch.float64).unbind(dim=1)
    mean = float((sizes * means).sum() / sizes.sum())
    std = float((sizes * (stds.square() + (means - mean).square())).sum() / sizes.sum()) ** 0.5
    low, high = (mean - REACH * std, mean + REACH * std) if std else (mean - 1, mean + 1)
    counts = {name: counted(each, *edges[name], low, high) for name, each in flat.items()}
    whole = Histogram(
        "",
        "",
        outline(torch.stack(list(counts.values())).sum(dim=0)),
        mean,
        std,
        min(float(each.min) for each in edges.values()),
        max(float(each.max) for each in edges.values()),
        low,
        high,
    )
    parts = [
        Histogram(
            name,
            "x".join(map(str, each.shape)),
            outline(counts[name]),
            float(spread[name][1]),
            float(spread[name][0]),
            float(edges[name].min),
            float(edges[name].max),
            low,
            high,
        )
        for name, each in weights.items()
    ]
    return whole, parts


def counted(
    values: Float[Tensor, " n"], least: Tensor, most: Tensor, low: float, high: float
) -> Float[Tensor, " bins"]:
    """Return the counts of a histogram, with what is beyond its range in the last bins."""
    counts = torch.histc(values, BINS, low, high)
    if least < low:
        counts[0] += (values < low).sum()
    if most > high:
        counts[-1] += (values > high).sum()
    return counts


def outline(counts: Float[Tensor, " bins"]) -> str:
    """Return the steps of a histogram whose highest bin is 1, from the left to the right, upside down as SVG
    counts."""
    heights = (1 - counts / counts.max().clamp_min(1)).tolist()
    steps = " ".join(f"{i},{each:.3g} {i + 1},{each:.3g}" for i, each in enumerate(heights))
    return f"0,1 {steps} {BINS},1"
