"""What happens when the gradient is not finite: skip, then go back and slow down, then stop."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vitreous.errors import InputError
from vitreous.training.distributed import World
from vitreous.training.learner import Learner
from vitreous.training.shares import SharedStates
from vitreous.training.state import States

PATIENCE = 5  # steps in a row that are skipped before training goes back
SETBACKS = 2  # times that it goes back before it stops
SLOWER = 0.5  # what the learning rate is multiplied by each time


class NotFinite(InputError):
    """Training stopped because its loss was no longer finite. The learner holds the last good weights."""


@contextmanager
def kept_if_not_finite(save: Callable[[], object], path: Path) -> Iterator[None]:
    """Around training: where its loss is no longer finite, the last good weights are saved, and it is said
    where."""
    try:
        yield
    except NotFinite as error:
        save()
        raise NotFinite(f"{error}; they are in {path}") from None


class Setbacks:
    """Counts steps whose gradient was not finite. Such a step changed no weight, so the weights are good."""

    def __init__(self, learner: Learner, states: States | SharedStates | None, world: World) -> None:
        self.learner, self.states, self.world = learner, states, world
        self.streak = 0

    def note(self, *, finite: bool) -> bool:
        """Called behind each step. Whether the learner was put back to an earlier step.

        Raises:
            NotFinite: it was put back often enough before.
        """
        self.streak = 0 if finite else self.streak + 1
        if self.streak < PATIENCE:
            return False
        learner, since = self.learner, self.learner.step - self.streak + 1
        good = self.states.newest() if self.states else None
        if good is None or learner.setbacks == SETBACKS:
            raise NotFinite(
                f"the loss is not finite since step {since}, at learning rate factor "
                f"{learner.lr_factor:g} of the schedule's: training stopped and kept the last good weights; "
                "set a lower training.peak_lr or a longer training.schedule.warmup, and look for images or "
                "labels that are not numbers"
            )
        counts = learner.setbacks + 1, learner.lr_factor * SLOWER, learner.skipped, learner.seconds
        learner.restore(good, first=self.world.first)
        learner.setbacks, learner.lr_factor, learner.skipped, learner.seconds = counts
        self.streak = 0
        warnings.warn(
            f"the loss is not finite since step {since}: back to step {learner.step}, with "
            f"{learner.lr_factor:g} of the learning rate",
            stacklevel=2,
        )
        return True
