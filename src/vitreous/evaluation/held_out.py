"""Which pictures a model may be judged on: never those that it learned from, if that can be known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vitreous.data.config import DataConfig
from vitreous.data.pictures import Pictures
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.training.config import RunConfig
from vitreous.training.plan import data_config
from vitreous.training.run import Run
from vitreous.training.settings import check_known
from vitreous.training.starting import absolute_source


class HeldOut(NamedTuple):
    """Pictures to judge on. part: which part of the data they are, in words."""

    source: str
    part: str
    pictures: Pictures


def held_out(model: str, data: str | None, settings: Mapping[str, Any]) -> HeldOut:
    """The pictures of `vitreous evaluate MODEL [DATA]`.

    What a run was trained on is split as it was then, and its held-out part is taken. Of other data the test
    part is taken where they have one of their own, and everything where they have none.

    Args:
        model: a run directory, or any checkpoint if `data` is given.
        settings: a tree; only `data` may be set.

    Raises:
        InputError: no such run or data, unknown settings, or nothing was held out.
    """
    check_data_settings("evaluate", settings)
    is_run = (Path(model) / "config.toml").is_file()
    if data is None and not is_run:
        raise InputError(
            f"{model} is no run directory, so it does not say what to evaluate on: name the data"
        )
    trained = Run.open(Path(model)).config if is_run else None
    source = data or (trained.source if trained else "")
    same = trained is not None and absolute_source(source) == absolute_source(trained.source)
    base = (
        trained.data.model_dump() if trained and same else {"test_fraction": 0.0, "validation_fraction": 0.0}
    )
    splits = open_data(source, data_config({"data": {**base, **settings.get("data", {})}}))
    if splits.test is not None:
        return HeldOut(source, "held-out part", splits.test)
    if splits.validation is not None:
        return HeldOut(source, "validation part", splits.validation)
    if same:
        raise InputError(f"{model} was trained on all of {source}: name other data to evaluate it on")
    return HeldOut(source, "all of it", splits.train)


def data_settings(command: str, settings: Mapping[str, Any]) -> DataConfig:
    """How a command that judges a model opens DATA. Raises InputError for settings of anything else."""
    check_data_settings(command, settings)
    return data_config(settings)


def check_data_settings(command: str, settings: Mapping[str, Any]) -> None:
    if strange := [name for name in settings if name != "data"]:
        raise InputError(f"{command} has no setting {strange[0]!r}: all of its settings begin with data.")
    check_known(settings, RunConfig)
