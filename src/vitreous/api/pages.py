"""`vitreous.compare`: runs of one task, side by side; and `learn`: a page in which a small model runs, and
shows each of its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.api.arguments import (
    ImageSize,
    Settings,
    computation,
    data_source,
    is_fresh,
    model_fields,
    model_name,
    path_of_run,
    progress_bar,
    resolve_model,
    settings_tree,
)
from vitreous.errors import InputError, check_free, require_packages, writing_to
from vitreous.languages import speaking

if TYPE_CHECKING:
    from PIL import Image

    from vitreous.data.image_list import Failure
    from vitreous.evaluation.comparison import ComparedRun, Comparison
    from vitreous.inspection.learn_page import LearnPage
    from vitreous.inspection.runs.comparison import Shown
    from vitreous.tasks.task import Task


def compare(
    *runs: Any,
    data: Any = None,
    out: str | Path | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    device: str = "auto",
    precision: str = "fp32",
    progress: bool = True,
    language: str | None = None,
) -> Comparison:
    """Compare runs of one task on the examples that all of them have held out, and write a page about it.

    Args:
        runs: two or more; the others are compared with the first.
        data: a dataset to compare on, in any form that `train` takes; by default the held-out part of each
            run's own.
        out: the HTML file; by default a new one in comparisons/.
        batch_size: examples in a batch.
        precision: fp32; bf16; auto: bf16 where that is faster and gives the same answers.

    Raises:
        InputError: fewer than two runs, runs of different tasks, a run without a model, or nothing held out.
    """
    require_packages("matplotlib", extra="train", what="compare")
    from vitreous.evaluation.comparison import compare_runs
    from vitreous.inspection.runs.comparison import write_comparison
    from vitreous.tasks import task_of_run
    from vitreous.training.run import default_path

    paths = [Path(path_of_run(each)) for each in runs]
    if len({path.resolve() for path in paths}) < max(len(paths), 2):
        raise InputError("a comparison needs two or more different runs: vitreous compare RUN OTHER")
    tasks = [task_of_run(path) for path in paths]
    check_tasks(paths, tasks)
    task = tasks[0]
    if data is not None and task.config.command == "pretrain":
        raise InputError(f"--data does not apply to runs of {task.name}, which have no answers: leave it out")
    page = Path(out or default_path(paths[0].name, Path("comparisons"), ".html"))
    check_free(page)
    source = None if data is None else data_source(data, task.targets)
    how = computation(device, batch_size, workers) | {"precision": precision}
    compared: list[ComparedRun] = []
    shown: Shown | None = None
    with speaking(language), progress_bar("comparing", progress) as advance:
        for path, name in zip(paths, names_of(paths), strict=True):
            run, images = compared_run(task, path, name, source, advance, **how)
            compared.append(run)
            shown = shown or images
        found = compare_runs(task.name, compared)
        with writing_to(page):
            page.parent.mkdir(parents=True, exist_ok=True)
            return write_comparison(found, page, task.panels, shown)


def check_tasks(paths: Sequence[Path], tasks: Sequence[Task]) -> None:
    """Raise InputError for runs of different tasks."""
    for path, task in zip(paths, tasks, strict=True):
        if task is not tasks[0]:
            raise InputError(
                f"{paths[0]} is a run of {tasks[0].name} and {path} one of {task.name}: "
                "only runs of one task can be compared"
            )


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return the last parts of paths, as many as tell them apart."""
    for count in range(1, max(len(path.parts) for path in paths) + 1):
        names = [str(Path(*path.parts[-count:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path.resolve()) for path in paths]


def compared_run(
    task: Task, path: Path, name: str, source: Any, advance: Any, *, precision: str, **how: Any
) -> tuple[ComparedRun, Shown | None]:
    """Return a run with its evaluation, and the images of it, where it answers to images."""
    from vitreous.checkpoints import load
    from vitreous.evaluation.comparison import ComparedRun
    from vitreous.inspection.runs.comparison import Shown
    from vitreous.tasks.answering import open_answerer
    from vitreous.tasks.running import open_run
    from vitreous.tasks.task import module_of
    from vitreous.training.precision import computing
    from vitreous.training.settings import leaves

    run = open_run(path)
    evaluation, shown = None, None
    if task.config.command == "pretrain":
        model: Any = load(path)
    else:
        _, answerer = open_answerer(path)
        model = module_of(answerer)
        held = task.held_out(str(path), answerer, source, {})
        model.to(how["device"])
        with computing(precision, how["device"]):
            evaluation = task.evaluate(answerer, held.examples, progress=advance, **how)
        model.to("cpu")
        if task.takes == "images":
            shown = Shown(task.to_inspect(held.examples), model.preprocessing)
    size = sum(each.numel() for each in model.parameters())
    return ComparedRun(name, path, size, run.metrics(), leaves(run.config), evaluation), shown


def learn(
    model: Any = None,
    images: Any = None,
    *,
    out: str | Path | None = None,
    language: str | None = None,
    image_size: ImageSize | None = None,
    settings: Settings | None = None,
    config: str | Path | None = None,
) -> LearnPage:
    """Write one offline HTML page that runs a model in the browser and shows every tensor on the way.

    Args:
        model: a run, a checkpoint in any format, a model name, or a model; by default the newest run in
            runs/. Of a model with more than 5 million parameters the page has recorded tensors instead.
        images: one or many paths, PIL images, arrays or tensors to try; by default held-out images of the
            run, and handwritten digits for any other model.
        out: the HTML file; by default learn.html in the directory of the run, or in a new folder in
            inspection/ for any other model.
        language: language in which the page opens, en or ko, of which it has both; by default that of the
            locale.
        settings, config: fields of the model's configuration, {"model.heads": 12}; and a TOML file of them.

    Raises:
        InputError: no such model or image, no run, or a model that the page cannot run.
    """
    require_packages("jinja2", "matplotlib", extra="train", what="learn")
    from vitreous.api.inspecting import default_folder
    from vitreous.inspection.learn_page import write_learn_page

    model = newest_run() if model is None else path_of_run(model)
    fields = model_fields(settings_tree(settings, config), image_size)
    opened = resolve_model(model, **fields)
    run = Path(model_name(model))
    page = (run if (run / "config.toml").is_file() else default_folder(model)) / "learn.html"
    page = Path(out) if out else page
    with speaking(language), writing_to(page):
        samples, failed = samples_of(model, opened, images)
        found = write_learn_page(page, opened, samples, name=run.name, trained=not is_fresh(model))
    return replace(found, failed=failed)


def newest_run(folder: Path = Path("runs")) -> Path:
    """Return the run that has finished last. Raises InputError: there is none."""
    finished = sorted(folder.glob("*/model/config.json"), key=lambda path: path.stat().st_mtime)
    if not finished:
        raise InputError(
            f"there is no finished run in {folder}/: train one with vitreous train, or name a MODEL"
        )
    return finished[-1].parent.parent


def samples_of(
    model: Any, opened: Any, images: Any
) -> tuple[list[tuple[Image.Image, str]], tuple[Failure, ...]]:
    """Return images to try, with their labels, and those that cannot be read, of some that are named. Raises
    InputError: not one image can be read."""
    from vitreous.api.inspecting import held_out_examples
    from vitreous.data.decoding import BadImage
    from vitreous.data.image_list import Failure, image_list
    from vitreous.inspection.runs.report import MOST_SAMPLES, labeled_samples
    from vitreous.tasks import task_named
    from vitreous.tasks.answering import task_of

    failed: list[Failure] = []
    if images is not None:
        found, failed = image_list(images)
        for row in found.sample(MOST_SAMPLES):
            try:
                found.image(row)
            except BadImage as bad:
                failed.append(Failure(bad.name, bad.reason))
    else:
        task = task_of(model) or task_named("classification")
        found, _ = held_out_examples(task, model, opened)
    if not (samples := labeled_samples(found)):
        raise InputError("none of the images could be read: give JPEG or PNG files that open in a viewer")
    return samples, tuple(failed)
