"""A model to be applied to images, before it is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vitreous.errors import LazyModule
from vitreous.training.options import ModelLike

if TYPE_CHECKING:
    from vitreous.api import model_source
    from vitreous.tasks import answerer
    from vitreous.tasks.task import AnyTask
else:  # they import PyTorch, without which an exported file answers
    model_source = LazyModule("vitreous.api.model_source")
    answerer = LazyModule("vitreous.tasks.answerer")


@dataclass
class ModelUse:
    """A model to be applied to images, and its options. It can be pickled, and is opened where it is used.

    Attributes:
        fields: of the model's configuration, to be changed.
        options: of the answers: `top`, `threshold`, `tta`.
    """

    model: ModelLike
    device: str
    precision: str
    batch_size: int | None
    workers: int | None
    fields: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in ("source", "task")}

    @cached_property
    def source(self) -> Any:
        """The model; of an exported file the module that it means."""
        return self.model if self.fields else model_source.program_of(self.model)

    @cached_property
    def task(self) -> AnyTask:
        """The task of the model; that of a classifier where it does not say."""
        return answerer.task_or_classification(self.source)
