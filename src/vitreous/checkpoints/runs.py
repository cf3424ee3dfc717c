"""What a run directory says of itself before anything in it is opened."""

from __future__ import annotations

import json
import tomllib
import warnings
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from vitreous.errors import InputError
from vitreous.models.legacy import with_current_names, with_task


def read_tree(path: Path) -> dict[str, Any]:
    """Return a run's config.toml, with its task and the present names of fields.

    Raises:
        InputError: there is no run, or the file cannot be read.
    """
    file = path / "config.toml"
    if not path.exists():
        raise InputError(f"no such run: {path}")
    if not file.exists():
        raise InputError(f"{path} is not a run directory: it has no config.toml")
    try:
        tree = with_task(with_current_names(tomllib.loads(file.read_text(encoding="utf-8"))))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}") from None
    if isinstance(tree.get("data"), dict):  # version 0.1 sampled the held-out part
        tree["data"].setdefault("split_by", "random")
    return tree


def command_of(tree: Mapping[str, Any]) -> str:
    """What goes on with the run of a config.toml: vitreous COMMAND --resume RUN."""
    if "pretraining" in tree:
        return "pretrain"
    return "translate train" if tree.get("task") == "translation" else "train"


STOPPED = "stopped.json"  # of a run that was interrupted: how far its model is


def stopped_at(path: Path) -> tuple[int, int] | None:
    """Return the step that the model of a run was stopped at, and the last one; None for a finished run."""
    try:
        noted = json.loads((path / STOPPED).read_text(encoding="utf-8"))
        return int(noted["step"]), int(noted["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_finished(path: Path) -> bool:
    """Return whether the run was trained to its end."""
    return (path / "model").exists() and stopped_at(path) is None


def check_finished(path: Path) -> None:
    """Warn of a run that was stopped, whose model is unfinished.

    Raises:
        InputError: it has no model yet: it was killed, or is still going on.
    """
    if not (path / "config.toml").is_file():
        return
    if (path / "model").exists():
        if stopped := stopped_at(path):
            step, total = stopped
            sentence = f"{path} was stopped at step {step:,} of {total:,}: this is its model so far"
            warnings.warn(sentence, stacklevel=1)
        return
    command = command_of(read_tree(path))
    steps = saved_steps(path / "checkpoints")
    where = f"at step {steps[-1]}" if steps else "before its first state was saved"
    raise InputError(
        f"{path} was stopped {where} and has no model yet: go on with vitreous {command} --resume "
        f"{quote(str(path))}"
    )


def saved_steps(folder: Path) -> list[int]:
    """The steps of the states in a run's checkpoints/ that were written to the end, rising."""
    names = [path.stem.removeprefix("step-") for path in folder.glob("step-*.json")]
    return sorted(int(name) for name in names if name.isdecimal())
