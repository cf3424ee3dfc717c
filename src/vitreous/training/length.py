"""A new length for a run that has begun."""

from __future__ import annotations

from typing import Any

from vitreous.checkpoints.whole_files import write_text
from vitreous.errors import InputError
from vitreous.training.callbacks import read_metrics
from vitreous.training.config import TrainingConfig
from vitreous.training.distributed import World
from vitreous.training.optimizers import learning_rate
from vitreous.training.run import Run
from vitreous.training.settings import to_toml


def extend_run(
    run: Run, world: World, *, epochs: float | None = None, steps: int | None = None
) -> tuple[Run, str]:
    """Return the same run with another total of epochs or steps, which config.toml then has, and a sentence
    about its learning rate, where enough is known for it.

    From its present step on, the rate follows the curve of the new length: it jumps there, unless the curve
    does not depend on the length. Earlier steps were taken at the rates of the old one, so the result is not
    that of a run of this length from the beginning.

    Raises:
        InputError: the run is as far already.
    """
    config: Any = run.config
    old: TrainingConfig = config.training
    changes = {"steps": steps} if steps is not None else {"epochs": epochs, "steps": None}
    new = old.model_copy(update=changes)
    done = (run.states.steps() or [0])[-1]
    per_epoch = steps_per_epoch(run)
    at_least = per_epoch or done + 1  # a run without metrics was stopped in its first epoch
    if new.total_steps(at_least) <= done or (epochs is not None and epochs <= 0):
        wanted = f"--steps {steps}" if steps is not None else f"--epochs {epochs:g}"
        raise InputError(
            f"{wanted} is the total, and {run.path} is already at step {done}: pass a larger number"
        )
    extended = Run(run.path, config.model_copy(update={"training": new}))
    if world.first:
        write_text(run.path / "config.toml", to_toml(extended.config))
    return extended, rate_change(old, new, done, per_epoch) if per_epoch else ""


def steps_per_epoch(run: Run) -> int | None:
    """Return what the run's metrics say; None for a run that was stopped before it wrote any."""
    rows = [row for row in read_metrics(run.path / "metrics.jsonl") if row["epoch"]]
    return round(rows[-1]["step"] / rows[-1]["epoch"]) if rows else None


def rate_change(old: TrainingConfig, new: TrainingConfig, done: int, per_epoch: int) -> str:
    """Say how the learning rate changes."""
    before, after = (learning_rate(done, each.total_steps(per_epoch), each.schedule) for each in (old, new))
    return (
        f"schedule: from step {done} on the learning rate follows the curve of the new length: it is "
        f"{after:.1%} of its peak there instead of {before:.1%}"
    )
