"""Tasks: what a model can be trained to do, an object each, in one registry, which add-ons extend.

task         what a task says of itself
running      start, resume and train a run: the same functions for every task
answering    open, evaluate and ask a model, likewise
others       the tasks

Commands and the Python functions dispatch through `task_named`. A new task is a module or a
folder here, and a row below; or one of an add-on, and a row of its `tasks`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.checkpoints.runs import read_tree
from vitreous.errors import InputError, nearest
from vitreous.extensions import added_tasks, objectives

if TYPE_CHECKING:
    from vitreous.tasks.task import AnyTask

# The module in whose `DEFINED` each task is: it is imported when the task is asked for.
TASKS = {
    "classification": "vitreous.tasks.classification",
    "multilabel": "vitreous.tasks.classification",
    "regression": "vitreous.tasks.regression",
    "masked-patch": "vitreous.tasks.pretraining.task",
    "mae": "vitreous.tasks.pretraining.task",
}
TASKS |= {name: task.module for name, task in added_tasks().items()}
OBJECTIVES = objectives()  # of pre-training


@cache
def task_named(name: str) -> AnyTask:
    """Return the task called `name`. Raises InputError: there is none."""
    if name not in TASKS:
        raise InputError(f"unknown task {name!r}: {nearest(name, list(TASKS))}")
    defined: tuple[AnyTask, ...] = import_module(TASKS[name]).DEFINED
    return next(task for task in defined if task.name == name)


def task_of_run(path: Path) -> AnyTask:
    """Return the task of a run directory."""
    return task_named(str(read_tree(path)["task"]))
