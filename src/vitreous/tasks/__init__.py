"""Tasks: what a model can be trained to do, an object each, in one registry, which add-ons extend.

task           what a task says of itself, and the plan of a training
training_run   a run from its plan to its report: the same functions for every task
trials         the plan of a training of which nothing is said
answerer       opening what answers, of any task
pretraining    the tasks of pre-training; classification and regression are others

Commands and the Python functions dispatch through `task_named`. A new task is a module or a folder here, and
a row of `TASKS` in extensions.py; or one of an add-on, and a row of its `tasks`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.checkpoints.runs import read_tree
from vitreous.errors import InputError, nearest
from vitreous.extensions import objectives, tasks

if TYPE_CHECKING:
    from vitreous.tasks.task import AnyTask

OBJECTIVES = objectives()  # of pre-training


@cache
def task_named(name: str) -> AnyTask:
    """Return the task called `name`. Raises InputError: there is none."""
    known = tasks()
    if name not in known:
        raise InputError(f"unknown task {name!r}: {nearest(name, list(known))}")
    defined: tuple[AnyTask, ...] = import_module(known[name].module).DEFINED
    return next(task for task in defined if task.name == name)


def task_of_run(path: Path) -> AnyTask:
    """Return the task of a run directory."""
    return task_named(str(read_tree(path)["task"]))
