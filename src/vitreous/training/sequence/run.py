"""Training a model that writes text in a run directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.checkpoints.sequences import SequenceModel, save_sequence_model
from vitreous.data.text.tokeniser import PAD, Tokeniser
from vitreous.models.captioner import Captioner
from vitreous.models.transformer import Transformer
from vitreous.training.display import Display
from vitreous.training.learner import Learner
from vitreous.training.loop import Loader, Surroundings, fit
from vitreous.training.objectives import Objective
from vitreous.training.precision import decided
from vitreous.training.run import RunDirectory
from vitreous.training.sequence.averaging import LastCheckpoints
from vitreous.training.sequence.config import ReadingConfig, TranslationConfig, read_config
from vitreous.training.setbacks import kept_if_not_finite
from vitreous.training.surrounding import trackers


class SequenceRun(RunDirectory[TranslationConfig | ReadingConfig]):
    """The run directory of a translator or a reader of pictures."""

    @classmethod
    def begin(
        cls, path: Path, config: TranslationConfig | ReadingConfig, device: torch.device
    ) -> SequenceRun:
        """A new one, with what depends on the machine decided."""
        training = decided(config.training, device)
        return cls.create(path, config.model_copy(update={"training": training}))

    @classmethod
    def open(cls, path: Path) -> SequenceRun:
        """An existing one."""
        return cls(path, read_config(path / "config.toml"))


class TrainedSequence(NamedTuple):
    """The mean of the last checkpoints, on the CPU, and the seconds of training over all sessions."""

    model: SequenceModel
    seconds: float


def next_token(smoothing: float) -> Objective:
    """Cross-entropy of each target token, given the source and the tokens before it; targets are smoothed to
    (1 - s) t + s / V (1706.03762, section 5.4). Padding counts nowhere."""

    def objective(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Mapping[str, Tensor]]:
        source, target = batch
        logits, wanted = model(source, target[:, :-1]).float(), target[:, 1:]
        loss = F.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD, label_smoothing=smoothing
        )
        real = wanted != PAD
        right = ((logits.detach().argmax(dim=-1) == wanted) & real).sum() / real.sum()
        return loss, {"accuracy": right}

    return objective


def fresh_model(config: TranslationConfig | ReadingConfig) -> SequenceModel:
    """The model of a run, its weights drawn from the run's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        if isinstance(config, TranslationConfig):
            return Transformer(config.model)
        return Captioner(config.model, preprocessing=config.preprocessing)


def train_sequence_model(
    run: SequenceRun,
    loader: Loader,
    tokeniser: Tokeniser,
    *,
    device: torch.device,
    validate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    display: Display | None = None,
) -> TrainedSequence:
    """Train the run's model from where the run stands, and save it with its tokeniser.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        InputError: the loss stays non-finite, or a file cannot be written.
    """
    config = run.config
    learner = Learner.begin(fresh_model(config).to(device), config.training)
    learner.average = LastCheckpoints(
        learner.model,
        total=config.training.total_steps(loader.steps_per_epoch),
        count=config.averaging.checkpoints,
        every=config.averaging.every,
    )
    if state := run.states.newest():
        learner.restore(state)
    with ExitStack() as stack:
        stack.enter_context(display or nullcontext())
        surroundings = Surroundings(
            trackers=trackers(run, learner.step, stack),
            states=run.states,
            display=display,
            validate=validate,
            device=device,
            seed=config.seed,
        )
        objective = next_token(config.training.label_smoothing)
        # Where training breaks off, the mean of its last checkpoints is still to come.
        save = partial(saved, run, learner.model, tokeniser)
        with kept_if_not_finite(save, run.path / "model"):
            fit(learner, loader, objective, config.training, surroundings)
    return TrainedSequence(saved(run, learner.result, tokeniser), learner.seconds)


def saved(run: SequenceRun, model: Any, tokeniser: Tokeniser) -> SequenceModel:
    """The model on the CPU, written into the run's model/ with its tokeniser."""
    model = model.cpu().eval()
    save_sequence_model(model, run.path / "model", tokeniser=tokeniser.to_json())
    return model
