"""The training loop: one, for every objective."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from vitreous.training.bad_together import BadTogether
from vitreous.training.config import TrainingConfig
from vitreous.training.display import Display
from vitreous.training.distributed import World
from vitreous.training.heap import keep_freed_memory
from vitreous.training.journal import Row, Tracker
from vitreous.training.learner import Learner
from vitreous.training.objectives import Objective
from vitreous.training.optimizers import set_rate
from vitreous.training.schedules import rate
from vitreous.training.setbacks import Setbacks
from vitreous.training.shares import SharedStates
from vitreous.training.signals import Interrupted, StopRequest
from vitreous.training.state import States
from vitreous.training.step import StepTaker

STEPS_BETWEEN_QUESTIONS = 10  # that processes which train together ask each other
LONGEST_SILENCE = 200  # steps between lines of metrics.jsonl, unless configured


@runtime_checkable
class Loader(Protocol):
    """Where batches come from: `vitreous.data.prefetching.DevicePrefetcher`, or anything like it."""

    @property
    def steps_per_epoch(self) -> int: ...
    def epoch(self, number: int, start: int = 0) -> Iterator[Any]: ...


@dataclass(frozen=True)
class Surroundings:
    """What stands around the loop and listens; each part may be missing.

    Attributes:
        trackers: are sent every line of metrics.
        states: where the learner is saved, in the beginning, every so often, and in the end.
        display: what a person sees.
        validate: measures the model behind every `validate_every`-th epoch, in the first process.
        device: where the batches go.
        seed: of dropout and stochastic depth; each step draws from (seed, step) alone.
        world: the processes that train together; the first of them writes and shows.
        bad: the images that none of them could read.
    """

    trackers: Sequence[Tracker] = ()
    states: States | SharedStates | None = None
    display: Display | None = None
    validate: Callable[[nn.Module], Row] | None = None
    validate_every: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    seed: int = 0
    world: World = field(default_factory=World)
    bad: BadTogether | None = None


def fit(
    learner: Learner,
    loader: Loader,
    objective: Objective,
    config: TrainingConfig,
    surroundings: Surroundings,
) -> float:
    """Train `learner` from the step it is at to the last; the seconds in which it waited for data.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came; the state is saved.
        InputError: the loss stays non-finite (training went back twice before), a state cannot be saved, or
            too many images cannot be read.
    """
    if surroundings.device.type == "cpu":
        keep_freed_memory()
    with StopRequest() as stop:
        loop = Loop(learner, loader, objective, config, surroundings)
        if learner.step == 0:
            loop.save()  # something to go back to, and proof that the disk takes it
        while learner.step < loop.total:
            loop.run(stop)
        loop.save()
        if surroundings.bad:
            surroundings.bad.share()
        return loop.waited


class Loop:
    """The state of one call of `fit`."""

    def __init__(
        self,
        learner: Learner,
        loader: Loader,
        objective: Objective,
        config: TrainingConfig,
        surroundings: Surroundings,
    ) -> None:
        self.learner, self.loader, self.config, self.around = learner, loader, config, surroundings
        self.total = config.total_steps(loader.steps_per_epoch)
        self.log_every = config.log_every or min(loader.steps_per_epoch, LONGEST_SILENCE)
        self.take_step = StepTaker(
            learner,
            objective,
            config,
            device=surroundings.device,
            seed=surroundings.seed,
            world=surroundings.world,
        )
        self.setbacks = Setbacks(learner, surroundings.states, surroundings.world)
        self.saved_at = time.monotonic()
        self.waited = 0.0  # seconds in which the loader was waited for, in this session
        self.line_start = Clock(learner.seconds, self.waited, learner.step)

    def run(self, stop: StopRequest) -> None:
        """The rest of the epoch that the learner is in, or up to a setback."""
        learner = self.learner
        epoch, start = divmod(learner.step, self.loader.steps_per_epoch)
        clock = time.perf_counter()
        for batch in self.loader.epoch(epoch, start):
            self.waited += time.perf_counter() - clock
            lr = learner.lr_factor * self.config.peak_lr
            lr *= rate(learner.step, self.total, self.config.schedule)
            set_rate(learner.optimizers, lr)
            self.take_step.prepare(batch)
            if self.went_back():
                return
            self.take_step.take()
            gone_back = not self.take_step.late and self.went_back()
            now = time.perf_counter()
            learner.seconds += now - clock
            clock = now  # from here on the next batch is waited for
            if gone_back:
                return
            line_due = self.line_is_due()
            if line_due and self.went_back():
                return
            if self.around.display:
                self.around.display.step(learner.step, self.total, self.numbers)
            if line_due:
                self.write_line(lr)
                clock = time.perf_counter()
            stopping, saving = self.agreed(stop)
            if (stopping or saving) and self.went_back():
                return
            if stopping and learner.step < self.total:
                self.save()
                raise Interrupted(learner.step)
            if saving and not self.setbacks.streak:
                self.save()
                clock = time.perf_counter()
            if learner.step == self.total:
                return

    def went_back(self) -> bool:
        """Counts the step that was taken, unless that is done. Whether the learner was put back."""
        finite = self.take_step.outcome()
        return finite is not None and self.setbacks.note(finite=finite)

    def agreed(self, stop: StopRequest) -> tuple[bool, bool]:
        """Whether to stop, and whether to save: at steps where the processes ask each other, if any wants."""
        world, due = self.around.world, time.monotonic() - self.saved_at > self.config.save_every
        if world.size > 1 and self.learner.step % STEPS_BETWEEN_QUESTIONS:
            return False, False
        bad = self.around.bad
        flags = stop.made, due, bool(bad and bad.untold)
        stopping, saving, telling = world.any(flags, self.around.device)
        if bad and telling:
            bad.share()
        return stopping, saving

    def line_is_due(self) -> bool:
        step = self.learner.step
        within = step % self.loader.steps_per_epoch
        return within == 0 or within % self.log_every == 0 or step == self.total

    def write_line(self, lr: float) -> None:
        """One row for every tracker, then the sums begin anew."""
        learner, around = self.learner, self.around
        learner.meter = around.world.total(learner.meter)
        row: dict[str, float | int] = {
            "step": learner.step,
            "epoch": learner.step / self.loader.steps_per_epoch,
            **self.numbers(),
            "lr": lr,
            "seconds": learner.seconds,
            "skipped": learner.skipped,
        }
        epoch, within = divmod(learner.step, self.loader.steps_per_epoch)
        ended = (within == 0 and epoch % around.validate_every == 0) or learner.step == self.total
        if around.validate and ended:
            result = learner.result  # in every process: it may have to be gathered
            if around.world.first:
                row |= around.validate(result)
        for tracker in around.trackers:
            tracker.write(row)
        if around.display:
            around.display.line(learner.step, self.total, row)
        learner.meter.clear()
        self.line_start = Clock(learner.seconds, self.waited, learner.step)

    def numbers(self) -> dict[str, float]:
        """Means since the last line, and the speed since then."""
        sums = {name: float(total) for name, total in self.learner.meter.items()}
        images = sums.pop("images", 0.0)
        means = {name: total / images for name, total in sums.items()} if images else {}
        seconds = self.learner.seconds - self.line_start.seconds
        waited = self.waited - self.line_start.waited
        if seconds > 0:
            steps = self.learner.step - self.line_start.step
            means["images_per_second"] = steps * self.config.batch_size / seconds
            means["waiting"] = min(waited / seconds, 1.0)
        return means

    def save(self) -> None:
        """A state of now, unless the last steps were not finite."""
        learner, world = self.learner, self.around.world
        if self.around.states and not self.setbacks.streak:
            learner.meter = world.total(learner.meter)
            if not world.first:
                learner.meter.clear()  # the first process has it all now
            if world.first or learner.shards:
                self.around.states.save(learner.step, learner.state())
        self.saved_at = time.monotonic()


@dataclass(frozen=True)
class Clock:
    """When the current line of metrics began."""

    seconds: float
    waited: float
    step: int
