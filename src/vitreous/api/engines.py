"""What computes the answers and the columns of `vitreous.Predictor` with PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitreous.api.arguments import say, weights_folder
from vitreous.api.model_source import computation, fastest, known_module, resolve_model
from vitreous.api.model_use import ModelUse
from vitreous.data.dataset import ImageDataset
from vitreous.data.image_list import ImageRows
from vitreous.data.image_samples import image_rows
from vitreous.deployment.answers import AnswerColumns, columns_of
from vitreous.deployment.classifier import ClassPredictor
from vitreous.errors import InputError
from vitreous.evaluation.features import model_digest
from vitreous.evaluation.outputs import automatic_precision
from vitreous.models.model import Program, check_finite, modes_restored
from vitreous.results import Answer
from vitreous.tasks.answerer import open_answerer
from vitreous.tasks.task import module_of
from vitreous.training.machine import autocast, with_cast_weights


class ModelEngine:
    """A model of PyTorch that gives one kind of output. It is open once it is made, and ready for images
    after `begin`.

    Attributes:
        model: itself, in the precision that it is stored in.
        labels: the classes of the column probabilities; None where there is no such column.
        task_name: of its task.
        about: what its answers have in common.
    """

    model: nn.Module
    answerer: Any  # what answers: the model, or an object that has it
    working: Any = None  # the same in the precision that was decided
    labels: list[str] | None = None
    task_name = "features"
    most = -1  # images that the precision was decided for

    def __init__(self, use: ModelUse) -> None:
        self.use, self.batching = use, computation(use.device, use.batch_size, use.workers)
        self.device: torch.device = self.batching["device"]
        self.about: dict[str, Any] = {}
        # A model of the user's own stays in the mode that it is in.
        with modes_restored(use.model):
            self.open()
        if any(each.is_meta for each in self.model.parameters()):
            raise InputError("a model on the meta device has no weights: load it with vitreous.load")
        self.model.to(self.device)

    def open(self) -> None:
        """Open the model."""
        raise NotImplementedError

    def begin(self, images: ImageDataset | None, folder: Path | None = None) -> None:
        """Decide the precision of what comes, where it is "auto" by these images, and cast the weights, once:
        another time only for more images, for which comparing two precisions may be worth it.

        Args:
            folder: for the answers of a task whose answers are files; they are answers to `images`.
        """
        count = 0 if images is None else len(images)
        if count <= self.most:
            return
        self.most = count
        self.precision = automatic_precision(
            self.answerer,
            images,
            self.use.precision,
            self.device,
            folder=weights_folder(self.use.model),
            workers=self.batching["workers"],
            say=say,
        )
        self.working = self.answerer
        if self.precision == "bf16" and self.model is self.answerer and not isinstance(self.model, Program):
            # The weights are cast once, and not again in every batch.
            self.working = with_cast_weights(self.model)

    def rows(self, images: ImageDataset) -> Iterator[ImageRows]:
        """Yield images as the model takes them, in batches and in order."""
        return image_rows(self.working, images, **self.batching)

    def compute(self, function: Any, names: list[str], images: Any) -> Any:
        """Return what a function makes of the images of a batch, in evaluation mode and in the precision that
        was decided; the mode is restored."""
        module = module_of(self.working)
        with modes_restored(module), torch.inference_mode(), autocast(self.precision, self.device):
            module.eval()
            return function(names, images)

    def answers(self, names: list[str], images: Any) -> Iterable[Answer]:
        """Return the answer to each image of a batch."""
        raise NotImplementedError

    def columns(self, names: list[str], images: Any) -> AnswerColumns:
        """Return the answers to the images of a batch as columns."""
        raise NotImplementedError

    def digest(self) -> bytes:
        """Return a hash of the model."""
        return model_digest(self.model)


class AnswerEngine(ModelEngine):
    """A model that answers with what its task gives."""

    classifier: ClassPredictor | None = None  # of the columns of all probabilities

    def open(self) -> None:
        self.options = {name: value for name, value in self.use.options.items() if value is not None}
        tta, source = self.options.pop("tta", False), self.use.source
        if not (tta or self.use.task.info.answer_folder):
            source = fastest(source, self.use.precision, self.use.device, self.use.fields)
        self.task, self.answerer = open_answerer(known_module(source), tta=tta, **self.use.fields)
        self.task_name = self.task.name
        self.model = module_of(self.answerer)
        if metadata := self.task.info.answer_metadata:
            self.about = metadata(self.answerer)

    def begin(self, images: ImageDataset | None, folder: Path | None = None) -> None:
        before = self.working
        super().begin(images)
        if self.working is before and not self.task.info.answer_folder:
            return
        options = dict(self.options)
        if folder is not None and images is not None:
            options |= {"out": folder, "names": [images.name(row) for row in range(len(images))]}
        with modes_restored(self.model):
            self.answer = self.task.answer_function(self.working, self.device, **options)
        if isinstance(self.answer, ClassPredictor) and not options:
            self.classifier, self.labels = self.answer, self.answer.labels

    def rows(self, images: ImageDataset) -> Iterator[ImageRows]:
        rows = self.task.info.image_rows or image_rows
        return rows(self.working, images, **self.batching)

    def answers(self, names: list[str], images: Any) -> Iterable[Answer]:
        found: list[Answer] = self.compute(lambda *batch: [*self.answer(*batch)], names, images)
        return found

    def columns(self, names: list[str], images: Any) -> AnswerColumns:
        """Return the probabilities of a classifier; of another model, or with options, what a file of answers
        has of each image."""
        if self.task.info.answer_folder:
            raise InputError(
                f"the answers of {self.task.info.noun} are files: use vitreous predict --out FOLDER"
            )
        if self.classifier is None:
            return columns_of(self.answers(names, images))
        classify = self.classifier.columns
        columns: AnswerColumns = self.compute(lambda _, batch: classify(batch), names, images)
        return columns


class FeatureEngine(ModelEngine):
    """A model that gives what its head sees."""

    def open(self) -> None:
        self.answerer = self.model = resolve_model(self.use.model, **self.use.fields)

    def columns(self, names: list[str], images: Any) -> AnswerColumns:
        columns: AnswerColumns = self.compute(self.features, names, images)
        return columns

    def features(self, names: list[str], images: Any) -> AnswerColumns:
        values = check_finite(self.working.features(images).flatten(1).float())
        return {"features": values.cpu().numpy()}
