"""Engines: what computes a model. Two compute a PyTorch module, the others a file of a format. PyTorch is
imported when one of the first is used."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor, nn


class BackendConfig(NamedTuple):
    """One way to compute a model. merged: the tokens that are merged at a time."""

    engine: str
    precision: str
    merged: int = 0

    def __str__(self) -> str:
        tokens = f", {self.merged} tokens merged at a time" if self.merged else ""
        return f"{self.engine} {self.precision}{tokens}"


# What computes a model, with its package; and the endings of the files of those that compute files.
ENGINES = {"eager": "torch", "compiled": "torch", "onnx": "onnxruntime", "openvino": "openvino"}
FILES = {"onnx": ".onnx", "openvino": "-openvino"}


def compiled(model: nn.Module) -> nn.Module:
    """Return a model, with the same weights, whose forward pass is compiled: on a CPU with them as constants
    ("freezing"), which are laid out once as the products want them; on a GPU replayed as CUDA graphs."""
    import torch
    from torch._inductor import config

    cuda = next(model.parameters()).is_cuda
    forward = torch.compile(model.forward, mode="reduce-overhead" if cuda else None)

    def frozen(images: Tensor) -> Tensor:
        # The option of torch.compile with this name has no effect.
        with config.patch(freezing=not cuda):
            return forward(images)

    # The model stays as it is, to be measured beside this one and prepared otherwise.
    copied = copy(model)
    copied.forward = frozen
    return copied


def prepared_module(model: nn.Module, candidate: BackendConfig) -> nn.Module:
    """Return a model that PyTorch computes as a candidate says: operation by operation, or compiled."""
    from vitreous.addons.optimize.token_merging import with_merged_tokens
    from vitreous.training.machine import with_cast_weights

    if candidate.merged:
        model = with_merged_tokens(model, candidate.merged)
    if candidate.precision == "bf16":
        model = with_cast_weights(model)
        model.forward = in_bf16(model.forward)
        model.features = in_bf16(model.features)  # type: ignore[arg-type,assignment]
    return compiled(model) if candidate.engine == "compiled" else model


def in_bf16(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a function of images whose products are of bf16, on the device that they are on."""

    import torch

    def compute(images: Tensor) -> Tensor:
        with torch.autocast(images.device.type, torch.bfloat16):
            return function(images)

    return compute
