"""The cost of four layers that map n vectors of width d to n others (1706.03762, Table 1): measured growth
beside the formula.

What is timed is what the table counts: the attention itself (softmax(q k^T) v, one head, without the
projections before and after it), a recurrent layer, a convolution.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from torch import Tensor, nn

from vitreous.inspection.charts import FIRST, INK, MUTED, SECOND, Chart, canvas
from vitreous.languages import phrase, speaking, words
from vitreous.results import Result
from vitreous.studies.writing import markdown_table, write_results

KERNEL = 3
NEIGHBORS = 64  # r of restricted attention: positions that each one attends to


@dataclass(frozen=True)
class LayerKind:
    """A row of the table.

    Attributes:
        work, steps, path: as the paper has them: operations, sequential operations, longest path.
        growth: the exponents of n and d in `work`.
        make: the layer for a width d, from (1, n, d) to (1, n, d).
    """

    name: str
    work: str
    steps: str
    path: str
    growth: tuple[int, int]
    make: Callable[[int], Callable[[Tensor], Tensor]]


def attention(width: int) -> Callable[[Tensor], Tensor]:
    return lambda z: F.scaled_dot_product_attention(z, z, z)


def restricted(width: int) -> Callable[[Tensor], Tensor]:
    """Attention within blocks of r positions; the last block may be shorter."""

    def run(z: Tensor) -> Tensor:
        whole = z.shape[1] // NEIGHBORS * NEIGHBORS
        blocks, rest = z[:, :whole].reshape(-1, NEIGHBORS, width), z[:, whole:]
        done = F.scaled_dot_product_attention(blocks, blocks, blocks).reshape(1, whole, width)
        if not rest.shape[1]:
            return done
        return torch.cat([done, F.scaled_dot_product_attention(rest, rest, rest)], dim=1)

    return run


def recurrent(width: int) -> Callable[[Tensor], Tensor]:
    layer = nn.RNN(width, width, batch_first=True)
    return lambda z: layer(z)[0]


def convolution(width: int) -> Callable[[Tensor], Tensor]:
    layer = nn.Conv1d(width, width, KERNEL, padding=KERNEL // 2)
    return lambda z: layer(z.transpose(1, 2)).transpose(1, 2)


LAYERS = (
    LayerKind("self-attention", "n² d", "1", "1", (2, 1), attention),
    LayerKind("restricted self-attention", "r n d", "1", "n / r", (1, 1), restricted),
    LayerKind("recurrent", "n d²", "n", "n", (1, 2), recurrent),
    LayerKind("convolution", "k n d²", "1", "log_k n", (1, 2), convolution),
)


@dataclass(frozen=True)
class Range:
    """What is varied, over which values, while the other is held."""

    lengths: tuple[int, ...]
    widths: tuple[int, ...]
    held_length: int
    held_width: int
    repeats: int


FULL = Range(
    (256, 512, 1024, 2048, 4096), (64, 128, 256, 512, 1024), held_length=512, held_width=256, repeats=7
)
QUICK = Range((256, 512, 1024, 2048), (64, 128, 256, 512), held_length=256, held_width=128, repeats=3)


@dataclass(frozen=True)
class TimedLayer:
    """Seconds of one layer over n (d held) and over d (n held), and the exponents that fit them best."""

    layer: LayerKind
    over_n: Sequence[float]
    over_d: Sequence[float]
    exponents: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        return {
            "layer": self.layer.name,
            "work": self.layer.work,
            "sequential_steps": self.layer.steps,
            "longest_path": self.layer.path,
            "formula": {"n": self.layer.growth[0], "d": self.layer.growth[1]},
            "measured": {"n": self.exponents[0], "d": self.exponents[1]},
            "seconds_over_n": list(self.over_n),
            "seconds_over_d": list(self.over_d),
        }


@dataclass(frozen=True)
class Complexity(Result):
    """The time of layers over length and width, beside the formula, and the files of the table and plot."""

    layers: tuple[TimedLayer, ...]
    files: tuple[Path, ...]

    def to_json(self) -> dict[str, Any]:
        return {"layers": self.table(), "files": [str(file) for file in self.files]}

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each kind of layer."""
        return [each.to_json() for each in self.layers]


def measure(values: Range) -> list[TimedLayer]:
    """Every layer over both ranges, on one thread: the growth is measured, not the speed."""
    threads, found = torch.get_num_threads(), []
    torch.set_num_threads(1)
    try:
        for layer in LAYERS:
            over_n = [seconds(layer, n, values.held_width, values.repeats) for n in values.lengths]
            over_d = [seconds(layer, values.held_length, d, values.repeats) for d in values.widths]
            exponents = exponent(values.lengths, over_n), exponent(values.widths, over_d)
            found.append(TimedLayer(layer, over_n, over_d, exponents))
    finally:
        torch.set_num_threads(threads)
    return found


@torch.inference_mode()
def seconds(layer: LayerKind, length: int, width: int, repeats: int) -> float:
    """Return the minimum processor time of several calls: other work on the machine can only add to it."""
    run, z = layer.make(width), torch.randn(1, length, width)
    run(z)
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        run(z)
        times.append(time.process_time() - begun)
    return min(times)


def exponent(values: Sequence[int], times: Sequence[float]) -> float:
    """The slope in double logarithms over the upper values, where what a call costs in any case counts
    least."""
    upper = len(values) - 3
    return float(np.polyfit(np.log(values[upper:]), np.log(times[upper:]), 1)[0])


def time_layers(folder: Path, values: Range) -> Complexity:
    """Measure every layer; write the table, the numbers and the plot into `folder`."""
    layers, about = measure(values), words("studies.complexity")
    rows = markdown_table(header(), [cells(each) for each in layers])
    table = f"# {about['title']}\n\n{about['place']}.\n\n{rows}\n"
    with speaking("en"):
        place = phrase("studies.complexity.place")
    numbers = {"place": place, "layers": [each.to_json() for each in layers]}
    files = write_results(folder, table, numbers, complexity_plot(layers, values))
    return Complexity(tuple(layers), files)


def header() -> tuple[str, ...]:
    return tuple(words("study.layer-columns").values())


def cells(each: TimedLayer) -> tuple[str, ...]:
    """(layer, work, steps, path, growth with n, growth with d): formula and what was measured."""
    layer, (n, d) = each.layer, each.exponents
    growth = (f"{layer.growth[0]} / {n:.2f}", f"{layer.growth[1]} / {d:.2f}")
    return phrase(f"study.layers.{layer.name}"), layer.work, layer.steps, layer.path, *growth


def complexity_plot(results: Sequence[TimedLayer], values: Range) -> Chart:
    """TimedLayer times (dots) and the formula (lines), through the last dot."""
    with canvas(7.2, 3.4, columns=2) as (figure, (left, right)):
        left.set_title(phrase("study.over-length", width=values.held_width))
        right.set_title(phrase("study.over-width", length=values.held_length))
        for color, each in zip((FIRST, MUTED, SECOND, INK), results, strict=True):
            curve(left, values.lengths, each.over_n, each.layer.growth[0], color, cells(each)[0])
            curve(right, values.widths, each.over_d, each.layer.growth[1], color, cells(each)[0])
        left.set_ylabel(phrase("study.seconds"))
        left.legend(fontsize=8)
    return Chart(figure)


def curve(
    axes: Axes, values: Sequence[int], times: Sequence[float], power: int, color: str, name: str
) -> None:
    axes.loglog(values, times, "o", color=color, markersize=4, label=name)
    formula = [times[-1] * (value / values[-1]) ** power for value in values]
    axes.loglog(values, formula, "-", color=color, linewidth=1)
    axes.set_xticks(values, [str(value) for value in values])
    axes.minorticks_off()
