"""A training run, read from top to bottom.

It begins until its plan is complete: a new one is fitted to its machine (`with_run`), or one continues
(`resume_run`). `fit` makes of the plan a model that has learned. `finish` says what is kept of it: the
evaluation, the report and the model card. The loop is that of `vitreous.training.trainer`, a step that of
`vitreous.training.step`. Nothing here prints or reads a command line.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from torch import nn

from vitreous import __version__
from vitreous.checkpoints.model_card import origin_facts
from vitreous.data.checks import known_findings
from vitreous.data.dataset import ImageDataset, named_parts
from vitreous.data.findings import Finding, data_notes, write_findings
from vitreous.data.loading import BadFiles
from vitreous.data.workers import processes_here
from vitreous.errors import InputError, Param
from vitreous.evaluation.classical import MOST_FITTED
from vitreous.evaluation.outputs import ProgressCallback
from vitreous.evaluation.result import Evaluation
from vitreous.languages.terminal import said
from vitreous.tasks import task_named, task_of_run
from vitreous.tasks.answerer import evaluate_answerer
from vitreous.tasks.course import FINDINGS, course_of, with_others, without_what_was_tried
from vitreous.tasks.images import ImageParts
from vitreous.tasks.task import (
    AnyPlan,
    AnyTask,
    Card,
    DataParts,
    Plan,
    RunResult,
    Trained,
    Tree,
    get_held_out,
    module_of,
    other_command,
)
from vitreous.training.callbacks import Callback, MetricsRow
from vitreous.training.clock import Clock
from vitreous.training.config import CommandConfig, RunConfig
from vitreous.training.distributed import BadFileSync, first_value, naming_the_lost
from vitreous.training.machine import (
    CUBLAS_WORKSPACE,
    ON_CPU,
    Place,
    accumulation,
    activation_checkpointing,
    free_bytes,
    numerics,
    threads_for,
)
from vitreous.training.run import RunDirectory, check_free_for_run, default_run_path, finished, with_training
from vitreous.training.step import LossOf, TrainStep, data_parallel
from vitreous.training.trainer import Interrupted, NotFinite, Trainer, Validation
from vitreous.whole_files import write_text

BEGUN = count()  # runs of this process: torchrun's restarted processes begin the same ones in the same order
Callbacks = Sequence[Callback | Callable[[MetricsRow], object]]
TEMPLATE = Path(__file__).with_name("card.md")  # with names in braces
MOST_CLASSES = 50  # that a card names


def with_run(
    plan: AnyPlan,
    settings: Tree,
    place: Place,
    *,
    out: Path | None = None,
    fit_memory: bool = False,
) -> AnyPlan:
    """Return a plan that is fitted to the machine, with its run directory. Raises InputError: the machine
    cannot do it, or there is something at `out` already.

    Args:
        settings: the user's own: what they say is not changed.
        out: the directory; None: one by the name of the plan.
        fit_memory: split the batch into as many micro-batches as the memory needs.
    """
    config, notes, world = plan.config, list[str](), place.world
    path, begun = plan.replaces or out or default_run_path(plan.name), False
    # The first process makes the directory, maybe before another one has come this far.
    if world.first and not plan.replaces:
        first, begun = first_value(f"run/{next(BEGUN)}", str(path))
        path = Path(first)
        if not begun:
            check_free_for_run(path, config.command)
    if config.training.machine_config.deterministic:
        os.environ.setdefault(*CUBLAS_WORKSPACE)
    # The precision is chosen before config.toml is written, which says it.
    config = with_training(config, precision=place.precision(config))
    size = config.training.batch_size
    # A size that the user has set is not changed.
    if size % world.size and not settings.get("training", {}).get("batch_size"):
        size = max(size - size % world.size, world.size)
        config = with_training(config, batch_size=size)
        notes.append(
            said(
                "batch: {size} images, which {processes} processes share equally",
                size=size,
                processes=world.size,
            )
        )
    if fit_memory and config.training.machine_config.shard and world.size > 1:
        raise InputError(
            f"{Param('batch_size')} auto needs the whole model, and {Param('shard')} is for those that do "
            "not fit: pass a "
            "number, and training.machine.grad_accum_steps for micro-batches"
        )
    # All processes measure, or none: an objective may compare the images of all.
    machine = config.training.machine_config
    unsure = not machine.shard and config.step_bytes > free_bytes(place.device) / 4
    unsure = machine.grad_accum_steps == 1 and world.any((unsure,))[0]
    if fit_memory or unsure:
        free = free_bytes(place.device) // (processes_here() if place.device.type == "cpu" else 1)
        parts = parts_that_fit(plan.task, config, plan.data, place, free)
        if parts != machine.grad_accum_steps:
            machine = machine.model_copy(update={"grad_accum_steps": parts})
            config = with_training(config, machine=machine)
        if fit_memory or parts > 1:
            notes.append(
                said(
                    "memory: batches of {size} in {parts} micro-batches of {each} images",
                    size=size,
                    parts=parts,
                    each=size // parts,
                )
            )
    if plan.replaces:
        if world.first:
            RunDirectory.after_first_model(path, config)
        # The other processes wait until config.toml is written.
        world.broadcast(None)
        run = RunDirectory.open(path, type(config))
    else:
        run = RunDirectory.shared(path, config, world, recorded_parts(plan.data), begun=begun)
    if plan.compared:
        plan.compared.begin(run)
    run = run.in_force(place)
    return replace(plan, config=run.config, run=run).with_reasons(*notes)


def task_to_resume(path: Path, command: str, task: str | None) -> AnyTask:
    """Return the task of a run that is to be continued. Raises InputError if `resume_run` does."""
    kind = task_of_run(path)
    if kind.config.command != command:
        raise InputError(other_command(kind, path, command))
    if task is not None and task != kind.name:
        raise InputError(
            f"{path} is a run of {Param('task')} {kind.name}, not {task}: leave out {Param('task')}"
        )
    return kind


def resume_run(
    path: Path,
    *,
    command: str = "train",
    task: str | None = None,
    place: Place = ON_CPU,
    shard: bool | None = None,
    length: str | None = None,
    data: str | None = None,
) -> AnyPlan:
    """Open a run that continues from its newest state.

    Args:
        command: that is used; a run of another command says which.
        task: that is expected; None: the run's.
        shard: whether its weights are sharded from now on; None: as it was begun.
        length, data: its length in all, and where its data are now; None: as it was planned.

    Raises:
        InputError: it is not a run, or of another command or task; or its data are gone.
    """
    kind = task_to_resume(path, command, task)
    run, note = open_run(path).with_data(data), ""
    opened = kind.open_data(run.config, run.split)
    if place.world.first and data is not None:
        run.write_config()
    if length is not None:
        run, note = run.extended(place.world, length)
    if shard is not None:
        run = run.with_training(
            machine=run.config.training.machine_config.model_copy(update={"shard": shard})
        )
    return plan_of_run(run, opened, place).with_reasons(*filter(None, [note]))


def plan_of_run(run: RunDirectory[CommandConfig], data: DataParts, place: Place = ON_CPU) -> AnyPlan:
    """Return the plan of a run whose directory is there, on these data."""
    run = run.in_force(place)
    return Plan(task_named(run.config.task), run.config, data, run.path.name, run=run)


def recorded_parts(data: DataParts) -> Mapping[str, ImageDataset]:
    """Return the images that a run's split.csv lists, by part; none for data of another kind."""
    return named_parts(data.train, data.validation, data.test) if isinstance(data, ImageParts) else {}


def open_run(path: Path) -> RunDirectory[CommandConfig]:
    """Open a run directory of any task."""
    return RunDirectory.open(path, task_of_run(path).config)


def parts_that_fit(task: AnyTask, config: RunConfig, data: object, place: Place, free: int) -> int:
    """Return into how many micro-batches a batch is split so that it fits into so many free bytes."""
    training, device = config.training, place.device
    model = task.build(config, data, steps=1).to(device)
    images = torch.zeros(2, config.model.channels, *config.model.image_size, device=device)
    forward = partial(model, generator=torch.Generator()) if task.info.generator else model
    with activation_checkpointing(model) if training.machine_config.checkpointing else nullcontext():
        return accumulation(model, images, place.world.share(training.batch_size), free, forward=forward)


def fit(
    plan: AnyPlan,
    place: Place = ON_CPU,
    *,
    callbacks: Callbacks = (),
    say: Callable[[str], object] = lambda sentence: None,
    resumable: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> Trained[Any, Any]:
    """Train the model of a plan from its run's newest checkpoint, or from the beginning, and save it; do not
    evaluate it.

    Args:
        resumable: whether checkpoints are saved, and events for TensorBoard.
        clock: returns seconds since any moment.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        NotFinite: the loss stays non-finite; the last good weights are saved.
        InputError: data that cannot be read, or settings that do not fit together.
    """
    task, run, data, world = plan.task, plan.made, plan.data, place.world
    config, training = plan.config, plan.config.training
    if plan.compared is not None and training.steps == 0:
        return untrained(plan, place)

    # ---- Data: what could not be read of them is counted by all processes together

    batches = task.prepare(config, data, place)
    for note in batches.notes:
        say(note)
    bad = BadFileSync(batches.bad, batches.examples, world)
    total = training.total_steps(batches.loader.steps_per_epoch)

    # ---- Model

    with place.built(training):
        model = task.build(config, data, steps=total)

    # ---- Objective, and what measures the model while it learns

    objective = task.objective(config, data)
    measure = task.validation(config, data, world)
    if not measure and training.records_config.early_stopping:
        raise InputError(
            "training.records.early_stopping needs a validation set: set data.validation_fraction=0.1"
        )

    with ExitStack() as stack:
        deterministic = training.machine_config.deterministic
        stack.enter_context(numerics(place.device, training.precision, deterministic=deterministic))
        if world.first:
            stack.enter_context(run.locked())

        # ---- Optimizer and average, at the newest checkpoint; its weights may be in shards (FSDP)

        compiled = place.compiles(training, total, fixed_shapes=batches.fixed_shapes)
        learner = run.learner(model, place, averaging=batches.averaging, compiled=compiled)
        before = learner.seconds
        finish = 0.0
        # What the command has done until now, such as trials, is a part of its time.
        if plan.clock:
            learner.elapsed = max(learner.elapsed, learner.seconds) + plan.clock.seconds
            answering = plan.compared.seconds_to_answer if plan.compared else 0.0
            finish = seconds_after(config, data, plan.clock, answering=answering)
        stack.enter_context(
            naming_the_lost(world, lambda: f"training stopped at step {learner.step}; {run.states.advice()}")
        )
        stack.callback(bad.write, run.path)
        if training.machine_config.checkpointing:
            stack.enter_context(activation_checkpointing(model))

        # ---- Step: several processes average the gradient of its loss, by DDP where each has all weights

        loss = LossOf(learner.model, objective)
        joined = data_parallel(loss, learner.shards, training, world, compiled=compiled)
        step = TrainStep(learner, joined, training, seed=config.seed, world=world)

        # ---- Loop

        recorders = run.callbacks(learner.step, events=resumable) if world.first else []
        trainer = Trainer(
            step,
            batches.loader,
            clock=clock,
            checkpointer=run.states if resumable else None,
            callbacks=[*recorders, *callbacks],
            validation=Validation(measure, config.epochs_between_validations) if measure else None,
            bad=bad,
            name=task.info.training,
            finish=finish,
            threads=threads_for(
                place.device,
                say,
                world=world,
                fixed=bool(deterministic or training.machine_config.compile),
            ),
        )
        stopped: Interrupted | NotFinite | None = None
        try:
            trainer.fit()
        except (Interrupted, NotFinite) as error:
            stopped = error
        seconds = learner.seconds
        waiting = trainer.waited / (seconds - before) if seconds > before else 0.0

        # ---- The model that is kept, and saving it

        if stopped is None:
            use_best_validation(run, trainer, say)
            result = finished(learner.result).cpu()
        else:
            # The mean of the last checkpoints would be of those that are still to come: the newest weights.
            newest = learner.full_model(learner.model) if batches.averaging else learner.result
            result = finished(newest).cpu()
        interrupted = isinstance(stopped, Interrupted)
        # The run counts as stopped until the model is saved, and stays so where resuming continues it.
        if world.first:
            run.note_stop(learner.step if interrupted else trainer.total, trainer.total)
            task.save(run, result, batches)
            if not interrupted:
                run.note_stop(None, trainer.total)
        if isinstance(stopped, NotFinite):
            raise NotFinite(f"{stopped}; they are in {run.path / 'model'}") from None
        if stopped is not None:
            raise stopped
        return Trained(run, data, batches, result, seconds, waiting, plan.compared)


def use_best_validation(
    run: RunDirectory[CommandConfig], trainer: Trainer, say: Callable[[str], object]
) -> None:
    """Put a learner back to its best validation, where the run asks for early stopping."""
    learner, training = trainer.learner, trainer.config
    if learner.is_out_of_patience(training):
        say(
            said(
                "early stopping: ended at step {step} of {total}, since {worse} validations in a row were no "
                "better than the one at step {best}; to continue, "
                "raise training.records.early_stopping.patience in config.toml",
                step=learner.step,
                total=trainer.total,
                worse=learner.worse,
                best=learner.best_step,
            )
        )
    if training.records_config.early_stopping and learner.best_step not in (None, learner.step):
        run.states.restore_best(learner, trainer.world)
        say(said("the model is from the best validation, at step {step}", step=learner.step))


def untrained(plan: AnyPlan, place: Place) -> Trained[Any, Any]:
    """Return a training of no steps, of whose candidates another one answers: no network is built."""
    # Nothing is read from the data, so they are not decoded into memory.
    read = plan.config.data.read.model_copy(update={"in_memory": False})
    data = plan.config.data.model_copy(update={"read": read})
    batches = plan.task.prepare(plan.config.model_copy(update={"data": data}), plan.data, place)
    if place.world.first:
        plan.made.note_stop(None, 0)
    return Trained(plan.made, plan.data, batches, nn.Module(), 0.0, 0.0, plan.compared)


# Seconds of a processor: a report, an image that is evaluated, and one that a baseline is fitted on.
REPORT, READ, DESCRIBED = 8.0, 0.03, 0.005


def seconds_after(config: CommandConfig, data: DataParts, clock: Clock, *, answering: float = 0.0) -> float:
    """Return about how many seconds follow a training: the network answers the validation set, by which what
    answers is chosen; that answers the test set; and the report is written.

    Args:
        clock: says how much longer than its processor time something takes now.
        answering: seconds that what may answer beside the network takes for an image, measured here.
    """
    parts = (getattr(data, name, None) for name in ("test", "validation"))
    held_out = [len(part) for part in parts if part is not None]
    learned = min(len(data.train), MOST_FITTED) if config.of_images else 0
    work = REPORT + READ * sum(held_out) + DESCRIBED * learned
    return clock.slowness * work + answering * next(iter(held_out), 0)


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
    # This computes in fp32, as `vitreous calibrate` does.
    trained, sentences = task.finalize(trained, **options)
    if plan.compared:
        trained, chosen = plan.compared.choose(trained, **options)
        sentences = [*sentences, *chosen]
    answerer = task.answerer_of(trained.model, trained.batches.files)
    held_out, examples = get_held_out(task, data)
    evaluation = None
    if held_out:
        evaluation = evaluate_answerer(
            task, answerer, examples, folder=run.path / "model", say=say, **options
        )

    # ---- Findings, report and card, by the first process

    if not world.first:
        return None
    for sentence in sentences:
        say(sentence)
    bad = BadFiles()
    bad.merge(trained.batches.bad)
    if evaluation:
        bad.reasons.update(evaluation.failed)
        bad.damaged.update(evaluation.damaged)
    bad.write(run.path / "bad_files.txt")
    extra = task.extra_fields(trained)
    before = without_what_was_tried(run, plan.findings or ())
    at_its_end = course_of(run, data, evaluation, extra.get("baselines", ()))
    findings = with_others(before, without_what_was_tried(run, at_its_end))
    write_findings(run.path / FINDINGS, findings)
    result = RunResult(
        task=task.name,
        run=run,
        answerer=answerer,
        evaluation=evaluation,
        held_out=held_out,
        seconds=trained.seconds,
        waiting=trained.waiting,
        train_count=trained.batches.examples,
        parameters=sum(each.numel() for each in module_of(answerer).parameters()),
        bad=dict(bad),
        extra=extra,
        findings=tuple(findings),
        said_before=tuple(before),
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
    origin = getattr(model, "origin", None)
    facts = {
        **metric_rows(result.evaluation),
        "Data": f"`{config.source}`, {result.train_count} examples to train on",
        **{name: text.format(**known).replace("|", " ") for name, text in card.facts.items()},
        "Initialized from": f"`{init}`" if init else "random weights",
        **(origin_facts(origin) if origin else {}),
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


def report_known_findings(task: AnyTask, data: DataParts, tell: Callable[[str], None]) -> list[Finding]:
    """Return what is known of data before a training begins on them; it is said first."""
    found = known_findings(data, labels=task.info.targets != "unlabeled")
    for sentence in data_notes(found):
        tell(sentence)
    return found
