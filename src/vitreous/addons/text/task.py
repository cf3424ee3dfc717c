"""What captioning and translation do alike, whose models write text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Generic, Literal, Protocol, TypedDict, TypeVar, Unpack, runtime_checkable

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import nn

from vitreous.addons.text.batches import CaptionBatch, TextBatch
from vitreous.addons.text.config import CaptionerConfig, DecoderConfig, TransformerConfig
from vitreous.addons.text.models import TextModel
from vitreous.addons.text.text_pairs import BUNDLED
from vitreous.addons.text.tokenizer import PAD, Tokenizer, tokenizer_from_json
from vitreous.data.loading import BadFiles
from vitreous.errors import InputError
from vitreous.languages.terminal import said
from vitreous.models.config_parts import Config, Positive, Probability, setting
from vitreous.models.preprocessing import ImagePreparation, Preparation, Preprocessing, check_normalization
from vitreous.models.settings import merged
from vitreous.tasks.recipe_choice import packaged_config
from vitreous.tasks.task import HeldOut, Material, Parts, Plan, Task, Trained, Tree, config_of_run
from vitreous.training.callbacks import Loader
from vitreous.training.config import CommandConfig, MachineConfig, length_of
from vitreous.training.distributed import World
from vitreous.training.initial_model import absolute_source
from vitreous.training.learner import AverageWeight, exponential
from vitreous.training.settings import configure
from vitreous.training.step import Measured, Objective

# Fields of `TrainingConfig` that have no effect here. Weights are always new, initialized in one way, so
# there is nothing to freeze, to change at low rank, or to initialize otherwise.
TOKENIZER = "tokenizer.json"
RECIPES = Path(__file__).parent / "recipes"
WITHOUT_LAST = 0.99  # decay of the average where the end of a training is not known
FOR_OTHERS = ("loss", "distillation", "initialization", "head", "freeze", "lora")
TRAINING_FACTS = {
    "Weights": "the mean of the last {averaging.checkpoints} checkpoints",
    "Left out": "{skipped[empty]} without text, {skipped[too_long]} that are too long",
}


class TokenizerConfig(Config):
    """One byte-pair vocabulary, shared by source and target (1706.03762, section 5.1)."""

    vocabulary: Positive = setting(8000, "tokens, 259 of them bytes and marks")


class AveragingConfig(Config):
    """The mean of the last checkpoints is the result (section 6.1)."""

    checkpoints: Positive = setting(5, "how many of the last ones are averaged")
    every: Positive = setting(100, "steps between two of them")


class SplitOptions(TypedDict):
    """How data without parts of their own are split."""

    seed: int
    test_fraction: float


class SequenceConfig(CommandConfig):
    """What the two have in common."""

    test_fraction: Probability = setting(0.05, "of the data, held out; 2,000 at most")
    tokenizer: TokenizerConfig = TokenizerConfig()
    averaging: AveragingConfig = AveragingConfig()

    @property
    def split_options(self) -> SplitOptions:
        """How data without parts of their own are split."""
        return {"seed": self.seed, "test_fraction": self.test_fraction}

    @classmethod
    def following(cls, tree: Tree, override: Tree) -> Tree:
        """The model's vocabulary follows the tokenizer's, unless it is set itself."""
        size, model = override.get("tokenizer", {}).get("vocabulary"), override.get("model", {})
        decoder = "decoder" in tree["model"]
        if size is None or "vocabulary" in (model.get("decoder", {}) if decoder else model):
            return {}
        return {"model": {"decoder": {"vocabulary": size}} if decoder else {"vocabulary": size}}

    @model_validator(mode="after")
    def _nothing_ignored(self) -> SequenceConfig:
        where, asked = "does not apply to models that write text", self.training
        self.check_defaults("training", ["ema"], f"{where}: set averaging.checkpoints")
        self.check_defaults("training", FOR_OTHERS, f"{where}: leave it out")
        if asked.computed.checkpointing:
            raise ValueError(f"training.machine.checkpointing {where}: leave it out")
        if asked.computed.evaluation_batch_size != MachineConfig().evaluation_batch_size:
            raise ValueError(f"training.machine.evaluation_batch_size {where}: leave it out")
        if asked.optimizer.layer_decay:
            raise ValueError(f"training.optimizer.layer_decay {where}: leave it out")
        if asked.precision == "fp8":
            raise ValueError(f"training.precision=fp8 {where}: take auto, bf16 or fp32")
        if self.tokenizer.vocabulary > self.decoder.vocabulary:
            raise ValueError(
                f"tokenizer.vocabulary is {self.tokenizer.vocabulary}, but the model knows "
                f"{self.decoder.vocabulary}: raise the model's vocabulary, or leave it out"
            )
        return self

    @property
    def decoder(self) -> DecoderConfig:
        """The configuration of what writes text."""
        raise NotImplementedError


class TranslationConfig(SequenceConfig):
    """All of a translator's run."""

    command: ClassVar[str] = "translate train"

    task: Literal["translation"] = setting("translation", "always translation")
    model: TransformerConfig = TransformerConfig()

    @property
    def decoder(self) -> DecoderConfig:
        return self.model

    @property
    def width(self) -> int:
        return self.model.width


class CaptioningConfig(SequenceConfig):
    """All of a captioner's run."""

    task: Literal["captioning"] = setting("captioning", "always captioning")
    model: CaptionerConfig = CaptionerConfig()
    preprocessing: Preparation = ImagePreparation()

    @property
    def decoder(self) -> DecoderConfig:
        return self.model.decoder

    @property
    def width(self) -> int:
        return self.model.encoder.width

    @model_validator(mode="after")
    def _normalized_as_the_model(self) -> CaptioningConfig:
        check_normalization(self.preprocessing, self.model.encoder.channels)
        return self

    @property
    def prepared(self) -> Preprocessing:
        """How images are prepared for the encoder."""
        return self.preprocessing.of_size(self.model.encoder.image_size, self.model.encoder.channels)


def pairs_config(count: int) -> TranslationConfig:
    """For a user's own pairs, by their number: the paper's base model from 200,000 pairs on, half and a
    quarter of its width below."""
    if count >= 200_000:
        width, depth, dropout, vocabulary = 512, 6, 0.1, 32_000
    elif count >= 20_000:
        width, depth, dropout, vocabulary = 256, 3, 0.1, 8000
    else:
        width, depth, dropout, vocabulary = 128, 2, 0.2, 2000
    steps = min(max(40 * count // 64, 1000), 100_000)
    warmup = min(4000, steps // 10)
    model: dict[str, object] = {"width": width, "depth": depth, "encoder_depth": depth, "heads": width // 64}
    model |= {"mlp_dim": 4 * width, "vocabulary": vocabulary, "dropout": dropout}
    training: dict[str, object] = {
        "length": length_of(steps=steps),
        "batch_size": min(64, count),
        "peak_lr": (width * warmup) ** -0.5,
    }
    training |= {"schedule": {"warmup": warmup, "timescale": warmup}}
    settings = {
        "tokenizer": {"vocabulary": vocabulary},
        "model": model,
        "training": training,
        "averaging": {"every": max(steps // 100, 1)},
    }
    return packaged_config(TranslationConfig, RECIPES / "pairs.toml", settings)


def images_config(count: int) -> CaptioningConfig:
    """For a user's own images of lines of text."""
    return packaged_config(
        CaptioningConfig, RECIPES / "text-images.toml", {"training": {"batch_size": min(32, count)}}
    )


@runtime_checkable
class TextParts(Parts, Protocol):
    """Examples to learn from and to test on, and how many were left out because they have no text."""

    @property
    def test(self) -> Sequence[object]: ...
    @property
    def empty(self) -> int: ...


@runtime_checkable
class TextLoader(Loader, Protocol):
    """Yields batches of encoded texts, and collects what cannot be read."""

    @property
    def bad(self) -> BadFiles: ...


class LoaderOptions(TypedDict):
    """What a loader is given of a run, its device and its processes."""

    device: torch.device
    batch_size: int
    seed: int
    rank: int
    world_size: int


SequenceConfigT = TypeVar("SequenceConfigT", bound=SequenceConfig)
TextPartsT = TypeVar("TextPartsT", bound=TextParts)
TextModelT = TypeVar("TextModelT", bound=TextModel)


class TextTask(
    Task[SequenceConfigT, TextPartsT, TextModelT], Generic[SequenceConfigT, TextPartsT, TextModelT]
):
    """A task whose model writes text with a tokenizer that is trained on the training texts."""

    config: type[SequenceConfigT]
    answers: type[TextModelT]  # what has the model and the tokenizer

    def plan(
        self,
        source: str | TextPartsT | None,
        settings: Tree,
        *,
        recipe: str | None = None,
        init: str | None = None,
        base: Tree | None = None,
    ) -> Plan[SequenceConfigT, TextPartsT]:
        settings = merged(base or {}, settings)
        opened = None if isinstance(source, str) else source
        named = opened.name if opened else str(source or settings.get("source") or self.about.source)
        where = absolute_sources(named)
        settings = {**settings, "task": self.name, "source": where}
        # Those of model and training are set over the recipe, which the data decide.
        of_data = {name: value for name, value in settings.items() if name not in ("model", "training")}
        data = opened or self.open_data(configure(self.config(), of_data))
        config = configure(self.recipe(where, data), settings)
        return Plan(self, config, data, data.name)

    def open_data(self, config: SequenceConfigT, split: Path | None = None) -> TextPartsT:
        return self.open_source(config.source, config)

    @abstractmethod
    def open_source(self, source: str, config: SequenceConfigT) -> TextPartsT:
        """Open DATA, split into `train` and `test` as the configuration says."""

    @abstractmethod
    def recipe(self, source: str, data: TextPartsT) -> SequenceConfigT:
        """Return the configuration for a user's data, or for the bundled data."""

    @abstractmethod
    def training_texts(self, data: TextPartsT) -> list[str]:
        """Return the texts that the tokenizer is trained on."""

    @abstractmethod
    def batches(
        self,
        config: SequenceConfigT,
        data: TextPartsT,
        tokenizer: Tokenizer,
        **options: Unpack[LoaderOptions],
    ) -> tuple[TextLoader, int, int]:
        """Make batches of encoded examples.

        Returns:
            the loader, how many examples it has, and how many are left out because they are too long.
        """

    def prepare(
        self, config: SequenceConfigT, data: TextPartsT, *, device: torch.device, world: World
    ) -> Material:
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
        notes = []
        if data.empty:
            notes.append(said("skipped {count}: without text", count=data.empty))
        if too_long:
            most = config.decoder.max_length
            notes.append(said("skipped {count}: more than {most} tokens", count=too_long, most=most))
        return Material(
            loader,
            examples,
            loader.bad,
            {TOKENIZER: tokenizer.to_json()},
            skipped,
            tuple(notes),
            fixed_shapes=False,
            averaging=averaging(config, config.training.total_steps(loader.steps_per_epoch)),
        )

    def objective(self, config: SequenceConfigT, data: TextPartsT) -> Objective:
        return next_token(config.training.label_smoothing)

    def more(self, trained: Trained[SequenceConfigT, TextPartsT]) -> dict[str, object]:
        return {"skipped": dict(trained.material.skipped)}

    def open(self, spec: str, **overrides: object) -> TextModelT:
        if overrides:
            raise InputError(f"{spec} writes text: its {next(iter(overrides))} cannot be changed")
        return self.answers.load(spec)

    def answerer_of(
        self, model: TextModelT | nn.Module, beside: Mapping[str, str] | None = None
    ) -> TextModelT:
        if beside:
            return self.answers(model, tokenizer_from_json(beside[TOKENIZER], where="the run"))
        return self.answers.of(model) if isinstance(model, nn.Module) else model

    def held_out(self, spec: str, answerer: TextModelT, data: str | None, settings: Tree) -> HeldOut:
        """Return the held-out part of what a run learned from; of other data what is held out of all
        training. Raises InputError: no data are named, and the model is not in a run."""
        config = config_of_run(spec, data, self.config) or self.config()
        source = absolute_sources(data) if data else config.source
        found = self.open_source(source, config)
        if source == config.source:
            return HeldOut(source, "held-out part", found.test)
        return HeldOut(source, "all of it", self.not_learned(found))

    @abstractmethod
    def not_learned(self, data: TextPartsT) -> Sequence[object]:
        """Return what to evaluate on of data that the model has not learned from."""


def averaging(config: SequenceConfig, steps: int) -> AverageWeight:
    """Return how the weights are averaged: the last checkpoints, unless it is not known which these will
    be."""
    if config.training.minutes:
        return exponential(WITHOUT_LAST)
    return last_checkpoints(steps, config.averaging.checkpoints, config.averaging.every)


def last_checkpoints(total: int, count: int, every: int) -> AverageWeight:
    """Return the weights of the mean of `count` checkpoints, `every` steps apart, the last one at the end of
    training (1706.03762, section 6.1), or of as many as there are. The mean grows as they come, so that none
    is stored; before the first of the `count` it is the newest one, and before any the weights themselves."""
    first = (total - 1) % every  # the step of the first of all checkpoints

    def weight(step: int) -> float:
        left, between = divmod(total - 1 - step, every)
        averaged = min(max(count - 1 - left, 0), step // every)  # checkpoints that are in the mean already
        return 0.0 if between and step > first else 1 / (averaged + 1)

    return weight


def next_token(smoothing: float) -> Objective:
    """Return the cross-entropy of each target token, given the source and the tokens before it; targets are
    smoothed to (1 - s) t + s / V (1706.03762, section 5.4). Padding does not count."""

    def objective(model: nn.Module, batch: TextBatch | CaptionBatch, generator: torch.Generator) -> Measured:
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
    """Return a source with every path made absolute: it may be two files with a comma between. The names of
    texts that come with the package stay, also where this folder has a file of that name."""
    if source in BUNDLED:
        return source
    return ",".join(absolute_source(part) for part in source.split(","))
