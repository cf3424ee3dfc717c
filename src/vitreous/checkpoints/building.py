"""A model without weights, and weights into a model: every reader of the room ends here.

The model is built on the meta device, so that no weight is initialised only to be overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.models import parts
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.names import Model, build_model
from vitreous.models.vit import ViT


def empty_model(config: ViTConfig | BiTConfig, **attributes: Any) -> Model:
    """The model of a configuration, its weights on the meta device: `fill` gives them values."""
    with torch.device("meta"):
        model = build_model(config, **attributes)
    if isinstance(model, ViT):
        compute_positions(model)
    return model.eval()


def compute_positions(model: ViT) -> None:
    """Position tables that are computed and not stored cannot stay on the meta device. They are small, so all
    positions are simply built in memory."""
    config = model.config
    model.position, model.layer_positions = parts.stem_position(config), parts.layer_positions(config)
    shared = parts.inner_position(config) if config.position.where == "every-layer-shared" else None
    for block in model.blocks:
        if inner := shared or parts.inner_position(config):
            block.get_submodule("attention").inner_position = inner


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
    for name, tensor in weights.items():
        if tensor.shape != wanted[name].shape:
            raise InputError(
                f"{where}: {name} has shape {tuple(tensor.shape)}, "
                f"the model needs {tuple(wanted[name].shape)}"
            )
    floats = {name: tensor.to(torch.float32).contiguous() for name, tensor in weights.items()}
    model.load_state_dict(floats, strict=False, assign=True)


def listing(names: Sequence[str], limit: int = 12) -> str:
    """Names in one sentence; of many, the first ones and how many more there are."""
    more = f", and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
