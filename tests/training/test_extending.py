"""A run that goes on for longer than it was planned."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from vitreous.addons.text.task import last_checkpoints
from vitreous.data.dataset import Splits
from vitreous.errors import InputError
from vitreous.tasks.training_run import fit, plan_of_run
from vitreous.training.config import RunConfig
from vitreous.training.distributed import World
from vitreous.training.learner import Average, learning_rate
from vitreous.training.run import RunDirectory
from vitreous.training.settings import configure

CPU = torch.device("cpu")
PER_EPOCH = 8  # batches of 32 of the images to learn from


@pytest.fixture
def run(tiny: RunConfig, tmp_path: Path) -> RunDirectory:
    """Nothing has been learned yet."""
    return RunDirectory.create(
        tmp_path / "run", configure(tiny, {"training": {"records": {"log_every": 1, "save_every": 1e9}}})
    )


@pytest.fixture(scope="module")
def two_epochs(tiny: RunConfig, splits: Splits, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a cosine schedule."""
    settings = {"training": {"records": {"log_every": 1, "save_every": 1e9}}}
    run = RunDirectory.create(tmp_path_factory.mktemp("extending") / "run", configure(tiny, settings))
    fit(plan_of_run(run, splits))
    return run.path


@pytest.fixture
def finished(two_epochs: Path, tmp_path: Path) -> RunDirectory:
    """A run of its own for each test, which changes it."""
    shutil.copytree(two_epochs, tmp_path / "run")
    return RunDirectory.open(tmp_path / "run")


def test_the_rate_follows_the_longer_curve_from_where_the_run_is(
    finished: RunDirectory, splits: Splits
) -> None:
    longer, words = finished.extended(World(), "3 epochs")
    old, new = finished.config.training, longer.config.training
    shares = learning_rate(16, 24, new.schedule), learning_rate(16, 16, old.schedule)
    assert shares == (pytest.approx(0.27, abs=1e-3), 0)
    assert words.endswith("it is 27.0% of its peak there instead of 0.0%")
    assert "from step 16 on" in words
    trained = fit(plan_of_run(longer, splits))
    rows = longer.metrics()
    assert [row["step"] for row in rows] == list(range(1, 25))
    assert [row["lr"] for row in rows[:16]] == [
        pytest.approx(old.peak_lr * learning_rate(step, 16, old.schedule)) for step in range(16)
    ]
    assert [row["lr"] for row in rows[16:]] == [
        pytest.approx(new.peak_lr * learning_rate(step, 24, new.schedule)) for step in range(16, 24)
    ]
    # Whoever resumes it again needs to say nothing.
    assert RunDirectory.open(finished.path).config == longer.config
    kept = finished.model().state_dict()
    assert all(torch.equal(kept[name], weight) for name, weight in trained.model.state_dict().items())


def test_the_last_length_that_was_asked_for_counts(finished: RunDirectory) -> None:
    longer, _ = finished.extended(World(), "17 steps")
    assert longer.config.training.total_steps(PER_EPOCH) == 17
    again, _ = longer.extended(World(), "2.5 epochs")
    assert (again.config.training.steps, again.config.training.total_steps(PER_EPOCH)) == (None, 20)


@pytest.mark.parametrize("wanted", ["2 epochs", "1 epochs", "16 steps", "-1 epochs"])
def test_what_the_run_has_had_already_is_refused(finished: RunDirectory, wanted: str) -> None:
    before = (finished.path / "config.toml").read_text()
    with pytest.raises(InputError, match=r"is the total, and .*run is already at step 16: pass a larger"):
        finished.extended(World(), wanted)
    assert (finished.path / "config.toml").read_text() == before


@pytest.mark.parametrize(
    "wanted",
    ["0 steps", "inf epochs", "nan epochs", "inf minutes"],
)
def test_what_is_not_a_length_is_refused_and_the_run_still_opens(run: RunDirectory, wanted: str) -> None:
    with pytest.raises(InputError, match=wanted.partition(" ")[2]):
        run.extended(World(), wanted)
    assert RunDirectory.open(run.path).config.training == run.config.training


def test_a_time_without_another_step_is_refused(finished: RunDirectory) -> None:
    """The time of a training has its validations, too, which the seconds of its rows do not."""
    state = finished.states.folder / "step-000000016.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"seconds": 5.9, "elapsed": 6.0}))
    for minutes in (0.001, 0.1, 0.103):
        with pytest.raises(InputError, match=f"{minutes:g} is the total, and .* has already used 0.1:"):
            finished.extended(World(), f"{minutes} minutes")
    assert finished.extended(World(), "0.2 minutes")[0].config.training.minutes == 0.2


def test_only_the_first_process_writes(finished: RunDirectory) -> None:
    before = (finished.path / "config.toml").read_text()
    longer, _ = finished.extended(World(rank=1, size=2), "5 epochs")
    assert longer.config.training.epochs == 5
    assert (finished.path / "config.toml").read_text() == before


def test_a_run_that_wrote_no_metrics_yet(finished: RunDirectory) -> None:
    (finished.path / "metrics.jsonl").unlink()
    longer, words = finished.extended(World(), "2 epochs")
    assert (longer.config.training.epochs, words) == (2, "")
    with pytest.raises(InputError, match="`epochs` -1"):
        finished.extended(World(), "-1 epochs")


def test_a_mean_of_checkpoints_forgets_the_first_end() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    average = Average(model, last_checkpoints(total=4, count=2, every=1))

    def learn(steps: range) -> None:
        for step in steps:
            with torch.no_grad():
                model.weight.fill_(float(step))
            average.update(step)

    learn(range(4))
    assert average.model.weight.item() == 2.5
    average.weight = last_checkpoints(total=8, count=2, every=1)
    learn(range(4, 8))
    assert average.model.weight.item() == 6.5
