"""What a model costs: parameters, operations, memory, and the three ways to relate one token to another."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import saved_tensors_hooks

from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.counting import FusedAttention, LiveBytes, SavedBytes
from vitreous.models.journey import Stage, journey, on_meta

FLOAT = 4  # bytes of a number in fp32
KERNEL = 3  # the convolution to compare with


class Memory(NamedTuple):
    """Bytes in fp32, for one image.

    Attributes:
        weights: parameters and fixed tables.
        gradients: one number for each parameter.
        optimizer: AdamW's two moments of each gradient.
        working: the most that is alive at once while one image goes through, the image included.
        activations: what the backward pass needs of one image, counted by saved-tensor hooks.
    """

    weights: int
    gradients: int
    optimizer: int
    working: int
    activations: int

    @property
    def inference(self) -> int:
        return self.weights + self.working

    @property
    def training(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations


class LayerCost(NamedTuple):
    """A row of 1706.03762's Table 1 for n tokens of width d."""

    layer: str
    formula: str
    work: int
    sequential: int
    path: int


def layer_costs(n: int, d: int, kernel: int = KERNEL) -> tuple[LayerCost, ...]:
    """Work per layer, steps that must follow one another, and the longest way from one token to another."""
    return (
        LayerCost("self-attention", "n^2 d", n * n * d, 1, 1),
        LayerCost("recurrent", "n d^2", n * d * d, n, n),
        LayerCost(
            f"convolution, kernel {kernel}",
            "k n d^2",
            kernel * n * d * d,
            1,
            max(1, math.ceil(math.log(n, kernel))),
        ),
    )


def sequence(config: ViTConfig | BiTConfig) -> tuple[int, int]:
    """(n, d): tokens and their width; for a BiT the cells of the last feature map."""
    if isinstance(config, ViTConfig):
        return config.sequence_length, config.width
    stride = 4 * 2 ** (len(config.layers) - 1)
    return math.prod(-(-side // stride) for side in config.image_size), config.widths[-1]


def memory(config: ViTConfig | BiTConfig) -> Memory:
    """What one image costs in fp32, with attention fused, so that its maps are never stored whole.

    Everything is counted on the meta device; nothing is allocated.
    """
    model, images = on_meta(config)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    tables = sum(buffer.numel() for buffer in model.buffers())
    known = [*model.parameters(), *model.buffers()]
    with FusedAttention():
        with torch.no_grad(), LiveBytes(known) as live:
            model(images)
        model.train()
        saved = SavedBytes(known)
        with saved_tensors_hooks(saved.pack, lambda tensor: tensor):
            model(images)
    return Memory(
        weights=FLOAT * (parameters + tables),
        gradients=FLOAT * parameters,
        optimizer=2 * FLOAT * parameters,
        working=images.nbytes + live.peak,
        activations=saved.bytes,
    )


class Description(NamedTuple):
    """The journey of one image, and what it costs. `sequence` is (n, d) of `layer_costs`."""

    stages: tuple[Stage, ...]
    parameters: int
    macs: int
    memory: Memory
    sequence: tuple[int, int]
    layer_costs: tuple[LayerCost, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "stages": [stage._asdict() for stage in self.stages],
            "parameters": self.parameters,
            "macs": self.macs,
            "gmacs": round(self.macs / 1e9, 4),
            "memory": {
                **self.memory._asdict(),
                "inference": self.memory.inference,
                "training": self.memory.training,
            },
            "tokens": self.sequence[0],
            "width": self.sequence[1],
            "layer_costs": [cost._asdict() for cost in self.layer_costs],
        }


def describe(config: ViTConfig | BiTConfig) -> Description:
    """Everything that can be said about a model before it has a weight."""
    stages = tuple(journey(config))
    n_and_d = sequence(config)
    return Description(
        stages,
        sum(stage.parameters for stage in stages),
        sum(stage.macs for stage in stages),
        memory(config),
        n_and_d,
        layer_costs(*n_and_d),
    )
