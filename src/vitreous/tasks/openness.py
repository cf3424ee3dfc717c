"""Whether candidates are compared before a training."""

from __future__ import annotations

from vitreous.errors import InputError, Param
from vitreous.tasks.task import AnyTask, Tree

TRY = "try:"  # before a checkpoint that --init names, which is compared with the others
COMPARED = ("classification", "multilabel", "regression")  # the tasks that compare candidates


def is_open(task: AnyTask, source: object, settings: Tree, recipe: str | None, init: str | None) -> bool:
    """Return whether candidates are compared: nothing else says how, or a checkpoint is to be tried. Raises
    InputError: it cannot be."""
    fixed = sorted({"model", "init", "recipe"} & settings.keys()) or (["recipe"] if recipe else [])
    if init is None or not init.startswith(TRY):
        asked = fixed or init or source in (None, "digits")
        return task.name in COMPARED and not asked
    if task.name not in COMPARED:
        raise InputError(
            f"{Param('init')} {init}: candidates are compared for {', '.join(COMPARED)}: leave out {TRY}"
        )
    if fixed:
        raise InputError(
            f"{Param('init')} {init} compares candidates, and `{fixed[0]}` names one: leave one of them out"
        )
    return True
