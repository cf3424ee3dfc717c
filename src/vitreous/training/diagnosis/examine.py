"""All checks of a run, whatever it learns, or of a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.training.diagnosis.findings import Finding
from vitreous.training.diagnosis.of_course import course_findings, left_out
from vitreous.training.diagnosis.of_data import data_findings, empty_classes
from vitreous.training.diagnosis.of_model import model_findings
from vitreous.training.diagnosis.of_tasks import (
    encoder_findings,
    reader_findings,
    segmenter_findings,
    translator_findings,
)
from vitreous.training.run import Run, command_of, read_tree
from vitreous.training.session import model_so_far


def examine_data(source: str) -> list[Finding]:
    """What is wrong with a data set, as `vitreous train` would split it."""
    empty: list[Path] = []
    splits = open_data(source, DataConfig(), empty=empty)
    return [*empty_classes(empty), *data_findings(splits, empty=tuple(folder.name for folder in empty))]


def examine_run(path: Path) -> list[Finding]:
    """What is wrong with a run: its data, its course, its model (of a run that was stopped, as its newest
    state has it).

    Raises:
        InputError: it is no run, or what it was trained on is no longer there.
    """
    tree = read_tree(path)
    kind = "pretraining" if command_of(tree) == "pretrain" else tree.get("task", "classes")
    return [*left_out(path), *EXAMINERS[kind](path)]


def classifier_findings(path: Path) -> Iterator[Finding]:
    """A classifier's run."""
    run = Run.open(path)
    splits = open_data(run.config.source, run.config.data)
    yield from data_findings(splits)
    config, classes = run.config, len(splits.train.classes)
    rows, kept = run.metrics(), (path / "model").exists()
    yield from course_findings(config.training, rows, kept=kept, classes=classes, data=config.data)
    model = run.model() if kept else model_so_far(run, splits.train.classes)
    held_out = splits.test or splits.validation or splits.train
    yield from model_findings(model, held_out, learned=bool(rows or kept))


EXAMINERS: Mapping[str, Callable[[Path], Iterator[Finding]]] = {
    "classes": classifier_findings,
    "segmentation": segmenter_findings,
    "text": reader_findings,
    "translation": translator_findings,
    "pretraining": encoder_findings,
}
