"""What a classifier is trained from where nothing is asked for: each rung of a ladder is tried, from
classical methods over frozen features to fine-tuning and training from scratch, and images that a rung has
not learned from decide."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch

from vitreous.checkpoints.download import encoder_names
from vitreous.checkpoints.hub_encoders import Encoder, cached_encoders, reachable_encoder
from vitreous.data.dataset import Splits
from vitreous.errors import InputError
from vitreous.evaluation.classical import SVM, fit_classical, folds_of
from vitreous.evaluation.scores import Interval, wilson_interval
from vitreous.languages import phrase
from vitreous.languages.terminal import said, said_time
from vitreous.models.settings import merged
from vitreous.results import percent
from vitreous.rng import numpy_generator
from vitreous.tasks.recipe_choice import SMALL, SMALL_ENCODER, weights_of
from vitreous.tasks.result import RUNGS
from vitreous.tasks.task import AnyTask, Tree
from vitreous.tasks.training_run import learn, recorded_parts, with_precision
from vitreous.tasks.trial import shortened
from vitreous.training.config import CLASSICAL, length_of
from vitreous.training.initial_model import checkpoint
from vitreous.training.run import Run, default_path, with_training
from vitreous.training.trainer import NotFinite
from vitreous.whole_files import write_text

MINUTES = 10.0  # that a training takes by default, at most
SHARE = 0.07  # of the time, for each beginning that is tried
FEWEST = 30  # validation images, of 300 in all; with fewer, folds of the training part decide
DETAILED = 128  # pixels of the shorter side, from which on a model that sees as many is tried, too
FINER: Tree = {"image_size": 128, "patch_size": 16, "stem": {"strides": (2, 2, 2, 1, 2, 1)}}
# Of small images a quarter as many patches, for a quarter of the operations: of very many images a model may
# learn more by seeing four times as many of them.
LIGHTER: Tree = {"patch_size": 8, "stem": {"strides": (2, 1, 2, 1, 2, 1)}}
MANY_SMALL = 10_000  # images, from which on that is tried
MOST_TRIED = 20_000  # images that a short trial of small images reads
# Images: an SVM's answers helped on 90 to 1,100, did no harm on 1,300 where it was hardly ahead, and did some
# on 1,900 though it was far ahead.
TAUGHT_AT_MOST = 1500
# What changes where the SVM is ahead: its answers for the images as they are changed are learned, too. It
# knows no mixed images.
TAUGHT: Tree = {
    "training": {"distillation": {"kind": "soft", "teacher": CLASSICAL, "temperature": 1.0, "weight": 0.5}},
    "augmentation": {"mix": None},
}
# Low-rank changes of a large encoder, at the rate that they need.
LORA: Tree = {
    "training": {
        "head": {"kind": "linear"},
        "lora": {"rank": 8},
        "peak_lr": 1e-3,
        "optimizer": {"layer_decay": None},
    }
}


@dataclass(frozen=True)
class Rung:
    """A step of the ladder, and what it gave on images that it did not learn from.

    Attributes:
        words: the name in the catalog of languages.
        init: the checkpoint that it begins with.
        measured_on: which images those are: "validation", or "cross-fitted".
        loss: the mean cross-entropy of its answers; None for a method without probabilities.
        speed: images a second that it learned from.
    """

    name: str
    accuracy: float
    interval: Interval
    count: int
    measured_on: str
    loss: float | None = None
    seconds: float = 0.0
    speed: float = 0.0
    words: str = ""
    init: str | None = None

    def title(self) -> str:
        """Return its name in the language that is spoken."""
        return phrase(self.words, init=self.init) if self.words else self.name

    def sentence(self) -> str:
        """Return the rung as a line of the progress."""
        low, high = map(percent, self.interval)
        numbers = {"accuracy": percent(self.accuracy), "low": low, "high": high, "count": self.count}
        line = said(
            "{name}: {accuracy} ({low} to {high}) of {count} images, cross-fitted",
            name=self.title(),
            **numbers,
        )
        if self.measured_on == "validation":
            line = said(
                "{name}: {accuracy} ({low} to {high}) of {count} validation images",
                name=self.title(),
                **numbers,
            )
        return said("{line}, in {time}", line=line, time=said_time(self.seconds)) if self.seconds else line


def write_rungs(folder: Path, rungs: Iterable[Rung]) -> None:
    """Write the ladder into a run."""
    write_text(folder / RUNGS, json.dumps([asdict(each) for each in rungs], indent=1))


class Way(NamedTuple):
    """A way to train: what it is called, here and in the catalog of languages, the checkpoint that it begins
    with, and settings of its own."""

    name: str
    words: str
    init: str | None
    settings: Tree


class Chosen(NamedTuple):
    """What the trials decide: how the model is trained, with which settings, for how long where it is not as
    planned, and why; the classical method that is ahead of all models, and whether it teaches."""

    way: Way
    trial: Rung
    settings: Tree
    length: str | None
    note: str
    ahead: Rung | None
    taught: bool


class Climbed(NamedTuple):
    """What the ladder found: how the model is trained, for how long, and why; with the data."""

    data: Splits
    init: str | None
    settings: Tree
    length: str | None  # None: as the settings say
    rungs: tuple[Rung, ...]
    note: str
    out: Path | None = None  # the run directory, where it has a first model already


def climb(
    task: AnyTask,
    source: object,
    settings: Tree,
    *,
    device: torch.device,
    tell: Callable[[str], None],
    offline: bool,
    out: Path | None = None,
) -> Climbed:
    """Try the rungs of the ladder one after the other. Frozen features with a linear classifier become the
    first model of the run directory, so that there is one after seconds.

    Args:
        settings: the user's own.
        tell: takes a sentence about each rung.
        offline: never ask the hub.
        out: the run directory; by default a new one in runs/.

    Raises:
        InputError: as `Task.plan`.
    """
    began = time.monotonic()
    config, _, data, _ = task.plan(source, settings)
    total = config.training.minutes if "length" in settings.get("training", {}) else MINUTES
    tell(
        said(
            "comparing ways to classify {count:,} training images: classical methods, then short trainings",
            count=len(data.train),
        )
    )
    rungs = list(classical_rungs(data))
    for each in rungs:
        tell(each.sentence())
    side = min(data.summary.height, data.summary.width)
    is_small = side < SMALL
    if data.summary.multi_label or (is_small and not (len(data.train) > MANY_SMALL and has_validation(data))):
        note = said("images so small are learned from scratch") if not data.summary.multi_label else ""
        return Climbed(data, None, {}, length_of(minutes=left_of(total, began)), tuple(rungs), note)
    ways = [Way("from scratch", "scratch", None, {})]
    tried_on = data
    if is_small:
        ways.append(Way("from scratch with fewer, larger patches", "lighter", None, {"model": LIGHTER}))
        rows = numpy_generator(0, "images of short trials").permutation(len(data.train))[:MOST_TRIED]
        tried_on = data._replace(train=data.train.subset(np.sort(rows)))
    elif side >= DETAILED and has_validation(data):
        ways.append(Way("from scratch at 128x128", "finer", None, {"model": FINER}))
    frozen = None
    if not is_small and (encoder := encoder_at_hand(task, data, settings, tell, offline=offline)):
        linear = {"training": {"head": {"kind": "linear"}}}
        start = Way(f"fine-tuned {encoder.name}", "tuned", encoder.name, linear)
        ways.insert(0, start)
        if weights_of(checkpoint(encoder.name).config) >= SMALL_ENCODER:  # which may forget what it knows
            ways.insert(1, Way(f"LoRA of {encoder.name}", "lora", encoder.name, LORA))
        frozen = tried(
            task, data, settings, start, f"frozen features of {encoder.name}", total, device, steps=0
        )
        tell(frozen.sentence())
        rungs.append(frozen)
        out = first_model(task, data, settings, start, out, device)
        seconds = said_time(time.monotonic() - began)
        tell(
            said(
                "first model after {time}: `{command}` works from now on, and Ctrl-C keeps it",
                time=seconds,
                command=predicting(out),
            )
        )
    trials = []
    try:
        for way in ways:
            name = f"{way.name}, a short trial"
            trials.append(tried(task, tried_on, settings, way, name, total, device))
            tell(trials[-1].sentence())
    except KeyboardInterrupt as stopped:
        if frozen:
            stopped.add_note(
                said(
                    "stopped while ways to train were compared: {run} has frozen features with a linear "
                    "classifier; use it with {command}, or evaluate it with vitreous train --resume {path}",
                    run=out,
                    command=predicting(out),
                    path=quote(str(out)),
                )
            )
        raise
    rungs += trials
    chosen = decide(ways, trials, rungs, frozen, len(data.train))
    if chosen.ahead:
        tell(ahead_of_models(chosen.ahead, taught=chosen.taught))
    left = left_of(total, began)
    if left and config.training.minutes is None:
        planned, _, data, _ = task.plan(data, settings, init=chosen.way.init, base=chosen.settings)
        epochs, speed = planned.training.epochs, chosen.trial.speed
        if speed and epochs and epochs * len(data.train) / speed < 60 * left:
            left = None  # all epochs of the recipe fit into it
    length = chosen.length or length_of(minutes=left)
    first = out if frozen else None
    return Climbed(data, chosen.way.init, chosen.settings, length, tuple(rungs), chosen.note, first)


def decide(
    ways: Sequence[Way], trials: Sequence[Rung], rungs: Sequence[Rung], frozen: Rung | None, images: int
) -> Chosen:
    """Choose how a model is trained.

    Args:
        ways: that were tried; where features were frozen, the first is to fine-tune them.
        trials: what each of them got.
        rungs: all that was tried, with classical methods and the trials.
        frozen: what frozen features with a linear classifier got; None: they were not tried.
        images: to train on.
    """
    place = trials.index(best_trial(trials))
    way, trial = ways[place], trials[place]
    ahead = better_classical(rungs)
    taught = ahead is not None and ahead.name == SVM and images <= TAUGHT_AT_MOST
    note = said("training the way that did best: {name}", name=trial.title())
    if taught:  # of nine classes with ten images each: 43.7 % instead of the 30.3 % of frozen features
        return Chosen(way, trial, merged(TAUGHT, way.settings), None, note, ahead, taught)
    if frozen and frozen.measured_on == "cross-fitted" and merit(frozen) > merit(trial):
        way = ways[0]
        note = said("kept: frozen features of {init} with a linear classifier", init=way.init)
        return Chosen(way, trial, way.settings, length_of(steps=0), note, ahead, taught)
    return Chosen(way, trial, way.settings, None, note, ahead, taught)


def first_model(
    task: AnyTask, source: object, settings: Tree, way: Way, out: Path | None, device: torch.device
) -> Path:
    """Fit a linear classifier on the frozen features of all training images, and make a run directory of it:
    a whole run of no steps, which the training replaces. Return its path."""
    config, _, data, name = task.plan(source, settings, init=way.init, base=way.settings)
    config = with_training(config, length=length_of(steps=0))
    with TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        trial = Run.create(Path(folder) / "trial", with_precision(config, device))
        trained = learn(trial, data, device=device)
    run = Run.create(out or default_path(name), config, recorded_parts(data))
    task.save(run, trained.model, trained.material)
    return run.path


def predicting(run: Path | None) -> str:
    """Return the command that asks the model of a run."""
    return f"vitreous predict {quote(str(run))} IMAGE"


def better_classical(rungs: Sequence[Rung]) -> Rung | None:
    """Return the classical method that is ahead of every trial of a model, if there is one."""
    classical = [each for each in rungs if each.measured_on == "cross-fitted" and each.loss is None]
    models = [each for each in rungs if each.loss is not None]
    best = max(classical, key=merit, default=None)
    if best is None or not models or best.accuracy <= max(each.accuracy for each in models):
        return None
    return best


def ahead_of_models(best: Rung, *, taught: bool) -> str:
    """Return a sentence, before the training, about what it has to reach."""
    ahead = {"name": best.title(), "accuracy": percent(best.accuracy)}
    if taught:
        return said(
            "so far {name} is ahead with {accuracy}; the model also learns from its answers, and if it does "
            "not reach them, the output says so first",
            **ahead,
        )
    return said(
        "so far {name} is ahead with {accuracy}: if the model does not reach it, the output says so first",
        **ahead,
    )


def has_validation(data: Splits) -> bool:
    """Return whether there are enough validation images to decide by."""
    return data.validation is not None and len(data.validation) >= FEWEST


def left_of(total: float | None, began: float) -> float | None:
    """Return what is left of the minutes, at least half of them."""
    return None if total is None else max(total - (time.monotonic() - began) / 60, total / 2)


def merit(rung: Rung) -> tuple[float, float]:
    """Return what rungs are compared by: accuracy, and of equal ones the loss."""
    return rung.accuracy, -math.inf if rung.loss is None else -rung.loss


def best_trial(trials: Sequence[Rung]) -> Rung:
    """Return the best of some trials on the same images. Accuracies within a standard error of the highest
    are as good as equal on so few images; of these the loss, which sees how sure each answer is, decides."""
    best = max(trials, key=merit)
    error = (best.accuracy * (1 - best.accuracy) / best.count) ** 0.5
    return max(
        (each for each in trials if each.accuracy >= best.accuracy - error),
        key=lambda each: merit(each)[1],
    )


def classical_rungs(data: Splits) -> Iterator[Rung]:
    """Yield what the best classical method, and the majority class, get on images that they were not fitted
    on."""
    if data.summary.multi_label:
        return
    began = time.monotonic()
    fitted = fit_classical(data._replace(validation=None))
    seconds = time.monotonic() - began  # with reading the images, which takes the most of it
    count = len(fitted.targets)
    if best := fitted.best:
        hits = int((best.answers == best.targets).sum())
        yield Rung(
            best.name,
            best.accuracy,
            wilson_interval(hits, count),
            count,
            "cross-fitted",
            seconds=seconds,
            words=f"baselines.{best.name}",
        )
    hits = round(fitted.majority * count)
    yield Rung(
        "majority class",
        fitted.majority,
        wilson_interval(hits, count),
        count,
        "cross-fitted",
        words="baselines.majority class",
    )


def encoder_at_hand(
    task: AnyTask, source: object, settings: Tree, tell: Callable[[str], None], *, offline: bool
) -> Encoder | None:
    """Return the best pre-trained encoder that can be had and suits the data: one in the hub's cache, a small
    open one of the hub, or the one that comes with the package."""
    for encoder in encoders(offline=offline):
        try:
            if encoder.name.startswith("hf:"):
                tell(said("encoder: {name} ({about})", name=encoder.name, about=encoder.about))
            task.plan(source, settings, init=encoder.name)
        except InputError as error:
            tell(said("{name} is not used: {reason}", name=encoder.name, reason=error))
            continue
        return encoder
    return None


def encoders(*, offline: bool) -> Iterator[Encoder]:
    """Yield pre-trained encoders, the best first; the hub is asked where none before suited."""
    yield from cached_encoders()
    if not offline and (found := reachable_encoder()):
        yield found
    for name in encoder_names():
        yield Encoder(name, "comes with vitreous")


def tried(
    task: AnyTask,
    source: Any,
    settings: Tree,
    way: Way,
    name: str,
    total: float | None,
    device: torch.device,
    *,
    steps: int | None = None,
) -> Rung:
    """Train for a short time, and measure on the validation part; where that is small, on folds of the
    training part, each by a model that has not seen it.

    Args:
        total: minutes of the whole training; None: as many epochs as the recipe has.
        steps: of the trial, instead of a share of the training.
    """
    began = time.monotonic()
    config, _, data, _ = task.plan(source, settings, init=way.init, base=way.settings)
    if total is not None:
        config = with_training(config, length=length_of(minutes=total))
    measured_on, parts = "validation", [data]
    if not has_validation(data):
        measured_on = "cross-fitted"
        parts = []
        for rows, others in folds_of(data.train.targets.strata()):
            learned, left = data.train.subset(rows), data.train.subset(others)
            parts.append(data._replace(train=learned, validation=left, test=None))
    config = shortened(config, SHARE)
    if steps is not None:
        config = with_training(config, length=length_of(steps=steps))
    hits = losses = count = speed = 0.0
    for part in parts:
        measured = trained_and_measured(task, config, part, device)
        speed = max(speed, measured["images_per_second"])
        count += len(part.validation)
        hits += measured["validation_accuracy"] * len(part.validation)
        losses += measured["validation_loss"] * len(part.validation)
    accuracy, loss = hits / count, losses / count
    interval = wilson_interval(round(hits), int(count))
    seconds = time.monotonic() - began
    words = f"rungs.{'frozen' if steps == 0 else way.words}"
    return Rung(
        name,
        accuracy,
        interval,
        int(count),
        measured_on,
        loss,
        seconds,
        speed=speed,
        words=words,
        init=way.init,
    )


def trained_and_measured(
    task: AnyTask, config: Any, data: Splits, device: torch.device
) -> Mapping[str, float]:
    """Train in a folder that is removed, and measure on the validation part; where the loss does not stay
    finite, nothing is right."""
    measure = task.validation(config, data)
    assert measure is not None
    images = len(data.train)
    if images < config.training.batch_size:
        config = with_training(config, batch_size=images)
    with TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):  # that its time is short
        run = Run.create(Path(folder) / "trial", with_precision(config, device))
        try:
            found = measure(learn(run, data, device=device).model.to(device))
        except NotFinite:
            found = {"validation_accuracy": 0.0, "validation_loss": math.inf}
        speeds = [row["images_per_second"] for row in run.metrics() if "images_per_second" in row]
        return {**found, "images_per_second": speeds[-1] if speeds else 0.0}
