"""Linear layers whose products are of int8, in models that are exported."""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from vitreous.errors import InputError, Param
from vitreous.extensions import outputs_of

INT8 = 127  # the largest number of int8 whose negative is one, too
TINIEST = 1e-12  # of a scale: rows of zeros have one


class Int8Linear(nn.Module):
    """A linear layer whose product is one of int8, for inference: each row of the weight and each token has a
    scale of its own, from its largest number, so that nothing needs to be calibrated."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        scale = weight.abs().amax(dim=1).clamp_min(TINIEST) / INT8
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8).T.contiguous())
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D2"]:
        tokens = x.flatten(0, -2)
        scale = tokens.abs().amax(dim=1, keepdim=True).clamp_min(TINIEST) / INT8
        # PyTorch's only product of int8; what torchao calls.
        product = torch._int_mm((tokens / scale).round().to(torch.int8), self.get_buffer("weight"))
        found = product * scale * self.get_buffer("scale")
        found = found if self.bias is None else found + self.bias
        return found.reshape(*x.shape[:-1], -1)


def with_int8_products(model: nn.Module) -> nn.Module:
    """Return a copy whose linear layers multiply in int8; a head that gives numbers stays as it is, as in
    bf16. Raises InputError: it has none before the head."""
    copied = copy.deepcopy(model)
    numbers = outputs_of(copied) == "number"
    layers = []
    for path, module in copied.named_modules():
        for name, child in module.named_children():
            of_numbers = numbers and "head" in (*path.split("."), name)
            if type(child) is nn.Linear and not parametrize.is_parametrized(child) and not of_numbers:
                layers.append((module, name, child))
    if len(layers) + numbers < 2:
        raise InputError(
            f"int8 is for linear layers, but the model has none before its head: use {Param('precision')} "
            "fp32"
        )
    for module, name, linear in layers:
        setattr(module, name, Int8Linear(linear))
    return copied
