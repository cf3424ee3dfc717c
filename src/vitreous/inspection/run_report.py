"""report.html of a run: how it learned, how good it is, its errors, and what the model attends to.

Each kind of run has its own exhibits; `write_run_report` makes the page of all of them, below a head
(`report_head`): what the score is compared with, facts, findings, and what to do next."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vitreous.data.dataset import ImageDataset, LabelTargets, NumberTargets
from vitreous.data.findings import Finding
from vitreous.data.image_samples import ContactSheet
from vitreous.evaluation.classical import Baseline
from vitreous.evaluation.classification import ClassificationEvaluation, MultiLabelEvaluation
from vitreous.evaluation.result import Evaluation
from vitreous.evaluation.scores import answering_count, candidate_title, is_network
from vitreous.extensions import addons, contributed, outputs_of
from vitreous.inspection import run_figures
from vitreous.inspection.charts import Chart
from vitreous.inspection.images import rgb
from vitreous.inspection.model_figures import model_exhibits, model_summary, network_to_show
from vitreous.inspection.page import HTML, Exhibit, LeftOut, exhibit, left_out, write_page
from vitreous.inspection.run_figures import predictions_figure
from vitreous.languages import phrase
from vitreous.models.model import Model
from vitreous.outside import read_text
from vitreous.training.callbacks import add_results, read_metrics
from vitreous.training.objectives import Illustration

SAMPLES = 8  # images whose attention is shown
MOST_FINDINGS = 3
SHORT = 0.5  # epochs: a training that has seen most images less than once
SEVERITIES = ("error", "warning", "note")  # the most important first
IN_MINUTES = ("train", "pretrain")  # commands that take --minutes
# What to do next, by the names of the sentences in the catalog, after each training command.
LONGER = "vitreous {command} --resume {run} {longer}"
COMMANDS = {
    "train": {
        "doctor": "vitreous doctor {run}",
        "inspect": "vitreous inspect {run}",
        "longer": LONGER,
        "predict": "vitreous predict {run} image.jpg",
        "compare": "vitreous compare {run} OTHER",
    },
    "pretrain": {
        "doctor": "vitreous doctor {run}",
        "probe": "vitreous probe {run} DATA",
        "fine-tune": "vitreous train DATA --init {run}",
        "longer": LONGER,
    },
}
READING_OUTPUTS: set[str] = set()  # steps that are nothing for a model whose outputs only its task can read
for addon in addons().values():
    for command, added in addon.next_steps.items():
        COMMANDS[command] = COMMANDS.get(command, {}) | dict(added)
        READING_OUTPUTS |= {*added} if addon.reads_outputs else set()


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
    pages: Sequence[tuple[str, str]] = (),
    best_baseline: Mapping[str, object] | None = None,
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
        pages: others in the directory, each with the words of the link to it.
        best_baseline: as `report_head` has it.
        candidates: that were compared, the best first.
    """
    # What was measured while a network learned says nothing about a model that did not learn by steps.
    learned = is_network(candidates)
    head = report_head(
        run,
        model,
        evaluation,
        parts,
        findings=findings,
        command=command,
        best_baseline=best_baseline,
        learned=learned,
    )
    return write_page(
        run / "report.html",
        "run.html.j2",
        parts=parts,
        title=phrase("titles.run", name=run.name),
        run=run.name,
        kind=kind,
        lead=lead or lead_of(model, candidates),
        pages=pages,
        **{**head, "facts": head["facts"] | dict(facts or {})},
    )


def lead_of(model: Model, candidates: Sequence[Mapping[str, Any]]) -> str:
    """Return the model in a line, after the candidate that it is, where some were compared."""
    line = f"{model_summary(model)}."
    if not candidates:
        return line
    chosen = phrase("head.answers", name=candidate_title(candidates[0]), count=answering_count(candidates))
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
        parts.append(run_figures.baselines_figure(evaluation, baselines))
    if candidates:
        parts.append(run_figures.candidates_table(candidates))
    if isinstance(evaluation, ClassificationEvaluation):
        few = len(evaluation.classes) <= run_figures.MOST_CLASSES
        chance = {"loss": math.log(len(evaluation.classes)), "accuracy": evaluation.most_frequent}
        parts.append(run_figures.curves_figure(run, test=("accuracy", evaluation.accuracy), chance=chance))
        if few:
            parts.append(run_figures.confusion_figure(evaluation.confusion, evaluation.classes))
        parts.append(run_figures.calibration_figure(evaluation))
    else:
        parts += [run_figures.curves_figure(run), left_out("groups.confusion", "several-labels")]
    parts += [
        every_prediction(run, model, evaluation, images, matrix=not few),
        *model_exhibits(network_to_show(model), *sample_batch(network_to_show(model), images)),
        run_figures.augmented_figure(sheet),
        run_figures.classes_table(evaluation),
    ]
    written = (write_page_of_run(run, model, images) for write_page_of_run in contributed("pages_of_runs"))
    pages = [page for page in written if page]
    return write_run_report(
        run,
        model,
        parts,
        evaluation=evaluation,
        findings=findings,
        pages=pages,
        best_baseline=baseline_ahead(evaluation, baselines),
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
    parts += [run_figures.curves_figure(run, kind=panels), *model_exhibits(encoder, batch, names)]
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


def report_head(
    run: Path,
    model: Any,
    evaluation: Evaluation | None,
    parts: Sequence[Exhibit | LeftOut],
    *,
    findings: Sequence[Finding],
    command: str,
    best_baseline: Mapping[str, object] | None = None,
    learned: bool = True,
) -> dict[str, Any]:
    """Return what the head of a report has, by the names that templates/run.html.j2 uses. What was measured
    goes to TensorBoard and the trackers of the run, too.

    Args:
        model: of any kind, with `labels`.
        parts: exhibits of the report.
        command: that trained the run.
        best_baseline: the `name` and the accuracy (`best`) of a classical method that is better than the
            model.
        learned: whether the model is the network that the steps of the run trained.
    """
    rows = read_metrics(run / "metrics.jsonl")
    last = rows[-1] if rows else {}
    facts: dict[str, float] = {"parameters": sum(each.numel() for each in model.parameters())}
    if model.labels:
        facts["classes"] = len(model.labels)
    notice = ""
    if rows:
        facts |= {"epochs": last["epoch"], "steps": last["step"], "time": last["seconds"]}
        write_events(run, int(last["step"]), evaluation, parts)
    comparisons = comparisons_of(evaluation, last if learned else {})
    if best_baseline:
        comparisons.append(phrase("head.ahead", **best_baseline))
    short = learned and bool(rows) and last["epoch"] < SHORT
    if short:
        notice = phrase("head.short", epochs=last["epoch"])
    elif is_useless(evaluation):
        notice = phrase("head.useless")
    longer, more = twice_as_long(run / "config.toml", last, command)
    minutes = 0
    if rows:  # 1: less than one
        minutes = 1 if more < 1 else max(round(more), 2)
    config = run / "config.toml"
    values = {"run": quote(str(run)), "longer": longer, "command": command}
    useless = READING_OUTPUTS if outputs_of(model) == "own" else set()
    if not rows:  # where nothing was trained, nothing is longer
        useless = {*useless, "longer"}
    ranked = sorted(findings, key=lambda each: SEVERITIES.index(each.severity))
    return {
        "evaluation": evaluation,
        "comparisons": comparisons,
        "notice": notice,  # what the reader has to know before all figures
        "short": short,  # whether the training ended before most images were seen
        "facts": facts,
        "findings": ranked[:MOST_FINDINGS],
        "more_findings": max(len(ranked) - MOST_FINDINGS, 0),
        "commands": {  # what to do next, by the names of their sentences in the catalog
            name: text.format(**values) for name, text in COMMANDS[command].items() if name not in useless
        },
        "minutes": minutes,  # that training for as long again takes; 0 where that is not known
        "command": f"vitreous {command} --config config.toml",
        "configuration": read_text(config) if config.is_file() else None,
    }


def twice_as_long(config: Path, last: Mapping[str, float], command: str) -> tuple[str, float]:
    """Return the option of --resume that trains for twice as long, and how many minutes more it takes: in
    minutes where minutes ended the run, or where it ended so early that its epochs say little. The minutes of
    a run are those of the command, with the candidates that it compared before it trained.

    Args:
        last: row of metrics.jsonl.
    """
    trained = last.get("seconds", 0.0) / 60
    settings = tomllib.loads(read_text(config)) if config.is_file() else {}
    number, _, unit = str(settings.get("training", {}).get("length")).partition(" ")
    if unit == "minutes":
        return f"--minutes {max(round(2 * float(number)), 1)}", float(number)
    if last and last["epoch"] < SHORT and command in IN_MINUTES:
        return f"--minutes {math.ceil(2 * trained)}", trained
    return f"--epochs {max(round(2 * last.get('epoch', 10), 2), 0.01):g}", trained


def is_useless(evaluation: Evaluation | None) -> bool:
    """Return whether a model may be no better than the answer that is most frequent."""
    if evaluation is None or not (known := evaluation.without_learning):
        return False
    best = known[1].get("most_frequent")
    metric = next(iter(evaluation.metrics.values()))
    return best is not None and metric.interval is not None and metric.interval.low <= best


def comparisons_of(evaluation: Evaluation | None, last: Mapping[str, float]) -> list[str]:
    """Return sentences on what a score is to be compared with: a model that has learned nothing, and the
    training images; without a common measure the losses of training and validation.

    Args:
        last: row of metrics.jsonl.
    """
    sentences = []
    if evaluation is not None and (known := evaluation.without_learning):
        name, values = known
        sentences.append(phrase(f"head.{name}", **values))
    if evaluation is not None and evaluation.gap and evaluation.gap[1] in last:
        name, measured, metric = evaluation.gap
        training, test = last[measured], evaluation.metrics[metric].value
        sentences.append(phrase(f"head.{name}", training=training, test=test, gap=100 * (training - test)))
    elif "validation_loss" in last and "loss" in last:
        sentences.append(phrase("head.gap-loss", training=last["loss"], test=last["validation_loss"]))
    return sentences


def write_events(
    run: Path, step: int, evaluation: Evaluation | None, parts: Sequence[Exhibit | LeftOut]
) -> None:
    """Add the metrics of the test set, the confusion matrix and the images of a report to TensorBoard and to
    the trackers of the run."""
    numbers = {}
    if evaluation is not None:
        for name, metric in evaluation.metrics.items():
            numbers[f"test/{name}"] = metric.value
    images = {}
    for part in parts:
        if isinstance(part, Exhibit) and isinstance(part.file, Chart) and part.name == "confusion":
            images[part.name] = part.file.pixels()
        elif isinstance(part, Exhibit) and isinstance(part.file, np.ndarray):
            images[part.name] = part.file
    add_results(run, step, numbers, images)
