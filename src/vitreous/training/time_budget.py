"""A training that ends after a time: how many steps it will have is estimated again after each step, and the
learning rate follows the estimate."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

from vitreous.languages.terminal import said, said_time
from vitreous.training.learner import Learner

RECENT = 50  # steps over which the length of a step is averaged
INTERVAL = 0.01  # share of the time after which processes that train together estimate it again
SURE = 0.1  # share of the time, after which the estimate is good enough to be spoken of
FEW_EPOCHS, FEW_STEPS = 3, 300  # below both a time is too short to learn in


class TimeBudget:
    """The time of a training over all of its sessions: its steps, validations and saved checkpoints.

    Args:
        learner: at the beginning of this session.
        name: what the training is called in the warning.
        clock: returns seconds since any moment.
    """

    def __init__(
        self,
        minutes: float,
        learner: Learner,
        clock: Callable[[], float] = time.perf_counter,
        name: str = "training",
    ) -> None:
        self.seconds, self.learner, self.clock, self.name = 60 * minutes, learner, clock, name
        self.began = clock() - max(learner.elapsed, learner.seconds)
        self.seen = learner.step, learner.seconds
        self.averaged = -1  # the first step of a session waits for the first images
        self.step_seconds = learner.seconds / learner.step if learner.step else None
        self.reserve: float | None = None  # seconds of a validation, as the one at the end; None: not known
        self.spoken = False

    def total(self, planned: int, steps_per_epoch: int) -> int:
        """Return the number of steps of the training, now; `planned` while that is not known. Warns once of
        too few."""
        learner = self.learner
        learner.elapsed = self.clock() - self.began
        left = self.seconds - (self.reserve or 0.0) - learner.elapsed
        if left <= 0:
            return learner.step
        self.measure()
        if self.step_seconds is None:
            return max(planned, learner.step + 1)
        total = learner.step + round(left / max(self.step_seconds, 1e-9))  # half a step more or less
        if left < (1 - SURE) * self.seconds and not self.spoken:
            self.spoken = True
            epochs = total / steps_per_epoch
            if epochs < FEW_EPOCHS and total < FEW_STEPS:
                minutes = self.seconds / 60
                more = max(minutes * FEW_EPOCHS / epochs, minutes + 1)
                warnings.warn(
                    said(
                        "{time} hold about {total} steps, {epochs:.1f} epochs: too few to learn much; give "
                        "--minutes {more:.0f} or more, or a smaller model",
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
