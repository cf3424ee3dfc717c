"""The cost of four layers that map n vectors of width d to n others (1706.03762, Table 1): how it grows with
n and d, measured, beside the formula. Of attention softmax(q k^T) v is measured, without projections."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vitreous.addons.studies.study import TRANSFORMER_PAPER, Study, TrialResult, Variant
from vitreous.training.machine import keep_freed_memory

KERNEL = 3
NEIGHBORS = 64  # r of restricted attention: positions that each one attends to
Layer = Callable[[Tensor], Tensor]  # from (1, n, d) to (1, n, d)


def attention(width: int) -> Layer:
    return lambda z: F.scaled_dot_product_attention(z, z, z)


def restricted(width: int) -> Layer:
    """Return attention to the r / 2 positions on each side: a block of as many queries has three blocks of
    keys."""
    half = NEIGHBORS // 2

    def run(z: Tensor) -> Tensor:
        count = z.shape[1]
        blocks = -(-count // half)
        padded = F.pad(z[0], (0, 0, half, half + blocks * half - count))
        keys = padded.unfold(0, 3 * half, half).transpose(1, 2)  # (blocks, 3 r / 2, d)
        queries = padded[half : half + blocks * half].reshape(blocks, half, width)
        key, query = torch.arange(3 * half) - half, torch.arange(half)
        places = half * torch.arange(blocks)[:, None, None] + key
        near = ((key - query[:, None]).abs() <= half) & (places >= 0) & (places < count)
        return F.scaled_dot_product_attention(queries, keys, keys, near).flatten(0, 1)[None, :count]

    return run


def recurrent(width: int) -> Layer:
    layer = nn.RNN(width, width, batch_first=True)
    return lambda z: layer(z)[0]


def convolution(width: int) -> Layer:
    layer = nn.Conv1d(width, width, KERNEL, padding=KERNEL // 2)
    return lambda z: layer(z.transpose(1, 2)).transpose(1, 2)


# By name: the layer for a width d; operations, sequential operations and longest path as the paper has them;
# and the exponents of n and d in the operations.
LAYERS: dict[str, tuple[Callable[[int], Layer], str, tuple[int, int]]] = {
    "self-attention": (attention, "n² d; 1; 1", (2, 1)),
    "restricted self-attention": (restricted, "r n d; 1; n / r", (1, 1)),
    "recurrent": (recurrent, "n d²; n; n", (1, 2)),
    "convolution": (convolution, "k n d²; 1; log_k n", (1, 2)),
}


@dataclass(frozen=True)
class LayerTrial:
    """A layer whose cost is measured over `lengths`, at `held_width`, and over `widths`, at `held_length`.
    Each seed measures it again."""

    revision: ClassVar[int] = 2
    settings: ClassVar[tuple[str, ...]] = ()

    layer: str
    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)
    widths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    held_length: int = 512
    held_width: int = 256
    repeats: int = 12
    data: str = ""
    steps: int = 0
    rate: float = 0.0

    def perform(self, seed: int, *, share: float, device: torch.device) -> TrialResult:
        """Measure on one thread, freed memory being kept as in training: the growth is measured, not the
        speed. A quick look has shorter ranges."""
        keep_freed_memory()
        make, _, (n_power, d_power) = LAYERS[self.layer]
        lengths = self.lengths[: max(3, round(share * len(self.lengths)))]
        widths = self.widths[: max(3, round(share * len(self.widths)))]
        over_n = [(n, self.held_width) for n in lengths]
        over_d = [(self.held_length, d) for d in widths]
        sizes = {*over_n, *over_d}
        threads, begun = torch.get_num_threads(), time.process_time()
        torch.set_num_threads(1)
        try:
            times = {(n, d): seconds(make(d), n, d, self.repeats) for n, d in sizes}
        finally:
            torch.set_num_threads(threads)
        counts = {(n, d): counted_operations(make(d), n, d) for n, d in sizes}
        powers = exponent(lengths, [times[size] for size in over_n])
        in_width = exponent(widths, [times[size] for size in over_d])
        counted = [exponent(lengths, [counts[size] for size in over_n])]
        counted.append(exponent(widths, [counts[size] for size in over_d]))
        values: dict[str, float] = {
            "time-n": powers,
            "time-d": in_width,
            "time-n-off": powers - n_power,
            "time-d-off": in_width - d_power,
            "operations-off": round(abs(counted[0] - n_power) + abs(counted[1] - d_power), 6),
            "long": 1000 * times[over_n[-1]],
            "wide": 1000 * times[over_d[-1]],
        }
        for n, d in (*over_n, *over_d):
            values[f"seconds at n = {n}, d = {d}"] = times[n, d]
        return TrialResult(values, 0, round(counts[over_n[0]] / 2), time.process_time() - begun)


@torch.inference_mode()
def seconds(run: Layer, length: int, width: int, repeats: int) -> float:
    """Return the minimum processor time of several calls: other work on the machine can only add to it."""
    z, times = torch.randn(1, length, width), []
    run(z)
    for _ in range(repeats):
        begun = time.process_time()
        run(z)
        times.append(time.process_time() - begun)
    return min(times)


@torch.inference_mode()
def counted_operations(run: Layer, length: int, width: int) -> float:
    """Return the operations of all matrix products and convolutions of one call, as PyTorch counts them."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        run(torch.zeros(1, length, width))
    return float(counter.get_total_flops())


def exponent(values: Sequence[int], costs: Sequence[float]) -> float:
    """Return the slope in double logarithms over the upper values, where what a call costs in any case counts
    least."""
    upper = slice(len(values) - 3, None)
    return float(np.polyfit([math.log(v) for v in values[upper]], np.log(costs[upper]), 1)[0])


def complexity() -> Study:
    """Return the study of costs. Operations are counted, and a test holds them to the formulas; times are
    those of a machine and decide no claim."""
    variants = [Variant(name, LayerTrial(name), paper) for name, (_, paper, _) in LAYERS.items()]
    return Study("complexity", tuple(variants), (), "time-n", False, TRANSFORMER_PAPER, "layers")
