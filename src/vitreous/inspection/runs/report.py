"""report.html of a run: how it learned, how good it is, its errors, and what the model attends to.

Each kind of run has its own exhibits; `write_run_report` makes the page of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vitreous.data.dataset import ImageDataset, LabelTargets, NumberTargets
from vitreous.data.findings import Finding
from vitreous.data.image_samples import ContactSheet
from vitreous.evaluation.classical import Baseline
from vitreous.evaluation.classification import ClassificationEvaluation, MultiLabelEvaluation
from vitreous.evaluation.measures import candidate_title, is_network
from vitreous.evaluation.result import Evaluation
from vitreous.extensions import contributed
from vitreous.inspection.images import rgb
from vitreous.inspection.model_figures import model_exhibits, model_summary, network_to_show
from vitreous.inspection.page import HTML, Exhibit, LeftOut, exhibit, left_out, write_page
from vitreous.inspection.runs import evaluation_figures as figures
from vitreous.inspection.runs.head import report_head
from vitreous.inspection.runs.predictions import predictions_figure
from vitreous.languages import phrase
from vitreous.models.model import Model
from vitreous.training.callbacks import read_metrics
from vitreous.training.objectives import Illustration

SAMPLES = 8  # images whose attention is shown


def write_run_report(
    run: Path,
    model: Model,
    parts: Sequence[Exhibit | LeftOut],
    *,
    kind: str = "training",
    evaluation: Evaluation | None,
    lead: str = "",
    facts: Mapping[str, float] | None = None,
    findings: Sequence[Finding] = (),
    command: str = "train",
    beside: Sequence[tuple[str, str]] = (),
    ahead: Mapping[str, object] | None = None,
    candidates: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write report.html into the directory of a run, with its config.toml on it.

    Args:
        parts: exhibits in their order, and what is left out.
        kind: of report, by its name in the catalog.
        evaluation: whose first metric the page opens with.
        lead: a sentence on what was trained; by default the model in a line.
        facts: numbers by their names in the catalog, besides the model's size and the length of the training.
        findings: of `vitreous doctor`; the most important ones are shown.
        command: that reproduces the run.
        beside: other pages in the directory, each with the words of the link to it.
        ahead: as `report_head` has it.
        candidates: that were compared, the best first.
    """
    # What was measured while a network learned says nothing about a model that did not learn by steps.
    learned = is_network(candidates)
    head = report_head(
        run, model, evaluation, parts, findings=findings, command=command, ahead=ahead, learned=learned
    )
    return write_page(
        run / "report.html",
        "run.html.j2",
        parts=parts,
        title=phrase("titles.run", name=run.name),
        run=run.name,
        kind=kind,
        lead=lead or lead_of(model, candidates),
        beside=beside,
        **{**head, "facts": head["facts"] | dict(facts or {})},
    )


def lead_of(model: Model, candidates: Sequence[Mapping[str, Any]]) -> str:
    """Return the model in a line, after the candidate that it is, where some were compared."""
    line = f"{model_summary(model)}."
    if not candidates:
        return line
    chosen = phrase("head.answers", name=candidate_title(candidates[0]), count=len(candidates))
    return f"{chosen} {line}"


def write_training_report(
    run: Path,
    *,
    model: Model,
    evaluation: ClassificationEvaluation | MultiLabelEvaluation,
    images: ImageDataset,
    baselines: Sequence[Baseline] = (),
    candidates: Sequence[Mapping[str, Any]] = (),
    sheet: ContactSheet | None = None,
    findings: Sequence[Finding] = (),
) -> Path:
    """Write the report of a classifier.

    Args:
        run: the run's directory; its config.toml and metrics.jsonl are read.
        images: the held-out images of `evaluation`.
        baselines: simpler methods on the same images.
        candidates: that were compared, the best first.
        sheet: augmented images, as training saw them.
        findings: of `vitreous doctor`.
    """
    few = False  # classes: of many, the explorer has the matrix
    parts: list[Exhibit | LeftOut] = []
    if baselines or isinstance(evaluation, ClassificationEvaluation):
        parts.append(figures.baselines_figure(evaluation, baselines))
    if candidates:
        parts.append(figures.candidates_table(candidates))
    if isinstance(evaluation, ClassificationEvaluation):
        few = len(evaluation.classes) <= figures.MOST_CLASSES
        chance = {"loss": math.log(len(evaluation.classes)), "accuracy": evaluation.most_frequent}
        parts.append(figures.curves_figure(run, test=("accuracy", evaluation.accuracy), chance=chance))
        if few:
            parts.append(figures.confusion_figure(evaluation.confusion, evaluation.classes))
        parts.append(figures.calibration_figure(evaluation))
    else:
        parts += [figures.curves_figure(run), left_out("groups.confusion", "several-labels")]
    parts += [
        every_prediction(run, model, evaluation, images, matrix=not few),
        *model_exhibits(network_to_show(model), *sample_batch(network_to_show(model), images)),
        figures.augmented_figure(sheet),
        figures.classes_table(evaluation),
    ]
    written = (write_page_of_run(run, model, images) for write_page_of_run in contributed("pages_of_runs"))
    beside = [page for page in written if page]
    return write_run_report(
        run,
        model,
        parts,
        evaluation=evaluation,
        findings=findings,
        beside=beside,
        ahead=baseline_ahead(evaluation, baselines),
        candidates=candidates,
    )


def baseline_ahead(evaluation: Evaluation, baselines: Sequence[Baseline]) -> dict[str, object] | None:
    """Return the best baseline, where it is ahead of the model: its name, and its score as text."""
    best = max(baselines, key=lambda each: each.accuracy, default=None)
    metric = next(iter(evaluation.metrics.values()))
    if best is None or best.accuracy <= metric.value:
        return None
    return {"name": phrase(f"baselines.{best.name}"), "best": metric.text(best.accuracy)}


def every_prediction(
    run: Path, model: Model, evaluation: Evaluation, images: ImageDataset, *, matrix: bool = True
) -> Exhibit:
    """Show every answer of a run's model to the images of an evaluation, and which classes it confuses."""
    answers = evaluation.answers()
    assert answers is not None
    return predictions_figure(
        {run.name: answers},
        evaluation.names,
        images,
        evaluation.indices,
        model.preprocessing,
        attending=network_to_show(model),
        matrix=matrix,
    )


def write_pretraining_report(
    run: Path,
    *,
    encoder: Model,
    objective: str,
    panels: str,
    illustrate: Callable[[Tensor, torch.Generator], Illustration | None],
    images: ImageDataset,
    evaluation: Evaluation | None,
    findings: Sequence[Finding],
) -> Path:
    """Write the report of a self-supervised run.

    Args:
        encoder: what was trained.
        objective: by name.
        panels: the kind of its learning curves, in the catalog.
        illustrate: shows the objective on a batch of images.
        images: held-out ones, to show the objective on.
        evaluation: of the objective on them.
        findings: of `vitreous doctor`.
    """
    batch, names = sample_batch(encoder, images)
    rows = read_metrics(run / "metrics.jsonl")
    measured = {"loss": "loss", "validation-loss": "validation_loss", "k-nn": "validation_knn"}
    parts: list[Exhibit | LeftOut] = []
    shown = illustrate(batch, torch.Generator().manual_seed(0))
    if shown is not None:  # masked and reconstructed images, or views of them
        kinds = [phrase(f"images.{kind}") for kind in shown.columns]
        columns = [map(rgb, encoder.preprocessing.denormalize(each)) for each in shown.columns.values()]
        triples = list(zip(zip(*columns, strict=True), names, strict=True))
        parts.append(exhibit(shown.exhibit, HTML.image_triples(triples, kinds), target=shown.target))
    parts += [figures.curves_figure(run, kind=panels), *model_exhibits(encoder, batch, names)]
    how = phrase(f"models.objectives.{objective}")
    return write_run_report(
        run,
        encoder,
        parts,
        kind="pretraining",
        lead=phrase("models.pretrained", model=model_summary(encoder), objective=how),
        evaluation=evaluation,
        facts={name: rows[-1][key] for name, key in measured.items() if rows and key in rows[-1]},
        findings=findings,
        command="pretrain",
    )


def sample_batch(model: Model, images: ImageDataset) -> tuple[Float[Tensor, "B C H W"], list[str]]:
    """Return images evenly spaced over the dataset, which is often sorted by class, prepared for the model;
    and their labels. Unreadable images are left out."""
    shown = dict(images.readable(images.sample(SAMPLES)))
    return model.preprocessing([*shown.values()]), [label_of(images, row) for row in shown]


def label_of(images: ImageDataset, index: int) -> str:
    """Return the class or the number that an image has; its name where it has several classes, or none."""
    if isinstance(images.targets, LabelTargets):
        return images.name(index)
    if len(images.classes) == 1:
        return Path(images.name(index)).stem
    if isinstance(images.targets, NumberTargets):
        return f"{images.targets.values[index]:.4g}"
    return images.label(index)
