"""Callbacks of the trainer: metrics.jsonl, TensorBoard, experiment trackers, the progress display."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch

from vitreous.errors import InputError, require_packages, writing_to
from vitreous.languages.terminal import said, said_time
from vitreous.outside import read_text
from vitreous.results import byte_size, percent
from vitreous.training.config import CommandConfig, TrainingConfig
from vitreous.training.distributed import World
from vitreous.training.learner import Learner
from vitreous.training.machine import peak_bytes
from vitreous.training.settings import leaves
from vitreous.whole_files import write_text

MetricsRow = Mapping[str, float | int]
HISTOGRAMS = 10  # times in a run that weights and gradients are recorded for TensorBoard
SAMPLED = 4096  # values of a matrix that its histogram is made of, at most
BINS = 64
REFRESH = 1.0  # seconds between readings of the numbers for the display; a reading makes a GPU wait
SILENCE = 10.0  # seconds, before which no other plain line is written, but for the last one
LINES = 20  # in a run without a terminal, about
MEASURED_STEPS, MEASURED_SECONDS = 10, 5.0  # from which on the time of a training is known


@runtime_checkable
class Loader(Protocol):
    """Yields batches: `vitreous.data.loading.DevicePrefetcher`, or another with the same methods."""

    @property
    def steps_per_epoch(self) -> int: ...
    def epoch(self, number: int, start: int = 0) -> Iterator[Any]: ...


@runtime_checkable
class Training(Protocol):
    """What a callback sees of the `Trainer` that calls it."""

    learner: Learner
    world: World
    config: TrainingConfig
    loader: Loader
    total: int  # steps

    def stop(self) -> None:
        """End training after this step."""

    def means(self) -> MetricsRow:
        """Return the measures since the last row."""


class Callback:
    """Hooks into `Trainer.fit`; override those of interest.

    Every process of a distributed run calls its own callbacks; `trainer.world.first` is true in one of them.
    A hook may read `trainer.learner` and call `trainer.stop()`, which ends training after this step.
    """

    def on_train_begin(self, trainer: Training) -> None:
        """Begin a session, before its first step."""

    def on_step_end(self, trainer: Training) -> None:
        """Follow each optimizer step."""

    def on_log(self, trainer: Training, row: MetricsRow) -> None:
        """Take each row of metrics: means since the row before, and validation metrics if they are due."""

    def on_validation(self, trainer: Training, metrics: MetricsRow) -> None:
        """Take what each validation has measured, in the first process."""

    def on_save(self, trainer: Training) -> None:
        """Follow the saving of the state of `trainer.learner.step`."""

    def on_restore(self, trainer: Training) -> None:
        """Follow training that went back to the state of `trainer.learner.step`."""

    def on_train_end(self, trainer: Training) -> None:
        """End a session, however it ends: completed, interrupted, or with an error."""


class RowFunction(Callback):
    """A plain function as a callback: the first process calls it with each row of metrics."""

    def __init__(self, function: Callable[[MetricsRow], object]) -> None:
        self.function = function

    def on_log(self, trainer: Training, row: MetricsRow) -> None:
        if trainer.world.first:
            self.function(row)


class MetricsFile(Callback):
    """metrics.jsonl: one JSON object for each row, with `step` and `epoch` in each. The first row after a run
    was resumed has the step of that as `resumed`.

    Args:
        step: rows after it are dropped; a resumed run writes them again, as one that goes back does.
    """

    def __init__(self, path: Path, *, step: int) -> None:
        self.path = path
        self.mark = {"resumed": step} if step else {}
        self.drop_after(step)

    def drop_after(self, step: int) -> None:
        earlier = [row for row in read_metrics(self.path) if row["step"] <= step]
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in earlier))

    def on_restore(self, trainer: Training) -> None:
        self.drop_after(trainer.learner.step)

    def on_log(self, trainer: Training, row: MetricsRow) -> None:
        advice = "free up space, then resume the run with --resume"
        with writing_to(self.path, advice), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**row, **self.mark}) + "\n")
        self.mark = {}


def read_metrics(path: Path) -> list[MetricsRow]:
    """Return the rows of metrics.jsonl, without lines that a crash truncated or a disk damaged."""
    rows: list[MetricsRow] = []
    for line in read_text(path, errors="replace").splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and "step" in row:
            rows.append(row)
    return rows


class TensorBoard(Callback):
    """TensorBoard's events: every number of a row, and histograms of the weights and the gradients."""

    def __init__(self, folder: Path, *, step: int) -> None:
        self.folder, self.next_histograms = folder, 0.0
        self.begin(step + 1 if step else None)

    def begin(self, purged: int | None) -> None:
        """Begin new events: from here on TensorBoard discards what was written of later steps."""
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(self.folder), purge_step=purged)

    def on_restore(self, trainer: Training) -> None:
        self.writer.close()
        self.begin(trainer.learner.step + 1)
        self.next_histograms = min(self.next_histograms, trainer.learner.step)

    def on_log(self, trainer: Training, row: MetricsRow) -> None:
        step = int(row["step"])
        for name, value in row.items():
            if name != "step":
                self.writer.add_scalar(name, value, step)
        if step >= self.next_histograms:
            self.next_histograms = step + trainer.total / HISTOGRAMS
            for name, parameter in trainer.learner.model.named_parameters():
                if parameter.ndim > 1:
                    self.add_histogram(f"weights/{name}", parameter, step)
                    if parameter.grad is not None:
                        self.add_histogram(f"gradients/{name}", parameter.grad, step)

    def add_histogram(self, name: str, tensor: torch.Tensor, step: int) -> None:
        """Add the histogram of some of a matrix's values, evenly spread; of this process's shard."""
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        flat = local.detach().flatten()
        values = flat[:: max(flat.numel() // SAMPLED, 1)].float().cpu().numpy()
        values = values[np.isfinite(values)]
        if len(values):
            self.writer.add_histogram(name, values, step, bins=BINS)

    def on_train_end(self, trainer: Training) -> None:
        self.writer.close()


def add_results(
    folder: Path, step: int, numbers: Mapping[str, float], images: Mapping[str, np.ndarray]
) -> None:
    """Add what is known at the end of a run to its TensorBoard events, and to the trackers that are open.
    images: (H, W, 3 or 4) bytes."""
    from torch.utils.tensorboard import SummaryWriter

    for tracker in TRACKERS.get():
        tracker.add_results(step, numbers, images)

    with SummaryWriter(str(folder), filename_suffix=".results") as writer:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)
        for name, pixels in images.items():
            writer.add_image(name, pixels, step, dataformats="HWC")


class Tracker(Callback):
    """A run of an experiment tracker: Weights & Biases, trackio, or MLflow (at MLFLOW_TRACKING_URI).

    A tracker that fails while the model learns is left alone from then on, with a warning. Raises InputError:
    the tracker is not installed, or cannot be started.
    """

    def __init__(self, name: Literal["wandb", "mlflow", "trackio"], run: str, config: CommandConfig) -> None:
        require_packages(name, extra="track", what=f"training.records.track = {name!r}")
        library = import_module(name)
        settings = {key: str(value) for key, value in leaves(config).items()}
        self.name, self.library, self.failed = name, library, False
        try:
            if name == "mlflow":
                library.set_experiment("vitreous")
                library.start_run(run_name=run)
                library.log_params(settings)
                self.log, self.finish = library.log_metrics, library.end_run
            else:
                library.init(project="vitreous", name=run, config=settings)
                self.log, self.finish = library.log, library.finish
        except Exception as error:
            raise InputError(
                f"{name} cannot be started ({one_line(error)}): set it up as its documentation says, or "
                "leave out training.records.track"
            ) from error

    @contextmanager
    def attempted(self) -> Iterator[None]:
        """Keep training where the tracker raises anything."""
        try:
            yield
        except Exception as error:
            self.failed = True
            sentence = said(
                "{name} failed and is no longer used ({reason}); metrics.jsonl has everything",
                name=self.name,
                reason=one_line(error),
            )
            warnings.warn(sentence, stacklevel=2)

    def on_log(self, trainer: Training, row: MetricsRow) -> None:
        if not self.failed:
            with self.attempted():
                self.log({name: float(value) for name, value in row.items()}, step=int(row["step"]))

    def add_results(self, step: int, numbers: Mapping[str, float], images: Mapping[str, np.ndarray]) -> None:
        """Log what was measured after the training, and the images of the report."""
        if self.failed:
            return
        with self.attempted():
            if self.name == "mlflow":
                self.log(dict(numbers), step=step)
                for name, pixels in images.items():
                    self.library.log_image(pixels, f"{name}.png")
            else:
                shown = {name: self.library.Image(pixels) for name, pixels in images.items()}
                self.log({**numbers, **shown}, step=step)

    def close(self) -> None:
        """End the run of the tracker."""
        with self.attempted():
            self.finish()


TRACKERS: ContextVar[tuple[Tracker, ...]] = ContextVar("trackers", default=())  # those that are open


def one_line(error: Exception) -> str:
    """Return the first sentence of what a library says, or the kind of its error."""
    return str(error).strip().split(". ")[0].split("\n")[0].rstrip(".") or type(error).__name__


class Display(Callback):
    """Progress on stderr: one live line on a terminal or in a notebook, else about twenty plain lines, of
    which none comes within ten seconds of the one before. After the first steps, the time and memory of the
    training."""

    def __init__(self, title: str = "training", clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console  # answers are given without them
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.console, self.clock = Console(stderr=True), clock
        self.live = self.console.is_terminal or self.console.is_jupyter
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(compact=True),
            TextColumn(said("left")),
            console=self.console,
            refresh_per_second=1 / REFRESH,
            disable=not self.live,
        )
        self.bar = self.progress.add_task(title, total=None, numbers="")
        self.next_reading = 0.0
        self.first: tuple[int, float] | None = None  # step of this session, and when it ended
        self.stated = False

    def on_train_begin(self, trainer: Training) -> None:
        self.progress.start()
        self.next_reading = self.clock() + (0.0 if self.live else SILENCE)

    def on_step_end(self, trainer: Training) -> None:
        now, learner = self.clock(), trainer.learner
        self.first = self.first or (learner.step, now)
        steps, seconds = learner.step - self.first[0], now - self.first[1]
        if not self.stated and (steps >= MEASURED_STEPS or (steps and seconds > MEASURED_SECONDS)):
            self.stated = True
            self.write(plan_line(trainer, seconds / steps))
        if now < self.next_reading:
            return
        if self.live:
            self.next_reading = now + REFRESH
            numbers = metrics_line(trainer.means())
            self.progress.update(self.bar, completed=learner.step, total=trainer.total, numbers=numbers)
        else:
            self.write_row(trainer, trainer.means())

    def on_log(self, trainer: Training, row: MetricsRow) -> None:
        if not self.live and (trainer.learner.step >= trainer.total or self.clock() >= self.next_reading):
            self.write_row(trainer, row)

    def write_row(self, trainer: Training, row: MetricsRow) -> None:
        learner, total, left = trainer.learner, trainer.total, self.seconds_left(trainer)
        spent = self.clock() - self.first[1] if self.first else 0.0
        self.next_reading = self.clock() + max(SILENCE, (spent + (left or 0.0)) / LINES)
        last = left is None or learner.step >= total
        words = "" if last else "  " + said("about {time} left", time=said_time(left or 0.0, estimated=True))
        place = said("step {step}/{total}", step=learner.step, total=total)
        self.write(f"{place}  {metrics_line(row)}{words}")

    def seconds_left(self, trainer: Training) -> float | None:
        """Return how long the training will go on; None while that is not known. The first step of a session
        is slower than the others."""
        learner, minutes = trainer.learner, trainer.config.minutes
        if minutes and trainer.config.epochs is None:
            return max(60 * minutes - learner.elapsed, 0.0)
        if not self.stated or self.first is None:
            return None
        steps, seconds = learner.step - self.first[0], self.clock() - self.first[1]
        return seconds / steps * (trainer.total - learner.step) if steps else None

    def write(self, line: str) -> None:
        if self.live:
            self.progress.console.print(line, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def on_train_end(self, trainer: Training) -> None:
        self.progress.stop()


def plan_line(trainer: Training, step_seconds: float) -> str:
    """Return the steps to come, the time that they will take and the memory that they need."""
    left = trainer.total - trainer.learner.step
    epochs = trainer.total / trainer.loader.steps_per_epoch
    shown = f"{epochs:,.0f}" if epochs > 100 else f"{epochs:.3g}"
    minutes, peak = trainer.config.minutes, byte_size(peak_bytes(trainer.learner.device))
    values = {"steps": trainer.total, "epochs": shown, "step": said_time(step_seconds), "peak": peak}
    if minutes and trainer.config.epochs is None:
        return said(
            "plan: about {steps} steps ({epochs} epochs), {time} in all at {step} a step, peak memory {peak}",
            time=said_time(60 * minutes),
            **values,
        )
    return said(
        "plan: {steps} steps ({epochs} epochs), about {time} at {step} a step, peak memory {peak}",
        time=said_time(left * step_seconds, estimated=True),
        **values,
    )


def metrics_line(row: MetricsRow) -> str:
    """Format loss, accuracy and speed, those that a row has."""
    named = {
        "accuracy": said("accuracy"),
        "miou": said("mean IoU"),
        "validation_accuracy": said("validation accuracy"),
        "validation_miou": said("validation mean IoU"),
    }
    parts = [f"{said('loss')} {row['loss']:.4f}"] if "loss" in row else []
    parts += [f"{label} {percent(row[name])}" for name, label in named.items() if name in row]
    if "images_per_second" in row:
        parts.append(said("{speed:,.0f} examples/s", speed=row["images_per_second"]))
    return "  ".join(parts)


def score_of(metrics: MetricsRow, losses: bool = True) -> float | None:
    """Return what says which validation is the best: the highest, not NaN. losses: whether a loss may."""
    rising = ("validation_miou", "validation_r2", "validation_accuracy", "validation_features")
    falling = ("validation_mean_error", "validation_loss") if losses else ()
    scores = [metrics[name] for name in rising if name in metrics]
    scores += [-metrics[name] for name in falling if name in metrics]
    return scores[0] if scores and scores[0] == scores[0] else None
