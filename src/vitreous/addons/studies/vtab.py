"""VTAB-1k (1910.04867) on a folder of tasks, as in Figure 2 and Table 9 of the paper: each task is fine-tuned
by itself with the recipe `vtab-1k`, and the accuracies are averaged by group."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.addons.studies.writing import atomic_files, markdown_table
from vitreous.errors import InputError
from vitreous.languages import words
from vitreous.results import Result, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUPS = {"natural": 7, "specialized": 4, "structured": 8}  # tasks of the benchmark in each


@dataclass(frozen=True)
class TaskScore:
    """The test accuracy of one task."""

    group: str
    task: str
    accuracy: float
    interval: tuple[float, float]
    count: int  # test images


@dataclass(frozen=True)
class VTAB(Result):
    """The scores of all tasks, and their means."""

    scores: tuple[TaskScore, ...]
    settings: Mapping[str, object]

    @property
    def means(self) -> dict[str, float]:
        """By group, and of all tasks as Table 2 has it: every task counts the same."""
        found = dict[str, float]()
        for name in GROUPS:
            accuracies = [each.accuracy for each in self.scores if each.group == name]
            if accuracies:
                found[name] = float(np.mean(accuracies))
        found["mean"] = float(np.mean([each.accuracy for each in self.scores]))
        return found

    @property
    def missing(self) -> dict[str, int]:
        """How many tasks of the benchmark each group lacks."""
        counts = Counter(each.group for each in self.scores)
        return {name: number - counts[name] for name, number in GROUPS.items() if counts[name] < number}

    def to_json(self) -> dict[str, object]:
        return {
            "study": "vtab",
            "settings": dict(self.settings),
            "tasks": self.table(),
            "means": self.means,
            "missing": self.missing,
        }

    def table(self) -> list[dict[str, object]]:
        """Return one row for each task."""
        return [{**vars(score), "interval": list(score.interval)} for score in self.scores]

    def figures(self) -> dict[str, Figure]:
        return {}

    def markdown(self) -> str:
        """Return the tasks and the means as tables."""
        names = words("study.vtab")
        tasks: list[tuple[str, ...]] = []
        for each in self.scores:
            interval = " - ".join(map(percent, each.interval))
            tasks.append((each.group, each.task, percent(each.accuracy), interval))
        means = [(names.get(name, name), percent(value)) for name, value in self.means.items()]
        heads = [names[key] for key in ("group", "task", "accuracy", "interval")]
        return "\n\n".join(
            (
                f"# {words('studies')['vtab']['title']}",
                markdown_table(heads, tasks),
                markdown_table((names["group"], names["accuracy"]), means),
            )
        )

    def write(self, folder: Path) -> VTAB:
        with atomic_files(folder) as beside:
            (beside / "vtab.md").write_text(self.markdown() + "\n", encoding="utf-8")
            (beside / "vtab.json").write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
        return self


def tasks_of(folder: Path) -> list[tuple[str, Path]]:
    """Return the group and the folder of each task. Raises InputError: there are none."""
    found: list[tuple[str, Path]] = []
    for group in GROUPS:
        below = sorted((folder / group).glob("*"))
        found += ((group, task) for task in below if task.is_dir() and not task.name.startswith("."))
    if not found:
        raise InputError(
            f"{folder} has no tasks: put the folder of each, with train/ and test/, into natural/, "
            "specialized/ or structured/"
        )
    return found


def run_vtab(folder: Path, settings: Mapping[str, Any], out: Path, **options: Any) -> VTAB:
    """Fine-tune on the 1,000 training images of each task, and return the accuracies on its test images.

    Args:
        folder: has natural/, specialized/ and structured/, with a folder for each task.
        settings: of the training, over those of the recipe; `init` is the checkpoint.
        options: of `vitreous.train`.
    """
    import vitreous as vt

    scores: list[TaskScore] = []
    tree = {name: value for name, value in settings.items() if name != "init"}
    tree = {"data": {"validation_fraction": 0.0}} | tree
    for group, task in tasks_of(folder):
        place = out / group / task.name
        run = vt.train(
            str(task),
            recipe="vtab-1k",
            init=settings.get("init"),
            out=place,
            settings=tree,
            **options,
        )
        evaluation = vt.evaluate(run, progress=False)
        accuracy = evaluation.metrics["accuracy"]
        low, high = accuracy.interval or (accuracy.value, accuracy.value)
        scores.append(TaskScore(group, task.name, accuracy.value, (low, high), evaluation.count))
        found = VTAB(tuple(scores), settings).write(out)  # what is known already, should a later task stop
    return found
