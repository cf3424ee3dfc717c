"""Where weights begin: memory for a model that was built without any, and numbers from a generator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import nn

from vitreous.layers.initialization import GoogleInit, TimmInit
from vitreous.rng import torch_generator

Scheme = Literal["google", "timm"]
SCHEMES: dict[Scheme, type[GoogleInit]] = {"google": GoogleInit, "timm": TimmInit}


@contextmanager
def fresh_weights(model: nn.Module, seed: int) -> Iterator[None]:
    """Build the parts of `model` inside without memory, then allocate and draw them, unless the default
    device is "meta": then they are about to be loaded, or the caller does both later:

        with torch.device("meta"):
            model = ViT(config)
        model.to_empty(device="cuda")
        init_weights(model, torch_generator(seed, "weights"))
    """
    device = torch.get_default_device()
    with torch.device("meta"):
        yield
    if device.type != "meta":
        model.to_empty(device=device)
        init_weights(model, torch_generator(seed, "weights"))


@torch.no_grad()
def init_weights(model: nn.Module, generator: torch.Generator, scheme: Scheme = "google") -> None:
    """Set every parameter and every computed buffer of `model`, whatever it holds.

    Args:
        generator: as `vitreous.rng.torch_generator(seed, "weights")` returns it; the order of the modules is
            the order of the draws.
        scheme: the codebase to follow, see `vitreous.layers.initialization`.

    Raises:
        TypeError: a module has parameters of its own and no `reset`.
    """
    init = SCHEMES[scheme](generator)
    for module in reversed(list(model.modules())):  # children first: a parent's rule overrides
        if reset := getattr(module, "reset", None):
            reset(init)
        elif isinstance(module, nn.Linear | nn.Conv2d):
            if isinstance(module, nn.Linear):
                init.matrix(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            else:
                init.convolution(module.weight, module.bias)
        elif isinstance(module, nn.LayerNorm | nn.GroupNorm):
            module.reset_parameters()
        elif any(parameter is not None for parameter in module._parameters.values()):
            raise TypeError(f"{type(module).__name__} has parameters and no method reset")
    compute_buffers(model)


@torch.no_grad()
def compute_buffers(model: nn.Module, device: str | torch.device = "cpu") -> None:
    """Compute the tables that are not stored (sines, offsets), on `device` where they have no memory yet."""
    for module in model.modules():
        if compute := getattr(module, "compute_buffers", None):
            here = next(module.buffers(recurse=False)).device
            compute(torch.device("cpu"))  # the same numbers on every device
            for name, buffer in list(module.named_buffers(recurse=False)):
                setattr(module, name, buffer.to(device if here.type == "meta" else here))
