"""Attention maps of a forward pass of any model: read from the operators that compute them.

A fused kernel never materializes its map, and libraries write attention in many ways. So nothing is asked of
the model: while the context lasts, the operators that PyTorch runs are watched. The model is not touched, and
its output is bit-for-bit the same. Whatever a model is called and from whichever library it comes, its
attention is computed by one of few operators: a fused kernel, a softmax of the logits, or the fast path of
`nn.MultiheadAttention`. Each is an adapter; a new kernel is one more row of `ADAPTERS`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from vitreous.errors import InputError
from vitreous.layers.attention import Attention, CrossAttention, split_heads

Map = TypeVar("Map")


@dataclass
class CapturedAttention(Generic[Map]):
    """The attention of the last forward pass.

    Attributes:
        maps: for each layer the matrix A of Eq. 6, (B, K, T, T): rows are queries and sum to one; or
            the result of `reduce`. Detached.
        names: the name of the module that computed each, as in `model.get_submodule`.
    """

    maps: list[Map] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


@overload
def capture_attention(
    model: nn.Module, *, kind: type[nn.Module] | None = ...
) -> AbstractContextManager[CapturedAttention[Tensor]]: ...


@overload
def capture_attention(
    model: nn.Module, *, reduce: Callable[[Tensor], Map], kind: type[nn.Module] | None = ...
) -> AbstractContextManager[CapturedAttention[Map]]: ...


@contextmanager
def capture_attention(
    model: nn.Module, *, reduce: Callable[[Tensor], Any] = Tensor.detach, kind: type[nn.Module] | None = None
) -> Iterator[CapturedAttention[Any]]:
    """Capture the attention maps of every layer while any model runs as usual.

    This works for models of vitreous, timm, transformers and torchvision, and for your own: any model that
    calls PyTorch's `scaled_dot_product_attention`, `nn.MultiheadAttention` or a softmax of logits
    (B, K, T, S). The model is not changed, its attention stays fused, and its output is bit-for-bit the same.
    A second forward pass replaces the maps.

    Example:
        >>> model = vt.create("ViT-Ti/16", image_size=32)  # or a model of timm, transformers, torchvision
        >>> with vt.capture_attention(model) as attention:
        ...     logits = model(torch.randn(2, 3, 32, 32))
        >>> attention.names[0], attention.maps[0].shape  # (B, K, T, T) of the first layer
        ('blocks.0.attention', torch.Size([2, 3, 5, 5]))

    Args:
        model: the module to watch; other models that run in the meantime are ignored.
        reduce: a function that is applied to the (B, K, T, T) map of each layer at once; its result is stored
            instead, so that only one map is in memory at a time.
        kind: the class of the modules whose attention is captured; by default those of self-attention.
            `CrossAttention`, whose keys come from another sequence, has maps (B, K, T, S).

    Raises:
        InputError: the model has no attention, or it is compiled.
    """
    if any("_orig_mod" in each._modules or each._compiled_call_impl for each in model.modules()):
        raise InputError(
            "attention of a compiled model cannot be captured: capture the model that it was compiled from"
        )
    own, wanted = type(model).__module__.startswith("vitreous."), kind or Attention
    known = kind is not None or type(model).__module__.startswith("vitreous.models.")
    if known and not any(isinstance(module, wanted) for module in model.modules()):
        reason = f"it has no {wanted.__name__}; leave out kind to see what it has"
        if own and wanted in (Attention, CrossAttention):
            reason = "it is a convolutional network; use a ViT or a hybrid such as R50+ViT-B/16"
        raise InputError(f"{type(model).__name__} has no attention to capture: {reason}")
    watch = Watch(model, kind, reduce)
    hooks = [
        register_module_forward_pre_hook(watch.enter),
        register_module_forward_hook(watch.leave, always_call=True),
    ]
    try:
        with watch:
            yield watch.captured
    finally:
        for hook in hooks:
            hook.remove()
    if watch.has_run and not watch.captured.maps:
        raise InputError(
            f"{type(model).__name__} has no attention to capture: none of its operations is attention "
            "as PyTorch computes it"
        )


class Call(NamedTuple):
    """A module that is running, and the number of the call."""

    module: nn.Module
    number: int


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A `TorchDispatchMode` without the wrapper that keeps compilers out of it: at its first operator that
    would import torch._dynamo, which takes seconds, and nothing is compiled here."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class Watch(DispatchMode):
    """Sees every operator that PyTorch runs in this thread, and which module of the model runs it."""

    def __init__(
        self, model: nn.Module, kind: type[nn.Module] | None, reduce: Callable[[Tensor], Any]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model, self.kind, self.reduce = model, kind, reduce
        named = list(model.named_modules(remove_duplicate=False))
        self.names = {module: name for name, module in reversed(named)}
        # One module can be shared by several layers.
        self.layers = Counter(module for _, module in named)
        self.thread = threading.get_ident()
        self.running: list[Call] = []
        self.has_run = 0
        self.calls: dict[nn.Module, set[int]] = {}  # of this pass, with attention
        self.captured = CapturedAttention[Any]()

    def enter(self, module: nn.Module, args: object) -> None:
        """Note that a module starts; the model itself starts a new pass."""
        if module in self.names and threading.get_ident() == self.thread:
            if module is self.model:
                self.forget()
            self.has_run += 1
            self.running.append(Call(module, self.has_run))

    def leave(self, module: nn.Module, args: object, output: object) -> None:
        """Note that a module has ended, with an error or without."""
        if module in self.names and threading.get_ident() == self.thread and self.running:
            self.running.pop()

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        output = func(*args, **(kwargs or {}))
        weights = WEIGHTS.get(func._schema.name)
        if weights is None or (call := self.owner()) is None or not self.wanted(call.module):
            return output
        # What is computed here is not attention of the model: other captures must not see it.
        with torch.no_grad(), _disable_current_modes():
            found = weights(operands_of(func, args, kwargs or {}), output, call.module)
            known = self.kind is not None or isinstance(call.module, Attention)
            if found is not None and (known or found.shape[-2] == found.shape[-1]):
                self.record(call, self.reduce(found))
        return output

    def owner(self) -> Call | None:
        """Return the innermost running module that has weights: an `nn.Softmax` is a part of one."""
        for call in reversed(self.running):
            if next(call.module.parameters(), None) is not None:
                return call
        return None

    def wanted(self, module: nn.Module) -> bool:
        """Return whether the attention of a module is what was asked for."""
        if self.kind is not None:
            return isinstance(module, self.kind)
        return not isinstance(module, CrossAttention)

    def record(self, call: Call, found: object) -> None:
        """Store a map. A layer that is called again by itself, without the model, starts a new pass."""
        calls = self.calls.setdefault(call.module, set())
        again = call.number not in calls and len(calls) == self.layers[call.module]
        if again and self.running[0].module is not self.model:
            self.forget()
        self.calls.setdefault(call.module, set()).add(call.number)
        self.captured.maps.append(found)
        self.captured.names.append(self.names[call.module])

    def forget(self) -> None:
        """Start with no maps; those of the last pass stay with the caller."""
        self.captured.maps, self.captured.names, self.calls = [], [], {}


Operands = Mapping[str, Any]  # the arguments of an operator by their names in its schema


class AttentionOperator(NamedTuple):
    """An operator that computes attention.

    Attributes:
        names: of the operator, as the dispatcher has them.
        weights: from its operands, its result and the module that runs it to the map (B, K, T, S), or None
            where this is not attention; rows sum to one.
        gradients: the operators of its backward pass.
        slopes: from the operands of these to the map and the gradient with respect to it; of a softmax that
            is not attention too.
    """

    names: tuple[str, ...]
    weights: Callable[[Operands, Tensor, nn.Module], Tensor | None]
    gradients: tuple[str, ...] = ()
    slopes: Callable[[Operands], tuple[Tensor, Tensor]] | None = None


def fused_weights(operands: Operands, *_: object) -> Tensor:
    """Return softmax(q k^T scale + bias) of a fused kernel, which never materializes it."""
    query, key = full_precision(operands["query"]), full_precision(operands["key"])
    if key.shape[1] != query.shape[1]:  # grouped queries share keys
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scale = operands.get("scale")
    logits = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    bias = operands.get("attn_mask")
    if bias is None:
        bias = operands.get("attn_bias")
    if operands.get("is_causal"):
        bias = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
    if bias is None:
        return logits.softmax(dim=-1)
    if bias.dtype == torch.bool:
        return logits.masked_fill(~bias, -torch.inf).softmax(dim=-1)
    return (logits + bias[..., : logits.shape[-1]]).softmax(dim=-1)


def fused_slopes(operands: Operands) -> tuple[Tensor, Tensor]:
    """Return A, and dy/dA = (dy/d(A v)) v^T."""
    slope = operands.get("grad_out", operands.get("grad_out_"))
    assert slope is not None
    value = full_precision(operands["value"])
    if value.shape[1] != slope.shape[1]:
        value = value.repeat_interleave(slope.shape[1] // value.shape[1], dim=1)
    return fused_weights(operands), full_precision(slope) @ value.transpose(-2, -1)


def softmax_weights(operands: Operands, output: Tensor, module: nn.Module) -> Tensor | None:
    """Return the result of a softmax if it has the shape of an attention map: (B, K, T, S), the (B K, T, S)
    of `nn.MultiheadAttention`, or a square (B, T, T), which is that of one head."""
    if operands["dim"] not in (-1, output.ndim - 1):
        return None
    if output.ndim == 3 and isinstance(module, nn.MultiheadAttention):
        return output.reshape(-1, module.num_heads, *output.shape[1:])
    if output.ndim == 3 and output.shape[1] == output.shape[2]:
        return output[:, None]
    return output if output.ndim == 4 else None


def softmax_slopes(operands: Operands) -> tuple[Tensor, Tensor]:
    """Return A and dy/dA, in whatever shape the model has them."""
    return operands["output"], operands["grad_output"]


def fast_path_weights(operands: Operands, *_: object) -> Tensor:
    """Return the map of the fast path of `nn.MultiheadAttention`, from the input and the packed weights."""
    z, heads = operands["query"], operands["num_head"]
    packed = F.linear(z, operands["qkv_weight"], operands["qkv_bias"])
    queries, keys = packed.chunk(3, dim=-1)[:2]
    mask = operands.get("mask")
    if mask is not None:  # of what is left out
        mask = ~(mask[:, None, None] if operands.get("mask_type") == 1 else mask).bool()
    split = {"query": split_heads(queries, heads), "key": split_heads(keys, heads)}
    return fused_weights({**split, "attn_mask": mask})


def fast_layer_weights(operands: Operands, *_: object) -> Tensor:
    """Return the map of the fast path of `nn.TransformerEncoderLayer`, which is a whole layer."""
    z = operands["src"]
    if operands["norm_first"]:
        z = F.layer_norm(z, z.shape[-1:], operands["norm_weight_1"], operands["norm_bias_1"], operands["eps"])
    return fast_path_weights({**operands, "query": z, "num_head": operands["num_heads"]})


def full_precision(values: Tensor) -> Tensor:
    """Return half-precision values as float32: a map of many small numbers needs it."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


KERNELS = (
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_fused_attention_overrideable",
)
ADAPTERS = (
    AttentionOperator(
        # The first arrives whole in inference mode, and as one of the kernels elsewhere.
        ("aten::scaled_dot_product_attention", *KERNELS),
        fused_weights,
        tuple(f"{kernel}_backward" for kernel in KERNELS),
        fused_slopes,
    ),
    AttentionOperator(
        ("aten::softmax", "aten::_softmax", "aten::_safe_softmax"),
        softmax_weights,
        ("aten::_softmax_backward_data",),
        softmax_slopes,
    ),
    AttentionOperator(("aten::_native_multi_head_attention",), fast_path_weights),
    AttentionOperator(("aten::_transformer_encoder_layer_fwd",), fast_layer_weights),
)
WEIGHTS: dict[str, Callable[[Operands, Tensor, nn.Module], Tensor | None]] = {}  # by operators
SLOPES: dict[str, Callable[[Operands], tuple[Tensor, Tensor]]] = {}  # by operators of the backward pass
for adapter in ADAPTERS:
    WEIGHTS |= dict.fromkeys(adapter.names, adapter.weights)
    if adapter.slopes is not None:
        SLOPES |= dict.fromkeys(adapter.gradients, adapter.slopes)


def operands_of(func: OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> Operands:
    """Return the arguments of a call by their names."""
    operands = dict(kwargs)
    for argument, value in zip(func._schema.arguments, args, strict=False):
        operands[argument.name] = value
    return operands
