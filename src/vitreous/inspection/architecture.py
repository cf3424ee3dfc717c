"""The architecture of a model as a diagram: the stages of `vitreous describe` with the distribution of their
weights."""

from __future__ import annotations

from itertools import groupby
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.inspection.page import HTML, Exhibit, exhibit
from vitreous.models.description import describe, stage_words
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


def architecture_figure(model: nn.Module) -> Exhibit:
    """Show every stage of a forward pass from the input to the output, with histograms of its weights."""
    described = describe(model)
    weights = {name: each.detach() for name, each in model.named_parameters()}
    rows: list[dict[str, Any]] = []
    for stage in described.stages:
        whole, parts = histograms({name: weights[name] for name in stage.weights})
        rows.append(
            {
                "stage": stage,
                "shape": stage_words(stage.written_shape),
                "parameters": si(stage.parameters) if stage.parameters else "",
                "macs": si(stage.macs) if stage.macs else "",
                "share": stage.parameters / max(described.parameters, 1),
                "whole": whole,
                "parts": parts,
            }
        )
    groups = [(times, list(some)) for times, some in groupby(rows, lambda row: row["stage"].times)]
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
    size = sum(each.numel() for each in flat.values())
    mean = sum(float(each.sum(dtype=torch.float64)) for each in flat.values()) / size
    squares = sum(float((each - mean).square().sum(dtype=torch.float64)) for each in flat.values())
    std = (squares / size) ** 0.5
    low, high = (mean - REACH * std, mean + REACH * std) if std else (mean - 1, mean + 1)
    total = torch.zeros(BINS)
    parts = []
    for name, values in flat.items():
        counts = torch.histc(values, BINS, low, high)
        # What is beyond the range is counted in the outer bins.
        counts[0] += (values < low).sum()
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
