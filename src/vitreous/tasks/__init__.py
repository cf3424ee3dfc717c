"""Tasks: what a model can be trained to do, an object each, in one registry.

task         what a task says of itself
running      start, resume and train a run; evaluate a model, and ask it: the same functions for every task
classification, regression, segmentation, text, pretraining    the tasks

Commands, the server and the Python functions dispatch through `TASKS`. A new task is a module or a folder
here, and a row below.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from vitreous.errors import InputError, nearest

if TYPE_CHECKING:
    from vitreous.tasks.task import Task

# Where each task is defined: modules are imported when their task is asked for.
HOMES = {
    "classification": "classification",
    "multilabel": "classification",
    "regression": "regression.task",
    "segmentation": "segmentation.task",
    "captioning": "text.captioning",
    "translation": "text.translation",
    "masked-patch": "pretraining.task",
    "mae": "pretraining.task",
    "simmim": "pretraining.task",
    "dino": "pretraining.task",
}
FORMER = {"classes": "classification", "text": "captioning"}


class Registry(Mapping[str, "Task"]):
    """The tasks by name."""

    def __init__(self) -> None:
        self.loaded: dict[str, Task] = {}

    def __getitem__(self, name: str) -> Task:
        if name not in self.loaded:
            module = import_module(f"vitreous.tasks.{HOMES[name]}")
            self.loaded |= {task.name: task for task in module.DEFINED}
        return self.loaded[name]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(HOMES)

    def __len__(self) -> int:
        return len(HOMES)


TASKS = Registry()


def task_named(name: str) -> Task:
    """Return the task called `name`.

    Raises:
        InputError: there is none.
    """
    if name in FORMER:
        raise InputError(f"unknown task {name!r}: did you mean {FORMER[name]!r}?")
    if name not in HOMES:
        raise InputError(f"unknown task {name!r}: {nearest(name, list(HOMES))}")
    return TASKS[name]
