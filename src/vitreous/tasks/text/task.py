"""What the two tasks do alike whose models write text: captioning and translation."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.data.text.batches import CaptionBatch, TextBatch
from vitreous.data.text.tokenizer import PAD, Tokenizer
from vitreous.errors import InputError
from vitreous.tasks.task import HeldOut, Material, Plan, Task, Tree
from vitreous.tasks.text.config import SequenceConfig
from vitreous.training.initial_model import absolute_source
from vitreous.training.learner import move_towards
from vitreous.training.parallel import Shards
from vitreous.training.run import Run
from vitreous.training.session import MakeAverage
from vitreous.training.settings import configure
from vitreous.training.step import Objective
from vitreous.training.trainer import Loader


class TextTask(Task):
    """A task whose model writes text with a tokenizer that is trained on the training texts."""

    config: ClassVar[type[SequenceConfig]]

    def plan(
        self, source: str | None, settings: Tree, *, recipe: str | None = None, init: str | None = None
    ) -> Plan:
        source = absolute_sources(str(source or settings.get("source") or self.default_source))
        settings = {**settings, "task": self.name, "source": source}
        first = configure(self.config(), settings)
        data = self.open_source(source, seed=first.seed, test_fraction=first.test_fraction)
        config = configure(self.recipe(source, len(self.training_part(data))), settings)
        return Plan(config, (), data, data.name)

    @abstractmethod
    def open_source(self, source: str, *, seed: int, test_fraction: float) -> Any:
        """Open DATA, split into `train` and `test`."""

    @abstractmethod
    def recipe(self, source: str, examples: int) -> SequenceConfig:
        """Return the configuration for so many examples, or for the bundled data."""

    def training_part(self, data: Any) -> Any:
        """Return the examples of the training part."""
        return data.train

    def open_data(self, config: Any) -> Any:
        return self.open_source(config.source, seed=config.seed, test_fraction=config.test_fraction)

    def build(self, config: Any, data: Any, *, steps: int) -> nn.Module:
        return self.random_model(config)

    @abstractmethod
    def random_model(self, config: Any) -> nn.Module:
        """Build the model of a configuration with random weights from its seed."""

    def objective(self, config: Any, data: Any) -> Objective:
        return next_token(config.training.label_smoothing)

    def averaging(self, config: Any, steps: int) -> MakeAverage | None:
        count, every = config.averaging.checkpoints, config.averaging.every
        return lambda model, shards: LastCheckpoints(
            model, total=steps, count=count, every=every, shards=shards
        )

    def save(self, run: Run, result: nn.Module, material: Material) -> None:
        run.save_model(result, tokenizer=material.tokenizer)

    def held_out_part(self, data: Any) -> tuple[str, Any] | None:
        return "test", data.test

    def more(self, run: Run, answerer: Any, material: Material, data: Any) -> dict[str, Any]:
        return {"skipped": dict(material.skipped)}

    def held_out(self, spec: str, answerer: Any, data: str | None, settings: Tree) -> HeldOut:
        """The held-out part of what a run learned from; of other data as much as was not meant to be learned
        from.

        Raises:
            InputError: no data are named, and the model is not in a run.
        """
        path = Path(spec)
        config: Any = Run.open(path, self.config).config if (path / "config.toml").is_file() else None
        if data is None and config is None:
            raise InputError(
                f"{spec} is not a run directory, so it does not say what to evaluate on: name the data"
            )
        config = config or self.config()
        source = absolute_sources(data) if data else config.source
        found = self.open_source(source, seed=config.seed, test_fraction=config.test_fraction)
        if source == config.source:
            return HeldOut(source, "held-out part", found.test)
        return HeldOut(source, "all of it", self.not_learned(found))

    @abstractmethod
    def not_learned(self, data: Any) -> Any:
        """Return what to evaluate on of data that the model has not learned from."""

    def material(
        self, loader: Loader, tokenizer: Tokenizer, skipped: Mapping[str, int], longest: int, **more: Any
    ) -> Material:
        """Return training batches, with a sentence for each reason that left examples out."""
        reasons = {"empty": "without text", "too_long": f"of more than {longest} tokens"}
        notes = tuple(f"skipped {n}: {reasons[key]}" for key, n in skipped.items() if n)
        return Material(loader, tokenizer=tokenizer.to_json(), skipped=skipped, notes=notes, **more)


class LastCheckpoints:
    """The mean of the weights at `count` points, `every` steps apart, the last one at the end of training
    (1706.03762, section 6.1: "averaging the last 5 checkpoints").

    It can be used in place of an exponential average (`training.learner.ExponentialAverage`). The mean grows
    as the points come, so that no checkpoint is stored; before the first of the `count` points it is the
    newest checkpoint.
    """

    def __init__(
        self, model: nn.Module, *, total: int, count: int, every: int, shards: Shards | None = None
    ) -> None:
        """Begin with `model`'s weights, which are not sharded yet."""
        self.total, self.count, self.every = total, count, every
        self.following = model
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        if shards:
            shards.shard_model(self.model)

    def update(self, step: int) -> None:
        """Follow step number `step`, counted from 0."""
        points_left, between = divmod(self.total - 1 - step, self.every)
        if between == 0:
            taken = max(self.count - 1 - points_left, 0)
            move_towards(self.model, self.following, 1 / (taken + 1))


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


def check_unchanged(spec: str, overrides: Mapping[str, Any]) -> None:
    """Raise InputError where fields of a model that writes text are to be changed."""
    if overrides:
        raise InputError(f"{spec} writes text: its {next(iter(overrides))} cannot be changed")


def check_tokenizer(answerer: Any) -> None:
    """Raise InputError for a model that is given without its tokenizer."""
    if isinstance(answerer, nn.Module):
        raise InputError(
            f"a {type(answerer).__name__} has no tokenizer for its text: give the run, or its model folder"
        )
