"""Multiplying in 8 bits (arXiv 2209.05433), by torchao: a function applied to a model, and taken off again.

Every forward pass scales a layer's weight and input into float8; weights, gradients and the optimizer keep
their own types.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import parametrize

from vitreous.errors import InputError, require_packages

MULTIPLE = 16  # of both sides of a matrix, for the hardware's float8 products
FIRST_CAPABILITY = (8, 9)  # NVIDIA's Ada and Hopper multiply float8


def check_float8(device: torch.device) -> None:
    """Raises InputError where float8 cannot be had, with the reason."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < FIRST_CAPABILITY:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"
        raise InputError(
            "--precision fp8 needs a GPU that multiplies in 8 bits (NVIDIA Ada, Hopper or later), and this "
            f"is {name}: use --precision auto"
        )
    require_packages("torchao", extra="quant", what="--precision fp8")


def into_float8(model: nn.Module, *, emulate: bool = False) -> None:
    """The matrices of the encoder layers multiply in float8, where their sides are multiples of 16. Stem,
    head and attention's own products stay as they are.

    Args:
        emulate: round to float8 and multiply in float32, on hardware that has no float8: for tests.

    Raises:
        InputError: no matrix fits.
    """
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    def fits(module: nn.Module, name: str) -> bool:
        return (
            isinstance(module, nn.Linear)
            and f".{name}".find(".blocks.") >= 0
            and not parametrize.is_parametrized(module)
            and module.in_features % MULTIPLE == 0
            and module.out_features % MULTIPLE == 0
        )

    if not any(fits(module, name) for name, module in model.named_modules()):
        raise InputError(
            "--precision fp8: the model has no encoder layer with plain matrices whose sides are multiples "
            f"of {MULTIPLE}: use --precision bf16"
        )
    convert_to_float8_training(model, module_filter_fn=fits, config=Float8LinearConfig(emulate=emulate))


def out_of_float8(model: nn.Module) -> None:
    """Plain layers again, with the same weights."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child).__name__ == "Float8Linear":
                setattr(module, name, plain_linear(child))


def plain_linear(layer: nn.Module) -> nn.Linear:
    """A linear layer that holds the parameters of another."""
    assert isinstance(layer, nn.Linear)
    plain = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
    plain.weight, plain.bias = layer.weight, layer.bias
    return plain.train(layer.training)
