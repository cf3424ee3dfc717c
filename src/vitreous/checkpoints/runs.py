"""What a run directory says of itself before anything in it is opened."""

from __future__ import annotations

import json
import os
import tomllib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote

from vitreous.errors import InputError
from vitreous.extensions import tasks
from vitreous.languages.terminal import said
from vitreous.outside import read_text, scheme_of


def read_tree(path: Path) -> dict[str, object]:
    """Return a run's config.toml, with its source where it is now. Raises InputError: there is no run, or the
    file cannot be read."""
    file = path / "config.toml"
    if not path.exists():
        raise InputError(f"no such run: {path}")
    if not file.exists():
        raise InputError(f"{path} is not a run directory: it has no config.toml")
    try:
        tree = tomllib.loads(read_text(file))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {getattr(error, 'strerror', error)}") from None
    if not isinstance(tree.get("task"), str):
        raise InputError(f"{file} names no task: use config.toml as the run wrote it")
    if "source" in tree:
        tree["source"] = present_source(tree, path)
    return tree


def run_folder(path: str | Path) -> Path:
    """Return the run directory of one of its checkpoints, RUN/checkpoints/step-N.shards; else `path`."""
    path = Path(path)
    return path.parent.parent if path.match("checkpoints/step-*.shards") else path


def map_paths(source: str, function: Callable[[str], str]) -> str:
    """Return DATA with its paths changed: of "cifar10:PATH" or "a.de,a.en", too."""
    parts = [source] if os.path.exists(source) else source.split(",")
    if scheme_of(source):
        return source
    plain = [os.path.isabs(part) or ":" not in part for part in parts]
    pairs = [("", "", part) if bare else part.partition(":") for part, bare in zip(parts, plain, strict=True)]
    return ",".join(f"{kind}{colon}{function(path)}" if path else kind for kind, colon, path in pairs)


def is_there(path: str) -> bool:
    """Return whether a path of data exists; of shards, name-{000..099}.tar, their folder."""
    return os.path.exists(os.path.dirname(path) if "{" in path else path)


def relative_source(source: str, path: Path) -> str | None:
    """Return DATA with paths relative to a run directory; None where it has none."""
    folder = path.resolve()
    found = map_paths(source, lambda each: os.path.relpath(each, folder) if os.path.isabs(each) else each)
    return None if found == source else found


def present_source(tree: Mapping[str, object], path: Path) -> str:
    """Return DATA of a run where it is now: at the same place relative to the run, as where both were copied,
    or else at the same absolute place."""
    source, relative = str(tree["source"]), tree.get("source_from_run")
    if relative in (None, "none"):
        return source
    missing: list[str] = []

    def resolved(each: str) -> str:
        absolute = os.path.normpath(path.resolve() / each)
        if not is_there(absolute):
            missing.append(absolute)
        return absolute

    found = map_paths(str(relative), resolved)
    return source if missing else found


def check_data_present(source: str, path: Path, otherwise: str) -> None:
    """Raise InputError where the data of a run are gone. otherwise: what to do."""
    places: list[str] = []

    def note(each: str) -> str:
        places.append(each)
        return each

    map_paths(source, note)
    if gone := [each for each in places if os.path.isabs(each) and not is_there(each)]:
        raise InputError(f"the data of {path} is no longer at {gone[0]}: {otherwise}")


TRIALS = "trials.safetensors"  # in a run that has compared candidates: their answers
SHORT_TRIAL = "short-trial"  # in it: the network of the best short trial, until another one answers
CANDIDATES = "candidates.json"  # in it: their table
STOPPED = "stopped.json"  # of a run that was interrupted: how far its model is


def has_compared(path: Path) -> bool:
    """Return whether a run has compared candidates."""
    return (path / TRIALS).is_file() or (path / CANDIDATES).is_file()


def stopped_at(path: Path) -> tuple[int, int] | None:
    """Return the step that the model of a run was stopped at, and the last one; None for a finished run."""
    try:
        noted = json.loads(read_text(path / STOPPED))
        return int(noted["step"]), int(noted["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_finished(path: Path) -> bool:
    """Return whether the run was trained to its end."""
    return (path / "model").exists() and stopped_at(path) is None


def check_finished(path: Path) -> None:
    """Warn of a run that was stopped, whose model is unfinished. Raises InputError: it has no model yet: it
    was killed, or is still going on."""
    if not (path / "config.toml").is_file():
        return
    if (path / "model").exists():
        if stopped := stopped_at(path):
            step, total = stopped
            sentence = said(
                "{run} was stopped at step {step:,} of {total:,}: this is its model so far",
                run=path,
                step=step,
                total=total,
            )
            warnings.warn(sentence, stacklevel=1)
        return
    task = tasks().get(str(read_tree(path).get("task")))
    command = task.command if task else "train"
    steps = saved_steps(path / "checkpoints")
    where = f"at step {steps[-1]}" if steps else "before its first state was saved"
    raise InputError(
        f"{path} was stopped {where} and has no model yet: resume it with vitreous {command} --resume "
        f"{quote(str(path))}"
    )


def saved_steps(folder: Path) -> list[int]:
    """Return the steps of the states in a run's checkpoints/ that were written to the end, rising."""
    names = [path.stem.removeprefix("step-") for path in folder.glob("step-*.json")]
    return sorted(int(name) for name in names if name.isdecimal())
