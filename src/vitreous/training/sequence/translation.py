"""Training a translator in a run directory: from parallel text to a Transformer and its tokeniser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.checkpoints.sequences import save_sequence_model
from vitreous.data.text.batches import BucketLoader, Encoded, TextBatch, encode_pairs
from vitreous.data.text.parallel import Parallel
from vitreous.data.text.tokeniser import PAD, Tokeniser
from vitreous.errors import InputError
from vitreous.models.transformer import Transformer
from vitreous.training.display import Display
from vitreous.training.journal import MetricsFile, TensorBoard
from vitreous.training.learner import Learner
from vitreous.training.loop import Surroundings, fit
from vitreous.training.objectives import Objective
from vitreous.training.sequence.averaging import LastCheckpoints
from vitreous.training.sequence.config import TranslationConfig, read_translation_config, translation_toml
from vitreous.training.state import States, write_text


class TranslationRun:
    """What lies where in a translator's run directory.

    Attributes:
        config: all of the run, as config.toml has it.
        states: what `--resume` goes on from.
    """

    def __init__(self, path: Path, config: TranslationConfig) -> None:
        self.path, self.config = path, config
        self.states = States(path / "checkpoints")

    @classmethod
    def create(cls, path: Path, config: TranslationConfig) -> TranslationRun:
        """A new run directory.

        Raises:
            InputError: there is something at `path` already, or it cannot be written.
        """
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InputError(
                f"{path} exists already, and nothing is written over: choose another --out, or go on with "
                f"vitreous translate train --resume {path}"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            write_text(path / "config.toml", translation_toml(config))
        except OSError as error:
            raise InputError(f"cannot write to {path}: {error.strerror}; choose another --out") from None
        return cls(path, config)

    @classmethod
    def open(cls, path: Path) -> TranslationRun:
        """An existing one."""
        return cls(path, read_translation_config(path / "config.toml"))


class Prepared(NamedTuple):
    """Pairs as token ids, the tokeniser that made them, and a sentence for each kind of pair that was left
    out."""

    tokeniser: Tokeniser
    train: Encoded
    left_out: list[str]


def prepare(data: Parallel, config: TranslationConfig) -> Prepared:
    """Train the tokeniser on the training pairs alone, and encode them."""
    texts = (text for pair in data.train for text in (pair.source, pair.target))
    tokeniser = Tokeniser.train(texts, config.tokeniser.vocabulary)
    longest = config.model.max_length
    train = encode_pairs(data.train, tokeniser, longest)
    reasons = {"have an empty side": data.empty, f"have more than {longest} tokens": train.too_long}
    left_out = [f"skipped {count} pairs that {reason}" for reason, count in reasons.items() if count]
    return Prepared(tokeniser, train, left_out)


def objective(smoothing: float) -> Objective:
    """Cross-entropy of each target token, given the source and the tokens before it; targets are smoothed to
    (1 - s) t + s / V (section 5.4). Padding counts nowhere."""

    def measure(model: nn.Module, batch: TextBatch) -> tuple[Tensor, Mapping[str, Tensor]]:
        logits = model(batch.source, batch.target[:, :-1]).float()
        wanted = batch.target[:, 1:]
        loss = F.cross_entropy(
            logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD, label_smoothing=smoothing
        )
        real = wanted != PAD
        right = ((logits.detach().argmax(dim=-1) == wanted) & real).sum() / real.sum()
        return loss, {"accuracy": right}

    return measure


def train_translator(
    run: TranslationRun,
    prepared: Prepared,
    *,
    device: torch.device,
    validate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    display: Display | None = None,
) -> tuple[Transformer, float]:
    """Train the run's model from where the run stands, and save it with its tokeniser.

    Returns the model, the mean of its last checkpoints, on the CPU, and the seconds of training over all
    sessions.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        InputError: the loss stays non-finite, or a file cannot be written.
    """
    config = run.config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = Transformer(config.model).to(device)
    loader = BucketLoader(prepared.train, batch_size=config.training.batch_size, seed=config.seed)
    total = config.training.total_steps(loader.steps_per_epoch)
    learner = Learner.begin(model, config.training)
    learner.average = LastCheckpoints(
        model, total=total, count=config.averaging.checkpoints, every=config.averaging.every
    )
    if state := run.states.newest():
        learner.restore(state)
    with ExitStack() as stack:
        trackers = (
            MetricsFile(run.path / "metrics.jsonl", step=learner.step),
            TensorBoard(run.path, step=learner.step),
        )
        for tracker in trackers:
            stack.callback(tracker.close)
        stack.enter_context(display or nullcontext())
        surroundings = Surroundings(
            trackers=trackers,
            states=run.states,
            display=display,
            validate=validate,
            device=device,
            seed=config.seed,
        )
        fit(learner, loader, objective(config.training.label_smoothing), config.training, surroundings)
    result: Any = learner.result.cpu().eval()
    save_sequence_model(result, run.path / "model", tokeniser=prepared.tokeniser.to_json())
    return result, learner.seconds
