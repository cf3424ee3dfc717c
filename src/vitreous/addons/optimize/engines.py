"""Engines: what computes a model. Two compute a PyTorch module, the others a file of a format."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class Engine(NamedTuple):
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
    "eager": Engine("torch", prepare=eager),
    "compiled": Engine("torch", prepare=compiled),
    "onnx": Engine("onnxruntime", ending=".onnx"),
    "openvino": Engine("openvino", ending="-openvino"),
}
FILES = {name: engine.ending for name, engine in ENGINES.items() if engine.ending}
