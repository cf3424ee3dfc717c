"""`vitreous.cross_validate`: a model for each fold, and the mean of what they get right, with an interval."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import data_source
from vitreous.api.learning import run_settings, task_to_train, train
from vitreous.api.run import Run, check_known
from vitreous.errors import InputError, check_free
from vitreous.results import Result

if TYPE_CHECKING:
    from vitreous.evaluation.result import Metric

STATE = "cross-validation.json"  # in its folder: what was asked, and the folds that are done


@dataclass(frozen=True)
class Fold:
    """A model that was trained without one of the folds, and evaluated on it.

    Attributes:
        metrics: name, value, label and whether it is a rate.
    """

    run: str
    train_count: int
    count: int
    metrics: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class CrossValidation(Result):
    """What cross-validation measured.

    Attributes:
        out: the folder with a run for each fold.
        folds: what each of them measured.
    """

    data: str
    task: str
    out: Path
    folds: tuple[Fold, ...]

    @property
    def count(self) -> int:
        """Examples that were evaluated, each by the model that did not learn from it."""
        return sum(fold.count for fold in self.folds)

    @property
    def metrics(self) -> dict[str, Metric]:
        """The mean of each metric that all folds have, with its 95 % interval."""
        from vitreous.evaluation.result import Metric
        from vitreous.evaluation.scores import Interval

        share = self.count / sum(fold.train_count for fold in self.folds)
        found = {}
        for name, first in self.folds[0].metrics.items():
            if not all(name in fold.metrics for fold in self.folds):  # a fold too small to be calibrated
                continue
            values = [float(fold.metrics[name]["value"]) for fold in self.folds]
            mean = sum(values) / len(values)
            interval = corrected_interval(values, share)
            if first["rate"] and interval:
                interval = max(interval[0], 0.0), min(interval[1], 1.0)
            bounds = None if interval is None else Interval(*interval)
            found[name] = Metric(mean, first["label"], bounds, first["rate"])
        return found

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each fold."""
        return [
            {"run": fold.run, "count": fold.count}
            | {name: metric["value"] for name, metric in fold.metrics.items()}
            for fold in self.folds
        ]

    def to_json(self) -> dict[str, Any]:
        metrics = {
            name: {"value": metric.value, "interval": list(metric.interval) if metric.interval else None}
            for name, metric in self.metrics.items()
        }
        facts = {"data": self.data, "task": self.task, "out": str(self.out), "count": self.count}
        return {**facts, "metrics": metrics, "folds": [vars(fold) for fold in self.folds]}


def corrected_interval(values: Sequence[float], test_per_train: float) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of the folds' values.

    Folds are not independent: any two models share most of what they learned from.

    Args:
        test_per_train: images of a test part for each that is learned from.
    """
    from vitreous.evaluation.scores import half_width

    if len(values) < 2 or any(map(math.isnan, values)):
        return None
    mean, half = sum(values) / len(values), half_width(values, overlap=test_per_train)
    return mean - half, mean + half


def cross_validate(
    data: Any = None,
    *,
    folds: int | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    progress: bool = True,
    **options: Any,
) -> CrossValidation:
    """Train as many models as there are folds, each without one of them, and evaluate each on its fold.

    The images of each class are dealt out to the folds by a hash of their names; groups stay together.

    Args:
        data: a dataset in any form that `train` takes, without a split of its own; by default the digits.
        folds: how many models to train, each without one fold, on which it is evaluated; 5 (the default) or
            10 are usual.
        out: the folder for the runs; by default a new one in runs/.
        resume: the folder of a cross-validation that was interrupted: it goes on with its own data and
            options.
        options: of `train`, for each of the models; of --minutes each has as many.

    Raises:
        InputError: as `train`, or data with parts of their own, or that changed since the first fold.
        Interrupted: as `train`; `resume` continues.
    """
    from vitreous.checkpoints.whole_files import write_text
    from vitreous.training.initial_model import absolute_source
    from vitreous.training.run import default_path, otherwise

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("cross-validation trains in one process: leave out torchrun")
    if resume is not None:
        if data is not None or out is not None or folds is not None or options:
            raise InputError("--resume goes on with its own data and options: give no other")
        place = Path(resume)
        state = read_state(place)
    else:
        folds = 5 if folds is None else folds
        if folds < 2:
            raise InputError(f"--folds {folds} is too low: use 2 or more")
        check_known("cross_validate", options, signature(train).parameters)
        tree = run_settings(options)
        task = task_to_train(options.get("task"), tree)
        data = task.default_source if data is None else data
        source = absolute_source(data_source(data, task.targets))
        place = Path(out) if out is not None else default_path(f"{source}-folds")
        check_free(place, otherwise(place, "cross-validate"))
        state = {"data": source, "task": task.name, "folds": folds, "options": plain(options), "done": []}
    names = names_digest(state)
    if state.setdefault("names", names) != names:
        raise InputError(
            f"the images of {state['data']} are not those that {place} began with, so that the folds would "
            "differ: put them back, or begin again with another --out"
        )
    place.mkdir(parents=True, exist_ok=True)
    write_text(place / STATE, json.dumps(state, indent=1))
    while (number := len(state["done"])) < state["folds"]:
        try:
            run = trained_fold(state, place, number, progress)
        except KeyboardInterrupt as stopped:
            stopped.add_note(
                f"{number} of {state['folds']} folds are done: go on with vitreous cross-validate --resume "
                f"{quote(str(place))}"
            )
            raise
        result = run.result
        assert result is not None
        assert result.evaluation is not None
        metrics = {
            name: {"value": each.value, "label": each.label, "rate": each.rate}
            for name, each in result.evaluation.metrics.items()
        }
        done = Fold(run.path.name, result.train_count, result.evaluation.count, metrics)
        state["done"].append(vars(done))
        write_text(place / STATE, json.dumps(state, indent=1))
    return CrossValidation(state["data"], state["task"], place, tuple(Fold(**each) for each in state["done"]))


def trained_fold(state: Mapping[str, Any], place: Path, number: int, progress: bool) -> Run:
    """Train the model that is evaluated on a fold, or go on with it."""
    import sys

    path, options = place / f"fold-{number + 1}", dict(state["options"])
    if isinstance(options.get("image_size"), list):  # as JSON has it
        options["image_size"] = tuple(options["image_size"])
    if progress:
        print(f"fold {number + 1} of {state['folds']}", file=sys.stderr)
    if (path / "config.toml").exists():
        return Run(path).resume(progress=progress)
    settings = {**options.pop("settings", {}), "data.folds": state["folds"], "data.fold": number}
    return train(state["data"], out=path, settings=settings, progress=progress, **options)


def names_digest(state: Mapping[str, Any]) -> str:
    """Return a hash of the names of the images, after the options were checked on them."""
    from vitreous.data.dataset import named_parts
    from vitreous.tasks.images import ImageTask, data_config

    options = dict(state["options"])
    tree = run_settings(options)
    task = task_to_train(options.get("task"), tree)
    if not isinstance(task, ImageTask):
        raise InputError(f"the task {task.name} cannot be cross-validated: its data have no folds")
    tree["data"] = {**tree.get("data", {}), "folds": state["folds"]}
    data = task.open_source(state["data"], data_config(tree))
    parts = named_parts(data.train, data.validation, data.test).values()
    names = sorted(images.key(index) for images in parts for index in range(len(images)))
    return hashlib.blake2b("\0".join(names).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def read_state(place: Path) -> dict[str, Any]:
    """Return what a cross-validation has noted. Raises InputError."""
    try:
        state: dict[str, Any] = json.loads((place / STATE).read_text(encoding="utf-8"))
        return state
    except (OSError, ValueError):
        raise InputError(
            f"{place} is not the folder of a cross-validation: it has no {STATE} that can be read"
        ) from None


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `train` that are given, as JSON has them. Raises InputError for others."""
    given = {name: value for name, value in options.items() if value is not None}
    kept = {name: str(each.absolute()) if isinstance(each, Path) else each for name, each in given.items()}
    for name, each in kept.items():
        try:
            kept[name] = json.loads(json.dumps(each))
        except TypeError as error:
            what = f"cross_validate takes no such {name}, since it could not go on with it later"
            raise InputError(f"{what}: {error}") from None
    return kept
