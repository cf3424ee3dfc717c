"""The device, and number formats on it: fp32, or bf16 autocast."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from time import perf_counter
from typing import Literal, TypeVar

import torch
from torch import nn
from torch.nn.utils import parametrize

from vitreous.errors import InputError, Param
from vitreous.extensions import outputs_of

# Channels from which on a CPU gains from bf16. On one with AMX a training step of width 64 took 0.85 times as
# long as in fp32, of 96 0.7 to 0.9 times, of 128 and 192 0.5 times (65 tokens), of 384 0.4 times (197); with
# AVX-512 BF16 of AMD (Zen 4) 0.6 times for widths from 64 to 128, 0.5 for 192 to 768; answers 0.5 to 0.75.
# There are others with AVX-512 BF16 on which steps took 1.1 to 1.7 times as long: so the product is timed.
WIDE = 128
FIRST_BF16 = (8, 0)  # NVIDIA's Ampere
SIDE, ROUNDS = 256, 7  # of the matrices that are multiplied to time bf16 on a CPU, and how often
FASTER = 0.75  # of the time in fp32, below which bf16 is faster: the casts around the products take time, too
Precision = Literal["fp32", "bf16"]
CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"  # must be set before the first product on a GPU


def pick_device(name: str) -> torch.device:
    """Return the device called `name`; "auto" is the GPU where there is one. Raises InputError: no such
    device, or it is not here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"{Param('device')} {name}: only cpu and cuda are supported; use cpu or auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"{Param('device')} {name}: this machine has {torch.cuda.device_count()} GPUs; use cpu or auto"
        )
    return device


def pick_precision(wanted: Precision | Literal["auto"], device: torch.device, width: int = WIDE) -> Precision:
    """Return `wanted`; for "auto" bf16 where the device is faster in it, and on a CPU if the model is wide
    enough to gain from it."""
    if wanted != "auto":
        return wanted
    if device.type == "cuda":  # it has instructions for them
        faster = torch.cuda.get_device_capability(device) >= FIRST_BF16
    else:  # a product was, the first time that this is asked of a model that could gain from it
        faster = (device.type != "cpu" or width >= WIDE) and time_of_bf16() < FASTER
    return "bf16" if faster else "fp32"


@cache
def time_of_bf16() -> float:
    """Return the time of a matrix product on the CPU in bf16, as a multiple of that in fp32: the best of some
    rounds, a few milliseconds in all. Processors that have the same instructions differ in it."""
    best = {torch.float32: math.inf, torch.bfloat16: math.inf}
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        matrices = {kind: torch.ones(SIDE, SIDE, dtype=kind, device="cpu") for kind in best}
        for kind, matrix in ROUNDS * list(matrices.items()):
            begun = perf_counter()
            matrix @ matrix
            best[kind] = min(best[kind], perf_counter() - begun)
    return best[torch.bfloat16] / best[torch.float32]


def answering_precision(wanted: str, device: torch.device, model: object = None) -> Precision:
    """Return the precision of inference: fp32, bf16, or for "auto" the faster of the two; "fp32", without
    autocast, for a model that computes in another type of its own. Raises InputError: there is no such
    precision, or such a model computes in another."""
    if wanted not in ("auto", "fp32", "bf16"):
        raise InputError(
            f"{Param('precision')} {wanted} is not available for inference: use auto, fp32 or bf16"
        )
    if (own := weights_type(model)) != torch.float32:
        if wanted == "fp32" or (wanted == "bf16" and own != torch.bfloat16):
            raise InputError(
                f"precision={wanted!r} is for float32 weights, and the model has "
                f"{str(own).removeprefix('torch.')}: leave it out, or pass model.float()"
            )
        return "fp32"
    return "fp32" if wanted == "fp32" else pick_precision("auto" if wanted == "auto" else "bf16", device)


def weights_type(model: object) -> torch.dtype:
    """Return the type of a model's weights, or of the model in an answerer; float32 where there are none."""
    module = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    weights = module.parameters() if isinstance(module, nn.Module) else ()
    return next((each.dtype for each in weights), torch.float32)


@contextmanager
def computing(wanted: str, device: torch.device) -> Iterator[None]:
    """Within this context, in this thread, multiply matrices in the precision of `answering_precision`."""
    with autocast(answering_precision(wanted, device), device):
        yield


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return the context in which a model computes in the precision of its training."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


ModuleT = TypeVar("ModuleT", bound=nn.Module)


def with_cast_weights(model: ModuleT) -> ModuleT:
    """Return a copy whose matrices are bf16 already, for autocast, which casts them again in every batch
    otherwise: the same outputs, in 0.8 of the time of one image of a ViT-Ti/16. A head that gives
    numbers stays as it is."""
    copied = copy.deepcopy(model)
    numbers = outputs_of(model) == "number"
    for name, module in copied.named_modules():
        plain = type(module) in (nn.Linear, nn.Conv2d) and not parametrize.is_parametrized(module)
        if plain and not (numbers and name.startswith("head")):
            module.to(torch.bfloat16)
    return copied


@contextmanager
def numerics(device: torch.device, precision: str, *, deterministic: bool) -> Iterator[None]:
    """Within this context, compute as a training asks for: on the GPU that is given, what stays in fp32 in
    TF32, unless the precision is fp32; with `deterministic` by algorithms that give the same bits each time.
    Raises InputError: an operation has no such algorithm."""
    cudnn, fp32 = torch.backends.cudnn, precision == "fp32"
    with ExitStack() as before:
        before.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        before.callback(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled())
        for name in ("allow_tf32", "benchmark"):
            before.callback(setattr, cudnn, name, getattr(cudnn, name))
        if device.type == "cuda":
            torch.set_float32_matmul_precision("highest" if fp32 else "high")
            cudnn.allow_tf32 = not fp32  # of convolutions
            if device.index is not None:  # the first one is current otherwise, also to what synchronizes
                before.enter_context(torch.cuda.device(device))
        if deterministic:
            os.environ.setdefault(*CUBLAS_WORKSPACE)
            torch.use_deterministic_algorithms(True)  # cuDNN's, too
            cudnn.benchmark = False
        try:
            yield
        except RuntimeError as error:
            if "does not have a deterministic implementation" not in str(error):
                raise
            what = f"{Param('deterministic')}: {str(error).partition(',')[0]}"
            raise InputError(f"{what}; leave the option out") from error
