"""Self-supervised training in a run directory: from its configuration and data to an encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from vitreous.training.callbacks import Display
from vitreous.training.classifier import train_loader
from vitreous.training.distributed import World
from vitreous.training.initial_model import starting_model
from vitreous.training.learner import Learner
from vitreous.training.run import Run
from vitreous.training.session import train_run


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
    with torch.random.fork_rng(devices=[]):
        model = starting_model(config, labels=())
        model.labels, model.task = None, config.pretraining.objective
        torch.manual_seed(config.seed)  # the mask token and the heads
        steps = config.training.total_steps(loader.steps_per_epoch)
        objective = build_objective(model, config.pretraining, steps=steps)

    def on_resume(learner: Learner) -> None:
        if isinstance(objective, DINO):
            objective.follow_steps_of(learner.optimizers[-1])

    session = train_run(
        run,
        objective,
        loader,
        self_supervised,
        save=lambda trained: run.save_model(trained.cpu().encoder),
        bad=loader.bad,
        images=len(splits.train),
        device=device,
        world=world,
        callbacks=[display] if display else [],
        validate=measures(splits, config),
        validate_every=config.evaluation.every_epochs,
        on_resume=on_resume,
    )
    trained: SelfSupervision = session.model.cpu()
    return Pretrained(trained.encoder, trained, session.seconds, session.bad)


def self_supervised(
    objective: nn.Module, batch: Batch, generator: torch.Generator
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Compute the loss of a self-supervised objective, whose masks and views come from the generator."""
    return objective(batch.images, generator)


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
