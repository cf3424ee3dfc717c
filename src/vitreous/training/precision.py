"""Which number format multiplies fastest here: measured, not guessed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from vitreous.errors import InputError
from vitreous.training.config import TrainingConfig
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


def decided(training: TrainingConfig, device: torch.device) -> TrainingConfig:
    """With the precision that is picked for the device, once, so that config.toml says it."""
    return training.model_copy(update={"precision": pick_precision(training.precision, device)})


def answering_precision(wanted: str, device: torch.device) -> Precision:
    """The precision of answers rather than training: fp32, bf16, or for "auto" the faster of the two.

    Raises:
        InputError: there is no such precision.
    """
    if wanted not in ("auto", "fp32", "bf16"):
        raise InputError(f"--precision {wanted} is none that a model can answer in: use auto, fp32 or bf16")
    return "fp32" if wanted == "fp32" else pick_precision("auto" if wanted == "auto" else "bf16", device)


@contextmanager
def computing(wanted: str, device: torch.device) -> Iterator[None]:
    """Inside, in this thread, a model's matrices are multiplied as `answering_precision` says."""
    half = answering_precision(wanted, device) == "bf16"
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half):
        yield


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
