"""The operators of PyTorch that compute attention, and how to read the map A from their arguments.

Whatever a model is called and from whichever library it comes, its attention is computed by one of few
operators: a fused kernel, a softmax of the logits, or the fast path of `nn.MultiheadAttention`. Each is an
adapter here; a new kernel is one more row of `ADAPTERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.layers.attention import split_heads

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
    weights: Callable[[Operands, Any, nn.Module], Tensor | None]
    gradients: tuple[str, ...] = ()
    slopes: Callable[[Operands], tuple[Tensor, Tensor]] | None = None


def fused_weights(operands: Operands, *_: Any) -> Tensor:
    """Return softmax(q k^T scale + bias) of a fused kernel, which never materializes it."""
    query, key = full_precision(operands["query"]), full_precision(operands["key"])
    if key.shape[1] != query.shape[1]:  # grouped queries share keys
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scale = operands.get("scale")
    logits = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    bias = next(
        (operands[name] for name in ("attn_mask", "attn_bias") if operands.get(name) is not None), None
    )
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


def softmax_weights(operands: Operands, output: Any, module: nn.Module) -> Tensor | None:
    """Return the result of a softmax if it has the shape of an attention map: (B, K, T, S), the (B K, T, S)
    of `nn.MultiheadAttention`, or a square (B, T, T), which is that of one head."""
    if operands["dim"] not in (-1, output.ndim - 1):
        return None
    if output.ndim == 3 and isinstance(module, nn.MultiheadAttention):
        return output.unflatten(0, (-1, module.num_heads))
    if output.ndim == 3 and output.shape[1] == output.shape[2]:
        return output[:, None]
    return output if output.ndim == 4 else None


def softmax_slopes(operands: Operands) -> tuple[Tensor, Tensor]:
    """Return A and dy/dA, in whatever shape the model has them."""
    return operands["output"], operands["grad_output"]


def fast_path_weights(operands: Operands, *_: Any) -> Tensor:
    """Return the map of the fast path of `nn.MultiheadAttention`, from the input and the packed weights."""
    z, heads = operands["query"], operands["num_head"]
    packed = F.linear(z, operands["qkv_weight"], operands["qkv_bias"])
    query, key = (full_precision(split_heads(each, heads)) for each in packed.chunk(3, dim=-1)[:2])
    logits = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    mask = operands.get("mask")
    if mask is not None:
        mask = mask[:, None, None] if operands.get("mask_type") == 1 else mask
        logits = logits.masked_fill(mask.bool(), -torch.inf)
    return logits.softmax(dim=-1)


def fast_layer_weights(operands: Operands, *_: Any) -> Tensor:
    """Return the map of the fast path of `nn.TransformerEncoderLayer`, which is a whole layer."""
    z = operands["src"]
    if operands["norm_first"]:
        z = F.layer_norm(z, z.shape[-1:], operands["norm_weight_1"], operands["norm_bias_1"], operands["eps"])
    return fast_path_weights({**operands, "query": z, "num_head": operands["num_heads"]})


def full_precision(values: Tensor) -> Tensor:
    """Return half-precision values as float32: a map of many small numbers needs it."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


KERNELS = tuple(
    f"aten::_scaled_dot_product_{kernel}"
    for kernel in (
        "flash_attention",
        "flash_attention_for_cpu",
        "efficient_attention",
        "cudnn_attention",
        "fused_attention_overrideable",
    )
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
WEIGHTS = {name: adapter.weights for adapter in ADAPTERS for name in adapter.names}
SLOPES = {name: adapter.slopes for adapter in ADAPTERS if adapter.slopes for name in adapter.gradients}


def operands_of(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Operands:
    """Return the arguments of a call by their names."""
    names = (argument.name for argument in func._schema.arguments)
    return {**dict(zip(names, args, strict=False)), **kwargs}
