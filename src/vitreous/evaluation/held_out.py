"""Which images a model may be judged on: never those that it learned from, if that can be known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from vitreous.data.config import DataConfig
from vitreous.data.dataset import ImageDataset
from vitreous.data.segmentation.digit_pages import DIGIT_PAGES
from vitreous.data.segmentation.folders import open_masked
from vitreous.data.segmentation.masked import MaskedDataset
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.training.config import RunConfig
from vitreous.training.initial_model import absolute_source
from vitreous.training.plan import data_config
from vitreous.training.run import Run
from vitreous.training.segmentation.config import SegmentationConfig
from vitreous.training.settings import check_known

Shown = TypeVar("Shown", ImageDataset, MaskedDataset)


class HeldOut(NamedTuple):
    """Images to judge on. part: which part of the data they are, in words."""

    source: str
    part: str
    images: ImageDataset


class HeldOutMasks(NamedTuple):
    """The same with masks."""

    source: str
    part: str
    images: MaskedDataset


class Asked(NamedTuple):
    """The data to judge on, how to open them, and whether the model has learned from a part of them."""

    source: str
    config: DataConfig
    learned: bool


def held_out(model: str, data: str | None, settings: Mapping[str, Any]) -> HeldOut:
    """The images of `vitreous evaluate MODEL [DATA]`.

    What a run was trained on is split as it was then, and its held-out part is taken. Of other data the test
    part is taken where they have one of their own, and everything where they have none.

    Args:
        model: a run directory, or any checkpoint if `data` is given.
        settings: a tree; only `data` may be set.

    Raises:
        InputError: no such run or data, unknown settings, or nothing was held out.
    """
    asked = asked_for(model, data, settings, RunConfig)
    splits = open_data(asked.source, asked.config)
    return HeldOut(*judged(model, asked, splits.train, splits.validation, splits.test))


def held_out_masks(
    model: str, data: str | None, settings: Mapping[str, Any], classes: tuple[str, ...] | None
) -> HeldOutMasks:
    """The same for a segmenter: images with masks of its classes; None: of the classes of the data."""
    asked = asked_for(model, data, settings, SegmentationConfig)
    splits = open_masked(asked.source, asked.config, classes=classes)
    return HeldOutMasks(*judged(model, asked, splits.train, splits.validation, splits.test))


def asked_for(model: str, data: str | None, settings: Mapping[str, Any], kind: type[RunConfig]) -> Asked:
    """What is to be opened. Data that were not learned from are not split, but the bundled pages are made of
    digits that are."""
    check_data_settings("evaluate", settings)
    is_run = (Path(model) / "config.toml").is_file()
    if data is None and not is_run:
        raise InputError(
            f"{model} is no run directory, so it does not say what to evaluate on: name the data"
        )
    trained = Run.open(Path(model), kind).config if is_run else None
    source = data or (trained.source if trained else "")
    learned = trained is not None and absolute_source(source) == absolute_source(trained.source)
    whole: dict[str, Any] = {"validation_fraction": 0.0}
    if source != DIGIT_PAGES:
        whole["test_fraction"] = 0.0
    base = trained.data.model_dump() if trained and learned else whole
    return Asked(source, data_config({"data": {**base, **settings.get("data", {})}}), learned)


def judged(
    model: str, asked: Asked, train: Shown, validation: Shown | None, test: Shown | None
) -> tuple[str, str, Shown]:
    """The source, and the part of it that the model has not learned from: its name and its images."""
    if test is not None:
        return asked.source, "held-out part", test
    if validation is not None:
        return asked.source, "validation part", validation
    if asked.learned:
        raise InputError(f"{model} was trained on all of {asked.source}: name other data to evaluate it on")
    return asked.source, "all of it", train


def data_settings(command: str, settings: Mapping[str, Any]) -> DataConfig:
    """How a command that judges a model opens DATA. Raises InputError for settings of anything else."""
    check_data_settings(command, settings)
    return data_config(settings)


def check_data_settings(command: str, settings: Mapping[str, Any]) -> None:
    if strange := [name for name in settings if name != "data"]:
        raise InputError(f"{command} has no setting {strange[0]!r}: all of its settings begin with data.")
    check_known(settings, RunConfig)
