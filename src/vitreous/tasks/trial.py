"""Random weights or a checkpoint? Each learns for a short time, and the validation part decides."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from vitreous.checkpoints.download import encoder_names
from vitreous.checkpoints.runs import command_of, read_tree
from vitreous.errors import InputError
from vitreous.languages.terminal import said, said_time
from vitreous.results import percent
from vitreous.tasks import task_named
from vitreous.tasks.recipe_choice import has_few_large
from vitreous.tasks.task import AnyTask, Tree
from vitreous.tasks.training_run import learn, with_precision
from vitreous.training.callbacks import score_of
from vitreous.training.config import length_of
from vitreous.training.run import Run, with_training
from vitreous.training.trainer import NotFinite

TRY = "try:"  # before a checkpoint, where --init names it
SHARE = 0.1  # of the training, for each beginning
COMPARED = ("classification", "multilabel", "regression")  # the tasks that compare candidates
ENDLESS = 10**9  # epochs between validations: there is one, at the end


class Beginning(NamedTuple):
    """What a run begins with."""

    init: str | None  # a checkpoint; None: random weights
    note: str  # why, in a sentence
    length: str | None = None  # what the trial has left of a `training.length` in minutes


def is_open(task: AnyTask, source: object, settings: Tree, recipe: str | None, init: str | None) -> bool:
    """Return whether the data decide what answers: nothing else does."""
    asked = recipe or init or {"model", "init", "recipe"} & settings.keys()
    return task.name in COMPARED and source not in (None, "digits") and not asked


def encoder_to_try(
    task: AnyTask, source: Any | None, settings: Tree, recipe: str | None, init: str | None = None
) -> str | None:
    """Return what is tried where nothing is asked for: an encoder that comes with the package, for a
    classifier of few images with a validation part whose model the data decide. A run that was pre-trained,
    as `init`, is tried beside it, since few images seldom teach as much."""
    names = encoder_names()
    if not names or task.name != "classification" or recipe or {"model", "init"} & settings.keys():
        return None
    run = Path(init or "")
    if init and not ((run / "config.toml").is_file() and command_of(read_tree(run)) == "pretrain"):
        return None
    config, _, data, _ = task.plan(source, settings)
    suits = data.validation is not None and has_few_large(config, data.summary)
    return TRY + (init or names[0]) if suits else None


def better_beginning(
    task: AnyTask,
    source: Any | None,
    settings: Tree,
    checkpoint: str,
    *,
    recipe: str | None = None,
    device: torch.device,
) -> Beginning:
    """Train for a tenth of the planned time from a checkpoint, from random weights, and from the encoder that
    would be tried otherwise. Raises InputError: there is no validation part, or as `Task.plan`."""
    scores: dict[str | None, float] = {}
    began, minutes = time.monotonic(), None
    own = (encoder_to_try(task, source, settings, recipe) or "").removeprefix(TRY)
    for init in dict.fromkeys((None, own or None, checkpoint)):
        config, _, data, _ = task.plan(source, settings, recipe=recipe, init=init)
        if getattr(data, "validation", None) is None:
            raise InputError(
                f"`init` {TRY}{checkpoint} compares on the validation part, and {data.name} has none: set "
                f"data.validation_fraction=0.1, or give `init` {checkpoint}"
            )
        minutes = config.training.minutes
        with TemporaryDirectory() as folder:
            run = Run.create(Path(folder) / "trial", with_precision(shortened(config), device))
            with warnings.catch_warnings(action="ignore"):  # that its time is short
                try:
                    learn(run, data, device=device, resumable=False)
                    score = score_of(run.metrics()[-1])
                except NotFinite:  # this beginning is not the best; another may learn
                    score = None
            scores[init] = -math.inf if score is None else score
    found = decided(scores, task_named(config.task).about.gives_probabilities, len(data.validation))
    if minutes:
        left = max(minutes - (time.monotonic() - began) / 60, SHARE * minutes)
        note = said(
            "{note}; {left} of {total} are left",
            note=found.note,
            left=said_time(60 * left),
            total=said_time(60 * minutes),
        )
        found = found._replace(length=length_of(minutes=left), note=note)
    return found


def shortened(config: Any, share: float = SHARE) -> Any:
    """Return the configuration of a trial, which takes a share of the training."""
    training = config.training
    length = length_of(
        epochs=training.epochs and training.epochs * share,
        steps=training.steps and max(1, round(training.steps * share)),
        minutes=training.minutes and training.minutes * share,
    )
    records = training.recorded.model_copy(update={"upload": None, "track": (), "early_stopping": None})
    config = with_training(config, length=length, records=records)
    return config.model_copy(
        update={"evaluation": config.evaluation.model_copy(update={"every_epochs": ENDLESS})}
    )


def decided(scores: Mapping[str | None, float], rates: bool, count: int) -> Beginning:
    """Return the beginning with the highest score; of equal ones the first, which is random weights."""
    best = max(scores, key=scores.__getitem__)

    def text(score: float) -> str:
        if score == -math.inf:  # its loss was not finite
            return "-"
        return percent(score) if rates else f"{score:.4g}"

    fresh = said("random weights")
    given = [f"{name or fresh} {text(score)}" for name, score in reversed([*scores.items()])]
    note = said(
        "starting from {best}: after a tenth of the training, the scores on {count} validation images are "
        "{scores}",
        best=best or fresh,
        count=count,
        scores=", ".join(given),
    )
    return Beginning(best, note)
