"""How a run is fitted to a machine: its precision, compiled steps, micro-batches into the memory."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import torch

from vitreous.data.workers import processes_here
from vitreous.errors import is_installed
from vitreous.models.config import ViTConfig
from vitreous.tasks.task import AnyTask, Material
from vitreous.training.config import CommandConfig, RunConfig
from vitreous.training.distributed import World
from vitreous.training.memory import accumulation, activation_checkpointing, free_bytes
from vitreous.training.precision import WIDE, pick_precision
from vitreous.training.run import with_training
from vitreous.training.settings import AnyConfig

CONVOLVED = 200  # numbers for each pixel in a stem of convolutions
LONG_RUN = 1000  # steps, in which a compiled step makes up for its compilation


def with_precision(config: AnyConfig, device: torch.device) -> AnyConfig:
    """Return a configuration whose precision is decided: by the device, and by the model's width."""
    model = getattr(config, "model", None)
    width = getattr(getattr(model, "encoder", model), "width", WIDE)
    return with_training(config, precision=pick_precision(config.training.precision, device, width))


def compiles(material: Material, config: CommandConfig, device: torch.device, total: int) -> bool:
    """Return whether a step of a run is compiled: where nothing is set, on a GPU if that pays."""
    if config.training.compile is not None:
        return bool(config.training.compile)
    return device.type == "cuda" and material.fixed_shapes and total >= LONG_RUN and is_installed("triton")


def may_not_fit(config: CommandConfig, device: torch.device) -> bool:
    """Return whether a training step could need more than a quarter of the free memory, by a generous guess:
    then it is measured."""
    if not isinstance(config, RunConfig) or config.training.shard:
        return False
    training, model = config.training, config.model
    if not isinstance(model, ViTConfig):
        return True
    height, width = model.image_size
    numbers = model.depth * model.sequence_length * 12 * (model.width + model.mlp_dim)
    convolved = 0 if model.stem.kind == "patch" else CONVOLVED * height * width
    return 4 * training.batch_size * (numbers + convolved) > free_bytes(device) / 4


def micro_batches(task: AnyTask, config: RunConfig, data: object, device: torch.device, world: World) -> int:
    """Return into how many micro-batches a batch is split so that it fits into the memory."""
    training = config.training
    model = task.build(config, data, steps=1).to(device)
    images = torch.zeros(2, config.model.channels, *config.model.image_size, device=device)
    masked = config.command == "pretrain"  # such a model draws its masks or views
    forward = partial(model, generator=torch.Generator()) if masked else model
    with activation_checkpointing(model) if training.checkpointing else nullcontext():
        free = free_bytes(device) // (processes_here() if device.type == "cpu" else 1)
        return accumulation(model, images, world.share(training.batch_size), free, forward=forward)
