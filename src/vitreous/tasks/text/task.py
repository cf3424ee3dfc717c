"""What the two tasks do alike whose models write text: captioning and translation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.data.text.batches import CaptionBatch, TextBatch
from vitreous.data.text.tokenizer import PAD, Tokenizer, tokenizer_from_json
from vitreous.errors import InputError
from vitreous.evaluation.text_models import TextModel
from vitreous.tasks.task import HeldOut, Material, Plan, Task, Trained, Tree, config_of_run
from vitreous.tasks.text.config import SequenceConfig
from vitreous.training.distributed import World
from vitreous.training.initial_model import absolute_source
from vitreous.training.learner import AverageWeight
from vitreous.training.run import Run
from vitreous.training.settings import configure
from vitreous.training.step import Objective

TRAINING_FACTS = {
    "Weights": "the mean of the last {averaging.checkpoints} checkpoints",
    "Left out": "{skipped[empty]} without text, {skipped[too_long]} that are too long",
}


class TextTask(Task):
    """A task whose model writes text with a tokenizer that is trained on the training texts.

    Attributes:
        answers: what has the model and the tokenizer.
    """

    config: ClassVar[type[SequenceConfig]]
    answers: ClassVar[type[TextModel]]

    def plan(
        self, source: str | None, settings: Tree, *, recipe: str | None = None, init: str | None = None
    ) -> Plan:
        source = absolute_sources(str(source or settings.get("source") or self.default_source))
        settings = {**settings, "task": self.name, "source": source}
        data = self.open_data(configure(self.config(), settings))
        return Plan(configure(self.recipe(source, data), settings), (), data, data.name)

    def open_data(self, config: Any) -> Any:
        return self.open_source(config.source, config)

    @abstractmethod
    def open_source(self, source: str, config: Any) -> Any:
        """Open DATA, split into `train` and `test` as the configuration says."""

    @abstractmethod
    def recipe(self, source: str, data: Any) -> SequenceConfig:
        """Return the configuration for a user's data, or for the bundled data."""

    @abstractmethod
    def training_texts(self, data: Any) -> list[str]:
        """Return the texts that the tokenizer is trained on."""

    @abstractmethod
    def batches(self, config: Any, data: Any, tokenizer: Tokenizer, **options: Any) -> tuple[Any, int, int]:
        """Make batches of encoded examples.

        Args:
            options: batch_size, seed, rank, world_size and device of the loader.

        Returns:
            the loader, how many examples it has, and how many are left out because they are too long.
        """

    def prepare(self, config: Any, data: Any, *, device: torch.device, world: World) -> Material:
        world.share(config.training.batch_size)  # raises where the processes cannot share a batch
        tokenizer = Tokenizer.train(self.training_texts(data), config.tokenizer.vocabulary)
        loader, examples, too_long = self.batches(
            config,
            data,
            tokenizer,
            device=device,
            batch_size=config.training.batch_size,
            seed=config.seed,
            rank=world.rank,
            world_size=world.size,
        )
        skipped = {"empty": data.empty, "too_long": too_long}
        reasons = {"empty": "without text", "too_long": f"of more than {config.decoder.max_length} tokens"}
        notes = tuple(f"skipped {n}: {reasons[key]}" for key, n in skipped.items() if n)
        return Material(loader, examples, loader.bad, tokenizer.to_json(), skipped, notes)

    def objective(self, config: Any, data: Any) -> Objective:
        return next_token(config.training.label_smoothing)

    def averaging(self, config: Any, steps: int) -> AverageWeight | None:
        return last_checkpoints(steps, config.averaging.checkpoints, config.averaging.every)

    def save(self, run: Run, result: nn.Module, material: Material) -> None:
        run.save_model(result, tokenizer=material.tokenizer)

    def answerer(self, trained: Trained) -> TextModel:
        tokenizer = tokenizer_from_json(trained.material.tokenizer or "", where="the run")
        return self.answers(trained.model, tokenizer)

    def held_out_part(self, data: Any) -> tuple[str | None, Any]:
        return "test", data.test

    def more(self, trained: Trained) -> dict[str, Any]:
        return {"skipped": dict(trained.material.skipped)}

    def open(self, spec: str, **overrides: Any) -> TextModel:
        if overrides:
            raise InputError(f"{spec} writes text: its {next(iter(overrides))} cannot be changed")
        return self.answers.load(Path(spec).expanduser())

    def held_out(self, spec: str, answerer: Any, data: str | None, settings: Tree) -> HeldOut:
        """Return the held-out part of what a run learned from; of other data what is held out of all
        training.

        Raises:
            InputError: no data are named, and the model is not in a run.
        """
        config = config_of_run(spec, data, self.config) or self.config()
        source = absolute_sources(data) if data else config.source
        found = self.open_source(source, config)
        if source == config.source:
            return HeldOut(source, "held-out part", found.test)
        return HeldOut(source, "all of it", self.not_learned(found))

    def check_tokenizer(self, answerer: Any) -> None:
        """Raise InputError for a model that is given without its tokenizer."""
        if isinstance(answerer, nn.Module):
            kind = type(answerer).__name__
            raise InputError(f"a {kind} has no tokenizer for its text: give the run, or its model folder")

    @abstractmethod
    def not_learned(self, data: Any) -> Any:
        """Return what to evaluate on of data that the model has not learned from."""


def last_checkpoints(total: int, count: int, every: int) -> AverageWeight:
    """Return the weights of the mean of `count` checkpoints, `every` steps apart, the last one at the end of
    training (1706.03762, section 6.1: "averaging the last 5 checkpoints").

    The mean grows as the checkpoints come, so that none is stored; before the first of the `count` it is the
    newest one.
    """

    def weight(step: int) -> float:
        left, between = divmod(total - 1 - step, every)
        return 0.0 if between else 1 / (max(count - 1 - left, 0) + 1)

    return weight


def next_token(smoothing: float) -> Objective:
    """Return the cross-entropy of each target token, given the source and the tokens before it; targets are
    smoothed to (1 - s) t + s / V (1706.03762, section 5.4). Padding does not count."""

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


def absolute_sources(source: str) -> str:
    """Return a source with every path made absolute: it may be two files with a comma between."""
    return ",".join(absolute_source(part) for part in source.split(","))
