"""Random weights or a checkpoint? Both learn for a short time, and the validation part decides.

A checkpoint has a head start, which is worth the less the longer a training is: the trial favors it a little.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from vitreous.checkpoints.download import encoder_names
from vitreous.errors import InputError
from vitreous.results import percent
from vitreous.tasks import task_named
from vitreous.tasks.choose import has_few_large
from vitreous.tasks.machine import with_precision
from vitreous.tasks.running import learn
from vitreous.tasks.task import Task, Tree
from vitreous.training.callbacks import score_of
from vitreous.training.run import Run, with_training
from vitreous.training.trainer import Interrupted

TRY = "try:"  # before a checkpoint, where --init names it
SHARE = 0.1  # of the training, for each of the two
ENDLESS = 10**9  # epochs between validations: there is one, at the end


class Beginning(NamedTuple):
    """What a run begins with.

    Attributes:
        init: a checkpoint; None: random weights.
        note: why, in a sentence.
        minutes: what the trial has left of `training.minutes`; None where the training has no such time.
    """

    init: str | None
    note: str
    minutes: float | None = None


def encoder_to_try(task: Task, source: Any | None, settings: Tree, recipe: str | None) -> str | None:
    """Return what is tried where nothing is asked for: an encoder that comes with the package, for a
    classifier of few images with a validation part whose model the data decide."""
    names = encoder_names()
    if not names or task.name != "classification" or recipe or {"model", "init"} & settings.keys():
        return None
    config, _, data, _ = task.plan(source, settings)
    suits = data.validation is not None and has_few_large(config, data.summary)
    return TRY + names[0] if suits else None


def better_beginning(
    task: Task,
    source: Any | None,
    settings: Tree,
    checkpoint: str,
    *,
    recipe: str | None = None,
    device: torch.device,
) -> Beginning:
    """Train from random weights and from a checkpoint for a tenth of the planned time each.

    Raises:
        InputError: there is no validation part, or as `Task.plan`.
    """
    scores: dict[str | None, float] = {}
    began, minutes = time.monotonic(), None
    for init in (None, checkpoint):
        config, _, data, _ = task.plan(source, settings, recipe=recipe, init=init)
        if getattr(data, "validation", None) is None:
            raise InputError(
                f"--init {TRY}{checkpoint} compares on the validation part, and {data.name} has none: set "
                f"data.validation_fraction=0.1, or give --init {checkpoint}"
            )
        minutes = config.training.minutes
        with TemporaryDirectory() as folder:
            run = Run.create(Path(folder) / "trial", with_precision(shortened(config), device))
            try:
                learn(run, data, device=device)
            except Interrupted:  # of a trial nothing is kept
                raise KeyboardInterrupt from None
            score = score_of(run.metrics()[-1])
            scores[init] = -math.inf if score is None else score
    found = decided(checkpoint, scores, task_named(config.task).gives_probabilities, len(data.validation))
    if minutes:
        spent = (time.monotonic() - began) / 60
        found = found._replace(minutes=max(minutes - spent, SHARE * minutes))
    return found


def shortened(config: Any) -> Any:
    """Return the configuration of a trial."""
    training = config.training
    changed = {"epochs": training.epochs * SHARE, "patience": None, "keep_best": False, "upload": None}
    if training.steps:
        changed["steps"] = max(1, round(training.steps * SHARE))
    if training.minutes:
        changed["minutes"] = training.minutes * SHARE
    config = with_training(config, **changed, track=())
    return config.model_copy(
        update={"evaluation": config.evaluation.model_copy(update={"every_epochs": ENDLESS})}
    )


def decided(checkpoint: str, scores: dict[str | None, float], rates: bool, count: int) -> Beginning:
    """Return the beginning with the higher score; random weights where both are equal."""
    theirs, fresh = (percent(each) if rates else f"{each:.4g}" for each in (scores[checkpoint], scores[None]))
    better = scores[checkpoint] > scores[None]
    chosen = checkpoint if better else "random weights"
    note = (
        f"beginning: {chosen}, since after a tenth of the training the score on {count} validation images is "
        f"{theirs} from {checkpoint} and {fresh} from random weights"
    )
    return Beginning(checkpoint if better else None, note)
