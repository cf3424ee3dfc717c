"""Training a model: one road from a plan to a model that has learned, read from top to bottom. What is
decided before it is in the plan, what follows is `vitreous.tasks.finish`; the loop is that of
`vitreous.training.trainer`, a step that of `vitreous.training.step`. Nothing here prints or reads a
command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from torch import nn

from vitreous.errors import InputError
from vitreous.evaluation.classical import MOST_FITTED
from vitreous.languages.terminal import said
from vitreous.tasks.task import AnyPlan, Trained
from vitreous.training.callbacks import Callback, MetricsRow
from vitreous.training.clock import Clock
from vitreous.training.config import CommandConfig
from vitreous.training.distributed import BadFileSync, naming_the_lost
from vitreous.training.machine import ON_CPU, Place, activation_checkpointing, numerics, threads_for
from vitreous.training.run import RunDirectory, finished
from vitreous.training.step import LossOf, data_parallel
from vitreous.training.trainer import Interrupted, NotFinite, Trainer

Callbacks = Sequence[Callback | Callable[[MetricsRow], object]]


def fit(
    plan: AnyPlan,
    place: Place = ON_CPU,
    *,
    callbacks: Callbacks = (),
    say: Callable[[str], object] = lambda sentence: None,
    resumable: bool = True,
) -> Trained[Any, Any]:
    """Train the model of a plan from its run's newest checkpoint, or from the beginning, and save it; do not
    evaluate it.

    Args:
        resumable: whether checkpoints are saved, and events for TensorBoard.

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

    material = task.prepare(config, data, place)
    for note in material.notes:
        say(note)
    bad = BadFileSync(material.bad, material.examples, world)
    total = training.total_steps(material.loader.steps_per_epoch)

    # ---- Model

    with place.built(training):
        model = task.build(config, data, steps=total)

    # ---- Objective, and what measures the model while it learns

    objective = task.objective(config, data)
    validate = task.validation(config, data, world)
    if not validate and training.recorded.early_stopping:
        raise InputError(
            "training.records.early_stopping needs a validation set: set data.validation_fraction=0.1"
        )

    with ExitStack() as stack:
        deterministic = training.computed.deterministic
        stack.enter_context(numerics(place.device, training.precision, deterministic=deterministic))
        if world.first:
            stack.enter_context(run.locked())

        # ---- Optimizer and average, at the newest checkpoint; its weights may be in shards (FSDP)

        compiled = place.compiles(training, total, fixed_shapes=material.fixed_shapes)
        learner = run.learner(model, place, averaging=material.averaging, compiled=compiled)
        before = learner.seconds
        finish = 0.0
        if plan.clock:  # what the command has done until now, such as trials, is a part of its time
            learner.elapsed = max(learner.elapsed, learner.seconds) + plan.clock.seconds
            answering = plan.compared.seconds_to_answer if plan.compared else 0.0
            finish = seconds_after(config, data, plan.clock, answering=answering)
        stack.enter_context(
            naming_the_lost(world, lambda: f"training stopped at step {learner.step}; {run.states.advice()}")
        )
        stack.callback(bad.write, run.path)
        if training.computed.checkpointing:
            stack.enter_context(activation_checkpointing(model))

        # ---- Loss: several processes average its gradient, by DDP where each has all weights

        loss = LossOf(learner.model, objective)
        joined = data_parallel(loss, learner.shards, training, world, compiled=compiled)

        # ---- Loop

        recorders = run.callbacks(learner.step, events=resumable) if world.first else []
        trainer = Trainer(
            learner,
            material.loader,
            joined,
            training,
            seed=config.seed,
            world=world,
            checkpointer=run.states if resumable else None,
            callbacks=[*recorders, *callbacks],
            validate=validate,
            validate_every=config.epochs_between_validations,
            bad=bad,
            name=task.info.training,
            finish=finish,
            threads=threads_for(
                place.device,
                say,
                world=world,
                fixed=bool(deterministic or training.computed.compile),
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
            newest = learner.full_model(learner.model) if material.averaging else learner.result
            result = finished(newest).cpu()
        interrupted = isinstance(stopped, Interrupted)
        # The run counts as stopped until the model is saved, and stays so where resuming continues it.
        if world.first:
            run.note_stop(learner.step if interrupted else trainer.total, trainer.total)
            task.save(run, result, material)
            if not interrupted:
                run.note_stop(None, trainer.total)
        if isinstance(stopped, NotFinite):
            raise NotFinite(f"{stopped}; they are in {run.path / 'model'}") from None
        if stopped is not None:
            raise stopped
        return Trained(run, data, material, result, seconds, waiting, plan.compared)


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
    if training.recorded.early_stopping and learner.best_step not in (None, learner.step):
        run.states.restore_best(learner, trainer.world)
        say(said("the model is from the best validation, at step {step}", step=learner.step))


def untrained(plan: AnyPlan, place: Place) -> Trained[Any, Any]:
    """Return a training of no steps, of whose candidates another one answers: no network is built."""
    read = plan.config.data.read.model_copy(update={"in_memory": False})  # as nothing is read from it
    data = plan.config.data.model_copy(update={"read": read})
    material = plan.task.prepare(plan.config.model_copy(update={"data": data}), plan.data, place)
    if place.world.first:
        plan.made.note_stop(None, 0)
    return Trained(plan.made, plan.data, material, nn.Module(), 0.0, 0.0, plan.compared)


# Seconds of a processor: a report, an image that is evaluated, and one that a baseline is fitted on.
REPORT, READ, DESCRIBED = 8.0, 0.03, 0.005


def seconds_after(config: CommandConfig, data: Any, clock: Clock, *, answering: float = 0.0) -> float:
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
