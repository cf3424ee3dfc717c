"""Training a segmenter in a run directory: from its configuration and data to its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from typing import NamedTuple

import torch
from torch import nn

from vitreous.data.segmentation.loading import MaskLoader
from vitreous.data.segmentation.masked import MaskSplits
from vitreous.data.threads import worker_count
from vitreous.models.segmenter import Segmenter
from vitreous.training.checkpointing import checkpointed
from vitreous.training.classifier import finished, trackers
from vitreous.training.display import Display
from vitreous.training.distributed import World
from vitreous.training.learner import Learner
from vitreous.training.loop import Surroundings, fit
from vitreous.training.lora import add_lora
from vitreous.training.resuming import resumed
from vitreous.training.run import Run
from vitreous.training.segmentation.objective import segmentation
from vitreous.training.shares import SharedStates
from vitreous.training.starting import starting_model
from vitreous.training.state import States


class TrainedSegmenter(NamedTuple):
    """The model to use, the seconds of training over all sessions, and what could not be read."""

    model: Segmenter
    seconds: float
    bad: Mapping[str, str]


def train_segmenter(
    run: Run,
    splits: MaskSplits,
    *,
    device: torch.device,
    validate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    display: Display | None = None,
    world: World | None = None,
) -> TrainedSegmenter:
    """Train the run's model from where the run stands, and save it.

    Args:
        validate: measures a model on pictures that it does not learn from.
        world: the processes that train together; only the first one writes into the run.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        InputError: the loss stays non-finite, a file cannot be written, too many pictures cannot be read, or
            a picture and its mask do not belong together.
    """
    config, world = run.config, world or World()
    learner, states = learner_of(run, splits.train.classes, device, world)
    loader = mask_loader(run, splits, world)
    with ExitStack() as stack:
        surroundings = Surroundings(
            trackers=trackers(run, learner.step, stack) if world.first else (),
            states=states,
            display=stack.enter_context(display or nullcontext()),
            validate=validate,
            validate_every=config.evaluation.every_epochs,
            device=device,
            seed=config.seed,
            world=world,
        )
        listed = "bad_files.txt" if world.first else f"bad_files-{world.rank}.txt"
        stack.callback(loader.bad.write, run.path / listed)
        if config.training.checkpointing:
            stack.enter_context(checkpointed(learner.model))
        fit(learner, loader, segmentation(config.training), config.training, surroundings)
    model = finished(learner)
    assert isinstance(model, Segmenter)  # as the configuration says
    if world.first:
        run.save_model(model)
    return TrainedSegmenter(model, learner.seconds, dict(loader.bad))


def learner_of(
    run: Run, classes: tuple[str, ...], device: torch.device, world: World
) -> tuple[Learner, States | SharedStates]:
    """The learner at the run's newest saved state, or at its beginning, and where its next states go."""
    config = run.config
    model = starting_model(config, classes)
    if config.training.lora.rank:
        add_lora(model, config.training.lora)
    return resumed(model, run.states, config.training, device=device, world=world)


def mask_loader(run: Run, splits: MaskSplits, world: World | None = None) -> MaskLoader:
    """The training part of the data in batches; this process's share of them."""
    config, world = run.config, world or World()
    return MaskLoader(
        splits.train,
        preprocessing=config.preprocessing,
        augmentation=config.augmentation,
        batch_size=world.share(config.training.batch_size),
        seed=config.seed,
        workers=worker_count(config.data.workers),
        rank=world.rank,
        world_size=world.size,
        strict=config.data.strict,
    )
