"""What a model that writes text looks at: the attention of every head over words, or over an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitreous.layers.attention import Attention, CrossAttention
from vitreous.models.captioner import Captioner
from vitreous.models.transformer import Transformer

Maps = Float[Tensor, "L K T S"]


class SequenceAttention(NamedTuple):
    """The maps of one source and what was written for it; rows are queries and sum to one.

    Attributes:
        encoder: of every source token to every source token, (layers, heads, S, S).
        decoder: of every written token to the tokens before it, (layers, heads, T, T).
        cross: of every written token to the source, (layers, heads, T, S). Row t is the step that wrote token
            t, for which tokens 0 ... t - 1 were read.
    """

    encoder: Maps
    decoder: Maps
    cross: Maps


@torch.no_grad()
def look(model: Transformer | Captioner, source: Tensor, written: Int[Tensor, "1 T"]) -> SequenceAttention:
    """The attention while `written` (begun and ended) is written for one source (1, ...).

    The whole text is read at once, as in training: the maps are those of writing it step by step.
    """
    seen: dict[nn.Module, Tensor] = {}

    def keep(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen[module] = module.attention_weights(*args, **kwargs)[0]

    parts = [module for module in model.modules() if isinstance(module, Attention | CrossAttention)]
    hooks = [part.register_forward_pre_hook(keep, with_kwargs=True) for part in parts]
    try:
        model(source, written[:, :-1])
    finally:
        for hook in hooks:
            hook.remove()
    decoder = model.text.decoder.blocks
    return SequenceAttention(
        encoder=stacked(seen, model.encoder.blocks, "attention"),
        decoder=stacked(seen, decoder, "attention"),
        cross=stacked(seen, decoder, "cross_attention"),
    )


def stacked(seen: dict[nn.Module, Tensor], blocks: Sequence[nn.Module] | nn.ModuleList, name: str) -> Maps:
    """The maps of one kind, the first layer first."""
    return torch.stack([seen[block.get_submodule(name)].cpu() for block in blocks])
