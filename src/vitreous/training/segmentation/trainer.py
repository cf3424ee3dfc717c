"""Training a segmenter in a run directory: from its configuration and data to its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from vitreous.data.loading import worker_count
from vitreous.data.prefetching import DevicePrefetcher
from vitreous.data.segmentation.loading import MaskBatch, mask_loader
from vitreous.data.segmentation.masked import MaskSplits
from vitreous.training.callbacks import Display
from vitreous.training.distributed import World
from vitreous.training.initial_model import trainable_model
from vitreous.training.run import Run
from vitreous.training.segmentation.objective import segmentation
from vitreous.training.session import Session, train_run


def train_segmenter(
    run: Run,
    splits: MaskSplits,
    *,
    device: torch.device,
    validate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    display: Display | None = None,
    world: World | None = None,
) -> Session:
    """Train the run's model from where the run stands, and save it.

    Args:
        validate: measures a model on images that it does not learn from.
        world: the processes that train together; only the first one writes into the run.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        InputError: the loss stays non-finite, a file cannot be written, too many images cannot be read, or
            an image and its mask do not belong together.
    """
    loader = train_mask_loader(run, splits, device, world)
    return train_run(
        run,
        trainable_model(run.config, splits.train.classes),
        loader,
        segmentation(run.config.training),
        save=run.save_model,
        bad=loader.bad,
        images=len(splits.train),
        device=device,
        world=world,
        callbacks=[display] if display else [],
        validate=validate,
        validate_every=run.config.evaluation.every_epochs,
    )


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
