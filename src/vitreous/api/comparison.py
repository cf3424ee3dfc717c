"""`vitreous.compare`: runs of one task, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from vitreous.api.arguments import progress_bar
from vitreous.api.data_source import data_source
from vitreous.api.model_source import computation
from vitreous.api.options import CompareOptions
from vitreous.checkpoints.loading import load
from vitreous.data.dataset import ImageDataset
from vitreous.errors import InputError, Param, check_free, require_packages, writing_to
from vitreous.evaluation.comparison import ComparedRun, Comparison, compare_runs
from vitreous.languages import speaking
from vitreous.models.preprocessing import Preprocessing
from vitreous.tasks import task_of_run
from vitreous.tasks.answerer import open_answerer
from vitreous.tasks.task import AnyTask, module_of
from vitreous.tasks.training_run import open_run
from vitreous.training.machine import computing
from vitreous.training.options import RunLike, with_options
from vitreous.training.run import default_run_path
from vitreous.training.settings import leaves


@with_options(CompareOptions)
def compare(*runs: str | Path | RunLike, **options: Unpack[CompareOptions]) -> Comparison:
    """Compare runs of one task on the examples that all of them held out, and write a page with the results.

    Example:
        >>> found = vt.compare("runs/photos", "runs/other")
        >>> print(found.table())
        run     examples  accuracy  ...
        photos         4         ...
        other          4         ...

    Args:
        runs: two or more runs; the others are compared with the first.
        options: of `CompareOptions`.

    Raises:
        InputError: there are fewer than two runs, the runs are of different tasks, a run has no model, or
            nothing was held out.
    """
    require_packages("matplotlib", extra="train", what="compare")
    from vitreous.inspection.run_comparison import write_comparison  # it imports matplotlib

    for each in runs:
        if not isinstance(each, str | Path | RunLike):
            kind = type(each).__name__
            raise InputError(f"a run is a path or a Run, not a {kind}: write vt.compare(one, other)")
    paths = [each.path if isinstance(each, RunLike) else Path(each) for each in runs]
    if len({path.resolve() for path in paths}) < max(len(paths), 2):
        raise InputError("a comparison needs two or more different runs: vitreous compare RUN OTHER")
    tasks = [task_of_run(path) for path in paths]
    task = tasks[0]
    for path, other in zip(paths, tasks, strict=True):
        if other is not task:
            raise InputError(
                f"{paths[0]} is a run of {task.name} and {path} one of {other.name}: "
                "only runs of one task can be compared"
            )
    data = options["data"]
    if data is not None and task.info.no_answers:
        raise InputError(
            f"{Param('data')} does not apply to runs of {task.name}, which have no answers: leave it out"
        )
    page = Path(options["out"] or default_run_path(paths[0].name, Path("comparisons"), ".html"))
    check_free(page)
    source = None if data is None else data_source(data, task.info.targets)
    how = computation(options["device"], options["batch_size"], options["workers"])
    precision = options["precision"]
    compared: list[ComparedRun] = []
    shown: tuple[ImageDataset, Preprocessing] | None = None
    with speaking(options["language"]), progress_bar("comparing", options["progress"]) as advance:
        for path, name in zip(paths, names_of(paths), strict=True):
            run, images = compared_run(task, path, name, source, advance, precision=precision, **how)
            compared.append(run)
            shown = shown or images
        found = compare_runs(task.name, compared)
        with writing_to(page):
            page.parent.mkdir(parents=True, exist_ok=True)
            return write_comparison(found, page, task.info.panels, shown)


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return the last parts of paths, as many as tell them apart."""
    for count in range(1, max(len(path.parts) for path in paths) + 1):
        names = [str(Path(*path.parts[-count:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path.resolve()) for path in paths]


def compared_run(
    task: AnyTask, path: Path, name: str, source: Any, advance: Any, *, precision: str, **how: Any
) -> tuple[ComparedRun, tuple[ImageDataset, Preprocessing] | None]:
    """Return a run with its evaluation and, for an image model, the evaluated images and their
    preprocessing."""
    run = open_run(path)
    evaluation, shown = None, None
    if task.info.no_answers:
        model: Any = load(path)
    else:
        _, answerer = open_answerer(path)
        model = module_of(answerer)
        held = task.open_held_out(str(path), answerer, source, {})
        model.to(how["device"])
        with computing(precision, how["device"]):
            evaluation = task.evaluate(answerer, held.examples, progress=advance, **how)
        model.to("cpu")
        if isinstance(held.examples, ImageDataset):
            shown = held.examples, model.preprocessing
    size = sum(each.numel() for each in model.parameters())
    return ComparedRun(name, path, size, run.metrics(), leaves(run.config), evaluation), shown
