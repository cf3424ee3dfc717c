"""What computes the answers of `vitreous.predict` and the columns of `vitreous.Predictor` with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.api.arguments import say, weights_folder
from vitreous.api.model_source import fastest, known_module, resolve_model
from vitreous.api.model_use import ModelUse
from vitreous.data.dataset import ImageDataset
from vitreous.deployment.answers import Columns, answer_columns
from vitreous.deployment.classifier import ClassPredictor
from vitreous.errors import InputError
from vitreous.evaluation.inference_precision import automatic_precision
from vitreous.evaluation.outputs import prepared_batches
from vitreous.models.model import Program, Runnable, modes_restored
from vitreous.results import Answer
from vitreous.tasks.answerer import open_answerer
from vitreous.tasks.task import module_of
from vitreous.training.precision import computing, with_cast_weights


class Engine:
    """A model at work in this process.

    Attributes:
        model: itself.
        labels: the classes of the column probabilities; None where there is no such column.
    """

    model: nn.Module
    labels: list[str] | None = None

    def __init__(self, use: ModelUse) -> None:
        self.use = use
        self.batching = use.computation()
        self.device: torch.device = self.batching["device"]

    def decide_precision(self, answerer: Any, images: ImageDataset | None) -> None:
        """Decide the precision; on images, if it is "auto"."""
        self.precision = automatic_precision(
            answerer,
            images,
            self.use.precision,
            self.device,
            folder=weights_folder(self.use.model),
            workers=self.batching["workers"],
            say=say,
        )

    def cast(self, model: Runnable) -> Runnable:
        """Return the model, for bf16 with its weights cast once and not in every batch."""
        if self.precision != "bf16" or isinstance(model, Program):
            return model
        return with_cast_weights(model)

    def columns(self, images: ImageDataset, failed: dict[str, str]) -> Iterator[Columns]:
        """Yield the columns of some images after the others, in order; those that cannot be read are left out
        and added to `failed`, with the reason."""
        raise NotImplementedError

    def computed(
        self,
        model: Runnable,
        images: ImageDataset,
        failed: dict[str, str],
        compute: Callable[[Tensor], Columns],
    ) -> Iterator[Columns]:
        """Yield what is computed of each batch of prepared images, with their paths."""
        for names, prepared in prepared_batches(model, images, failed, **self.batching):
            with torch.inference_mode(), computing(self.precision, self.device):
                columns = compute(prepared)
            yield {"path": names, **columns}


class AnswerEngine(Engine):
    """A model that answers with what its task gives.

    Args:
        images: on which precision "auto" compares bf16 with fp32.
        folder: for the files of a task whose answers are files.
        reused: whether more images are to come, for which the weights are cast once.

    Attributes:
        about: what its answers have in common.
    """

    def __init__(
        self,
        use: ModelUse,
        images: ImageDataset | None,
        *,
        folder: Path | None = None,
        reused: bool = True,
    ) -> None:
        super().__init__(use)
        options = {name: value for name, value in use.options.items() if value is not None}
        tta, source = options.pop("tta", False), use.source
        if not (tta or use.task.about.answer_folder):
            source = fastest(source, use.precision, use.device, use.fields)
        self.task, self.answerer = open_answerer(known_module(source), tta=tta, **use.fields)
        self.task_name = self.task.name
        self.model = module_of(self.answerer)
        if any(each.is_meta for each in self.model.parameters()):
            raise InputError("a model on the meta device has no weights: load it with vitreous.load")
        self.model.to(self.device)
        self.decide_precision(self.answerer, images)
        if reused and self.model is self.answerer:
            self.model = self.answerer = self.cast(self.model)
        self.classifier: ClassPredictor | None = None
        if reused and self.task.about.gives_probabilities and not options:
            self.classifier = ClassPredictor(self.answerer, self.device)
            self.labels = self.classifier.labels
        self.about = self.task.about_answers(self.answerer)
        self.options = {**self.batching, **options, **({"out": folder} if folder else {})}

    def answers(self, images: ImageDataset, failed: dict[str, str]) -> Iterator[Answer]:
        """Yield the answer to each image, in order; `failed` takes those that cannot be read. No more than a
        batch of images is held in memory."""
        with modes_restored(self.model), computing(self.precision, self.device):
            self.model.eval()
            yield from self.task.predict(self.answerer, images, failed, **self.options)

    def columns(self, images: ImageDataset, failed: dict[str, str]) -> Iterator[Columns]:
        """Yield the probabilities of a classifier, or rows as `vitreous predict --out` has them."""
        if self.task.about.answer_folder:
            raise InputError(
                f"the answers of {self.task.about.noun} are files: use vitreous predict --out FOLDER"
            )
        if self.classifier is not None:
            yield from self.computed(self.answerer, images, failed, self.classifier.columns)
            return
        answers = self.answers(images, failed)
        while some := list(islice(answers, self.batching["batch_size"])):
            rows = [answer_columns(each.to_json()) for each in some]
            columns: Columns = {}
            for name in rows[0]:
                columns[name] = [row.get(name) for row in rows]
            yield columns


class FeatureEngine(Engine):
    """A model that gives what its head sees."""

    def __init__(self, use: ModelUse, images: ImageDataset | None) -> None:
        super().__init__(use)
        model = resolve_model(use.model, **use.fields).to(self.device).eval()
        self.decide_precision(model, images)
        self.model: Runnable = self.cast(model)

    def columns(self, images: ImageDataset, failed: dict[str, str]) -> Iterator[Columns]:
        yield from self.computed(self.model, images, failed, self.features)

    def features(self, images: Tensor) -> Columns:
        model: Any = self.model
        return {"features": model.features(images).flatten(1).float().cpu().numpy()}


ENGINES: dict[str, type[AnswerEngine | FeatureEngine]] = {"labels": AnswerEngine, "features": FeatureEngine}
