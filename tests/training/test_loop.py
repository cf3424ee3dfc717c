"""The loop: parts of a batch, what is logged, and what happens when numbers go wrong."""

from __future__ import annotations

import math
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vitreous as vt
from vitreous.data.dataset import Splits
from vitreous.data.image_samples import Batch
from vitreous.errors import InputError
from vitreous.tasks.classification import Classification
from vitreous.tasks.training_run import fit, plan_of_run
from vitreous.training import trainer
from vitreous.training.callbacks import Callback, score_of
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.config import RunConfig
from vitreous.training.distributed import World
from vitreous.training.objectives import batch_accuracy, label_accuracy, sigmoid_loss, softmax_loss
from vitreous.training.run import RunDirectory
from vitreous.training.settings import configure
from vitreous.training.trainer import PATIENCE, Interrupted, NotFinite, Trainer

from .conftest import Fit, weights

PLAIN = {"model": {"dropout": 0.0, "drop_path": 0.0}}


class Rows(Callback):
    """A callback that remembers."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, float]] = []

    def on_log(self, trainer: Trainer, row: Mapping[str, float]) -> None:
        self.rows.append(row)


def test_a_batch_in_parts_gives_the_gradient_of_the_whole(trained: Fit) -> None:
    whole = weights(trained({**PLAIN, "training": {"length": "3 steps"}}))
    parts = weights(trained({**PLAIN, "training": {"length": "3 steps", "machine": {"grad_accum_steps": 4}}}))
    for name in whole:
        torch.testing.assert_close(parts[name], whole[name], rtol=1e-4, atol=2e-5, msg=name)


def test_the_loss_falls_and_every_epoch_has_a_line(trained: Fit) -> None:
    rows = Rows()
    trained(
        {"training": {"length": "8 epochs", "peak_lr": 1e-2}, "augmentation": {"mix": None}}, callbacks=[rows]
    )
    assert [row["epoch"] for row in rows.rows] == list(range(1, 9))
    assert rows.rows[-1]["loss"] < 0.9 * rows.rows[0]["loss"]
    assert 0 <= rows.rows[-1]["accuracy"] <= 1
    assert all(0 <= row["waiting"] <= 1 for row in rows.rows)


def test_the_average_follows_the_weights(trained: Fit) -> None:
    learner = trained({"training": {"length": "4 steps", "ema": {"decay": 0.5}}})
    assert learner.average is not None
    moved = dict(learner.model.named_parameters())["head.bias"]
    averaged = dict(learner.average.model.named_parameters())["head.bias"]
    assert 0 < (averaged - moved).abs().max() < moved.abs().max()


def test_validation_sees_the_averaged_model_and_is_written(trained: Fit) -> None:
    rows, seen = Rows(), []

    def validate(model: nn.Module) -> dict[str, float]:
        seen.append(model)
        return {"validation_accuracy": 0.5}

    learner = trained(
        {"training": {"length": "4 epochs"}}, callbacks=[rows], validate=validate, validate_every=2
    )
    assert learner.average is not None
    assert seen == [learner.average.model] * 2
    assert ["validation_accuracy" in row for row in rows.rows] == [False, True, False, True]


def scripted(scores: list[float]) -> Any:
    """A validation that gives these accuracies, one after the other."""
    left = iter(scores)
    return lambda model: {"validation_loss": 9.0, "validation_accuracy": next(left)}


class Scripted(Classification):
    """The task with a validation that gives these accuracies, one after the other."""

    def __init__(self, scores: list[float]) -> None:
        self.scores = scores

    def validation(self, *_: Any) -> Any:
        return scripted(self.scores)


def test_training_ends_after_validations_that_are_not_better(trained: Fit, tmp_path: Path) -> None:
    settings = {
        "training": {"length": "9 epochs", "records": {"early_stopping": {"patience": 2}, "save_every": 1e9}}
    }
    checkpointer = Checkpointer(tmp_path)
    scores = [0.1, 0.5, 0.4, 0.5, 0.9]
    learner = trained(settings, validate=scripted(scores), checkpointer=checkpointer)
    epoch = learner.step // 4
    assert (learner.step, learner.best_step, learner.best_score) == (4 * epoch, 2 * epoch, 0.5)
    assert checkpointer.steps() == [2 * epoch, 4 * epoch]  # best and last
    resumed = trained(
        {"training": {"length": "4 epochs", "records": {"early_stopping": {"patience": 2}}}},
        resume=tmp_path,
        validate=scripted([]),
        checkpointer=Checkpointer(tmp_path),
    )
    assert (resumed.best_step, resumed.worse) == (2 * epoch, 2)
    # It is over, and another session that only makes the report does not train on.
    again = trained(settings, resume=tmp_path, validate=scripted([]), checkpointer=Checkpointer(tmp_path))
    assert again.step == learner.step


def test_a_validation_that_is_not_a_number_is_not_the_best(trained: Fit) -> None:
    scores = scripted([math.nan, 0.5, math.nan, 0.6])
    learner = trained(
        {"training": {"length": "4 epochs", "records": {"early_stopping": {"patience": 3}}}}, validate=scores
    )
    assert (learner.best_score, learner.worse) == (0.6, 0)
    assert score_of({"validation_loss": math.nan}) is None


@pytest.mark.slow
def test_the_best_checkpoint_is_kept_and_is_a_model(
    tiny: RunConfig, splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(tiny, {"training": {"length": "5 epochs", "records": {"save_every": 1e9}}})
    run = RunDirectory.create(tmp_path / "run", config)
    monkeypatch.setattr(trainer, "SAVING", 1e9)  # saving costs nothing
    fit(replace(plan_of_run(run, splits), task=Scripted([0.1, 0.5, 0.4, 0.3, 0.2])))
    steps = [row["step"] for row in run.metrics()]
    assert run.states.steps() == [steps[1], steps[-1]]
    folder = run.path / "checkpoints" / f"step-{steps[1]:09}.shards"
    best, saved = vt.load(folder), run.states.read(steps[1], None, World()).tensors
    for name, weight in best.named_parameters():
        assert torch.equal(weight, saved[f"average/{name}"])
    assert best.labels == run.model().labels
    assert vt.evaluate(folder, progress=False).part == "held-out part"
    with pytest.raises(InputError, match=r"has no .* yet to describe it"):
        vt.load(shutil.copytree(folder, tmp_path / "checkpoints" / folder.name))


def test_the_best_model_is_the_result_if_asked_for(tiny: RunConfig, splits: Splits, tmp_path: Path) -> None:
    config = configure(
        tiny, {"training": {"length": "3 epochs", "records": {"early_stopping": {}, "save_every": 1e9}}}
    )
    run = RunDirectory.create(tmp_path / "run", config)
    told: list[str] = []
    trained = fit(replace(plan_of_run(run, splits), task=Scripted([0.1, 0.5, 0.4])), say=told.append)
    steps = [row["step"] for row in run.metrics()]
    assert told == [f"the model is from the best validation, at step {steps[-2]}"]
    best = run.states.read(steps[-2], None, World()).tensors
    for name, weight in trained.model.named_parameters():
        assert torch.equal(weight, best[f"average/{name}"])
    assert run.states.steps()[-1] == steps[-1]
    with pytest.raises(InputError, match="needs a validation set: set"):
        fit(plan_of_run(RunDirectory.create(tmp_path / "none", config), splits))


class Broken:
    """A loss that is not a number at the steps of `when`."""

    def __init__(self, when: range | set[int]) -> None:
        self.when, self.calls = when, 0

    def __call__(
        self, model: nn.Module, batch: Batch, generator: torch.Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        loss = softmax_loss(model(batch.images), batch.targets, 0.0)
        self.calls += 1
        return (loss * float("nan") if self.calls - 1 in self.when else loss), {}


def test_one_bad_step_is_skipped_and_counted(trained: Fit) -> None:
    rows = Rows()
    learner = trained({"training": {"length": "6 steps"}}, objective=Broken({2}), callbacks=[rows])
    assert (learner.step, learner.skipped, learner.setbacks) == (6, 1, 0)
    assert all(torch.isfinite(tensor).all() for tensor in weights(learner).values())
    assert all(row["loss"] == row["loss"] for row in rows.rows)


def test_the_best_validation_is_one_that_is_saved(trained: Fit, splits: Splits, tmp_path: Path) -> None:
    """Nothing is saved after a bad step, so the validation behind it cannot be the one that is kept."""
    epoch, states = len(splits.train) // 32, Checkpointer(tmp_path)
    learner = trained(
        {"training": {"length": "4 epochs", "records": {"early_stopping": {}, "save_every": 1e9}}},
        objective=Broken({3 * epoch - 1}),
        validate=scripted([0.1, 0.5, 0.9, 0.3]),
        checkpointer=states,
    )
    assert (learner.best_step, learner.best_score, learner.skipped) == (2 * epoch, 0.5, 1)
    assert learner.best_step in states.steps()
    states.restore_best(learner)


@pytest.mark.slow
def test_the_best_checkpoint_stays_for_each_that_training_may_resume_from(
    trained: Fit, splits: Splits, tmp_path: Path
) -> None:
    """The newest, which is the best, is damaged: the best of the one before it is still there."""
    epoch, settings = (
        len(splits.train) // 32,
        {"training": {"length": "4 epochs", "records": {"early_stopping": {}, "save_every": 0}}},
    )
    validate = scripted([0.1, 0.5, 0.3, 0.9])
    trained(settings, validate=validate, checkpointer=Checkpointer(tmp_path))
    assert Checkpointer(tmp_path).steps() == [2 * epoch, 4 * epoch - 1, 4 * epoch]
    (tmp_path / f"step-{4 * epoch:09}.json").write_text("{}")
    states = Checkpointer(tmp_path)
    with pytest.warns(UserWarning, match=f"resumes from step {4 * epoch - 1}"):
        learner = trained(settings, resume=tmp_path, validate=scripted([0.4]), checkpointer=states)
    assert (learner.step, learner.best_step) == (4 * epoch, 2 * epoch)
    states.restore_best(learner)
    assert learner.step == 2 * epoch


@pytest.mark.slow
def test_the_old_best_checkpoint_stays_until_the_new_one_is_written(trained: Fit, tmp_path: Path) -> None:
    """What removes old checkpoints, in a thread of its own, knows no best one that is still to be written."""
    wanted: list[bool] = []

    class Late(Checkpointer):
        def remove_old(self, step: int) -> None:
            wanted.append(self.best is None or self.best in self.steps())
            super().remove_old(step)

        def finish(self) -> None:
            if self.writing is not None:
                self.writing.result()
                self.remove_old(self.saving)  # as late as the thread may do it
            super().finish()

    settings = {"training": {"length": "4 epochs", "records": {"early_stopping": {}}}}
    trained(settings, validate=scripted([0.1, 0.2, 0.3, 0.4]), checkpointer=Late(tmp_path))
    assert len(wanted) > 4
    assert all(wanted)


def test_several_bad_steps_lead_back_to_the_last_good_state_with_a_smaller_rate(
    trained: Fit, tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match="not finite since step 4: back to step 3, with 0.5"):
        learner = trained(
            {"training": {"length": "12 steps"}},
            objective=Broken(range(3, 3 + PATIENCE)),
            checkpointer=Checkpointer(tmp_path),
        )
    assert (learner.step, learner.setbacks, learner.lr_factor) == (12, 1, 0.5)
    assert learner.skipped == PATIENCE


def test_what_ends_in_a_bad_step_is_saved(trained: Fit, tmp_path: Path) -> None:
    states = Checkpointer(tmp_path)
    settings = {"training": {"length": "12 steps", "records": {"save_every": 1e9}}}
    trained(settings, objective=Broken({11}), checkpointer=states)
    assert states.steps() == [0, 12]


def test_what_is_interrupted_among_bad_steps_is_saved_and_not_gone_back_to(
    trained: Fit, tmp_path: Path
) -> None:
    """They are counted on in the next session, which goes back to a checkpoint before them."""

    class Stop(Rows):
        def on_step_end(self, trainer: Trainer) -> None:
            trainer.interrupted = trainer.learner.step == 12

    settings = {"training": {"length": "20 steps", "records": {"save_every": 1e9, "keep_every": 4}}}
    around: dict[str, Any] = {"checkpointer": Checkpointer(tmp_path), "callbacks": [Stop()]}
    with pytest.raises(Interrupted):
        trained(settings, objective=Broken({9, 10, 11}), **around)
    assert Checkpointer(tmp_path).steps() == [8, 12]
    around = {"checkpointer": Checkpointer(tmp_path), "resume": tmp_path}
    with pytest.warns(UserWarning, match="not finite since step 10: back to step 8"):
        learner = trained(settings, objective=Broken({0, 1}), **around)
    assert (learner.step, learner.skipped, learner.setbacks) == (20, PATIENCE, 1)


def test_a_loss_that_stays_bad_stops_training_with_good_weights(trained: Fit, tmp_path: Path) -> None:
    states, broken = Checkpointer(tmp_path), Broken(range(4, 10_000))
    with (
        pytest.warns(UserWarning, match="back to step 4"),
        pytest.raises(NotFinite, match="not finite since step 5"),
    ):
        trained({"training": {"length": "100 steps"}}, objective=broken, checkpointer=states)
    assert broken.calls == 4 + 3 * PATIENCE
    newest = states.newest()
    assert newest is not None
    assert all(torch.isfinite(tensor).all() for tensor in newest.tensors.values())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_the_state_and_gives_the_handlers_back(
    trained: Fit, tmp_path: Path, request: pytest.FixtureRequest, number: signal.Signals
) -> None:
    kept = signal.signal(number, signal.default_int_handler)  # under nohup, SIGHUP would be ignored
    request.addfinalizer(lambda: signal.signal(number, kept))
    before = signal.getsignal(number)
    times = 2 if number == signal.SIGTERM else 1  # from the scheduler, and from torchrun, which passes it on

    class Strike(Rows):
        def on_log(self, trainer: Trainer, row: Mapping[str, float]) -> None:
            for _ in range(times):
                os.kill(os.getpid(), number)

    with pytest.raises(Interrupted) as stopped:
        trained(
            {"training": {"records": {"log_every": 4, "save_every": 1e9}}},
            checkpointer=Checkpointer(tmp_path),
            callbacks=[Strike()],
        )
    assert stopped.value.step == 4
    assert Checkpointer(tmp_path).steps() == [0, 4]
    assert signal.getsignal(number) is before


def test_nohup_lets_a_training_go_on(trained: Fit) -> None:
    class Close(Rows):
        def on_log(self, trainer: Trainer, row: Mapping[str, float]) -> None:
            os.kill(os.getpid(), signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        trained({"training": {"records": {"log_every": 4}}}, callbacks=[Close()])
    finally:
        signal.signal(signal.SIGHUP, before)


def test_soft_and_hard_targets_agree() -> None:
    logits, hard = torch.randn(5, 4), torch.tensor([0, 3, 1, 1, 2])
    soft = nn.functional.one_hot(hard, 4).float()
    for measure in (softmax_loss, sigmoid_loss):
        torch.testing.assert_close(measure(logits, hard, 0.1), measure(logits, soft, 0.1))
    assert batch_accuracy(logits, hard) == batch_accuracy(logits, soft)


def test_the_accuracy_of_several_labels() -> None:
    """Of two labels one is found; of a single one that; an image without labels gets none."""
    logits = torch.tensor([[3.0, -1.0, 2.0], [1.0, 2.0, -3.0], [-1.0, -2.0, -3.0]])
    targets = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert float(label_accuracy(logits, targets)) == pytest.approx((0.5 + 1 + 1) / 3)
    assert float(label_accuracy(10 * targets - 5, targets)) == 1.0
    assert float(label_accuracy(5 - 10 * targets, targets)) == pytest.approx(0.5 / 3)  # two of three


def test_sigmoid_loss_is_summed_over_classes() -> None:
    assert sigmoid_loss(torch.zeros(3, 7), torch.tensor([0, 1, 2]), 0.0) == pytest.approx(
        7 * 0.693147, rel=1e-5
    )


def test_the_loader_is_asked_to_start_in_the_middle(trained: Fit, tmp_path: Path) -> None:
    """A resumed run does not draw what it has learned from already."""
    assert trained({"training": {"length": "5 steps"}}, checkpointer=Checkpointer(tmp_path)).step == 5
    calls = []

    def objective(
        model: nn.Module, batch: Batch, generator: torch.Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        calls.append(batch.indices)
        return softmax_loss(model(batch.images), batch.targets, 0.0), {}

    trained({"training": {"length": "7 steps"}}, resume=tmp_path, objective=objective)
    assert len(calls) == 2


def test_a_function_gets_every_row_and_a_callback_is_called_in_order(trained: Fit, tmp_path: Path) -> None:
    rows: list[Any] = []
    calls: list[str] = []

    class Recorder(Callback):
        def on_train_begin(self, trainer: Trainer) -> None:
            calls.append("begin")

        def on_step_end(self, trainer: Trainer) -> None:
            calls.append(f"step {trainer.learner.step}")

        def on_validation(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
            calls.append(f"validation {metrics['validation_loss']:g}")

        def on_save(self, trainer: Trainer) -> None:
            calls.append("save")

        def on_train_end(self, trainer: Trainer) -> None:
            calls.append("end")

    settings = {"training": {"length": "2 steps", "records": {"save_every": 1e9}}}
    around = {"checkpointer": Checkpointer(tmp_path), "validate": lambda model: {"validation_loss": 3.0}}
    trained(settings, callbacks=[Recorder(), rows.append], **around)
    assert calls == ["begin", "save", "step 1", "step 2", "validation 3", "save", "end"]
    assert [row["step"] for row in rows] == [2]


def test_a_callback_can_end_training_and_it_can_be_resumed(trained: Fit, tmp_path: Path) -> None:
    class Stop(Callback):
        def on_step_end(self, trainer: Trainer) -> None:
            if trainer.learner.step == 3:
                trainer.stop()

    settings = {"training": {"length": "5 steps", "records": {"save_every": 1e9}}}
    assert trained(settings, checkpointer=Checkpointer(tmp_path), callbacks=[Stop()]).step == 3
    assert Checkpointer(tmp_path).steps() == [0, 3]
    assert trained(settings, resume=tmp_path).step == 5
