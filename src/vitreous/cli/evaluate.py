"""`vitreous evaluate RUN [DATA]`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.cli.options import (
    BatchSize,
    ConfigFile,
    Device,
    ImageSize,
    Json,
    Precision,
    Settings,
    Workers,
    print_json,
    resized,
    settings_tree,
)
from vitreous.errors import InputError

if TYPE_CHECKING:
    from vitreous.evaluation.classification import Evaluation
    from vitreous.evaluation.multilabel import MultiLabelEvaluation

SHOWN = 30  # classes in a confusion matrix for people


def evaluate(
    run: str,
    data: str | None = None,
    /,
    *,
    image_size: ImageSize = None,
    batch_size: BatchSize = 64,
    workers: Workers = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    set: Settings = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """How good a classifier is on images that it did not learn from, each of them looked at once.

    Parameters
    ----------
    run
        A run directory, or any checkpoint with a head.
    data
        By default the held-out part of what the run was trained on.
    """
    from vitreous.cli.segmentation_runs import is_segmenter, judge_segmenter
    from vitreous.cli.sequence_runs import judge_again, kind_of_run
    from vitreous.training.device import pick_device
    from vitreous.training.precision import computing

    here = pick_device(device)
    if is_segmenter(run):
        refuse("a segmenter", {"--workers": workers})
        tree = settings_tree(config, set)
        with computing(precision, here):
            return judge_segmenter(
                run, data, tree, batch_size=batch_size, image_size=image_size, device=device, json=json
            )
    if kind_of_run(Path(run)):
        given = {"--image-size": image_size, "--workers": workers, "--set": set, "--config": config}
        refuse("a model that writes text", given)
        with computing(precision, here):
            return judge_again(Path(run), data, batch_size=batch_size, device=device, json=json)
    from vitreous.api.arguments import progress_bar
    from vitreous.data.loading import worker_count
    from vitreous.evaluation.classification import evaluate as evaluate_classes
    from vitreous.evaluation.held_out import held_out
    from vitreous.evaluation.multilabel import evaluate_multilabel
    from vitreous.evaluation.trained import open_trained

    settings = settings_tree(config, set)
    model = open_trained(run, **settings.pop("model", {}), **resized(image_size))
    source, part, images = held_out(run, data, settings)
    kind = evaluate_multilabel if images.targets.ndim == 2 else evaluate_classes
    with computing(precision, here), progress_bar("evaluating") as progress:
        evaluation = kind(
            model,
            images,
            device=here,
            batch_size=batch_size,
            workers=worker_count(workers),
            progress=progress,
        )
    if json:
        print_json({"run": run, "data": source, "part": part, **evaluation.to_json()})
    else:
        print(f"{run} on {source}, {part}: {evaluation.count} images in {evaluation.seconds:.1f} s\n")
        show(evaluation)


def refuse(kind: str, given: Mapping[str, object]) -> None:
    """Raises InputError for an option that a kind of model has no use for."""
    for option, value in given.items():
        if value is not None:
            raise InputError(f"{option} does not go with {kind}: leave it out")


def show(evaluation: Evaluation | MultiLabelEvaluation) -> None:
    """The tables for people."""
    from vitreous.cli.tables import interval, percent, print_table
    from vitreous.evaluation.multilabel import MultiLabelEvaluation

    if isinstance(evaluation, MultiLabelEvaluation):
        print(f"mean average precision  {percent(evaluation.mean_average_precision)}\n")
        precisions = zip(evaluation.classes, evaluation.average_precision, strict=True)
        print_table(("class", "average precision"), [(name, percent(value)) for name, value in precisions])
        return
    print(f"accuracy           {percent(evaluation.accuracy)}   95 %: {interval(*evaluation.interval)}")
    if evaluation.top5_accuracy is not None:
        print(f"top-5 accuracy     {percent(evaluation.top5_accuracy)}")
    print(f"calibration (ECE)  {percent(evaluation.calibration.ece)}\n")
    scores = [
        (score.label, percent(score.precision), percent(score.recall), percent(score.f1), str(score.support))
        for score in evaluation.per_class
    ]
    print_table(("class", "precision", "recall", "F1", "images"), scores)
    if len(evaluation.classes) <= SHOWN:
        print("\nconfusion: a row for what an image is, a column for what it was called")
        rows = zip(evaluation.classes, evaluation.confusion.tolist(), strict=True)
        print_table(("", *evaluation.classes), [(label, *map(str, counts)) for label, counts in rows])
    mistakes = evaluation.surest_mistakes(5)
    if mistakes:
        print("\nsurest mistakes")
        for mistake in mistakes:
            called = f"called {mistake.predicted} ({mistake.probability:.1%})"
            print(f"  {mistake.name}: {called}, is {mistake.actual}")
    for path, reason in evaluation.failed.items():
        print(f"could not be decoded: {path}: {reason}")
