"""Models of every task: which task a model has, opening and asking it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from vitreous.checkpoints.download import DESCRIPTIONS, local_copy
from vitreous.checkpoints.files import read_json
from vitreous.checkpoints.runs import check_finished, command_of, read_tree, run_folder
from vitreous.data.dataset import ImageDataset
from vitreous.deployment.answering import Predictions
from vitreous.errors import InputError
from vitreous.evaluation.outputs import AveragedViews, Progress, automatic_precision
from vitreous.extensions import addons, kinds
from vitreous.outside import local_path
from vitreous.results import Answer
from vitreous.tasks import TASKS, task_named
from vitreous.tasks.answer_tables import answer_table
from vitreous.tasks.task import Task, module_of
from vitreous.training.precision import computing, evaluation_mode
from vitreous.training.run import of_another_command

# What published models of transformers are for, by their model_type.
PUBLISHED = {kind: task for addon in addons().values() for kind, task in addon.published.items()}


def has_weights(spec: str) -> bool:
    """Return whether MODEL means weights from somewhere, and not a mere name."""
    return Path(spec).exists() or ":" in spec


def task_of(model: Any) -> Task | None:
    """Return the task of a MODEL: a run, a folder of the native format, a name, or a model itself.

    None where it does not say: a foreign checkpoint that is not opened yet, or an encoder without a task. No
    weights are loaded. Raises InputError: a run that was stopped has no model yet.
    """
    if not isinstance(model, str | Path):
        name = getattr(module_of(model), "task", None)
        return task_named(name) if name in TASKS else None
    on_hub = str(model).startswith("hf:")
    path = local_copy(str(model), DESCRIPTIONS) if on_hub else local_path(model)
    check_finished(path)
    for folder in (
        path,
        run_folder(path) / "model",
        path.parent if path.name == "model.safetensors" else path,
    ):
        if (folder / "config.json").is_file():
            described = read_json(folder / "config.json")
            name = PUBLISHED.get(str(described.get("model_type")))
            if described.get("format") == "vitreous":
                name = described.get("task")
            return task_named(name) if name in TASKS else None
    if path.exists():
        return None
    named = (kind.task for kind in kinds().values() if kind.prefix and str(model).startswith(kind.prefix))
    return next((task_named(task) for task in named), None)


def open_answerer(
    model: Any, *, fresh: bool = False, tta: bool = False, **overrides: Any
) -> tuple[Task, Any]:
    """Return the task of a MODEL, and what answers with it: a model, or an object that has one.

    Args:
        model: a run, a checkpoint, `hf:org/name`, or what answers already.
        fresh: whether a name is enough, whose weights have not learned anything.
        tta: whether it answers with the mean over several views of an image.
        overrides: fields of the configuration that are changed.

    Raises:
        InputError: nothing there, damaged, a name without weights, or a pre-training run.
    """
    task = task_of(model)
    if task is None or task.config.command == "pretrain":
        task = task_named("classification")
    if tta:
        _, answerer = open_answerer(model, fresh=fresh, **overrides)
        return task, AveragedViews(answerer, mirrored=may_mirror(model))
    if not isinstance(model, str | Path):
        return task, task.answerer_of(model)
    run = Path(model)
    if (run / "config.toml").is_file() and command_of(read_tree(run)) == "pretrain":
        raise InputError(of_another_command(run, "pretrain"))
    opened = task.open(str(model), **overrides)
    if not (fresh or has_weights(str(model))):
        raise InputError(
            f"{model} is a name without weights, and its answers mean nothing: give a run or a checkpoint"
        )
    return open_answerer(opened)


def may_mirror(model: Any) -> bool:
    """Return whether a mirrored image means the same to a model: as the run around it was trained; of models
    of other libraries yes, of what is not known no."""
    if not isinstance(model, str | Path):
        return False
    for folder in (path := local_path(model), path.parent, path.parent.parent):
        if (folder / "config.toml").is_file():
            return bool(read_tree(folder).get("augmentation", {}).get("flip"))
    return task_of(model) is None


def predict(
    model: Any,
    images: ImageDataset,
    *,
    device: torch.device,
    precision: str = "fp32",
    batch_size: int = 64,
    workers: int = 0,
    weights: Path | None = None,
    progress: Progress | None = None,
    overrides: Mapping[str, Any] | None = None,
    table: Path | None = None,
    tta: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
    **options: Any,
) -> Predictions:
    """Ask a model about images. No more than a batch of them is held in memory.

    Args:
        model: a run, a checkpoint, or what `open_answerer` gives.
        images: numbered images, whatever their targets.
        tta: as of `open_answerer`.
        weights: the folder of the model's weights, beside which precisions are compared once.
        table: a file for the answers, which are then not held in memory either.
        say: is called with a sentence about the precision.
        options: of the task: `top` labels, a `threshold`, `out` for masks.

    Raises:
        InputError: the model has no answer to images, or an option cannot be had.
    """
    task, answerer = open_answerer(model, tta=tta, **(overrides or {}))
    module = module_of(answerer)
    if any(each.is_meta for each in module.parameters()):
        raise InputError("a model on the meta device has no weights: load it with vitreous.load")
    module = module.to(device)
    precision = automatic_precision(
        answerer, images, precision, device, folder=weights, workers=workers, say=say
    )
    answers: list[Answer] = []
    failed: dict[str, str] = {}
    count = 0
    options |= {"device": device, "batch_size": batch_size, "workers": workers}
    answered = answer_table(table) if table else nullcontext(answers.append)
    with evaluation_mode(module), computing(precision, device), answered as add:
        for count, answer in enumerate(task.predict(answerer, images, failed, **options), start=1):
            add(answer)
            if progress:
                progress(count + len(failed), len(images))
    return Predictions(task.name, answers, failed, count, task.about_answers(answerer), table)
