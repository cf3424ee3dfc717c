"""Tasks: what a model can be trained to do, an object each, in one registry.

task         what a task says of itself
running      start, resume and train a run: the same functions for every task
answering    open, evaluate and ask a model, likewise
classification, regression, segmentation, text, pretraining    the tasks

Commands, the server and the Python functions dispatch through `task_named`. A new task is a module or a
folder here, and a row below.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.checkpoints.runs import read_tree
from vitreous.errors import InputError, nearest
from vitreous.models.settings import FORMER_TASKS

if TYPE_CHECKING:
    from vitreous.tasks.task import Task

# Where each task is defined, in `DEFINED`: modules are imported when their task is asked for.
TASKS = {
    "classification": "classification",
    "multilabel": "classification",
    "regression": "regression",
    "segmentation": "segmentation",
    "captioning": "text.captioning",
    "translation": "text.translation",
    "masked-patch": "pretraining.task",
    "mae": "pretraining.task",
    "simmim": "pretraining.task",
    "dino": "pretraining.task",
    "contrastive": "pretraining.task",
    "distillation": "pretraining.task",
}


@cache
def task_named(name: str) -> Task:
    """Return the task called `name`. Raises InputError: there is none."""
    if name not in TASKS:
        raise InputError(f"unknown task {name!r}: {nearest(FORMER_TASKS.get(name, name), list(TASKS))}")
    defined: tuple[Task, ...] = import_module(f"vitreous.tasks.{TASKS[name]}").DEFINED
    return next(task for task in defined if task.name == name)


def task_of_run(path: Path) -> Task:
    """Return the task of a run directory."""
    return task_named(str(read_tree(path)["task"]))
