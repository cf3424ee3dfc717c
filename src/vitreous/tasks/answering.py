"""Models of every task: which task a model has, opening and asking it.

Nothing here prints, and nothing reads a command line: commands and the Python functions call this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitreous.checkpoints.files import read_json
from vitreous.checkpoints.native import stored_task
from vitreous.checkpoints.runs import check_finished, command_of, read_tree
from vitreous.data.dataset import ImageDataset
from vitreous.errors import InputError
from vitreous.evaluation.outputs import Progress
from vitreous.evaluation.result import failures
from vitreous.evaluation.text_models import TextModel
from vitreous.results import Result, scalars
from vitreous.tasks import TASKS, task_named
from vitreous.tasks.task import Answer, Task, module_of
from vitreous.training.precision import computing
from vitreous.training.run import of_another_command


@dataclass(frozen=True)
class Predictions(Result):
    """The answers to images, in order, and the images that could not be read, with the reason."""

    task: str
    answers: Sequence[Answer]
    failed: Mapping[str, str]
    about: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "predictions": [each.to_json() for each in self.answers],
            "failed": failures(self.failed),
            **self.about,
        }

    def __len__(self) -> int:
        return len(self.answers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.answers)

    def __getitem__(self, index: int) -> Any:
        return self.answers[index]

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each image."""
        return [scalars(each.to_json()) for each in self.answers]


def has_weights(spec: str) -> bool:
    """Return whether MODEL means weights from somewhere, and not a mere name."""
    return Path(spec).exists() or ":" in spec


def task_of(model: str | Path | nn.Module | TextModel) -> Task | None:
    """Return the task of a MODEL: a run, a folder of the native format, a name, or a model itself.

    None where it does not say: a foreign checkpoint that is not opened yet, or an encoder without a task.
    Nothing is loaded.

    Raises:
        InputError: a run that was stopped has no model yet.
    """
    if isinstance(model, nn.Module | TextModel):
        name = getattr(module_of(model), "task", None)
        return task_named(name) if name in TASKS else None
    path = Path(model).expanduser()
    check_finished(path)
    for folder in (path, path / "model", path.parent if path.name == "model.safetensors" else path):
        if (folder / "config.json").is_file():
            described = read_json(folder / "config.json")
            name = stored_task(folder, described) if described.get("format") == "vitreous" else None
            return task_named(name) if name in TASKS else None
    return task_named("segmentation") if str(model).startswith("Seg-") and not path.exists() else None


def open_answerer(model: Any, *, fresh: bool = False, **overrides: Any) -> tuple[Task, Any]:
    """Return the task of a MODEL, and what answers with it: a model, a `Reader` or a `Translator`.

    Args:
        model: a run, a checkpoint, `hf:org/name`, or what answers already.
        fresh: whether a name is enough, whose weights have not learned anything.
        overrides: fields of the configuration that are changed.

    Raises:
        InputError: nothing there, damaged, a name without weights, or a pre-training run.
    """
    task = task_of(model)
    if task is None or task.config.command == "pretrain":
        task = task_named("classification")
    if not isinstance(model, str | Path):
        return task, model
    run = Path(model)
    if (run / "config.toml").is_file() and command_of(read_tree(run)) == "pretrain":
        raise InputError(of_another_command(run, "pretrain"))
    opened = task.open(str(model), **overrides)
    if not (fresh or has_weights(str(model))):
        raise InputError(
            f"{model} is a name without weights, and its answers mean nothing: give a run or a checkpoint"
        )
    return open_answerer(opened)


def predict(
    model: Any,
    images: ImageDataset,
    *,
    device: torch.device,
    precision: str = "fp32",
    batch_size: int = 64,
    workers: int = 0,
    progress: Progress | None = None,
    overrides: Mapping[str, Any] | None = None,
    **options: Any,
) -> Predictions:
    """Ask a model about images. No more than a batch of them is held in memory.

    Args:
        model: a run, a checkpoint, or what `open_answerer` gives.
        images: numbered images, whatever their targets.
        options: of the task: `top` labels, `out` for masks.

    Raises:
        InputError: the model has no answer to images, or an option cannot be had.
    """
    task, answerer = open_answerer(model, **(overrides or {}))
    module_of(answerer).to(device).eval()
    answers: list[Answer] = []
    failed: dict[str, str] = {}
    options |= {"device": device, "batch_size": batch_size, "workers": workers}
    with computing(precision, device):
        for answer in task.predict(answerer, images, failed, **options):
            answers.append(answer)
            if progress:
                progress(len(answers) + len(failed), len(images))
    return Predictions(task.name, answers, failed, task.about_answers(answerer))
