"""Models of every task: which task a model has, and opening it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.checkpoints.download import DESCRIBING, local_copy
from vitreous.checkpoints.files import read_json
from vitreous.checkpoints.runs import check_finished, read_tree, run_folder
from vitreous.checkpoints.source import Statements
from vitreous.data.dataset import ImageDataset
from vitreous.errors import InputError
from vitreous.evaluation.outputs import AveragedViews, automatic_precision
from vitreous.extensions import addons, kinds, tasks
from vitreous.outside import Hub, Local, local_path, parse_place
from vitreous.tasks import task_named
from vitreous.tasks.task import AnyTask, module_of, other_command
from vitreous.training.machine import computing

if TYPE_CHECKING:
    from vitreous.evaluation.result import Evaluation

# What published models of transformers are for, by their model_type.
PUBLISHED = {kind: task for addon in addons().values() for kind, task in addon.published.items()}


def has_weights(spec: str) -> bool:
    """Return whether MODEL means weights from somewhere, and not a mere name."""
    place = parse_place(spec)
    return not isinstance(place, Local) or place.path.exists()


def task_of(model: object) -> AnyTask | None:
    """Return the task of a MODEL: a run, a folder of the native format, a name, or a model itself.

    None where it does not say: a foreign checkpoint that is not opened yet, or an encoder without a task. No
    weights are loaded. Raises InputError: a run that was stopped has no model yet.
    """
    if not isinstance(model, str | Path):
        name = getattr(module_of(model), "task", None)
        return task_named(name) if name in tasks() else None
    place = parse_place(model)
    path = local_copy(place, DESCRIBING) if isinstance(place, Hub) else local_path(model)
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
            return task_named(name) if name in tasks() else None
    if path.exists():
        return None
    named = (kind.task for kind in kinds().values() if kind.prefix and str(model).startswith(kind.prefix))
    return next((task_named(task) for task in named), None)


def task_or_classification(model: object) -> AnyTask:
    """Return the task of a MODEL; that of a classifier where it does not say."""
    return task_of(model) or task_named("classification")


def open_answerer(
    model: object, *, fresh: bool = False, tta: bool = False, **overrides: Any
) -> tuple[AnyTask, Any]:
    """Return the task of a MODEL, and what answers with it: a model, or an object that has one.

    Args:
        model: a run, a checkpoint, `hf:org/name`, or what answers already.
        fresh: whether a name is enough, whose weights have not learned anything.
        tta: whether it answers with the mean over several views of an image.
        overrides: fields of the configuration that are changed.

    Raises:
        InputError: nothing there, damaged, a model name without weights, or a pre-training run.
    """
    task = task_of(model)
    if task is None or task.info.no_answers:
        task = task_named("classification")
    if tta:
        _, answerer = open_answerer(model, fresh=fresh, **overrides)
        return task, AveragedViews(answerer, mirrored=may_mirror(model))
    if not isinstance(model, str | Path):
        kind = getattr(module_of(model), "task", None)
        if kind is not None and kind not in tasks():
            name = type(module_of(model)).__name__
            raise InputError(f"no command runs a {name} ({kind}): use it from Python (see vt.{name})")
        return task, task.answerer_of(model)
    run = Path(model)
    trained = read_tree(run).get("task") if (run / "config.toml").is_file() else None
    if trained in tasks() and task_named(str(trained)).info.no_answers:
        raise InputError(other_command(task_named(str(trained)), run))
    opened = task.open(str(model), **overrides)
    if not (fresh or has_weights(str(model))):
        raise InputError(
            f"{model} is a model name without weights, so its answers would mean nothing: pass a run or a "
            "checkpoint"
        )
    return open_answerer(opened)


def may_mirror(model: object) -> bool:
    """Return whether a mirrored image means the same to a model: as the run around it was trained; of models
    of other libraries yes, of what is not known no."""
    if not isinstance(model, str | Path):
        return False
    for folder in (path := local_path(model), path.parent, path.parent.parent):
        if (folder / "config.toml").is_file():
            flip = Statements(read_tree(folder), folder).part("augmentation").get("flip")
            return any(flip) if isinstance(flip, list) else bool(flip)
    return task_of(model) is None


def evaluate_answerer(
    task: AnyTask,
    answerer: Any,
    examples: Any,
    *,
    precision: str = "auto",
    folder: Path | None = None,
    say: Callable[[str], None],
    **options: Any,
) -> Evaluation:
    """Evaluate what answers, in all processes that share the examples. A training and `vitreous evaluate` do
    it here, so that both find the same numbers for the same images.

    Args:
        precision: of the answers; "auto" is decided by the first process, for all of them.
        folder: of the weights.
        say: takes a sentence about the precision.
        options: those of `Batching`, and the task's own.
    """
    world, device = options["world"], options["device"]
    if world.first:
        images = examples if isinstance(examples, ImageDataset) else None
        precision = automatic_precision(
            answerer, images, precision, device, folder=folder, workers=options["workers"], say=say
        )
    with computing(world.broadcast(precision), device):
        return task.evaluate(answerer, examples, **options)
