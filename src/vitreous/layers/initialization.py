"""How weights are drawn: one class for each codebase that is followed, since they disagree.

A layer that has weights of its own, or a rule for those of its children, has a method `reset(init)`, which
calls these; `init_weights` walks over a whole model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from vitreous.rng import torch_generator

Scheme = Literal["google", "timm"]


class GoogleInit:
    """Draw as vit_jax and big_vision do: Xavier-uniform matrices, zero biases (vit_jax draws those of the MLP
    from N(0, 1e-6)), LeCun-normal patch projection, positions N(0, std), zero tokens and a zero head.

    Args:
        generator: the source of all random numbers. Weights on another device are drawn on the generator's
            and copied, so that a seed means the same weights everywhere.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def draw(self, weight: Tensor, fill: Callable[..., Tensor], **options: object) -> None:
        """Fill `weight` in place by a function of `torch.nn.init`."""
        if weight.device.type == self.generator.device.type:
            fill(weight, generator=self.generator, **options)
            return
        drawn = torch.empty(weight.shape, dtype=weight.dtype, device=self.generator.device)
        weight.copy_(fill(drawn, generator=self.generator, **options))

    def matrix(self, weight: Tensor) -> None:
        """Draw the weight of a linear layer, or one part of several that are packed into one weight."""
        self.draw(weight, nn.init.xavier_uniform_)

    def convolution(self, weight: Tensor, bias: Tensor | None) -> None:
        """Draw a convolution: flax's lecun_normal, a truncated normal of variance 1 / fan_in *after*
        truncation; 0.8796 is the standard deviation of a unit normal that is cut at two."""
        std = math.sqrt(1 / weight[0].numel()) / 0.87962566103423978
        self.draw(weight, nn.init.trunc_normal_, std=std, a=-2 * std, b=2 * std)
        if bias is not None:
            nn.init.zeros_(bias)

    def standardized(self, weight: Tensor) -> None:
        """Draw a kernel that is standardized at every call, so that its scale matters to the optimizer
        alone: as any other convolution of flax."""
        self.convolution(weight, None)

    def representation(self, linear: nn.Linear) -> None:
        """Draw the hidden layer of the pre-training head: flax's default for a Dense layer, LeCun normal."""
        self.convolution(linear.weight, linear.bias)

    def table(self, weight: Tensor, std: float) -> None:
        """Draw a table of positions or of token embeddings."""
        self.draw(weight, nn.init.normal_, std=std)

    def prefix(self, weight: Tensor, *, distillation: int | None) -> None:
        """Draw the prefix tokens; `distillation` is the row of DeiT's token, where there is one."""
        nn.init.zeros_(weight)

    def probe(self, weight: Tensor) -> None:
        """Draw the query of attention pooling, (1, 1, D), whose fans are 1 and D in flax."""
        self.draw(weight[0], nn.init.xavier_uniform_)

    def head(self, head: nn.Module) -> None:
        """Draw the classifier, which has been drawn as any other linear layer."""
        for parameter in head.parameters():
            nn.init.zeros_(parameter)


class TimmInit(GoogleInit):
    """Draw as timm's VisionTransformer does: truncated normal 0.02 for matrices, positions and DeiT's token,
    zero biases, N(0, 1e-6) for the other tokens, PyTorch's default for convolutions."""

    def matrix(self, weight: Tensor) -> None:
        self.draw(weight, nn.init.trunc_normal_, std=0.02)

    def convolution(self, weight: Tensor, bias: Tensor | None) -> None:
        self.draw(weight, nn.init.kaiming_uniform_, a=math.sqrt(5))
        if bias is not None:
            bound = 1 / math.sqrt(weight[0].numel())
            self.draw(bias, nn.init.uniform_, a=-bound, b=bound)

    def standardized(self, weight: Tensor) -> None:
        """Draw a kernel as ResNetV2 does: He normal by the outputs."""
        self.draw(weight, nn.init.kaiming_normal_, mode="fan_out", nonlinearity="relu")

    def representation(self, linear: nn.Linear) -> None:
        """Draw the hidden layer of the pre-training head as any other linear layer."""
        self.matrix(linear.weight)
        nn.init.zeros_(linear.bias)

    def table(self, weight: Tensor, std: float) -> None:
        self.draw(weight, nn.init.trunc_normal_, std=std)

    def prefix(self, weight: Tensor, *, distillation: int | None) -> None:
        self.draw(weight, nn.init.normal_, std=1e-6)
        if distillation is not None:
            self.draw(weight[distillation], nn.init.trunc_normal_, std=0.02)

    def probe(self, weight: Tensor) -> None:
        std = weight.shape[-1] ** -0.5
        self.draw(weight, nn.init.trunc_normal_, std=std, a=-2 * std, b=2 * std)

    def head(self, head: nn.Module) -> None:
        """Leave the classifier as any other linear layer."""


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
        # As `to_empty`, whose torch.empty_like of a tensor without memory imports SymPy: 0.4 s of a command.
        model._apply(lambda each: torch.empty(each.shape, dtype=each.dtype, device=device))  # type: ignore[no-untyped-call]
        init_weights(model, torch_generator(seed, "weights"))


@torch.no_grad()
def init_weights(model: nn.Module, generator: torch.Generator, scheme: Scheme = "google") -> None:
    """Set every parameter and every computed buffer of `model`.

    Args:
        generator: as `vitreous.rng.torch_generator(seed, "weights")` returns it; the order of the modules is
            the order of the draws.
        scheme: the codebase to follow.

    Raises:
        TypeError: a module has parameters of its own and no `reset`.
    """
    init = (TimmInit if scheme == "timm" else GoogleInit)(generator)
    # Children come first, since the rule of a parent overrides theirs.
    for module in reversed(list(model.modules())):
        if reset := getattr(module, "reset", None):
            reset(init)
        elif isinstance(module, nn.Linear):
            init.matrix(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Conv2d):
            init.convolution(module.weight, module.bias)
        elif isinstance(module, nn.LayerNorm | nn.GroupNorm | nn.RMSNorm):
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
