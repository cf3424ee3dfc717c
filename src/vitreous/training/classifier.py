"""Training a classifier in a run directory: from its configuration and data to its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from vitreous.data.dataset import Splits
from vitreous.data.image_samples import Batch, image_loader
from vitreous.data.loading import worker_count
from vitreous.data.prefetching import DevicePrefetcher
from vitreous.models.names import Model
from vitreous.training.bad_together import BadTogether
from vitreous.training.checkpointing import checkpointed
from vitreous.training.config import RunConfig
from vitreous.training.display import Display
from vitreous.training.distillation import Teacher, distillation
from vitreous.training.distributed import World
from vitreous.training.loop import fit
from vitreous.training.objectives import Objective, classification
from vitreous.training.resuming import learner_of, saved
from vitreous.training.run import Run
from vitreous.training.setbacks import kept_if_not_finite
from vitreous.training.starting import checkpoint
from vitreous.training.surrounding import surrounded


class Trained(NamedTuple):
    """What training gave.

    Attributes:
        model: the model to use, averaged weights where they were kept.
        seconds: of training, over all sessions.
        waiting: the share of this session's time in which training waited for data.
        bad: images that could not be read and were left out, with the reason.
    """

    model: Model
    seconds: float
    waiting: float
    bad: Mapping[str, str]


def train_classifier(
    run: Run,
    splits: Splits,
    *,
    device: torch.device,
    validate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    display: Display | None = None,
    world: World | None = None,
) -> Trained:
    """Train the run's model from where the run stands: its beginning, or the newest saved state.

    Args:
        validate: measures a model on images that it does not learn from.
        world: the processes that train together; only the first one writes into the run.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        InputError: the loss stays non-finite, a file cannot be written, or too many images cannot be read.
    """
    world = world or World()
    learner, states = learner_of(run, splits.train.classes, device, world)
    loader = train_loader(run.config, splits, device, world)
    before = learner.seconds
    around = surrounded(
        run,
        learner,
        states,
        BadTogether(loader.bad, len(splits.train), world),
        device=device,
        display=display,
        world=world,
        validate=validate,
        validate_every=run.config.evaluation.every_epochs,
    )
    recomputing = checkpointed(learner.model) if run.config.training.checkpointing else nullcontext()
    objective, save = objective_of(run.config, splits), partial(saved, run, learner, world)
    with around as surroundings, recomputing, kept_if_not_finite(save, run.path / "model"):
        waited = fit(learner, loader, objective, run.config.training, surroundings)
    result = save()
    spent = learner.seconds - before
    waiting = waited / spent if spent else 0.0
    return Trained(result, learner.seconds, waiting, dict(loader.bad))


def train_loader(
    config: RunConfig, splits: Splits, device: torch.device, world: World | None = None
) -> DevicePrefetcher[Batch]:
    """The training part of the data in batches; this process's share of them."""
    world = world or World()
    return image_loader(
        splits.train,
        preprocessing=config.preprocessing,
        augmentation=config.augmentation,
        batch_size=world.share(config.training.batch_size),
        seed=config.seed,
        workers=worker_count(config.data.workers),
        rank=world.rank,
        world_size=world.size,
        config=config.data,
        device=device,
    )


def objective_of(config: RunConfig, splits: Splits) -> Objective:
    """Labels alone, or labels and a teacher."""
    name = config.training.distillation.teacher
    if not name:
        return classification(config.training)
    teacher = Teacher(checkpoint(name), config.preprocessing, splits.train.classes)
    return distillation(config.training, teacher)
