"""Training a segmenter in a run directory: from its configuration and data to its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from vitreous.data.loading import worker_count
from vitreous.data.prefetching import DevicePrefetcher
from vitreous.data.segmentation.loading import MaskBatch, mask_loader
from vitreous.data.segmentation.masked import MaskSplits
from vitreous.models.segmenter import Segmenter
from vitreous.training.bad_together import BadTogether
from vitreous.training.checkpointing import checkpointed
from vitreous.training.display import Display
from vitreous.training.distributed import World
from vitreous.training.loop import fit
from vitreous.training.resuming import learner_of, saved
from vitreous.training.run import Run
from vitreous.training.segmentation.objective import segmentation
from vitreous.training.setbacks import kept_if_not_finite
from vitreous.training.surrounding import surrounded


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
        validate: measures a model on images that it does not learn from.
        world: the processes that train together; only the first one writes into the run.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        InputError: the loss stays non-finite, a file cannot be written, too many images cannot be read, or
            an image and its mask do not belong together.
    """
    config, world = run.config, world or World()
    learner, states = learner_of(run, splits.train.classes, device, world)
    loader = train_mask_loader(run, splits, device, world)
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
    recomputing = checkpointed(learner.model) if config.training.checkpointing else nullcontext()
    save = partial(saved, run, learner, world)
    with around as surroundings, recomputing, kept_if_not_finite(save, run.path / "model"):
        fit(learner, loader, segmentation(config.training), config.training, surroundings)
    model = save()
    assert isinstance(model, Segmenter)  # as the configuration says
    return TrainedSegmenter(model, learner.seconds, dict(loader.bad))


def train_mask_loader(
    run: Run, splits: MaskSplits, device: torch.device, world: World | None = None
) -> DevicePrefetcher[MaskBatch]:
    """The training part of the data in batches; this process's share of them."""
    config, world = run.config, world or World()
    return mask_loader(
        splits.train,
        preprocessing=config.preprocessing,
        augmentation=config.augmentation,
        batch_size=world.share(config.training.batch_size),
        seed=config.seed,
        workers=worker_count(config.data.workers),
        rank=world.rank,
        world_size=world.size,
        strict=config.data.strict,
        device=device,
    )
