"""Training a classifier in a run directory: from its configuration and data to its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from typing import NamedTuple

import torch
from torch import nn

from vitreous.data.loading import TrainLoader
from vitreous.data.pictures import Splits
from vitreous.data.threads import worker_count
from vitreous.models.names import Model
from vitreous.training.display import Display
from vitreous.training.journal import MetricsFile, TensorBoard
from vitreous.training.learner import Learner
from vitreous.training.loop import Surroundings, fit
from vitreous.training.objectives import classification
from vitreous.training.run import Run
from vitreous.training.setbacks import NotFinite
from vitreous.training.starting import starting_model


class Trained(NamedTuple):
    """What training gave.

    Attributes:
        model: the model to use, averaged weights where they were kept; on the CPU.
        seconds: of training, over all sessions.
        waiting: the share of this session's time in which training waited for data.
        bad: pictures that could not be read and were left out, with the reason.
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
) -> Trained:
    """Train the run's model from where the run stands: its beginning, or the newest saved state.

    Args:
        validate: measures a model on pictures that it does not learn from.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        InputError: the loss stays non-finite, a file cannot be written, or too many pictures cannot be read.
    """
    config = run.config
    model = starting_model(config, splits.train.classes).to(device)
    learner = Learner.begin(model, config.training)
    if state := run.states.newest():
        learner.restore(state)
    loader = train_loader(run, splits, device)
    with ExitStack() as stack:
        trackers = (
            MetricsFile(run.path / "metrics.jsonl", step=learner.step),
            TensorBoard(run.path, step=learner.step),
        )
        for tracker in trackers:
            stack.callback(tracker.close)
        stack.enter_context(display or nullcontext())
        surroundings = Surroundings(
            trackers=trackers,
            states=run.states,
            display=display,
            validate=validate,
            validate_every=config.evaluation.every_epochs,
            device=device,
            seed=config.seed,
        )
        before = learner.seconds
        try:
            waited = fit(learner, loader, classification(config.training), config.training, surroundings)
        except NotFinite as error:
            run.save_model(finished(learner))
            raise NotFinite(f"{error}; they are in {run.path / 'model'}") from None
        finally:
            loader.bad.write(run.path / "bad_files.txt")
    result = finished(learner)
    run.save_model(result)
    spent = learner.seconds - before
    waiting = waited / spent if spent else 0.0
    return Trained(result, learner.seconds, waiting, dict(loader.bad))


def train_loader(run: Run, splits: Splits, device: torch.device) -> TrainLoader:
    """The training part of the data in batches."""
    config = run.config
    return TrainLoader(
        splits.train,
        preprocessing=config.preprocessing,
        augmentation=config.augmentation,
        batch_size=config.training.batch_size,
        seed=config.seed,
        workers=worker_count(config.data.workers),
        config=config.data,
        device=device,
    )


def finished(learner: Learner) -> Model:
    """The learner's result, ready for use."""
    model = learner.result.cpu().eval().requires_grad_(True)
    return model  # type: ignore[return-value]
