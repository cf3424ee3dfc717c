"""`vitreous.evaluate`: a model on data that it did not learn from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from vitreous.api.arguments import (
    ImageSize,
    ModelLike,
    Settings,
    model_fields,
    model_name,
    path_of_run,
    progress_bar,
    say,
    settings_tree,
    weights_folder,
)
from vitreous.api.data_source import data_source
from vitreous.api.model_source import computation, fastest, known_module, program_of
from vitreous.data.dataset import ImageDataset
from vitreous.evaluation.classification import ClassificationEvaluation
from vitreous.evaluation.inference_precision import automatic_precision
from vitreous.evaluation.real_labels import labels_of_images, read_real_labels
from vitreous.evaluation.result import Evaluation
from vitreous.tasks.answerer import open_answerer, task_or_classification
from vitreous.tasks.task import module_of
from vitreous.training.distributed import process_group
from vitreous.training.precision import computing


def evaluate(
    model: ModelLike,
    data: Any = None,
    *,
    tta: bool = False,
    real_labels: str | Path | None = None,
    image_size: ImageSize | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    device: str = "auto",
    precision: str = "auto",
    settings: Settings | None = None,
    config: str | Path | None = None,
    progress: bool = True,
) -> Evaluation:
    """Evaluate a model on data that it did not learn from, each example once; under torchrun all processes
    share the examples, and each has the result.

    Args:
        model: a run, any checkpoint with a head, or a model.
        data: a dataset in any form that `train` takes; by default the held-out part of the run's data.
        tta: test-time augmentation: the mean answer to an image, its corners and, if the model was trained
            with them, mirror images; five or ten times the work.
        real_labels: a file as real.json of ImageNet ReaL, for the accuracy by labels of which any is right:
            for each validation image, in the order of their names, a list of class numbers; images without
            one are left out.
        image_size: pixels of the images that the model takes: 384, or (height, width); by default its own.
        batch_size: images that are computed together; by default 16 on a CPU, 64 on a GPU.
        workers: threads that decode images; by default one for each core.
        device: auto, cpu, cuda, cuda:N or mps; auto is a GPU where there is one.
        precision: fp32; bf16; auto: bf16 where that is faster and gives the same answers.
        settings, config: of the data ({"data.test_fraction": 0.3}) and the model's configuration.
        progress: show a progress bar on stderr.

    Raises:
        InputError: no such model or data, nothing was held out, or an option that the task does not have.
    """
    model = known_module(path_of_run(model))
    asked = model if settings or config or image_size else program_of(model)
    task = task_or_classification(asked)
    task.check_options(
        "evaluate",
        tta=tta,
        real_labels=real_labels,
        image_size=image_size,
        workers=workers,
        settings=settings,
        config=config,
    )
    labels = None if real_labels is None else read_real_labels(real_labels)
    tree = settings_tree(settings, config)
    overrides = model_fields({"model": tree.pop("model", {})}, image_size)
    source = None if data is None else data_source(data, task.info.targets, tree)
    quick = asked if tta else fastest(asked, precision, device, overrides)
    task, answerer = open_answerer(quick, tta=tta, **overrides)
    name = model_name(model)
    held = task.open_held_out(name, answerer, source, tree)
    if labels is not None:  # what does not fit is said before the images are answered
        names = (held.examples.name(row) for row in range(len(held.examples)))
        labels_of_images(labels, names, len(held.examples.classes))
    how = computation(device, batch_size, workers)
    with process_group(how["device"]) as (world, here):
        how["device"] = here
        module_of(answerer).to(here)
        if world.first:
            images = held.examples if isinstance(held.examples, ImageDataset) else None
            more: dict[str, Any] = {"folder": weights_folder(model), "workers": how["workers"], "say": say}
            precision = automatic_precision(answerer, images, precision, here, **more)
        shown = progress and world.first
        with computing(world.broadcast(precision), here), progress_bar("evaluating", shown) as advance:
            evaluation = task.evaluate(answerer, held.examples, progress=advance, world=world, **how)
    if labels is not None:
        assert isinstance(evaluation, ClassificationEvaluation)  # other tasks refuse the option
        known = labels_of_images(labels, evaluation.names, len(evaluation.classes))
        evaluation = replace(evaluation, real_labels=known)
    return replace(evaluation, model=name, source=held.source, part=held.part)
