"""A model without weights, and weights into a model: every reader of the room ends here.

The model is built on the meta device, so that no weight is initialized only to be overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.initialization import compute_buffers
from vitreous.models.names import Model, build_model
from vitreous.models.vit import ViT

DEEPEST = 4096  # layers
LONGEST = 2**22  # tokens
LARGEST_TABLE = 2**28  # numbers


def empty_model(config: ViTConfig | BiTConfig, **attributes: Any) -> Model:
    """The model of a configuration, all of it on the meta device: `fill` gives it values.

    Raises:
        InputError: the configuration asks for a size that no model has. It may come from a file.
    """
    depth = config.depth if isinstance(config, ViTConfig) else sum(config.layers)
    if depth > DEEPEST:
        raise InputError(f"a model of {depth} layers is refused: {DEEPEST} are the most")
    if isinstance(config, ViTConfig) and config.sequence_length > LONGEST:
        raise InputError(f"a model of {config.sequence_length} tokens is refused: {LONGEST} are the most")
    try:
        with torch.device("meta"):
            return build_model(config, **attributes).eval()
    except (RuntimeError, TypeError, OverflowError):  # on this device nothing but a size can fail
        raise InputError("the configuration asks for a tensor larger than any can be") from None


def compute_positions(model: nn.Module, device: str | torch.device = "cpu") -> None:
    """Compute the position tables that are not stored, which cannot remain on the meta device.

    Raises:
        InputError: they would not fit into memory.
    """
    for part in model.modules():
        if isinstance(part, ViT):
            config, tokens = part.config, part.config.sequence_length
            numbers = tokens * (tokens if config.position.kind == "relative" else config.width)
            if config.position.kind in ("sincos-2d", "rotary-2d", "relative") and numbers > LARGEST_TABLE:
                raise InputError(f"positions of {tokens} tokens are refused: they would not fit into memory")
    compute_buffers(model, device)


def stored(model: nn.Module) -> dict[str, Tensor]:
    """Every weight once, by name: what a file has to hold. What layers share has its first name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def fill(model: nn.Module, weights: Mapping[str, Tensor], *, where: str) -> None:
    """Give `model` exactly these weights, without copying those that are float32 and in order already.

    Raises:
        InputError: a weight is missing, left over, or of another shape; the names are listed.
    """
    wanted = stored(model)
    if missing := [name for name in wanted if name not in weights]:
        raise InputError(f"{where}: missing weights: {listing(missing)}")
    if left := [name for name in weights if name not in wanted]:
        raise InputError(f"{where}: left over weights that the model has no place for: {listing(left)}")
    floats: dict[str, Tensor] = {}
    for name, meant in wanted.items():
        tensor = weights[name]  # a file is read here, one tensor at a time
        if tensor.shape != meant.shape:
            raise InputError(
                f"{where}: {name} has shape {tuple(tensor.shape)}, the model needs {tuple(meant.shape)}"
            )
        floats[name] = tensor.to(torch.float32).contiguous()
    compute_positions(model)
    model.load_state_dict(floats, strict=False, assign=True)


def listing(names: Sequence[str], limit: int = 12) -> str:
    """Names in one sentence; of many, the first ones and how many more there are."""
    more = f", and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
