"""The training loop, one for every objective, and the time of a training that ends after one."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

from torch import nn

from vitreous.errors import InputError
from vitreous.languages.terminal import said, said_time
from vitreous.training.callbacks import Callback, Loader, MetricsRow, RowFunction, score_of
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.distributed import BadFileSync
from vitreous.training.learner import Learner
from vitreous.training.machine import Threads
from vitreous.training.step import TrainStep

SAVE_EVERY = 60.0  # seconds between checkpoints, unless configured
SAVING = 0.03  # of the time may be spent on saving, unless the interval is configured
SYNC_EVERY = 10  # steps after which processes that train together agree on stopping and saving
STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
LONGEST_SILENCE = 200  # steps between rows of metrics.jsonl, unless configured
PATIENCE = 5  # non-finite steps in a row that are skipped before training goes back
PART_OF_RUN = 10  # of its steps: so many bad ones at the end of a run are too many
MAX_SETBACKS = 2  # times that it goes back before it stops
SLOWER = 0.5  # the factor of the learning rate each time


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop. Its state is saved; `step` is its step."""

    def __init__(self, step: int) -> None:
        super().__init__(f"interrupted at step {step}")
        self.step = step


class NotFinite(InputError):
    """Training stopped because its loss was not finite anymore. The learner holds the last good weights."""


class WentBack(Exception):
    """The learner is at an earlier step; a sentence on it."""


class Validation(NamedTuple):
    """What measures a model while it learns: after every so many epochs, in every process."""

    measure: Callable[[nn.Module], MetricsRow]
    every: int = 1


class Trainer:
    """Trains a learner from the step it is at to the last.

    Args:
        train_step: takes the steps; its learner is the one, and its processes those that train together.
        checkpointer: saves the learner at the beginning, every `save_every` seconds of the configuration's
            records, and at the end.
        callbacks: `Callback` objects, or functions that get each row of metrics.
        validation: of the model; None: it is not measured.
        bad: the images that none of them could read.
        clock: returns seconds since any moment.
        name: what the training is called in warnings.
        finish: seconds that what comes after the training takes, where it ends after a time.
        threads: that compute; by default as many as there are.
    """

    def __init__(
        self,
        train_step: TrainStep,
        loader: Loader,
        *,
        checkpointer: Checkpointer | None = None,
        callbacks: Sequence[Callback | Callable[[MetricsRow], object]] = (),
        validation: Validation | None = None,
        bad: BadFileSync | None = None,
        clock: Callable[[], float] = time.perf_counter,
        name: str = "training",
        finish: float = 0.0,
        threads: Threads | None = None,
    ) -> None:
        self.train_step, self.loader = train_step, loader
        learner, config = train_step.learner, train_step.config
        self.learner, self.config, self.world = learner, config, train_step.world
        self.checkpointer, self.bad, self.clock = checkpointer, bad, clock
        self.validation = validation
        self.callbacks = [each if isinstance(each, Callback) else RowFunction(each) for each in callbacks]
        # Where the training has a time, this is an estimate.
        self.total = config.total_steps(loader.steps_per_epoch)
        self.log_every = config.records_config.log_every or min(loader.steps_per_epoch, LONGEST_SILENCE)
        self.threads = threads or Threads(tries=False)
        if learner.step:
            self.threads.keep(learner.threads)
        self.budget: TimeBudget | None = None
        if config.minutes:
            own = config.epochs is not None or config.steps is not None
            self.budget = TimeBudget(
                config.minutes, learner, clock, name, finish=finish, most=self.total if own else None
            )
        self.planned_at = 0  # the step from which on the length is estimated again
        self.interrupted, self.stop_requested = False, False
        self.saved_at = clock()
        self.saving, self.waited = 0.0, 0.0  # seconds, for the last checkpoint and for the loader
        self.start_row()

    # ---- The loop

    def fit(self) -> None:
        """Train to the last step.

        Raises:
            Interrupted: Ctrl-C or SIGTERM came; the state is saved.
            NotFinite: the loss stays non-finite (training went back twice before).
            InputError: a checkpoint cannot be saved, or too many images cannot be read.
        """
        learner = self.learner
        with self.signals(), self.threads:
            try:
                self.call("on_train_begin")
                self.estimate_length()
                ended = learner.is_out_of_patience(self.config)
                if learner.step == 0:
                    # This is something to go back to, and it proves that the disk takes a state.
                    self.save()
                while learner.step < self.total and not ended:
                    try:
                        ended = self.run_epoch()
                    except WentBack as back:
                        self.planned_at = 0
                        self.start_row()
                        self.call("on_restore")
                        warnings.warn(str(back), stacklevel=2)
                self.save()
                if self.bad:
                    self.bad.exchange()
            finally:
                self.call("on_train_end")
                if self.checkpointer and self.checkpointer.writing:
                    self.checkpointer.finish()

    def run_epoch(self) -> bool:
        """Train for the rest of the epoch that the learner is in. Return whether training ends before its
        last step. Raises WentBack, Interrupted."""
        learner, clock = self.learner, self.clock()
        epoch, start = divmod(learner.step, self.loader.steps_per_epoch)
        for batch in self.loader.epoch(epoch, start):
            self.waited += self.clock() - clock
            lr = learner.set_learning_rate(self.config, self.total, self.loader.steps_per_epoch)

            # The step; its outcome is asked for now, or where the device is late when it is needed.
            with self.threads.step():
                self.train_step.prepare(batch)
                self.count_step()  # the step before this one
                self.train_step.take()
            self.estimate_length()
            row_due = self.row_is_due()
            try:
                if row_due or not self.train_step.late:
                    self.count_step()
            finally:
                now = self.clock()
                learner.seconds += now - clock
                # From here on the next batch is waited for.
                clock = now
            self.call("on_step_end")

            # Its row, with a validation at the end of an epoch.
            if row_due:
                measured = self.write_row(lr)
                # A validation takes time, so the length is estimated again.
                self.estimate_length(least=learner.step + (not measured))
                clock = self.clock()

            # Saving, and the end.
            interrupted, saving, ending = self.agree()
            keep_every = self.config.records_config.keep_every
            saving = saving or bool(keep_every and learner.step % keep_every == 0)
            if interrupted or saving or ending:
                self.count_step()
            if interrupted and learner.step < self.total:
                self.save()
                raise Interrupted(learner.step)
            if saving and not learner.bad_steps:
                self.save(wait=False)
                clock = self.clock()
            if learner.step == self.total or ending:
                return ending
        return False

    def stop(self) -> None:
        """End training after this step, as though it were the last: for callbacks, in any process."""
        self.stop_requested = True

    def call(self, hook: str, *values: object) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self, *values)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Within this context the first Ctrl-C, SIGTERM or SIGHUP (a terminal that closes, unless nohup lets
        it be) sets `interrupted`; another Ctrl-C ends it."""

        def note(number: int, frame: FrameType | None) -> None:
            # Only Ctrl-C ends it the second time: torchrun sends the SIGTERM of a scheduler again.
            if self.interrupted and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.interrupted = True

        before: dict[signal.Signals, Any] = {}
        # Python allows handlers only in the main thread.
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                if number in (signal.SIGINT, signal.SIGTERM) or signal.getsignal(number) != signal.SIG_IGN:
                    before[number] = signal.signal(number, note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def agree(self) -> tuple[bool, bool, bool]:
        """Return whether any process was interrupted, wants to save, or ends: at steps where they exchange
        that."""
        world = self.world
        if world.size > 1 and self.learner.step % SYNC_EVERY and self.learner.step != self.total:
            return False, False, False
        due = self.clock() - self.saved_at > self.save_interval()
        flags = self.interrupted, due, self.stop_requested, bool(self.bad and self.bad.pending)
        interrupted, saving, ending, exchanging = world.any(flags)
        if self.bad and exchanging:
            self.bad.exchange()
        return interrupted, saving, ending

    def estimate_length(self, *, least: int = 0) -> None:
        """Estimate the number of steps where training ends after a time, at least so many: after every step;
        with several processes the first one does, and the others hear of it, about a hundred times in all."""
        step = self.learner.step
        if self.budget and (self.world.size == 1 or step >= self.planned_at):
            total = max(self.budget.total(self.total, self.loader.steps_per_epoch), least)
            self.total, self.planned_at = self.world.broadcast(
                (total, step + self.budget.interval(SYNC_EVERY))
            )
            self.learner.set_total(self.total)

    # ---- Steps whose gradient is not finite

    def count_step(self) -> None:
        """Count the step that was taken, unless it is counted.

        Steps whose gradient is not finite are skipped: they change no weight. After several in a row training
        goes back to the newest checkpoint before them at a lower learning rate, and after some setbacks it
        stops. The gradient is reduced over all processes, so that all of them do the same.

        Raises:
            WentBack: the learner is at the newest checkpoint before the bad steps.
            NotFinite: it went back often enough before.
        """
        finite, learner = self.train_step.outcome(), self.learner
        if finite is None:
            return
        if finite:
            learner.bad_steps = 0
            return
        learner.bad_steps += 1
        patience = PATIENCE
        # At the end, nothing follows that could show that bad steps were an exception.
        if learner.step >= self.total:
            patience = min(PATIENCE, max(self.total // PART_OF_RUN, 1))
        if learner.bad_steps < patience:
            return
        good = learner.step - learner.bad_steps
        setbacks, lr_factor = learner.setbacks + 1, learner.lr_factor * SLOWER
        skipped, seconds = learner.skipped, learner.seconds
        may, checkpointer = setbacks <= MAX_SETBACKS, self.checkpointer
        if not (may and checkpointer and checkpointer.restore(learner, self.world, upto=good)):
            raise NotFinite(
                f"the loss is not finite since step {good + 1}, at learning rate factor "
                f"{learner.lr_factor:g} of the schedule's: training stopped and kept the last good weights; "
                "set a lower training.peak_lr or a longer training.schedule.warmup, and look for images or "
                "labels that are not numbers"
            )
        learner.setbacks, learner.lr_factor = setbacks, lr_factor
        learner.skipped, learner.seconds = skipped, seconds
        learner.bad_steps = 0
        raise WentBack(
            f"the loss is not finite since step {good + 1}: back to step {learner.step}, with "
            f"{learner.lr_factor:g} of the learning rate"
        )

    # ---- Rows of metrics

    def row_is_due(self) -> bool:
        within = self.learner.step % self.loader.steps_per_epoch
        return within == 0 or within % self.log_every == 0 or self.learner.step == self.total

    def write_row(self, lr: float) -> bool:
        """Give every callback one row of metrics, then start new sums. Return whether it can be the last: it
        has a validation, where there are some."""
        learner = self.learner
        learner.meter = self.world.all_reduce_sum(learner.meter, learner.device)
        row: dict[str, float | int] = {
            "step": learner.step,
            "epoch": learner.step / self.loader.steps_per_epoch,
            **self.means(),
            "lr": lr,
            "seconds": learner.seconds,
            "skipped": learner.skipped,
        }
        validation = self.validation
        between = (validation.every if validation else 1) * self.loader.steps_per_epoch
        ended = learner.step % between == 0 or learner.step == self.total
        # Where every other validation would come too late, one is timed now.
        if self.budget and self.budget.reserve is None:
            ended |= self.total < (learner.step // between + 1) * between
        if validation and ended:
            # Every process asks for the result, since it may have to be gathered.
            result, began = learner.result, self.clock()
            cheap = began - self.saved_at >= self.saving / SAVING
            metrics, cheap = self.world.broadcast((validation.measure(result), cheap))
            if self.budget:
                self.budget.reserve = self.clock() - began
            if self.world.first:
                row |= metrics
                self.call("on_validation", metrics)
        self.call("on_log", row)
        learner.meter.clear()
        self.start_row()
        if validation and ended:
            self.compare(metrics, cheap)
        return ended or validation is None

    def start_row(self) -> None:
        """Begin a row of metrics."""
        self.row_start = self.learner.seconds, self.waited, self.learner.step

    def means(self) -> dict[str, float]:
        """Return the means since the last row, and the speed since then."""
        sums = {name: float(total) for name, total in self.learner.meter.items()}
        images = sums.pop("images", 0.0)
        means = {name: total / images for name, total in sums.items()} if images else {}
        before_seconds, before_waited, before_step = self.row_start
        seconds = self.learner.seconds - before_seconds
        if seconds > 0:
            means["images_per_second"] = (self.learner.step - before_step) * self.config.batch_size / seconds
            means["waiting"] = min((self.waited - before_waited) / seconds, 1.0)
        return means

    def compare(self, metrics: MetricsRow, cheap: bool) -> None:
        """Keep the checkpoint of the best validation, where that is asked for or `cheap`; end training after
        `patience` validations that are not better."""
        learner, asked = self.learner, self.config.records_config.early_stopping is not None
        score = score_of(metrics, losses=asked) if asked or cheap else None
        better = score is not None and (learner.best_score is None or score > learner.best_score)
        # Weights whose gradient is not finite are not the best.
        if better and not learner.bad_steps:
            learner.best_step, learner.best_score, learner.worse = learner.step, score, 0
            self.save(wait=False)
        elif asked and not better:
            learner.worse += 1
            self.stop_requested |= learner.is_out_of_patience(self.config)

    # ---- Checkpoints

    def save_interval(self) -> float:
        """Return the seconds between checkpoints: by default so many that training waits for them for 3% of
        the time at most; none where the last one has failed."""
        writing = self.checkpointer and self.checkpointer.writing
        if writing and writing.done() and writing.result():
            return -1.0
        every = self.config.records_config.save_every
        return max(SAVE_EVERY, self.saving / SAVING) if every is None else every

    def save(self, *, wait: bool = True) -> None:
        """Save the state of now. wait: until it is written."""
        learner, world, began = self.learner, self.world, self.clock()
        if self.checkpointer:
            learner.threads = self.threads.chosen
            learner.meter = world.all_reduce_sum(learner.meter, learner.device)
            if not world.first:
                # The first process has all of the sums now.
                learner.meter.clear()
            self.checkpointer.save(learner, world, wait=wait)
            self.call("on_save")
        self.saved_at = self.clock()
        self.saving = self.saved_at - began


LONGEST_FINISH = 0.5  # of the time, that is kept for what comes after the training
RECENT = 50  # steps over which the length of a step is averaged
INTERVAL = 0.01  # share of the time after which processes that train together estimate it again
SURE = 0.1  # share of the time, after which the estimate is good enough to be spoken of
FEW_EPOCHS, FEW_STEPS = 3, 300  # below both a time is too short to learn in


class TimeBudget:
    """The time of a training over all of its sessions: its steps, validations and saved checkpoints. How many
    steps it will have is estimated again after each step, and the learning rate follows the estimate.

    Args:
        learner: at the beginning of this session.
        name: what the training is called in the warning.
        clock: returns seconds since any moment.
        finish: seconds that what comes after the training takes: evaluation and report.
        most: steps, after which it ends even if there is time.
    """

    def __init__(
        self,
        minutes: float,
        learner: Learner,
        clock: Callable[[], float],
        name: str = "training",
        *,
        finish: float = 0.0,
        most: int | None = None,
    ) -> None:
        self.seconds, self.learner, self.clock, self.name = 60 * minutes, learner, clock, name
        self.finish, self.most = min(finish, LONGEST_FINISH * self.seconds), most
        self.began = clock() - max(learner.elapsed, learner.seconds)
        self.seen = learner.step, learner.seconds
        # There is one step even where the time was over before it began.
        self.least = learner.step + 1
        # The first step of a session waits for the first images, and is not averaged.
        self.averaged = -1
        self.step_seconds = learner.seconds / learner.step if learner.step else None
        self.reserve: float | None = None  # seconds of a validation, as the one at the end; None: not known
        self.spoken = False

    def total(self, planned: int, steps_per_epoch: int) -> int:
        """Return the number of steps of the training, now; `planned` while that is not known. Warns once of
        too few."""
        learner = self.learner
        learner.elapsed = self.clock() - self.began
        left = self.seconds - (self.reserve or 0.0) - self.finish - learner.elapsed
        self.measure()
        if left <= 0:
            total = max(learner.step, self.least)
        elif self.step_seconds is None:
            return max(planned, learner.step + 1)
        else:
            # This is right to half a step.
            total = learner.step + round(left / max(self.step_seconds, 1e-9))
        if self.most is not None and total >= self.most:
            return self.most
        if left < (1 - SURE) * self.seconds and not self.spoken:
            self.spoken = True
            epochs = total / steps_per_epoch
            if epochs < FEW_EPOCHS and total < FEW_STEPS:
                minutes = self.seconds / 60
                # Where no time is left, the speed is not known.
                more = 1 + 2 * learner.elapsed / 60
                if left > 0:
                    more = max(minutes * FEW_EPOCHS / epochs, minutes + 1)
                warnings.warn(
                    said(
                        "{time} are enough for only about {total} steps, {epochs:.1f} epochs: too few to "
                        "learn much; give --minutes {more:.0f} or more, or a smaller model",
                        time=said_time(self.seconds),
                        total=total,
                        epochs=epochs,
                        more=more,
                    ),
                    stacklevel=2,
                )
        return total

    def interval(self, most: int) -> int:
        """Return how many steps may be taken before the next estimate, at most `most`."""
        if self.step_seconds is None:
            return 1
        return max(1, min(most, int(INTERVAL * self.seconds / max(self.step_seconds, 1e-9))))

    def measure(self) -> None:
        """Take the steps since the last call into the mean; the time of the newest one comes later."""
        (step, seconds), self.seen = self.seen, (self.learner.step, self.learner.seconds)
        steps, spent = self.learner.step - step, self.learner.seconds - seconds
        if spent <= 0 or steps <= 0:
            return
        self.averaged += 1
        if self.averaged:
            before = self.step_seconds or spent / steps
            self.step_seconds = before + (spent / steps - before) / min(self.averaged, RECENT)
