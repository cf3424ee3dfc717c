"""Why is it not learning? All checks of a run, whatever its task, or of a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from vitreous.checkpoints import load
from vitreous.checkpoints.files import read_safetensors
from vitreous.checkpoints.runs import is_finished
from vitreous.data.checking import data_findings
from vitreous.data.config import DataConfig
from vitreous.data.findings import Finding
from vitreous.data.sources import open_data
from vitreous.data.split import findings_of
from vitreous.models.names import Model
from vitreous.tasks.classification import Classification
from vitreous.tasks.pretraining.task import Pretraining
from vitreous.tasks.running import task_of_run
from vitreous.training.diagnosis import (
    bad_file_findings,
    course_findings,
    geometry,
    model_findings,
    normalization,
    origin_of_nan,
    weights_not_finite,
)
from vitreous.training.run import Run

SAMPLE = 32  # images that are looked at


def examine_data(source: Any) -> list[Finding]:
    """Return what is wrong with a dataset, as `vitreous train` would split it."""
    return list(data_findings(open_data(source, DataConfig())))


def examine_run(path: Path) -> list[Finding]:
    """Return what is wrong with a run: its data, its course, its model (of a run that was stopped, as its
    newest state has it).

    Raises:
        InputError: it is not a run, or what it was trained on is no longer there.
    """
    task = task_of_run(path)
    run = Run.open(path, task.config)
    if isinstance(task, Classification):
        return [*bad_file_findings(path), *classifier_findings(run)]
    findings = [*bad_file_findings(path), *course(run), *weights(run)]
    if (path / "model").exists():
        data = task.open_data(run.config, run.split)
        findings += findings_of(data)
        images = task.sample_images(data, SAMPLE)
        if images:
            model = load(path / "model")
            seeing: Model = getattr(model, "encoder", model) if task.name == "captioning" else model
            if isinstance(task, Pretraining):
                findings += geometry(seeing, data.train)
            findings += shown(seeing, images)
    return findings


def classifier_findings(run: Run) -> Iterator[Finding]:
    """Yield what is wrong with a classifier's run."""
    splits = open_data(run.config.source, run.config.data.with_split(run.split))
    yield from data_findings(splits)
    yield from course(run, classes=len(splits.train.classes))
    finished = is_finished(run.path)
    model = run.model() if finished else run.model_so_far(splits.train.classes)
    held_out = splits.test or splits.validation or splits.train
    yield from model_findings(model, held_out, learned=bool(run.metrics() or finished))


def course(run: Run, classes: int | None = None) -> Iterator[Finding]:
    """Yield what a run's numbers say."""
    finished, data = is_finished(run.path), getattr(run.config, "data", None)
    yield from course_findings(run.config.training, run.metrics(), kept=finished, classes=classes, data=data)


def course_of(run: Run, data: Any) -> list[Finding]:
    """Return what takes no time to find at the end of a run: in its numbers, and files that were left out."""
    classes = len(data.train.classes) if run.config.task == "classification" else None
    return [*bad_file_findings(run.path), *course(run, classes)]


def weights(run: Run) -> Iterator[Finding]:
    """Yield the first weight that is not finite, of the model or else of the newest state."""
    file = run.path / "model" / "model.safetensors"
    state = None if file.exists() else run.states.newest()
    tensors = read_safetensors(file) if file.exists() else state.tensors if state else {}
    yield from weights_not_finite(tensors.items())


def shown(model: Model, images: Sequence[Image.Image]) -> Iterator[Finding]:
    """Yield what is wrong with what the model is shown, or with what comes out."""
    batch = model.preprocessing(images)
    yield from normalization(model, batch)
    yield from origin_of_nan(model, batch)
