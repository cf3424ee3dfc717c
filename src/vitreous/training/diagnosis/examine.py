"""All checks of a run, or of a data set."""

from __future__ import annotations

from pathlib import Path

from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.training.diagnosis.findings import Finding
from vitreous.training.diagnosis.of_course import course_findings
from vitreous.training.diagnosis.of_data import data_findings
from vitreous.training.diagnosis.of_model import model_findings
from vitreous.training.run import Run
from vitreous.training.starting import starting_model


def examine_data(source: str) -> list[Finding]:
    """What is wrong with a data set, as `vitreous train` would split it."""
    return list(data_findings(open_data(source, DataConfig())))


def examine_run(path: Path) -> list[Finding]:
    """What is wrong with a run: its data, its course, its model (as begun, where none is saved yet)."""
    run = Run.open(path)
    splits = open_data(run.config.source, run.config.data)
    saved = (path / "model").exists()
    model = run.model() if saved else starting_model(run.config, splits.train.classes)
    held_out = splits.test or splits.validation or splits.train
    return [
        *data_findings(splits),
        *course_findings(run.config, run.metrics(), len(splits.train.classes)),
        *model_findings(model, held_out),
    ]
