"""Engines: what computes a model. Two compute a PyTorch module, the others a file of a format. PyTorch is
imported when one of the first is used."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class BackendConfig(NamedTuple):
    """One way to compute a model. merged: the tokens that are merged at a time."""

    engine: str
    precision: str
    merged: int = 0

    def __str__(self) -> str:
        tokens = f", {self.merged} tokens merged at a time" if self.merged else ""
        return f"{self.engine} {self.precision}{tokens}"


class Backend(NamedTuple):
    """What computes a model.

    Attributes:
        package: whose version is the engine's.
        prepare: returns a module in evaluation mode, or a copy, with a forward pass that this engine
            computes; None where it computes files.
        ending: of its files.
    """

    package: str
    prepare: Callable[[torch.nn.Module], torch.nn.Module] | None = None
    ending: str = ""


def eager(model: torch.nn.Module) -> torch.nn.Module:
    """Return a model as it is: PyTorch computes operation by operation."""
    return model


def compiled(model: torch.nn.Module) -> torch.nn.Module:
    """Return a model, with the same weights, whose forward pass is compiled: on a CPU with them as constants
    ("freezing"), which are laid out once as the products want them; on a GPU replayed as CUDA graphs."""
    import torch
    from torch._inductor import config

    cuda = next(model.parameters()).is_cuda
    forward = torch.compile(model.forward, mode="reduce-overhead" if cuda else None)

    def frozen(images: torch.Tensor) -> torch.Tensor:
        with config.patch(freezing=not cuda):  # an option of torch.compile of this name has no effect
            return forward(images)

    copied = copy(model)  # which stays as it is, to be measured beside this one and prepared otherwise
    copied.forward = frozen
    return copied


ENGINES = {
    "eager": Backend("torch", prepare=eager),
    "compiled": Backend("torch", prepare=compiled),
    "onnx": Backend("onnxruntime", ending=".onnx"),
    "openvino": Backend("openvino", ending="-openvino"),
}
FILES = {name: engine.ending for name, engine in ENGINES.items() if engine.ending}


def prepared_module(model: nn.Module, candidate: BackendConfig) -> nn.Module:
    """Return a model that PyTorch computes as a candidate says."""
    prepare = ENGINES[candidate.engine].prepare
    assert prepare
    from vitreous.training.precision import with_cast_weights

    if candidate.precision == "bf16":
        model = with_cast_weights(model)
        model.forward = in_bf16(model.forward)
        model.features = in_bf16(model.features)  # type: ignore[arg-type,assignment]
    return prepare(model)


def in_bf16(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a function of images whose products are of bf16, on the device that they are on."""

    import torch

    def compute(images: Tensor) -> Tensor:
        with torch.autocast(images.device.type, torch.bfloat16):
            return function(images)

    return compute
