"""Self-supervised training in a run directory: from its configuration and data to an encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vitreous.data.dataset import ImageDataset
from vitreous.data.image_samples import Batch, evaluation_loader
from vitreous.data.loading import worker_count
from vitreous.data.sources import Splits
from vitreous.evaluation.monitor import Measure, fewshot_measure
from vitreous.models.names import Model
from vitreous.pretraining.config import PretrainingRunConfig
from vitreous.pretraining.dino import DINO
from vitreous.pretraining.objectives import SelfSupervision, build_objective
from vitreous.training.bad_together import BadTogether
from vitreous.training.checkpointing import checkpointed
from vitreous.training.classifier import train_loader
from vitreous.training.display import Display
from vitreous.training.distributed import World
from vitreous.training.float8 import out_of_float8
from vitreous.training.learner import Learner
from vitreous.training.loop import fit
from vitreous.training.resuming import resumed
from vitreous.training.run import Run
from vitreous.training.setbacks import kept_if_not_finite
from vitreous.training.shares import SharedStates
from vitreous.training.starting import starting_model
from vitreous.training.state import States
from vitreous.training.surrounding import surrounded


class Pretrained(NamedTuple):
    """What pre-training gave.

    Attributes:
        encoder: the model to fine-tune or probe, without a head; on the CPU.
        objective: what it learned by, for showing reconstructions.
        seconds: of training, over all sessions.
        bad: images that could not be read and were left out, with the reason.
    """

    encoder: Model
    objective: SelfSupervision
    seconds: float
    bad: Mapping[str, str]


def pretrain(
    run: Run,
    splits: Splits,
    *,
    device: torch.device,
    display: Display | None = None,
    world: World | None = None,
) -> Pretrained:
    """Train from where the run stands: its beginning, or the newest saved state. The encoder goes into the
    run's model/, which `train --init` and `probe` take.

    Args:
        world: the processes that train together; only the first one writes into the run.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        InputError: the objective cannot be had with this model; what `fit` raises.
    """
    config, world = run.config, world or World()
    assert isinstance(config, PretrainingRunConfig)  # `Run` holds either kind
    loader = train_loader(run.config, splits, device, world)
    steps = config.training.total_steps(loader.steps_per_epoch)
    learner, states = learner_of(run, config, device, world, steps=steps)
    around = surrounded(
        run,
        learner,
        states,
        BadTogether(loader.bad, len(splits.train), world),
        device=device,
        display=display,
        world=world,
        validate=measures(splits, config),
        validate_every=config.evaluation.every_epochs,
    )
    encoder: Any = learner.model.encoder
    recomputing = checkpointed(encoder) if config.training.checkpointing else nullcontext()
    save = partial(saved, run, learner, world)
    with around as surroundings, recomputing, kept_if_not_finite(save, run.path / "model"):
        fit(learner, loader, self_supervised, config.training, surroundings)
    objective = save()
    return Pretrained(objective.encoder, objective, learner.seconds, dict(loader.bad))


def saved(run: Run, learner: Learner, world: World) -> SelfSupervision:
    """The objective on the CPU. The first process has written its encoder into the run's model/."""
    objective: SelfSupervision = learner.result.cpu().eval()  # type: ignore[assignment]
    out_of_float8(objective)
    encoder = objective.encoder.requires_grad_(True)
    if world.first:
        run.save_model(encoder)
    return objective


def learner_of(
    run: Run, config: PretrainingRunConfig, device: torch.device, world: World, *, steps: int
) -> tuple[Learner, States | SharedStates]:
    """The objective at the run's newest saved state, or at its beginning, and where its next states go.

    Args:
        steps: of the whole training.
    """
    with torch.random.fork_rng(devices=[]):
        model = starting_model(config, labels=())
        model.labels, model.task = None, config.pretraining.objective
        torch.manual_seed(config.seed)  # the mask token and the heads
        objective = build_objective(model, config.pretraining, steps=steps)
    learner, states = resumed(objective, run.states, config.training, device=device, world=world)
    if isinstance(objective, DINO):
        objective.follow_steps_of(learner.optimizers[-1])
    return learner, states


def self_supervised(objective: nn.Module, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
    """An objective for `fit`. The masks are drawn from the generator that `fit` sets anew for every step."""
    return objective(batch.images, torch.default_generator)


def measures(splits: Splits, config: PretrainingRunConfig) -> Measure | None:
    """The objective on held-out images; the encoder's few-shot accuracy if `evaluation.fewshot` is set."""
    held_out = held_out_loss(splits.validation or splits.test, config)
    if not config.evaluation.fewshot:
        return held_out
    few = fewshot_measure(splits, batch_size=config.evaluation.batch_size)

    def measure(objective: Any) -> Mapping[str, float]:
        loss = held_out(objective) if held_out else {}
        return {**loss, **few(objective.encoder)}

    return measure


def held_out_loss(
    images: ImageDataset | None, config: PretrainingRunConfig
) -> Callable[[nn.Module], Mapping[str, float]] | None:
    """What measures the objective on `images`, always with the same masks; None without images."""
    if not images:
        return None

    def measure(objective: nn.Module) -> Mapping[str, float]:
        device = next(objective.parameters()).device
        loader = evaluation_loader(
            images,
            preprocessing=config.preprocessing,
            batch_size=config.evaluation.batch_size,
            workers=worker_count(config.data.workers),
            device=device,
        )
        was_training, total, count = objective.training, 0.0, 0
        generator = torch.Generator().manual_seed(0)
        objective.eval()
        with torch.no_grad():
            for batch in loader:
                loss, _ = objective(batch.images, generator)
                total += float(loss) * len(batch.images)
                count += len(batch.images)
        objective.train(was_training)
        return {"validation_loss": total / count}

    return measure
