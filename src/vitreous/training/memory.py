"""How many images fit: the memory of one training step, counted rather than tried until it fails."""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

from vitreous.errors import InputError

SPARE = 0.7  # of the free memory is used: allocators leave gaps, and kernels need room of their own
STATES = 4  # weights, gradients and AdamW's two averages


def accumulation(model: nn.Module, images: Tensor, batch_size: int, free: int) -> int:
    """The fewest equal parts of a batch whose activations fit into `free` bytes beside weights and optimizer.

    Args:
        images: two images to measure with, on the model's device.

    Raises:
        InputError: not even one image fits.
    """
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    learning = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    room = SPARE * free - weights - (STATES - 1) * learning
    each = saved_bytes(model, images) / len(images)
    if room < each:
        raise InputError(
            f"one image needs {each / 2**20:.0f} MiB to train on, and there is room for "
            f"{max(room, 0) / 2**20:.0f} MiB: use a smaller model or image, or training.checkpointing=true"
        )
    fits = int(room // each)
    return next(n for n in range(1, batch_size + 1) if batch_size % n == 0 and batch_size // n <= fits)


def saved_bytes(model: nn.Module, images: Tensor) -> int:
    """What the forward pass keeps for the backward pass, each storage once, without the weights."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen: dict[int, Tensor] = {}  # holding the tensors keeps their addresses from being used again

    def note(tensor: Tensor) -> Tensor:
        seen.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        model(images)
    return sum(t.untyped_storage().nbytes() for address, t in seen.items() if address not in weights)


def free_bytes(device: torch.device) -> int:
    """Memory that nobody uses now."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
