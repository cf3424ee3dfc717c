"""Going back to the last good weights when gradients are not finite anymore."""

from __future__ import annotations

from vitreous.errors import InputError
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.distributed import World
from vitreous.training.step import TrainStep

PATIENCE = 5  # non-finite steps in a row that are skipped before training goes back
PART_OF_RUN = 10  # of its steps: so many bad ones at the end of a run are too many
MAX_SETBACKS = 2  # times that it goes back before it stops
SLOWER = 0.5  # the factor of the learning rate each time


class NotFinite(InputError):
    """Training stopped because its loss was not finite anymore. The learner holds the last good weights."""


class WentBack(Exception):
    """The learner is at an earlier step; a sentence on it."""


class Rollback:
    """Counts the steps of a training, and puts its learner back where it is needed.

    Steps whose gradient is not finite are skipped: they change no weight. After several in a row training
    goes back to the newest checkpoint before them at a lower learning rate, and after some setbacks it stops.
    The gradient is reduced over all processes, so that all of them do the same.
    """

    def __init__(self, step: TrainStep, checkpointer: Checkpointer | None, world: World) -> None:
        self.step, self.checkpointer, self.world = step, checkpointer, world

    def settle(self, total: int) -> None:
        """Count the step that was taken, unless it is counted.

        Args:
            total: steps of the training.

        Raises:
            WentBack: the learner is at the newest checkpoint before the bad steps.
            NotFinite: it went back often enough before.
        """
        finite, learner = self.step.outcome(), self.step.learner
        if finite is None:
            return
        if finite:
            learner.bad_steps = 0
            return
        learner.bad_steps += 1
        patience = PATIENCE
        if learner.step >= total:  # nothing follows that could show that it was an exception
            patience = min(PATIENCE, max(total // PART_OF_RUN, 1))
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
