"""Counting what happens on the meta device: operations, bytes alive, bytes kept for the backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

NORMALIZATIONS = (torch.ops.aten.native_layer_norm, torch.ops.aten.native_group_norm)


def count_parameters(holders: Iterable[nn.Module | nn.Parameter]) -> int:
    """Numbers that are learned; those that several holders share count once."""
    distinct = {
        parameter
        for holder in holders
        for parameter in ([holder] if isinstance(holder, nn.Parameter) else holder.parameters())
    }
    return sum(parameter.numel() for parameter in distinct)


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation that torch carries out inside a `with`."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.see(func.overloadpacket, args, kwargs or {}, result)
        return result

    def see(self, operation: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        raise NotImplementedError


class CountMacs(Watch):  # type: ignore[no-untyped-call]
    """Multiply-accumulate operations: one for each product inside a matrix product or a convolution, five for
    each number that a normalization takes in. So counts fvcore, from which the published figures are."""

    macs = 0

    def see(self, operation: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        if operation in NORMALIZATIONS:
            self.macs += 5 * args[0].numel()
        elif operation in flop_registry:
            self.macs += flop_registry[operation](*args, **kwargs, out_val=result) // 2


class LiveBytes(Watch):  # type: ignore[no-untyped-call]
    """The most bytes that were alive at once among the results of operations; `known` storages count not."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = {storage_of(tensor): 0 for tensor in known}
        self.now = self.peak = 0

    def see(self, operation: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and storage_of(tensor) not in self.alive:
                self.born(tensor.untyped_storage())

    def born(self, storage: torch.UntypedStorage) -> None:
        self.alive[storage._cdata] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self.gone, storage._cdata)

    def gone(self, key: int) -> None:
        self.now -= self.alive.pop(key)


class SavedBytes:
    """A saved-tensor hook that sums the bytes of distinct storages; `known` storages count not."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        self.known = {storage_of(tensor) for tensor in known}
        self.kept: dict[int, torch.UntypedStorage] = {}

    def pack(self, tensor: Tensor) -> Tensor:
        if storage_of(tensor) not in self.known:
            self.kept[storage_of(tensor)] = tensor.untyped_storage()
        return tensor

    @property
    def bytes(self) -> int:
        return sum(storage.nbytes() for storage in self.kept.values())


def storage_of(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


class FusedAttention(TorchFunctionMode):
    """The meta device has no fused attention; this stands in for one, and takes the memory of one."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            return FusedKernel.apply(*args[:3])  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


class FusedKernel(torch.autograd.Function):
    """Shapes alone: keeps query, key, value, the result and one number for each row of the map, as
    FlashAttention does (arXiv 2205.14135)."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        batch, heads, tokens, _ = query.shape
        # As the real kernels lay it out: the heads of one token side by side.
        result = query.new_empty(batch, tokens, heads, value.shape[-1]).transpose(1, 2)
        ctx.save_for_backward(query, key, value, result, query.new_empty(query.shape[:-1]))
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise NotImplementedError("shapes alone have no gradient")
