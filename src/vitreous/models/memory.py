"""The memory that a model needs, measured on the meta device: nothing is allocated."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

FLOAT = 4  # bytes of a number in fp32


class Memory(NamedTuple):
    """Bytes in fp32, with attention fused, so that its maps are never stored whole.

    Attributes:
        weights: parameters and fixed tables.
        gradients: one number for each parameter.
        optimizer: AdamW's two moments of each gradient.
        working: the most that is alive at once while a batch goes through, the images included.
        activations: what the backward pass needs of a batch.
    """

    weights: int
    gradients: int
    optimizer: int
    working: int
    activations: int

    @property
    def inference(self) -> int:
        return self.weights + self.working

    @property
    def training(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations


def memory_of(model: nn.Module, inputs: tuple[Tensor, ...]) -> Memory:
    """What a batch costs in fp32. `model` and `inputs` are on the meta device; nothing is allocated."""
    known = [*model.parameters(), *model.buffers()]
    gradients = FLOAT * sum(parameter.numel() for parameter in model.parameters())
    with FusedAttention():
        with torch.no_grad(), LiveBytes(known) as inference:
            model.eval()(*(each.clone() for each in inputs))
        with LiveBytes(known) as training:
            graph = model.train()(*(each.clone() for each in inputs)).grad_fn
            activations = training.now  # the result is gone: what is alive belongs to the graph
            del graph
    return Memory(
        weights=FLOAT * sum(tensor.numel() for tensor in known),
        gradients=gradients,
        optimizer=2 * gradients,
        working=inference.peak,
        activations=activations,
    )


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The bytes of results of operations that are alive (`now`), and the most at once so far (`peak`),
    without `known` storages."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = {storage_of(tensor): 0 for tensor in known}
        self.now = self.peak = 0

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and storage_of(tensor) not in self.alive:
                storage = tensor.untyped_storage()
                self.alive[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self.release, storage._cdata)
        return result

    def release(self, key: int) -> None:
        self.now -= self.alive.pop(key)


def storage_of(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


class FusedAttention(TorchFunctionMode):
    """The meta device has no fused attention; this replaces it, and takes the memory of one."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if func is torch.nn.functional.scaled_dot_product_attention:
            return FusedKernel.apply(*args[:4])  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


class FusedKernel(torch.autograd.Function):
    """Shapes alone: saves query, key, value, bias, the result and one number for each row of the map, as
    FlashAttention does (arXiv 2205.14135)."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
        batch, heads, tokens, _ = query.shape
        # As the real kernels lay it out: the heads of one token side by side.
        result = query.new_empty(batch, tokens, heads, value.shape[-1]).transpose(1, 2)
        ctx.save_for_backward(query, key, value, bias, result, query.new_empty(query.shape[:-1]))
        return result
