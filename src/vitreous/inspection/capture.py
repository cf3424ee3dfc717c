"""Attention maps of a forward pass, captured by hooks: a fused kernel never materializes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

import torch
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.layers.attention import Attention, CrossAttention

AttentionLayer = Attention | CrossAttention
Map = TypeVar("Map")


@dataclass
class CapturedAttention(Generic[Map]):
    """The attention of the last forward pass.

    Attributes:
        maps: for each layer the matrix A of Eq. 6, (B, K, T, T): rows are queries and sum to one; or
            the result of `reduce`. Detached.
    """

    maps: list[Map] = field(default_factory=list)


@overload
def capture_attention(
    model: nn.Module, *, kind: type[AttentionLayer] = ...
) -> AbstractContextManager[CapturedAttention[Tensor]]: ...


@overload
def capture_attention(
    model: nn.Module, *, reduce: Callable[[Tensor], Map], kind: type[AttentionLayer] = ...
) -> AbstractContextManager[CapturedAttention[Map]]: ...


@contextmanager
def capture_attention(
    model: nn.Module,
    *,
    reduce: Callable[[Tensor], Any] = Tensor.detach,
    kind: type[AttentionLayer] = Attention,
) -> Iterator[CapturedAttention[Any]]:
    """Capture the attention maps of every encoder layer while the model runs as usual.

        with capture_attention(model) as attention:
            logits = model(images)
        attention.maps[0]                              # (B, K, T, T) of the first layer

    Each map is computed a second time from the input of its layer (`Attention.attention_weights`), so that
    the model's own attention stays fused and its output is bit-for-bit the same. Prefix tokens (class,
    distillation, registers) come first, then the patches in raster order. A second forward pass replaces
    the maps.

    Args:
        model: a model with at least one attention layer of `kind`; hybrids, wrapped and shared ones too.
        reduce: from the (B, K, T, T) map of a layer to what is stored of it, applied at once, so that only
            one map is in memory at a time.
        kind: of layers; `CrossAttention`, whose keys come from another sequence, has maps (B, K, T, S).

    Raises:
        InputError: a model without vitreous attention (BiT, models of other libraries), or a compiled one.
    """
    if any("_orig_mod" in each._modules or each._compiled_call_impl for each in model.modules()):
        raise InputError(
            "attention of a compiled model cannot be captured: capture the model that it was compiled from"
        )
    layers = attention_layers(model, kind)
    captured = CapturedAttention[Any]()

    def record(layer: AttentionLayer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if len(captured.maps) == len(layers) or layers[len(captured.maps)] is not layer:
            captured.maps = []  # another forward pass begins
        with torch.no_grad():
            captured.maps.append(reduce(layer.attention_weights(*args, **kwargs)))

    hooks = [layer.register_forward_pre_hook(record, with_kwargs=True) for layer in set(layers)]
    try:
        yield captured
    finally:
        for hook in hooks:
            hook.remove()


def attention_layers(model: nn.Module, kind: type[AttentionLayer]) -> list[Any]:
    """Return the attention module of each layer, in order; a shared module once for each layer."""
    layers = [module for _, module in model.named_modules(remove_duplicate=False) if isinstance(module, kind)]
    if not layers:
        ours = type(model).__module__.startswith("vitreous.")
        reason = "it is a convolutional network" if ours else "it has none of vitreous's attention layers"
        advice = (
            "use a ViT or a hybrid such as R50+ViT-B/16" if ours else "convert it first with vitreous.load"
        )
        raise InputError(f"{type(model).__name__} has no attention to capture: {reason}; {advice}")
    return layers
