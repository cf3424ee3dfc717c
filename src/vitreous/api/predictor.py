"""`vitreous.Predictor`: a model as a function from batches of images to columns, for other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitreous.api.arguments import (
    ImageSize,
    Settings,
    computation,
    fastest,
    model_fields,
    path_of_run,
    resolve_model,
    say,
    settings_tree,
    threshold_of,
    weights_folder,
)
from vitreous.data.dataset import ImageDataset
from vitreous.data.decoding import BadImage
from vitreous.data.image_list import ImageList
from vitreous.deployment.classifier import ClassPredictor
from vitreous.errors import InputError, nearest, utf8_name
from vitreous.evaluation.outputs import automatic_precision, prepared_batches
from vitreous.models.program import Program
from vitreous.tasks.answer_tables import answer_columns
from vitreous.tasks.answerer import open_answerer
from vitreous.tasks.task import Task, module_of
from vitreous.training.precision import computing, with_cast_weights

OPTIONS = ("top", "threshold", "tta")  # of the output "labels"
Columns = dict[str, Any]  # a column's values by its name: a list, or an array with a row for each image


class Predictor:
    """A model as a function from images to columns.

    It can be pickled: what travels is its arguments, and each process opens the model with its first batch.
    So it serves as what Spark calls a UDF, and as a class for Ray Data's `map_batches`.

    Args:
        model: a run, a checkpoint in any format, hf:org/name, an exported program; or a model in memory,
            which travels as a whole.
        output: "labels": the columns label, probability and probabilities (of every class, in the order of
            `labels`) of a classifier, or what another task answers; "features": what the head sees.
        options: of "labels": `top`, `threshold` and `tta`; with `top` or `threshold` the columns are those of
            `vitreous predict --out answers.parquet`.

    Attributes:
        calibration: opens images on which precision "auto" compares bf16 with fp32; without any it is bf16
            only where they were compared before, and stored beside the weights.
    """

    calibration: Callable[[], ImageDataset] | None = None

    def __init__(
        self,
        model: Any,
        output: str = "labels",
        *,
        batch_size: int | None = None,
        image_size: ImageSize | None = None,
        workers: int | None = None,
        device: str = "auto",
        precision: str = "auto",
        settings: Settings | None = None,
        config: str | Path | None = None,
        **options: Any,
    ) -> None:
        if output not in OPENERS:
            raise InputError(f"output {output!r} is not known: {nearest(output, list(OPENERS))}")
        for name in options:
            if output != "labels" or name not in OPTIONS:
                why = (
                    nearest(name, OPTIONS)
                    if output == "labels"
                    else "its options are those of output='labels'"
                )
                raise InputError(f"output {output!r} has no option {name}: {why}")
        if (top := options.get("top")) is not None and top < 1:
            raise InputError(f"top={top} names no label: use 1 or more")
        self.model, self.output, self.options = path_of_run(model), output, options
        if "threshold" in options:
            self.options = {**options, "threshold": threshold_of(model, options["threshold"])}
        self.fields = model_fields(settings_tree(settings, config), image_size)
        self.how: dict[str, Any] = {"batch_size": batch_size, "workers": workers, "device": device}
        self.precision = precision

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "opened"}

    @cached_property
    def opened(self) -> Opened:
        """The model at work in this process."""
        return OPENERS[self.output](self, precision=self.precision, **computation(**self.how))

    @property
    def labels(self) -> list[str] | None:
        """The classes that `probabilities` has, in their order; None where there is no such column."""
        return self.opened.labels

    def __call__(self, batch: Mapping[str, Any]) -> Columns:
        """Return a row for each image: its path, its answer, and what was wrong with it, or None.

        Args:
            batch: a column "path", or "bytes" (of files), or both.
        """
        if "bytes" in batch:
            images: ImageDataset = StoredImages(list(batch["bytes"]))
        elif "path" in batch:
            images = ImageList([str(path) for path in batch["path"]])
        else:
            raise InputError(f"a batch needs a column path or bytes; this one has {', '.join(batch)}")
        failed: dict[str, str] = {}
        found: list[Columns] = list(self.opened.answer(images, failed))
        found = found or [self.blank()]  # not one can be read, or there is none: the columns stay the same
        names = [images.name(index) for index in range(len(images))]
        rows: dict[str, list[Any]] = {"path": [utf8_name(path) for path in batch.get("path", names)]}
        for column in dict.fromkeys(name for columns in found for name in columns if name != "path"):
            values = iter(value for columns in found for value in columns[column])
            rows[column] = [None if name in failed else next(values) for name in names]
        return {**rows, "error": [failed.get(name) for name in names]}

    def blank(self) -> Columns:
        """Return the columns that any image has."""
        return next(self.opened.answer(ImageList([Image.new("RGB", (64, 64))]), {}))


class StoredImages(ImageList):
    """Images as the bytes of files, named by their numbers: the paths of a batch may be equal."""

    def encoded(self, index: int) -> bytes:
        try:
            return bytes(memoryview(self.images[index]))
        except TypeError:  # None, or what a library has for it
            raise BadImage(self.name(index), "there are no bytes of a file") from None

    def image(self, index: int) -> Any:
        return ImageDataset.image(self, index)


class Opened(NamedTuple):
    """A model that is open.

    Attributes:
        answer: yields the columns of some images after the others, in order; those that cannot be read are
            left out and added to the dictionary, with the reason.
        model: itself.
        labels: of the column probabilities, where there is one.
    """

    answer: Callable[[ImageDataset, dict[str, str]], Iterator[Columns]]
    model: Any
    labels: list[str] | None = None


def open_features(predictor: Predictor, **how: Any) -> Opened:
    """Open a model for what its head sees."""
    model = resolve_model(predictor.model, **predictor.fields).to(how["device"]).eval()
    model = in_precision(predictor, model, how)

    def features(images: Tensor) -> Columns:
        return {"features": model.features(images).flatten(1).float().cpu().numpy()}

    return Opened(partial(by_batches, model, features, how), model)


def in_precision(predictor: Predictor, model: Any, how: dict[str, Any]) -> Any:
    """Decide the precision; return the model, for bf16 with its weights cast once."""
    images = predictor.calibration() if predictor.calibration and how["precision"] == "auto" else None
    here = {"folder": weights_folder(predictor.model), "workers": how["workers"], "say": say}
    how["precision"] = automatic_precision(model, images, how["precision"], how["device"], **here)
    return (
        with_cast_weights(model) if how["precision"] == "bf16" and not isinstance(model, Program) else model
    )


def open_labels(predictor: Predictor, **how: Any) -> Opened:
    """Open a model for its answers: the probabilities of a classifier, or rows."""
    options = {name: value for name, value in predictor.options.items() if value is not None}
    tta = options.pop("tta", False)
    wanted = predictor.precision, predictor.how["device"], predictor.fields
    quick = predictor.model if tta else fastest(predictor.model, *wanted)
    task, answerer = open_answerer(quick, tta=tta, **predictor.fields)
    if task.answer_folder:
        raise InputError(f"the answers of {task.noun} are files: use vitreous predict --out FOLDER")
    model = module_of(answerer).to(how["device"]).eval()
    if model is answerer:
        model = answerer = in_precision(predictor, model, how)
    if options or not task.gives_probabilities:
        return Opened(partial(by_rows, task, answerer, how, options), model)
    classifier = ClassPredictor(answerer, how["device"])

    def probabilities(images: Tensor) -> Columns:
        values = classifier.probabilities(images).cpu().numpy()
        best = values.argmax(axis=1)
        return {
            "label": [classifier.labels[number] for number in best],
            "probability": values[np.arange(len(best)), best],
            "probabilities": values,
        }

    return Opened(partial(by_batches, answerer, probabilities, how), model, classifier.labels)


OPENERS: dict[str, Callable[..., Opened]] = {"labels": open_labels, "features": open_features}


def by_batches(
    model: Any,
    compute: Callable[[Tensor], Columns],
    how: Mapping[str, Any],
    images: ImageDataset,
    failed: dict[str, str],
) -> Iterator[Columns]:
    """Yield what is computed of each batch of prepared images, with their paths."""
    batching = {name: how[name] for name in ("device", "batch_size", "workers")}
    for names, prepared in prepared_batches(model, images, failed, **batching):
        with torch.inference_mode(), computing(how["precision"], how["device"]):
            columns = compute(prepared)
        yield {"path": names, **columns}


def by_rows(
    task: Task,
    answerer: Any,
    how: Mapping[str, Any],
    options: Mapping[str, Any],
    images: ImageDataset,
    failed: dict[str, str],
) -> Iterator[Columns]:
    """Yield the answers of a task, as the rows of `vitreous predict --out answers.parquet`."""
    batching = {name: how[name] for name in ("device", "batch_size", "workers")}
    with computing(how["precision"], how["device"]):
        answers = task.predict(answerer, images, failed, **batching, **options)
        while some := [answer_columns(each.to_json()) for each in islice(answers, how["batch_size"])]:
            yield {name: [row.get(name) for row in some] for name in some[0]}
