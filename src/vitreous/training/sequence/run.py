"""Training a model that writes text in a run directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.checkpoints.native import save_native
from vitreous.checkpoints.weights import SequenceModel
from vitreous.data.text.batches import CaptionBatch, TextBatch
from vitreous.data.text.tokenizer import PAD
from vitreous.errors import InputError
from vitreous.models.captioner import Captioner
from vitreous.models.transformer import Transformer
from vitreous.training.callbacks import Display
from vitreous.training.distributed import World
from vitreous.training.objectives import Objective
from vitreous.training.parallel import Shards
from vitreous.training.precision import decided
from vitreous.training.run import RunDirectory
from vitreous.training.sequence.averaging import LastCheckpoints
from vitreous.training.sequence.config import ReadingConfig, SequenceConfig, TranslationConfig, read_config
from vitreous.training.sequence.plan import Prepared
from vitreous.training.session import Session, train_run


class SequenceRun(RunDirectory[TranslationConfig | ReadingConfig]):
    """The run directory of a translator or a reader of images."""

    @classmethod
    def begin(
        cls, path: Path, config: TranslationConfig | ReadingConfig, device: torch.device, world: World
    ) -> SequenceRun:
        """A new one of all processes, with what depends on the machine decided."""
        training = decided(config.training, device)
        return cls.shared(path, config.model_copy(update={"training": training}), world)

    @classmethod
    def open(cls, path: Path, kind: type[SequenceConfig] = SequenceConfig) -> SequenceRun:
        """An existing one.

        Args:
            kind: of configuration; by default either.

        Raises:
            InputError: it is no run of that kind.
        """
        config = read_config(path / "config.toml")
        if not isinstance(config, kind):
            does = "translates" if isinstance(config, TranslationConfig) else "reads images"
            command = f"vitreous {config.command} --resume {quote(str(path))}"
            raise InputError(f"{path} {does}: go on with {command}")
        return cls(path, config)


def next_token(smoothing: float) -> Objective:
    """Cross-entropy of each target token, given the source and the tokens before it; targets are smoothed to
    (1 - s) t + s / V (1706.03762, section 5.4). Padding counts nowhere."""

    def objective(
        model: nn.Module, batch: TextBatch | CaptionBatch, generator: torch.Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        source, target, tokens = batch
        logits, wanted = model(source, target[:, :-1]).float(), target[:, 1:]
        loss = F.cross_entropy(
            logits.flatten(0, 1),
            wanted.flatten(),
            ignore_index=PAD,
            label_smoothing=smoothing,
            reduction="sum",
        )
        right = (logits.detach().argmax(dim=-1) == wanted) & (wanted != PAD)
        return loss / tokens.sum(), {"accuracy": right.sum() / tokens.sum()}

    return objective


def fresh_model(config: TranslationConfig | ReadingConfig) -> SequenceModel:
    """Build the model of a run, its weights drawn from the run's seed."""
    if isinstance(config, TranslationConfig):
        return Transformer(config.model, seed=config.seed)
    return Captioner(config.model, preprocessing=config.preprocessing, seed=config.seed)


def train_sequence_model(
    run: SequenceRun,
    prepared: Prepared,
    *,
    device: torch.device,
    display: Display | None = None,
    world: World | None = None,
) -> Session:
    """Train the run's model from where the run stands, and save it with its tokenizer.

    Args:
        world: the processes that train together; only the first one writes into the run.

    Raises:
        Interrupted: Ctrl-C or SIGTERM came, and the state is saved.
        InputError: the loss stays non-finite, or a file cannot be written.
    """
    config, loader = run.config, prepared.loader

    def last_checkpoints(model: nn.Module, shards: Shards | None) -> LastCheckpoints:
        total = config.training.total_steps(loader.steps_per_epoch)
        count, every = config.averaging.checkpoints, config.averaging.every
        return LastCheckpoints(model, total=total, count=count, every=every, shards=shards)

    def save(model: nn.Module) -> None:
        trained: SequenceModel = model.cpu()  # type: ignore[assignment]
        save_native(trained, run.path / "model", tokenizer=prepared.tokenizer.to_json())

    session = train_run(
        run,
        fresh_model(config),
        loader,
        next_token(config.training.label_smoothing),
        save=save,
        bad=prepared.bad,
        images=prepared.examples,
        device=device,
        world=world,
        callbacks=[display] if display else [],
        make_average=last_checkpoints,
    )
    return session._replace(model=session.model.cpu())
