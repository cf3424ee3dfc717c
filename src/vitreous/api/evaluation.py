"""`vitreous.evaluate`: evaluate a model on data that it was not trained on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

from vitreous.api.arguments import (
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
from vitreous.api.options import EvaluateOptions
from vitreous.evaluation.classification import ClassificationEvaluation
from vitreous.evaluation.real_labels import labels_of_images, read_real_labels
from vitreous.evaluation.result import Evaluation
from vitreous.tasks.answerer import evaluate_answerer, open_answerer, task_or_classification
from vitreous.tasks.task import check_options, module_of
from vitreous.training.distributed import process_group
from vitreous.training.options import ModelLike, with_options


@with_options(EvaluateOptions)
def evaluate(model: ModelLike, data: Any = None, **options: Unpack[EvaluateOptions]) -> Evaluation:
    """Evaluate a model on data that it was not trained on, each example once. Under torchrun, the processes
    share the examples, and each process returns the result.

    Example:
        >>> found = vt.evaluate("runs/photos", progress=False)
        >>> found.count, found.confusion.shape
        (4, (2, 2))
        >>> print(found.table())  # each metric with a 95% confidence interval
        metric                   value  low  high
        ...

    Args:
        model: a run, any checkpoint with a head, or a model.
        data: a dataset in any form that `train` takes; by default the held-out part of the run's data.
        options: of `EvaluateOptions`.

    Raises:
        InputError: the model or the data does not exist, nothing was held out, or the task does not have an
            option.
    """
    model = known_module(path_of_run(model))
    tta, device, real_labels = options["tta"], options["device"], options["real_labels"]
    changed = {name: options.get(name) for name in ("image_size", "settings", "config")}
    asked = model if any(changed.values()) else program_of(model)
    task = task_or_classification(asked)
    check_options(task, "evaluate", tta=tta, real_labels=real_labels, workers=options["workers"], **changed)
    labels = None if real_labels is None else read_real_labels(real_labels)
    tree = settings_tree(options["settings"], options["config"])
    overrides = model_fields({"model": tree.pop("model", {})}, options["image_size"])
    source = None if data is None else data_source(data, task.info.targets, tree)
    quick = asked if tta else fastest(asked, options["precision"], device, overrides)
    task, answerer = open_answerer(quick, tta=tta, **overrides)
    name = model_name(model)
    held = task.open_held_out(name, answerer, source, tree)
    # Labels that do not fit are refused before the images are answered.
    if labels is not None:
        names = (held.examples.name(row) for row in range(len(held.examples)))
        labels_of_images(labels, names, len(held.examples.classes))
    how = computation(device, options["batch_size"], options["workers"])
    with process_group(how["device"]) as (world, here):
        how["device"] = here
        module_of(answerer).to(here)
        with progress_bar("evaluating", options["progress"] and world.first) as advance:
            evaluation = evaluate_answerer(
                task,
                answerer,
                held.examples,
                precision=options["precision"],
                folder=weights_folder(model),
                say=say,
                progress=advance,
                world=world,
                **how,
            )
    if labels is not None:
        assert isinstance(evaluation, ClassificationEvaluation)  # other tasks refuse the option
        known = labels_of_images(labels, evaluation.names, len(evaluation.classes))
        evaluation = replace(evaluation, real_labels=known)
    return replace(evaluation, model=name, source=held.source, part=held.part, data_findings=held.findings)
