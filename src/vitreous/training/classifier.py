"""Training a classifier in a run directory: from its configuration and data to its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from vitreous.data.dataset import Splits
from vitreous.data.image_samples import Batch, image_loader
from vitreous.data.loading import worker_count
from vitreous.data.prefetching import DevicePrefetcher
from vitreous.training.callbacks import Display
from vitreous.training.config import RunConfig
from vitreous.training.distillation import Teacher, distillation
from vitreous.training.distributed import World
from vitreous.training.initial_model import checkpoint, trainable_model
from vitreous.training.objectives import Objective, classification
from vitreous.training.run import Run
from vitreous.training.session import Session, train_run


def train_classifier(
    run: Run,
    splits: Splits,
    *,
    device: torch.device,
    validate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    display: Display | None = None,
    world: World | None = None,
) -> Session:
    """Train the run's model from where the run stands: its beginning, or the newest saved state.

    Args:
        validate: measures a model on images that it does not learn from.
        world: the processes that train together; only the first one writes into the run.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        InputError: the loss stays non-finite, a file cannot be written, or too many images cannot be read.
    """
    loader = train_loader(run.config, splits, device, world)
    return train_run(
        run,
        trainable_model(run.config, splits.train.classes),
        loader,
        objective_of(run.config, splits),
        save=run.save_model,
        bad=loader.bad,
        images=len(splits.train),
        device=device,
        world=world,
        callbacks=[display] if display else [],
        validate=validate,
        validate_every=run.config.evaluation.every_epochs,
    )


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
