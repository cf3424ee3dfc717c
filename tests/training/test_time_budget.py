"""A training that ends after a time, by a clock that a test winds."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from vitreous.addons.text.task import averaging
from vitreous.cli import main
from vitreous.cli import run as vitreous
from vitreous.tasks import task_named
from vitreous.tasks.training_run import seconds_after
from vitreous.training.callbacks import Callback, Display
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.clock import Clock
from vitreous.training.config import RunConfig, TrainingConfig, within_minutes
from vitreous.training.distributed import World
from vitreous.training.learner import Learner
from vitreous.training.objectives import classification
from vitreous.training.run import RunDirectory, with_training
from vitreous.training.step import Measured, Objective
from vitreous.training.trainer import Interrupted, TimeBudget, Trainer

from .conftest import Fit
from .test_loop import Broken

pytestmark = pytest.mark.usefixtures("quick_figures")

CPU = torch.device("cpu")
TINY = ["--recipe", "from-scratch", "--set", "model.depth=1", "--set", "model.width=16"]


class Steps(Callback):
    """Moves a clock on by the seconds of each step, and notes the learning rates and totals.

    Args:
        lengths: seconds of the first steps; the last of them is that of all later ones.
    """

    def __init__(self, *lengths: float) -> None:
        self.lengths, self.now, self.taken = lengths, 0.0, 0
        self.rates: list[float] = []
        self.totals: list[int] = []

    def __call__(self) -> float:
        return self.now

    def around(self, objective: Objective) -> Objective:
        """The same loss, which takes the time of a step."""

        def timed(model: nn.Module, batch: Any, generator: torch.Generator) -> Measured:
            self.now += self.lengths[min(self.taken, len(self.lengths) - 1)]
            self.taken += 1
            return objective(model, batch, generator)

        return timed

    def on_step_end(self, trainer: Trainer) -> None:
        self.rates.append(trainer.learner.optimizers[0].param_groups[0]["lr"])
        self.totals.append(trainer.total)


@pytest.fixture
def timed(trained: Fit, tiny: RunConfig) -> Any:
    """Train the tiny model for some minutes of a clock that only steps move on."""

    def fit(minutes: float, clock: Steps, **around: Any) -> Any:
        around["objective"] = clock.around(around.get("objective") or classification(tiny.training))
        training = {
            "length": f"{minutes} minutes",
            "records": {"save_every": 1e9, "log_every": around.pop("log_every", None)},
        }
        settings = {"training": training}
        around["callbacks"] = [clock, *around.get("callbacks", ())]
        return trained(settings, clock=clock, **around)

    return fit


def test_training_ends_when_the_time_is_up_and_the_rate_with_it(timed: Any) -> None:
    clock = Steps(1.0)
    learner = timed(1.0, clock)
    assert learner.step == 60
    assert clock.now == 60
    peak = max(clock.rates)
    assert clock.rates.index(peak) < 10  # the end of the warm-up, 5% of 60 steps
    assert clock.rates[-1] < 0.01 * peak
    assert all(later <= earlier for earlier, later in zip(clock.rates[9:], clock.rates[10:], strict=False))


@pytest.mark.parametrize("lengths", [(9.0, *[1.0] * 10, 3.0), (9.0, *[3.0] * 5, 0.5), (*[1.0] * 45, 6.0)])
def test_a_machine_that_changes_its_speed_is_followed(timed: Any, lengths: tuple[float, ...]) -> None:
    clock = Steps(*lengths)
    learner = timed(1.0, clock)
    assert abs(clock.now - 60) <= max(3.0, max(lengths[-2:]))  # 5%, or a step
    assert clock.totals[-1] == learner.step
    assert clock.rates[-1] < 0.35 * max(clock.rates)


def test_a_time_that_is_over_before_the_training_holds_one_step() -> None:
    """Imports and data took it: the model is not left as it was at random, and the user is told."""
    clock = Steps(1.0)
    clock.now = 100.0
    learner = Learner.begin(nn.Linear(1, 1), TrainingConfig())
    learner.elapsed = 100.0
    budget = TimeBudget(1.0, learner, clock)
    with pytest.warns(
        UserWarning, match="60 s are enough for only about 1 steps, .* give --minutes 4 or more"
    ):
        assert budget.total(500, 10) == 1
    learner.step = 1
    assert budget.total(1, 10) == 1


def test_the_clock_of_a_command_begins_with_its_process() -> None:
    """Not where the training begins: what Python imports before that is waited for, too."""
    code = (
        "import time; time.sleep(0.5); from vitreous.training.clock import Clock; "
        "print(Clock.of_process().seconds, Clock.of_process().used)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    seconds, used = map(float, found.split())
    assert (seconds > 0.5, used) == (True, 0)


def test_a_command_is_timed_from_its_process_and_a_call_from_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "command", None)  # as where no command runs
    assert Clock.of_call().seconds < Clock.of_process().seconds
    monkeypatch.setattr("sys.argv", ["vitreous", "recipe"])
    with pytest.raises(SystemExit):
        main()
    assert Clock.of_call() is Clock.command
    assert Clock.command.used == 0


def test_a_slow_beginning_is_not_taken_for_the_speed(timed: Any) -> None:
    clock = Steps(20.0, 1.0)
    assert timed(1.0, clock).step == 41
    assert min(clock.totals[2:]) == 41


def test_the_time_of_earlier_sessions_counts(timed: Any, tmp_path: Path) -> None:
    class Stop(Callback):
        def on_step_end(self, trainer: Trainer) -> None:
            trainer.interrupted = trainer.learner.step == 20

    with pytest.raises(Interrupted):
        timed(1.0, Steps(1.0), callbacks=[Stop()], checkpointer=Checkpointer(tmp_path))
    clock = Steps(1.0)
    learner = timed(1.0, clock, resume=tmp_path)
    assert (learner.step, clock.now, learner.elapsed) == (60, 40, 60)
    assert clock.totals[0] == pytest.approx(60, abs=1)


def test_the_seconds_of_a_run_by_epochs_count_when_it_gets_a_time(trained: Fit) -> None:
    learner = trained({"training": {"length": "1 steps"}})
    learner.seconds = 40.0
    clock = Steps(1.0)
    budget = TimeBudget(1.0, learner, clock)
    assert budget.total(1, 8) == 1  # 40 s a step: not another one
    learner.seconds, learner.elapsed = 4.0, 0.0
    assert TimeBudget(1.0, learner, clock).total(1, 8) == 15


def test_texts_are_averaged_where_the_last_checkpoints_are_not_known() -> None:
    weight = averaging(with_training(task_named("translation").config(), length="1.0 minutes"), 1000)
    assert weight is not None
    assert 0 < weight(5) < 1


def test_validations_take_a_part_of_the_time(timed: Any) -> None:
    clock = Steps(1.0)

    def validate(model: Any) -> dict[str, float]:
        clock.now += 5.0
        return {"validation_accuracy": 0.5}

    learner = timed(1.0, clock, validate=validate, validate_every=2)
    assert learner.step < 50
    assert 57 <= clock.now <= 61  # with the last validation


@pytest.mark.parametrize("every", [1000, 3])
def test_the_time_of_the_only_validation_is_known_before_it(timed: Any, every: int) -> None:
    clock, at = Steps(1.0), []

    def validate(model: Any) -> dict[str, float]:
        clock.now += 10.0
        at.append(clock.now)
        return {"validation_accuracy": 0.5}

    timed(1.0, clock, validate=validate, validate_every=every)
    assert 57 <= clock.now <= 61
    assert len(at) == 2
    assert (at[0] < 30) == (every == 1000), "an early one, only where there is no other"


def test_the_last_row_has_a_validation(timed: Any) -> None:
    """Also where writing it takes the rest of the time, while it was not to be the last."""
    clock, rows = Steps(1.0), []

    class Slow(Callback):
        def on_log(self, trainer: Trainer, row: Any) -> None:
            clock.now += 0.72
            rows.append(row)

    def validate(model: Any) -> dict[str, float]:
        return {"validation_accuracy": 0.5}

    learner = timed(1.0, clock, validate=validate, validate_every=1000, log_every=1, callbacks=[Slow()])
    assert rows[-1]["step"] == learner.step
    assert [row["step"] for row in rows if "validation_accuracy" in row] == [1, learner.step]
    assert clock.now < 60 + 2 * 1.72


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the loss is not finite")
def test_several_processes_estimate_again_after_going_back(timed: Any, tmp_path: Path) -> None:
    class Pair(World):
        """Two processes, of which one is seen."""

        def broadcast(self, value: Any) -> Any:
            return value

        def any(self, flags: Any) -> Any:
            return flags

        def gather(self, value: Any) -> Any:
            return [value]

    class Together(Callback):
        def on_train_begin(self, trainer: Trainer) -> None:
            trainer.world = Pair(0, 2)

    clock = Steps(0.29)
    around = {"checkpointer": Checkpointer(tmp_path), "callbacks": [Together()]}
    timed(1.0, clock, objective=Broken(range(35, 40)), **around)
    # 40 steps of 0.29 s are lost: 60 s are 207 steps, of which 167 are left.
    assert clock.totals[38] == pytest.approx(207, abs=1)
    assert clock.totals[39] == pytest.approx(167, abs=1)


def test_a_time_that_is_too_short_is_spoken_of_once(timed: Any) -> None:
    with pytest.warns(
        UserWarning, match=r"12 s are enough for only about 12 steps, 1.\d epochs: too few"
    ) as spoken:
        timed(0.2, Steps(1.0))
    assert len([each for each in spoken if "minutes" in str(each.message)]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        timed(1.0, Steps(1.0))


def test_the_plan_is_stated_and_lines_are_few(timed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Steps(4.0)
    display = Display(clock=clock)
    timed(2.0, clock, callbacks=[display])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("plan: about ")
    assert "2 minutes in all at 4 s a step, peak memory" in lines[0]
    rows = [line for line in lines if line.startswith("step")]
    assert any(line.endswith(" left") for line in rows)
    assert len(rows) <= 14, "ten seconds between them"
    steps = [int(line.split()[1].split("/")[0]) for line in lines if line.startswith("step")]
    assert all(later - earlier <= 3 for earlier, later in zip([0, *steps], steps, strict=False))


def test_short_epochs_do_not_fill_the_screen(timed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Steps(0.05)
    timed(0.1, clock, callbacks=[Display(clock=clock)])
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step")]
    assert len(lines) <= 2, "of six seconds"
    done, total = lines[-1].split()[1].split("/")
    assert done == total


@pytest.mark.slow
def test_the_command_writes_the_time_into_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    options = ["--batch-size", "8", "--minutes", "0.005", "--out", str(out)]
    assert vitreous(["train", "synthetic:32@32", *TINY, *options]) == 0
    assert RunDirectory.open(out).config.training.minutes == 0.005
    told = capsys.readouterr().err
    assert "epochs in batches" not in told  # it is not so
    assert "training.length=0.005 minutes" in told
    assert vitreous(["train", "--resume", str(out), "--minutes", "0.001"]) == 2
    assert "is the total" in capsys.readouterr().err
    newest = RunDirectory.open(out).states.newest()
    assert newest
    longer = 2 * max(newest.facts["elapsed"], newest.facts["seconds"]) / 60
    assert vitreous(["train", "--resume", str(out), "--minutes", f"{longer:.4f}"]) == 0
    assert RunDirectory.open(out).config.training.minutes == pytest.approx(longer, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--minutes", "0"], "leaves no time to train"),
        (["--minutes", "1e308"], "minutes up to 525600"),
        (["--minutes", "1", "--epochs", "2"], "pass one of them"),
    ],
)
def test_a_time_that_does_not_do_is_one_sentence(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vitreous(["train", "digits", *options]) == 2
    assert words in capsys.readouterr().err


def test_what_comes_after_the_training_is_a_part_of_its_time() -> None:
    """And a training that has a number of epochs, too, does not go on because there is time."""
    now = [0.0]
    learner: Any = SimpleNamespace(step=0, seconds=0.0, elapsed=20.0)
    budget = TimeBudget(1.0, learner, lambda: now[0], finish=10.0, most=60)
    for step in range(1, 4):  # of a second each, after 20 that were spent before
        now[0] += 1
        learner.step, learner.seconds = step, float(step)
        total = budget.total(100, 8)
    assert total == 30
    short = TimeBudget(1.0, learner, lambda: now[0], finish=10.0, most=12)
    assert short.total(12, 8) == 12
    assert TimeBudget(1.0, learner, lambda: now[0], finish=1e9).finish == 30


def test_what_answers_beside_the_network_takes_a_part_of_the_time_too() -> None:
    """Features of an encoder take longer than an answer of the network: a run of 600 seconds took 692."""
    data = SimpleNamespace(train=range(10), validation=range(100), test=range(500))
    clock = Clock()
    alone = seconds_after(RunConfig(task="classification"), data, clock)
    both = seconds_after(RunConfig(task="classification"), data, clock, answering=0.1)
    assert both - alone == pytest.approx(50, rel=0.1)
    data.validation = range(1100)  # the network answers them, and by that the answer is chosen
    assert seconds_after(RunConfig(task="classification"), data, clock) > alone + 20


def test_a_length_may_have_a_time_in_which_it_ends() -> None:
    training = TrainingConfig(length=within_minutes("90 epochs", 10))
    assert (training.length, training.epochs, training.minutes) == ("90 epochs in 10 minutes", 90, 10)
    assert training.total_steps(7) == 630
    assert within_minutes("90 epochs in 10 minutes", 3.5) == "90 epochs in 3.5 minutes"
    for wrong in ("10 minutes in 3 minutes", "90 epochs in 0 minutes", "90 epochs in 3 steps"):
        with pytest.raises(ValueError, match="is not a length"):
            TrainingConfig(length=wrong)
