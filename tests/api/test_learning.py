"""`train`, `evaluate`, `predict` and `pretrain` from Python, on data in memory; the run that they return."""

from __future__ import annotations

import copy
import errno
import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import vitreous as vt
from vitreous.checkpoints.runs import is_finished
from vitreous.cli import run as command
from vitreous.training.callbacks import Callback
from vitreous.training.config import RunConfig
from vitreous.training.machine import numerics
from vitreous.training.run import RunDirectory
from vitreous.training.trainer import Interrupted

pytestmark = pytest.mark.usefixtures("quick_figures")

TINY = {"model": {"width": 16, "depth": 1, "heads": 2, "mlp_dim": 16}, "training.batch_size": 8}


@pytest.fixture
def run(pixels: NDArray[np.uint8], labels: list[str]) -> vt.Run:
    """Two epochs on 20 images in memory."""
    return vt.train(
        (pixels, labels), epochs=2, image_size=16, out="run", settings=TINY, seed=0, progress=False
    )


def test_a_run_has_model_metrics_report_and_evaluation(
    run: vt.Run, pixels: NDArray[np.uint8], labels: list[str]
) -> None:
    assert run.task == "classification"
    assert run.model.labels == ["bright", "dark"]
    assert run.metrics[-1]["epoch"] == 2
    assert run.report is not None
    assert run.evaluation is not None
    assert run.to_json()["test_count"] == run.evaluation.count >= 2
    assert "step" in run._repr_html_()
    again = vt.evaluate(vt.Run("run"), progress=False)
    assert copy.deepcopy(again).accuracy == again.metrics["accuracy"].value
    assert again.metrics["accuracy"].value == run.evaluation.metrics["accuracy"].value
    assert again.table()[0]["metric"] == "accuracy"
    answers = vt.predict(run, pixels[:3], top=1, progress=False)
    assert len(answers) == 3
    assert [row["path"] for row in answers.table()] == ["image[0]", "image[1]", "image[2]"]
    assert vt.predict(run.model, pixels[0])[0].label == answers[0].label
    whole = vt.evaluate(run.model, (pixels, labels), settings={"data.test_fraction": 0.0}, progress=False)
    assert (whole.model, whole.count) == ("ViT", len(pixels))
    assert vt.embed(run, pixels[:2]).values.shape == (2, 16)


def test_a_run_resumes_and_is_extended(run: vt.Run) -> None:
    rows: list[dict[str, Any]] = []
    longer = run.resume(epochs=3, callbacks=[rows.append], progress=False)
    assert longer.metrics[-1]["epoch"] == 3
    assert rows[-1]["epoch"] == 3
    assert "loss" in longer.figures()
    with pytest.raises(vt.InputError, match="`epochs`"):
        longer.resume(epochs=1, progress=False)


def test_what_was_pretrained_is_fine_tuned(pixels: NDArray[np.uint8], labels: list[str]) -> None:
    few = {"training.batch_size": 8, "training.length": "2 steps"}
    encoder = vt.pretrain(
        (pixels, labels), objective="mae", image_size=16, out="encoder", settings=few, progress=False
    )
    assert encoder.task == "mae"
    tuned = vt.train((pixels, labels), init=encoder, out="tuned", settings=few, progress=False)
    assert tuned.model.config.depth == encoder.model.config.depth


@pytest.mark.slow
def test_images_alone_are_enough_to_pretrain(pixels: NDArray[np.uint8]) -> None:
    few = {"training.batch_size": 8, "training.length": "2 steps"}
    for data, out in ((pixels, "array"), (list(pixels), "list")):
        run = vt.pretrain(data, objective="mae", image_size=16, out=out, settings=few, progress=False)
        assert run.metrics[-1]["step"] == 2
    assert run.resume(steps=3, progress=False).metrics[-1]["step"] == 3


def test_deterministic_training_sets_pytorchs_flags_while_it_trains(
    pixels: NDArray[np.uint8], labels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    seen: list[bool] = []
    settings = {**TINY, "training.length": "2 steps"}
    options: dict[str, Any] = {"image_size": 16, "settings": settings, "progress": False}
    note = [lambda row: seen.append(torch.are_deterministic_algorithms_enabled())]
    run = vt.train((pixels, labels), out="same", deterministic=True, callbacks=note, **options)
    assert seen
    assert all(seen)
    assert not torch.are_deterministic_algorithms_enabled()
    assert run.config.training.machine.deterministic
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")


@pytest.mark.slow
def test_a_run_that_is_interrupted_can_be_used_at_once(
    pixels: NDArray[np.uint8], labels: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    class Stop(Callback):
        def on_step_end(self, trainer: Any) -> None:
            if trainer.learner.step == 3:
                signal.raise_signal(signal.SIGINT)

    settings = {**TINY, "training.length": "1200 steps", "training.records.save_every": 1e9}
    options: dict[str, Any] = {"image_size": 16, "settings": settings, "progress": False}
    with pytest.raises(Interrupted):
        vt.train((pixels, labels), out="run", callbacks=[Stop()], **options)
    said = "run was stopped at step 3 of 1,200: this is its model so far"
    with pytest.warns(UserWarning, match=said):
        answers = vt.predict("run", pixels[:3], progress=False)
    assert len(answers) == 3
    evaluation = vt.evaluate("run", progress=False)
    assert evaluation.count == 4
    weights = vt.Run("run").model.state_dict()
    assert all(torch.isfinite(weight).all() for weight in weights.values())
    assert not is_finished(Path("run"))
    with warnings.catch_warnings(action="always"):  # as in a process of its own
        assert command(["export", "run", "--out", "run.pt2"]) == 0
    assert f"vitreous: {said}\n" in capsys.readouterr().err

    settings["training.length"] = "5 steps"
    run = vt.Run("run").resume(steps=5, progress=False)
    assert run.metrics[-1]["step"] == 5
    assert is_finished(Path("run"))
    with warnings.catch_warnings(action="error"):
        vt.predict("run", pixels[:3], progress=False)


SHORT: list[tuple[Exception, str]] = [
    (OSError(errno.ENOSPC, "No space left on device"), "No space left on device.*free up space"),
    (OSError(errno.EROFS, "Read-only file system"), "Read-only file system.*make it writable"),
    (MemoryError(), "there is not enough memory: use `batch_size` auto"),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "`batch_size` auto"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "there is not enough memory"),
    (ImportError("lib.so: failed to map segment: Cannot allocate memory"), "there is not enough memory"),
]


# Every shortage at the first stage; later, where a run takes longer, one of the disk and one of memory.
@pytest.mark.parametrize(
    ("stage", "error", "words"),
    [
        *(("vitreous.training.run.TensorBoard", *short) for short in SHORT),
        *(("vitreous.training.initial_model.starting_model", *short) for short in SHORT[:3:2]),
        *(("vitreous.training.trainer.Trainer.run_epoch", *short) for short in SHORT[:3:2]),
        *(("vitreous.tasks.training_run.write_run_card", *short) for short in SHORT[:3:2]),
    ],
)
def test_what_a_machine_is_short_of_is_one_sentence_at_every_stage(
    stage: str,
    error: Exception,
    words: str,
    pixels: NDArray[np.uint8],
    labels: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(stage, fail)  # the machine, while this runs
    settings = {**TINY, "training.length": "2 steps"}
    with pytest.raises(vt.InputError, match=words):
        vt.train((pixels, labels), out="run", image_size=16, settings=settings, progress=False)


def test_an_operation_without_a_deterministic_algorithm_is_an_input_error() -> None:
    same_bits = numerics(torch.device("cpu"), "fp32", deterministic=True)
    with pytest.raises(vt.InputError, match="`deterministic`: some_op does not have"), same_bits:
        raise RuntimeError("some_op does not have a deterministic implementation, but you set ...")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": "clasification"}, "did you mean 'classification'"),
        ({"task": "mae"}, "vitreous.pretrain"),
        ({"epochs": 1, "minutes": 1}, "pass one of them"),
        ({"settings": {"training.lenght": 1}}, "did you mean 'training.length'"),
        ({"init": object()}, "a Run"),
        ({"shard": True}, "torchrun"),
        ({"recipe": "digit"}, "did you mean 'digits'"),
    ],
)
def test_bad_input_is_an_input_error(
    photos: Path, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(vt.InputError, match=words):
        vt.train(photos, **options, progress=False)
    assert not (tmp_path / "runs").exists()


def test_a_folder_without_a_run_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(vt.InputError):
        vt.Run(tmp_path)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda: vt.pretrain("digits", epocs=1), "did you mean 'epochs'"),
        (lambda: vt.pretrain("digits", steps=1), "no parameter 'steps'"),
        (lambda: vt.train_translator(epoch=1), "did you mean 'epochs'"),
        (lambda: vt.train_translator(steps=1, epochs=1), "`steps` and `epochs` both set the length"),
        (lambda: vt.train("digits", init="try:"), "`init` is empty"),
    ],
)
def test_no_option_is_ignored(function: Callable[[], object], words: str, tmp_path: Path) -> None:
    with pytest.raises(vt.InputError, match=words):
        function()
    assert not (tmp_path / "runs").exists()


def test_a_run_is_not_resumed_with_options_that_it_ignores(tmp_path: Path) -> None:
    run = vt.Run(RunDirectory.create(tmp_path / "run", RunConfig()).path)
    for options, words in (
        ({"epoch": 90}, "no option 'epoch'"),
        ({"beams": 2}, "no option 'beams'"),
        ({"epochs": 90, "steps": 9}, "pass one of them"),
    ):
        with pytest.raises(vt.InputError, match=words):
            run.resume(**options, progress=False)


@pytest.mark.parametrize("place", ["data", "class", "out"])
def test_a_name_that_is_not_utf8_is_refused_before_anything_is_written(
    place: str, photos: Path, tmp_path: Path
) -> None:
    wrong = os.fsdecode(b"caf\xe9")
    data, out = photos, tmp_path / "out"
    if place == "data":
        data = photos.rename(tmp_path / wrong)
    elif place == "class":
        (photos / "dark").rename(photos / wrong)
    else:
        out = tmp_path / wrong
    with pytest.raises(vt.InputError, match=r"caf\\xe9.* is not UTF-8"):
        vt.train(data, out=out, epochs=1, settings=TINY, progress=False)
    assert not out.exists()
