"""A plugin of pytest, with which tests compute on a device that is none: `pytest -p gpu_with_values`.

Its tensors hold their values in memory, and what is computed with them is computed on the CPU; but as with
those of a GPU nothing reads them before they are copied, and no operation takes them beside tensors of the
CPU. So whole commands can be run to their ends: training, evaluation, figures and pages. `fake_gpu` sees that
nothing waits for the device, this one that nothing forgets to copy.

What differs from a GPU: it has no autocast, no generators and no inference mode, so that random numbers are
drawn on the CPU, and bf16 is not tried here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

COPIES = ("copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_")  # may take both


class Backend(_DummyBackendModule):
    """What PyTorch asks a device for; it has one stream, which has always ended."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def synchronize(self, *_: Any) -> None:
        pass

    wait_stream = synchronize

    def current_stream(self, *_: Any) -> Backend:
        return self

    def stream(self, *_: Any) -> AbstractContextManager[None]:
        return nullcontext()


_setup_privateuseone_for_python_backend("heldgpu", backend_module=Backend())
GPU = torch.device("heldgpu:0")


class OnGPU(Tensor):
    """A tensor of the device."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> OnGPU:
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        made = Tensor._make_wrapper_subclass(cls, held.shape, **layout, device=GPU)  # type: ignore[attr-defined]
        made.held = held
        return made  # type: ignore[no-any-return]

    def tolist(self) -> Any:  # as of a GPU's: it copies
        return self.held.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("can't convert a tensor of a GPU to numpy: copy it to the CPU first")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = tree_leaves((args, kwargs := kwargs or {}))
        here = [each for each in leaves if isinstance(each, OnGPU)]
        others = [each for each in leaves if isinstance(each, Tensor) and not isinstance(each, OnGPU)]
        if any(each.dim() for each in others) and func._opname not in COPIES:
            raise RuntimeError(f"{func}: tensors of two devices")
        asked = next((each for each in leaves if isinstance(each, torch.device)), GPU)
        target = args[0].device if func._opname == "copy_" else asked
        known = {id(each.held): each for each in here}  # what is changed in place stays the same tensor

        def outside(each: Any) -> Any:
            if isinstance(each, OnGPU):
                return each.held
            return torch.device("cpu") if each == GPU or each == torch.device(GPU.type) else each

        def inside(each: Any) -> Any:
            if not isinstance(each, Tensor) or isinstance(each, OnGPU):
                return each
            if target.type != GPU.type:
                return each.clone() if id(each) in known else each
            return known[id(each)] if id(each) in known else OnGPU(each)

        args, kwargs = (tree_map(outside, each) for each in (args, kwargs))
        return tree_map(inside, func(*args, **kwargs))


def own(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in ("device", "layout", "pin_memory")}


def copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """`target[:] = 0`, whose number is a tensor of the CPU."""
    (target.held if isinstance(target, OnGPU) else target).copy_(getattr(source, "held", source))
    return target


OPERATORS = torch.library.Library("aten", "IMPL")
OPERATORS.impl(
    "empty.memory_format", lambda size, **more: OnGPU(torch.empty(size, **own(more))), "PrivateUse1"
)
OPERATORS.impl(
    "empty_strided",
    lambda size, stride, **more: OnGPU(torch.empty_strided(size, stride, **own(more))),
    "PrivateUse1",
)
OPERATORS.impl("_copy_from", copy_from, "PrivateUse1")
AUTOCAST = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
AUTOCAST.fallback(torch.library.fallthrough_kernel)


def replace_weights(
    module: nn.Module, function: Callable[[Tensor], Tensor], recurse: bool = True
) -> nn.Module:
    """`nn.Module._apply`, which swaps tensors in place and cannot do so with tensors of another class."""
    for each in module.modules():
        for name, parameter in each._parameters.items():
            if parameter is not None:
                with torch.no_grad():
                    changed = function(parameter)
                if changed is not parameter:
                    each._parameters[name] = nn.Parameter(changed.detach(), parameter.requires_grad)
        for name, buffer in each._buffers.items():
            each._buffers[name] = None if buffer is None else function(buffer)
    return module


def inference_mode(mode: Any = True) -> Any:
    """What is made in inference mode cannot be wrapped."""
    if callable(mode):
        return torch.no_grad()(mode)
    return torch.no_grad() if mode else nullcontext()


nn.Module._apply = replace_weights  # type: ignore[assignment]
torch.inference_mode = inference_mode  # type: ignore[assignment, misc]

# Before anything else imports them from there:
from vitreous import rng  # noqa: E402

on_the_cpu = rng.torch_generator
rng.torch_generator = lambda *key, device=None: on_the_cpu(*key)  # type: ignore[assignment]
from vitreous.training import machine  # noqa: E402

here = machine.pick_device
machine.pick_device = lambda name: GPU if name in ("auto", "cuda") else here(name)
from vitreous.api import model_source  # noqa: E402

model_source.BATCH[GPU.type] = model_source.BATCH["cuda"]
