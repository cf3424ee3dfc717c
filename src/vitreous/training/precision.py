"""Which number format multiplies fastest here: measured, not guessed."""

from __future__ import annotations

import time
from typing import Literal

import torch

from vitreous.training.float8 import check_float8

SIDE, TRIES = 1024, 5
CLEARLY_FASTER = 1.2


Precision = Literal["fp32", "bf16", "fp8"]


def pick_precision(wanted: Precision | Literal["auto"], device: torch.device) -> Precision:
    """`wanted`, or for "auto" bf16 where a matrix product of bf16 is clearly faster than one of fp32.

    Raises:
        InputError: fp8 is wanted and cannot be had here.
    """
    if wanted == "fp8":
        check_float8(device)
    if wanted != "auto":
        return wanted
    faster = product_seconds(torch.float32, device) / product_seconds(torch.bfloat16, device)
    return "bf16" if faster > CLEARLY_FASTER else "fp32"


def product_seconds(dtype: torch.dtype, device: torch.device) -> float:
    """The best time of a few products of two SIDE x SIDE matrices."""
    a, b = (torch.ones(SIDE, SIDE, dtype=dtype, device=device) for _ in range(2))
    best = float("inf")
    for _ in range(TRIES + 1):  # the first sets up the library
        started = time.perf_counter()
        product = a @ b
        if device.type == "cuda":
            product.sum().item()
        best = min(best, time.perf_counter() - started)
    return best
