"""Another end for a run that has begun."""

from __future__ import annotations

from typing import Any, TypeVar

from vitreous.errors import InputError
from vitreous.training.config import TrainingConfig
from vitreous.training.distributed import World
from vitreous.training.journal import read_metrics
from vitreous.training.run import RunDirectory
from vitreous.training.schedules import rate
from vitreous.training.settings import to_toml
from vitreous.training.state import write_text

AnyRun = TypeVar("AnyRun", bound=RunDirectory[Any])


def lengthened(
    run: AnyRun, world: World, *, epochs: float | None = None, steps: int | None = None
) -> tuple[AnyRun, str]:
    """The same run, which ends behind so many epochs or steps in all, as config.toml says from now on; and a
    sentence about its learning rate, where enough is known for it.

    From the step that the run is at, the rate follows the curve of the whole new length: there it jumps,
    unless the curve does not depend on the length. What was learned before was learned at the rates of the
    old one, so the result is not that of a run that was planned for this length from the beginning.

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
            f"{wanted} is not more than {run.path} has had: it is at step {done}; give a larger number"
        )
    longer = type(run)(run.path, config.model_copy(update={"training": new}))
    if world.first:
        write_text(run.path / "config.toml", to_toml(longer.config))
    return longer, in_words(old, new, done, per_epoch) if per_epoch else ""


def steps_per_epoch(run: RunDirectory[Any]) -> int | None:
    """As its metrics have it; None for a run that was stopped before it wrote any."""
    rows = [row for row in read_metrics(run.path / "metrics.jsonl") if row["epoch"]]
    return round(rows[-1]["step"] / rows[-1]["epoch"]) if rows else None


def in_words(old: TrainingConfig, new: TrainingConfig, done: int, per_epoch: int) -> str:
    """What becomes of the learning rate."""
    before, after = (rate(done, each.total_steps(per_epoch), each.schedule) for each in (old, new))
    return (
        f"schedule: from step {done} on the learning rate follows the curve of the new length: it is "
        f"{after:.1%} of its peak there, and was to be {before:.1%}"
    )
