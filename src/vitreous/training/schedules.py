"""The learning rate over the steps, as a share of its peak."""

from __future__ import annotations

import math

from vitreous.training.config import ScheduleConfig


def rate(step: int, total: int, config: ScheduleConfig) -> float:
    """The share of the peak learning rate at `step` (0, 1, ... total - 1) of a run of `total` steps.

    Warm-up is linear and ends at the peak: step t of w has the share (t + 1) / w. The chosen curve runs over
    the steps behind it (1608.03983 without restarts for cosine; 2106.04560, section 3.5, for rsqrt with its
    cooldown), and is 0 (or `end`) at step `total`, which is never taken.
    """
    warmup, cooldown = in_steps(config.warmup, total), in_steps(config.cooldown, total)
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(total - warmup, 1)
    match config.kind:
        case "linear":
            share = config.end + (1 - config.end) * (1 - done)
        case "cosine":
            share = config.end + (1 - config.end) * (1 + math.cos(math.pi * done)) / 2
        case "constant":
            share = 1.0
        case "rsqrt":
            share = math.sqrt(config.timescale / (config.timescale + step - warmup))
    return share * min(1.0, (total - step) / cooldown) if cooldown else share


def in_steps(length: float, total: int) -> int:
    """A length below 1 is a share of the run. Warm-up never takes the whole run."""
    return min(round(length * total if length < 1 else length), max(total - 1, 0))
