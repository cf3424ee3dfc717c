"""All checks of a run, or of a data set."""

from __future__ import annotations

from pathlib import Path

from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.training.diagnosis.findings import Finding
from vitreous.training.diagnosis.of_course import course_findings
from vitreous.training.diagnosis.of_data import data_findings
from vitreous.training.diagnosis.of_model import model_findings
from vitreous.training.resuming import model_so_far
from vitreous.training.run import Run


def examine_data(source: str) -> list[Finding]:
    """What is wrong with a data set, as `vitreous train` would split it."""
    return list(data_findings(open_data(source, DataConfig())))


def examine_run(path: Path) -> list[Finding]:
    """What is wrong with a run: its data, its course, its model (of a run that was stopped, as its newest
    state has it)."""
    run = Run.open(path)
    splits = open_data(run.config.source, run.config.data)
    model = run.model() if (path / "model").exists() else model_so_far(run, splits.train.classes)
    held_out = splits.test or splits.validation or splits.train
    return [
        *data_findings(splits),
        *course_findings(run.config, run.metrics(), len(splits.train.classes)),
        *model_findings(model, held_out),
    ]
