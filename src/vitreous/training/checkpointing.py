"""Memory for time: activations of a layer are thrown away and computed again in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from vitreous.errors import InputError


@contextmanager
def checkpointed(model: nn.Module) -> Iterator[None]:
    """Inside this context, each encoder layer keeps only its input (arXiv 1604.06174)."""
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, nn.ModuleList):
        raise InputError(f"{type(model).__name__} has no encoder layers: set training.checkpointing=false")
    try:
        for block in blocks:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
        yield
    finally:
        for block in blocks:
            block.__dict__.pop("forward", None)
