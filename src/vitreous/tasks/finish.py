"""What follows a training: what is kept of it, its evaluation, report and model card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from vitreous import __version__
from vitreous.checkpoints.model_card import origin_facts
from vitreous.data.checks import known_findings
from vitreous.data.dataset import ImageDataset
from vitreous.data.findings import Finding, write_findings
from vitreous.data.held_out import data_notes
from vitreous.data.loading import BadFiles
from vitreous.evaluation.inference_precision import automatic_precision
from vitreous.evaluation.outputs import ProgressCallback
from vitreous.evaluation.result import Evaluation
from vitreous.tasks.course import FINDINGS, course_of, with_others
from vitreous.tasks.result import RunResult
from vitreous.tasks.task import AnyPlan, AnyTask, Card, Trained, get_held_out, module_of
from vitreous.training.machine import ON_CPU, Place, computing
from vitreous.whole_files import write_text

TEMPLATE = Path(__file__).with_name("card.md")  # with names in braces
MOST_CLASSES = 50  # that a card names


def finish(
    trained: Trained[Any, Any],
    plan: AnyPlan,
    place: Place = ON_CPU,
    *,
    progress: ProgressCallback | None = None,
    say: Callable[[str], None],
    **options: Any,
) -> RunResult | None:
    """Keep the best of what was compared, evaluate it, write the report and the model card. Return what the
    training gave, in the first of the processes, which all call it together.

    Args:
        progress: called after each batch of the evaluation with the examples done and all of them.
        say: takes sentences about what is kept.
        options: of the evaluation, such as `batch_size`.

    Raises:
        InputError: a file cannot be written, or too many examples cannot be read.
    """
    task, run, data, config = plan.task, plan.made, plan.data, plan.config
    device, world = place.device, place.world

    # ---- What is kept of it, and its evaluation, in all processes

    workers = config.loading_workers
    options |= {"device": device, "batch_size": config.evaluation_batch_size, "workers": workers}
    options |= {"world": world, "progress": progress}
    trained, sentences = task.finalize(trained, **options)  # in fp32, as `vitreous calibrate`
    if plan.compared:
        trained, chosen = plan.compared.choose(trained, **options)
        sentences = [*sentences, *chosen]
    answerer = task.answerer_of(trained.model, trained.material.files)
    held_out, examples = get_held_out(task, data)
    evaluation = None
    if held_out:
        precision = "fp32"
        if world.first:  # as `vitreous evaluate` chooses it: the same numbers of the same images
            images = examples if isinstance(examples, ImageDataset) else None
            folder = run.path / "model"
            precision = automatic_precision(
                answerer, images, "auto", device, folder=folder, workers=workers, say=say
            )
        with computing(world.broadcast(precision), device):
            evaluation = task.evaluate(answerer, examples, **options)

    # ---- Findings, report and card, by the first process

    if not world.first:
        return None
    for sentence in sentences:
        say(sentence)
    bad = BadFiles()
    bad.merge(trained.material.bad)
    if evaluation:
        bad.reasons.update(evaluation.failed)
        bad.damaged.update(evaluation.damaged)
    bad.write(run.path / "bad_files.txt")
    extra = task.extra_fields(trained)
    findings = with_others(
        list(plan.findings or ()), course_of(run, data, evaluation, extra.get("baselines", ()))
    )
    write_findings(run.path / FINDINGS, findings)
    result = RunResult(
        task=task.name,
        run=run,
        answerer=answerer,
        evaluation=evaluation,
        held_out=held_out,
        seconds=trained.seconds,
        waiting=trained.waiting,
        train_count=trained.material.examples,
        parameters=sum(each.numel() for each in module_of(answerer).parameters()),
        bad=dict(bad),
        extra=extra,
        findings=tuple(findings),
        said_before=tuple(plan.findings or ()),
    )
    result = replace(result, report=task.report(trained, result))
    write_run_card(task.info.card, result)
    return result


def write_run_card(card: Card, result: RunResult) -> None:
    """Write what the model is, how good it is, how it was made and how to use it."""
    run, config = result.run, result.run.config
    known = {**result.to_json(), **dict(config)}
    known["classes"] = ", ".join(f"`{name}`" for name in known.get("classes", ())[:MOST_CLASSES])
    path = quote(str(run.path))
    init, recipe = known.get("init"), known.get("recipe") or "of its own"
    model: Any = getattr(result.answerer, "model", result.answerer)
    facts = {
        **metric_rows(result.evaluation),
        "Data": f"`{config.source}`, {result.train_count} examples to train on",
        **{name: text.format(**known).replace("|", " ") for name, text in card.facts.items()},
        "Initialized from": f"`{init}`" if init else "random weights",
        **origin_facts(getattr(model, "origin", None)),
        "Parameters": f"{result.parameters:,}",
        "Training": f"{result.seconds:.0f} s, seed {config.seed}, recipe {recipe}",
    }
    text = TEMPLATE.read_text(encoding="utf-8").format(
        name=run.path.name,
        about=card.about.format(**known),
        version=__version__,
        rows="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
        use=card.use.replace("RUN", path),
        evaluate=f"\nvitreous evaluate {path}" if result.evaluation else "",
        path=run.path,
        python=card.python,
        command=config.command,
        limits=card.limits.format(**known),
    )
    write_text(run.path / "README.md", text)


def metric_rows(evaluation: Evaluation | None) -> dict[str, str]:
    """Return a row for each metric; the first says on how many examples."""
    if not evaluation:
        return {"Accuracy": "not measured: the data have no held-out part"}
    rows, count = {}, f" on {evaluation.count} held-out {evaluation.of}"
    for metric in evaluation.metrics.values():
        text = metric.text()
        if metric.interval:
            low, high = (metric.text(each) for each in metric.interval)
            text += f" (95% interval {low} to {high})"
        rows[metric.label[0].upper() + metric.label[1:]] = text + count
        count = ""
    return rows


def report_known_findings(task: AnyTask, data: Any, tell: Callable[[str], None]) -> list[Finding]:
    """Return what is known of data before a training begins on them; it is said first."""
    found = known_findings(data, labels=task.info.targets != "unlabeled")
    for sentence in data_notes(found):
        tell(sentence)
    return found
