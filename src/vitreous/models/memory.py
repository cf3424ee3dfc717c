"""The memory that a model needs, measured on the meta device: nothing is allocated."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
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
        activations: what the backward pass needs of a batch, counted by saved-tensor hooks.
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
        with torch.no_grad(), LiveBytes(known) as live:
            model.eval()(*inputs)
        saved = SavedBytes(known)
        with saved_tensors_hooks(saved.pack, lambda tensor: tensor):
            model.train()(*inputs)
    return Memory(
        weights=FLOAT * sum(tensor.numel() for tensor in known),
        gradients=gradients,
        optimizer=2 * gradients,
        working=sum(each.nbytes for each in inputs) + live.peak,
        activations=saved.bytes,
    )


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The most bytes that were alive at once among the results of operations, without `known` storages."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = {storage_of(tensor): 0 for tensor in known}
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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


class SavedBytes:
    """A saved-tensor hook that sums the bytes of distinct storages, without `known` ones."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        self.known = {storage_of(tensor) for tensor in known}
        self.saved: dict[int, torch.UntypedStorage] = {}

    def pack(self, tensor: Tensor) -> Tensor:
        if storage_of(tensor) not in self.known:
            self.saved[storage_of(tensor)] = tensor.untyped_storage()
        return tensor

    @property
    def bytes(self) -> int:
        return sum(storage.nbytes() for storage in self.saved.values())


def storage_of(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


class FusedAttention(TorchFunctionMode):
    """The meta device has no fused attention; this replaces it, and takes the memory of one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            return FusedKernel.apply(*args[:3])  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


class FusedKernel(torch.autograd.Function):
    """Shapes alone: saves query, key, value, the result and one number for each row of the map, as
    FlashAttention does (arXiv 2205.14135)."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        batch, heads, tokens, _ = query.shape
        # As the real kernels lay it out: the heads of one token side by side.
        result = query.new_empty(batch, tokens, heads, value.shape[-1]).transpose(1, 2)
        ctx.save_for_backward(query, key, value, result, query.new_empty(query.shape[:-1]))
        return result
