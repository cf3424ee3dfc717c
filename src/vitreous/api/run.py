"""`vitreous.Run`: a run directory, and how a run is trained in all processes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import torch

from vitreous.api.arguments import progress_bar, say, silent
from vitreous.checkpoints.runs import has_compared, is_finished
from vitreous.errors import (
    InputError,
    LazyModule,
    Param,
    is_out_of_memory,
    nearest,
    own_warnings,
    printable,
    require_packages,
)
from vitreous.evaluation.result import Evaluation
from vitreous.languages import speaking
from vitreous.languages.terminal import said
from vitreous.results import Result
from vitreous.tasks import task_named
from vitreous.tasks.task import AnyPlan, RunResult
from vitreous.tasks.training_run import (
    finish,
    fit,
    open_run,
    report_known_findings,
    resume_run,
    task_to_resume,
)
from vitreous.training.callbacks import Callback, Display, MetricsRow
from vitreous.training.clock import Clock
from vitreous.training.config import length_of
from vitreous.training.distributed import process_group
from vitreous.training.machine import Place, free_bytes, keep_freed_memory, pick_device
from vitreous.training.trainer import Interrupted

if TYPE_CHECKING:
    from matplotlib import figure as figures

    from vitreous.tasks import trials
else:  # it is not installed everywhere; few runs have compared candidates
    figures = LazyModule("matplotlib.figure")
    trials = LazyModule("vitreous.tasks.trials")

FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG
REFUSED = errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO
LEAST_MEMORY = 16 * 2**20  # bytes: with less, whatever failed did so for this

Start = Callable[[Place], AnyPlan]
GivenCallbacks = Iterable[Callback | Callable[[MetricsRow], object]]  # functions get each row of metrics


class Run(Result):
    """A run directory: what `train` and `pretrain` return, or an existing one, `Run("runs/photos")`.

    Example:
        >>> run = vt.Run("runs/photos")
        >>> run.task, run.model.labels
        ('classification', ['apples', 'pears'])
        >>> longer = run.resume(epochs=2, progress=False)

    Attributes:
        path: the directory.
        result: the result of training in this session; None for an existing run, and in all processes of
            distributed training except the first.

    Raises:
        InputError: the path is not a run directory.
    """

    def __init__(self, path: str | Path, result: RunResult | None = None) -> None:
        self.path = Path(path)
        self.result = result
        self.config = open_run(self.path).config

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def task(self) -> str:
        """The name of its task."""
        return str(self.config.task)

    @cached_property
    def model(self) -> Any:
        """The trained model, in evaluation mode. Raises InputError: training has not finished."""
        from vitreous.checkpoints.loading import load

        return load(self.path)

    @property
    def metrics(self) -> list[MetricsRow]:
        """The rows of metrics.jsonl: step, epoch, loss, learning rate and validation metrics."""
        return open_run(self.path).metrics()

    @property
    def evaluation(self) -> Evaluation | None:
        """The evaluation on the held-out part after this session; None if the run was only opened."""
        return self.result.evaluation if self.result else None

    @property
    def report(self) -> Path | None:
        """The HTML report; None if there is none yet."""
        path = self.path / "report.html"
        return path if path.is_file() else None

    def resume(
        self,
        *,
        epochs: int | float | None = None,
        steps: int | None = None,
        minutes: float | None = None,
        shard: bool | None = None,
        data: str | Path | None = None,
        device: str = "auto",
        callbacks: GivenCallbacks = (),
        progress: bool = True,
        command: str | None = None,
        task: str | None = None,
        language: str | None = None,
        **evaluation: object,
    ) -> Run:
        """Resume from the latest checkpoint; extend the run if more epochs, steps or minutes are specified.

        Args:
            epochs, steps, minutes: the total number; None: as planned.
            shard: whether the weights are sharded from now on; None: as before.
            data: the new location of the data, if it was moved.
            callbacks: see `train`.
            command, task: the command and task that the run is expected to belong to; None: any.
            language: of the report; see `train`.
            evaluation: options of the evaluation, if the task has any.

        Raises:
            InputError: the run has already trained that long, belongs to another task, or its data is
                missing.
            Interrupted: after Ctrl-C or SIGTERM, once a checkpoint has been saved.
        """
        check_shard(shard)
        check_one_length(minutes=minutes, steps=steps, epochs=epochs)
        known = task_named(self.task).info.evaluation_options
        for name in evaluation:
            if name not in known:
                why = nearest(name, sorted(known)) if known else "leave it out"
                raise InputError(f"resume has no option {name!r}: {why}")

        clock, wanted, compared = Clock.of_call(), command or self.config.command, has_compared(self.path)
        changed: dict[str, Any] = {"data": None if data is None else str(data), "shard": shard}
        changed["length"] = length_of(epochs=epochs, steps=steps, minutes=minutes)

        def start(place: Place) -> AnyPlan:
            if compared:
                task_to_resume(self.path, wanted, task)
                talk = say if progress and place.world.first else silent
                begun = trials.resumed_trials(self.path, place, talk, **changed)
                if begun is not None:
                    return begun
            plan = resume_run(self.path, command=wanted, task=task, place=place, **changed)
            return replace(trials.with_kept_trials(plan, place) if compared else plan, clock=clock)

        return train_in_processes(
            start,
            device=device,
            callbacks=callbacks,
            progress=progress,
            language=language,
            waiting=self.config.training.machine_config.timeout,
            **evaluation,
        )

    def to_json(self) -> dict[str, object]:
        if self.result:
            return self.result.to_json()
        return {"run": str(self.path), "task": self.task}

    def table(self) -> list[dict[str, object]]:
        """Return `metrics`."""
        return [dict(row) for row in self.metrics]

    def figures(self) -> dict[str, figures.Figure]:
        """Return the learning curves: each logged number over the steps."""
        require_packages("matplotlib", extra="train", what="figures")
        rows = self.metrics
        names = sorted({name for row in rows for name in row} - {"step", "epoch"})
        drawn = {}
        for name in names:
            points = [(row["step"], row[name]) for row in rows if isinstance(row.get(name), int | float)]
            figure = figures.Figure(figsize=(5, 3), layout="constrained")
            axes = figure.subplots()
            axes.plot(*zip(*points, strict=True))
            axes.set_xlabel("step")
            axes.set_ylabel(name)
            drawn[name] = figure
        return drawn


def train_in_processes(
    start: Start,
    *,
    device: str,
    callbacks: GivenCallbacks,
    progress: bool,
    language: str | None = None,
    waiting: float,
    **options: object,
) -> Run:
    """Train in every process that torchrun has started; evaluate in the first.

    Args:
        start: makes or opens the run.
        language: of the report.
        waiting: minutes that the processes wait for each other.
        options: of the evaluation.
    """
    require_packages("matplotlib", "sklearn", "tensorboard", extra="train", what="training")
    with speaking(language), own_warnings(), process_group(pick_device(device), waiting) as (world, here):
        if here.type == "cpu":
            # This is set here, since candidates are compared and features computed before the first step.
            keep_freed_memory()
        with resources(lambda: "nothing was started"):
            place = Place(here, world)
            plan = start(place)

        def tell(note: str) -> None:
            if progress and world.first:
                print(printable(note), file=sys.stderr)

        if plan.findings is None and world.first:
            plan = replace(plan, findings=report_known_findings(plan.task, plan.data, tell))
        for reason in plan.reasons:
            tell(reason)
        shown = [Display(plan.task.info.training)] if progress and world.first else []
        run = plan.made
        try:
            with (
                progress_bar("evaluating", progress and world.first) as advance,
                resources(run.states.advice),
                run.tracked() if world.first else nullcontext(()) as trackers,
            ):
                try:
                    trained = fit(plan, place, callbacks=[*trackers, *shown, *callbacks], say=tell)
                except InputError:
                    run.forget_failed_start()
                    raise
                result = finish(trained, plan, place, progress=advance, say=tell, **options)
        except Interrupted as stopped:
            command, path = run.config.command, quote(str(run.path))
            if world.first:
                stopped.add_note(
                    said(
                        "stopped at step {step}, and a checkpoint is saved: resume with vitreous {command} "
                        "--resume {path}; in the meantime, the run can already be used",
                        step=stopped.step,
                        command=command,
                        path=path,
                    )
                )
            raise
        except KeyboardInterrupt as stopped:
            missing = [name for name in ("report.html", "README.md") if not (run.path / name).exists()]
            if world.first and missing and is_finished(run.path):
                stopped.add_note(
                    said(
                        "{run} is trained and its model is saved, but the evaluation was interrupted; "
                        "missing: {missing}; create them with vitreous {command} --resume {path}",
                        run=run.path,
                        missing=", ".join(missing),
                        command=run.config.command,
                        path=quote(str(run.path)),
                    )
                )
            raise
        return Run(run.path, result)


def check_shard(shard: bool | None) -> None:
    """Raise InputError if there are no processes to shard the weights over."""
    if shard and "TORCHELASTIC_RUN_ID" not in os.environ:
        raise InputError(
            f"{Param('shard')} spreads the weights over processes, and there is only one: start several with "
            "torchrun --nproc-per-node 2 -m vitreous ..., or leave it out"
        )


def check_one_length(**lengths: int | float | None) -> None:
    """Raise InputError for two lengths of one training run, or a length of zero. lengths: by their
    options."""
    given = [Param(name) for name, value in lengths.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"{given[0]} and {given[1]} both set the length: pass one of them")
    minutes = lengths.get("minutes")
    if minutes is not None and not minutes > 0:
        raise InputError(f"{Param('minutes')} {minutes:g} leaves no time to train: pass a number above 0")


@contextmanager
def resources(advice: Callable[[], str]) -> Iterator[None]:
    """Raise InputError if the disk is full, a file is not accessible or there is not enough memory.

    Args:
        advice: returns the end of the sentence: what is left, and how to continue.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if is_out_of_memory(error) or free_bytes(torch.device("cpu")) < LEAST_MEMORY:
            raise InputError(
                f"there is not enough memory: use {Param('batch_size')} auto, a smaller batch, "
                f"training.machine.checkpointing=true or a smaller model; {advice()}"
            ) from error
        if not isinstance(error, OSError) or error.errno not in (*FULL, *REFUSED):
            raise
        todo = "free up space" if error.errno in FULL else "make it writable"
        what = error.filename or "a file"
        raise InputError(f"cannot use {what} ({error.strerror}): {todo}; {advice()}") from error
