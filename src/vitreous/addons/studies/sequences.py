"""Trials that learn sequences: a small Transformer of 2017 on generated tasks. Greedy decoding would write
the whole target if each token is the most probable one after those before it, which one pass shows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils import parametrize

from vitreous.addons.studies.laboratory import SCHEDULE, take_step
from vitreous.addons.studies.study import TrialResult
from vitreous.addons.text.batches import padded_ids
from vitreous.addons.text.config import TransformerConfig
from vitreous.addons.text.text_pairs import grammar_pairs, grammar_words
from vitreous.addons.text.tokenizer import END, PAD, START
from vitreous.addons.text.transformer import Transformer
from vitreous.errors import InputError
from vitreous.layers.attention import Attention, CrossAttention
from vitreous.models.description import describe
from vitreous.rng import numpy_generator, torch_generator
from vitreous.training.config import AdamWConfig
from vitreous.training.learner import learning_rate
from vitreous.training.optimizers import make_optimizers
from vitreous.training.settings import Tree, merged

SPECIAL = 3  # tokens: pad, start, end
SYMBOLS = 16
SHORTEST, LONGEST = 4, 12  # symbols of a sequence to copy
LONGER = 18
PRECEDENCE = {"^": 3, "*": 2, "/": 2, "+": 1, "-": 1}  # of operators; all bind to the left
LEAVES, OPERATORS = "abcd", tuple(PRECEDENCE)
JOINED = tuple(grammar_words()["join"].values())  # the words before a pronoun
CHUNK = 256  # sequences at a time
SMALL: dict[str, object] = {
    "vocabulary": 0,  # that of the task
    "width": 64, "depth": 2, "encoder_depth": 2, "heads": 8, "mlp_dim": 128, "max_length": 64,
    "position": "sinusoidal", "dropout": 0.0, "norm": "pre", "final_norm": True,
}  # fmt: skip


class Sequences(NamedTuple):
    """Token numbers, padded: sources with an end, targets with a start and an end; and of each target the
    place of the pronoun, or 0."""

    source: Int[Tensor, "N S"]
    target: Int[Tensor, "N T"]
    pronoun: Int[Tensor, " N"]


WordSequence = Sequence[str]
WORD = re.compile(r"[^\s,]+|,")


def copying_pair(rng: np.random.Generator, longest: int = LONGEST) -> tuple[WordSequence, WordSequence]:
    shortest = SHORTEST if longest == LONGEST else LONGEST + 1
    symbols = [str(each) for each in rng.integers(SYMBOLS, size=int(rng.integers(shortest, longest + 1)))]
    return symbols, symbols


def tree(leaves: WordSequence, signs: WordSequence) -> list[str]:
    """Return the brackets around an expression; the last of the operators that bind least is the root."""
    if not signs:
        return [leaves[0]]
    root = min(range(len(signs)), key=lambda place: (PRECEDENCE[signs[place]], -place))
    first, second = tree(leaves[: root + 1], signs[:root]), tree(leaves[root + 1 :], signs[root + 1 :])
    return ["(", *first, signs[root], *second, ")"]


def parsed(rng: np.random.Generator) -> tuple[WordSequence, WordSequence]:
    """Return an expression without brackets, and its tree as a sequence: a + b * c, and ( a + ( b * c ) )."""
    count = int(rng.integers(2, 6))
    leaves = [LEAVES[each] for each in rng.integers(len(LEAVES), size=count)]
    signs = [OPERATORS[each] for each in rng.integers(len(OPERATORS), size=count - 1)]
    source = [leaves[0]]
    for sign, leaf in zip(signs, leaves[1:], strict=True):
        source += [sign, leaf]
    return source, tree(leaves, signs)


def sentences(seed: int, count: int) -> list[tuple[WordSequence, WordSequence]]:
    """Return sentences of the grammar and their translations, as words and commas."""
    found: list[tuple[WordSequence, WordSequence]] = []
    for pair in grammar_pairs(count, seed=seed):
        source, target = WORD.findall(pair.source), WORD.findall(pair.target)
        found.append((source, target))
    return found


def generated(
    make: Callable[[np.random.Generator], tuple[WordSequence, WordSequence]],
) -> Callable[[int, int], list[tuple[WordSequence, WordSequence]]]:
    """Return what draws so many pairs of a seed."""

    def pairs(seed: int, count: int) -> list[tuple[WordSequence, WordSequence]]:
        rng = numpy_generator(seed, f"study sequences {make.__name__}")
        return [make(rng) for _ in range(count)]

    return pairs


TASKS: dict[str, Callable[[int, int], list[tuple[WordSequence, WordSequence]]]] = {
    "copy": generated(copying_pair),
    "parsing": generated(parsed),
    "agreement": sentences,
}


class TaskData(NamedTuple):
    """Sequences to learn from, to test on, and, where the task has them, longer ones than were learned."""

    train: Sequences
    test: Sequences
    longer: Sequences | None
    vocabulary: int


@lru_cache(maxsize=4)
def task_data(task: str, seed: int, train: int, test: int) -> TaskData:
    """Draw the sequences of a seed; no source of the test is among those of training. Those of the test are
    drawn from all: the first are short, for a short one is drawn often. Raises InputError: there are too few
    different ones."""
    pairs = TASKS[task](seed, 2 * (train + test))
    unique = list({" ".join(source): (source, target) for source, target in pairs}.values())
    if len(unique) < train + test:
        raise InputError(
            f"only {len(unique)} of the {len(pairs)} sequences drawn for {task} are distinct, too few for "
            f"train={train} and test={test}: lower these"
        )
    order = numpy_generator(seed, "study test sequences").permutation(len(unique))[: train + test]
    held_out = [unique[row] for row in order[:test]]
    learned = [unique[row] for row in order[test:]]
    rng = numpy_generator(seed, "study longer sequences")
    longer = [copying_pair(rng, LONGER) for _ in range(test)] if task == "copy" else []
    words: set[str] = set()
    for source, target in pairs + longer:
        words.update(source, target)
    numbers = {word: number for number, word in enumerate(sorted(words), start=SPECIAL)}
    return TaskData(
        train=encoded_pairs(learned, numbers),
        test=encoded_pairs(held_out, numbers),
        longer=encoded_pairs(longer, numbers) if longer else None,
        vocabulary=SPECIAL + len(words),
    )


def encoded_pairs(pairs: Sequence[tuple[WordSequence, WordSequence]], numbers: dict[str, int]) -> Sequences:
    """Return pairs as numbers, with the first place after a word of JOINED in each target, or 0."""
    sources: list[list[int]] = []
    targets: list[list[int]] = []
    places: list[int] = []
    for source, target in pairs:
        sources.append([*(numbers[word] for word in source), END])
        targets.append([START, *(numbers[word] for word in target), END])
        after = [place for place, word in enumerate(target[:-1], start=1) if word in JOINED]
        places.append(after[0] if after else 0)
    return Sequences(padded_ids(sources), padded_ids(targets), torch.tensor(places))


@dataclass(frozen=True)
class SequenceTrial:
    """One training run of a Transformer without its seed."""

    revision: ClassVar[int] = 2
    settings: ClassVar[tuple[str, ...]] = ("steps", "batch_size", "rate", "label_smoothing", "train", "test")
    config: ClassVar[Any] = TransformerConfig

    task: str = "parsing"  # one of TASKS
    model: Tree = field(default_factory=lambda: dict(SMALL))  # fields of a Transformer, over those of SMALL
    key_size: int | None = None  # d_k, of queries and keys alone; None: that of the values
    train: int = 6000  # sequences
    test: int = 1000
    steps: int = 300
    batch_size: int = 64
    rate: float = 3e-3  # the peak, after a warm-up of a tenth; then a cosine
    label_smoothing: float = 0.1

    @property
    def data(self) -> str:
        return self.task

    def change(self, model: Tree | None = None, **fields: Any) -> SequenceTrial:
        """Return the trial with other fields; those of the model are merged."""
        return replace(self, model=merged(self.model, model or {}), **fields)

    def perform(self, seed: int, *, share: float, device: torch.device) -> TrialResult:
        """Train, and measure on sequences that were not learned."""
        data = task_data(self.task, seed, self.train, self.test)
        config = TransformerConfig(**{**self.model, "vocabulary": data.vocabulary})
        model = Transformer(config, seed=seed).to(device)
        hidden = with_key_size(model, self.key_size) if self.key_size else 0
        begun = time.process_time()
        self.learn(model, data.train, max(1, round(share * self.steps)), seed)
        seconds = time.process_time() - begun
        right, tokens = answers(model, data.test)
        quarter = len(right) // 4
        values = {
            "sequences": float(right.all(1)[quarter:].float().mean()),
            "validation": float(right.all(1)[:quarter].float().mean()),
            "tokens": float(right[tokens].float().mean()),
        }
        if data.test.pronoun.any():
            values["pronoun"] = float(right[torch.arange(len(right)), data.test.pronoun].float().mean())
        if data.longer is not None:
            right, tokens = answers(model, data.longer)
            values["longer"] = float(right[tokens].float().mean())
        parameters = sum(each.numel() for each in model.parameters()) - hidden
        return TrialResult(values, parameters, describe(config).macs, seconds)

    def learn(self, model: Transformer, data: Sequences, steps: int, seed: int) -> None:
        """Take steps of the trial, in an order that all variants of a seed share."""
        device = model.text.tokens.weight.device
        settings = AdamWConfig(betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
        (optimizer,) = make_optimizers(model, settings, self.rate)
        generator = torch_generator(seed, "study order")
        count = len(data.source)
        passes = -(-steps * self.batch_size // count)
        order = torch.cat([torch.randperm(count, generator=generator) for _ in range(passes)])
        model.train()
        for step in range(steps):
            rows = order[step * self.batch_size : (step + 1) * self.batch_size]
            source, target = (trimmed(each[rows]).to(device) for each in data[:2])
            logits = model(source, target[:, :-1])
            loss = F.cross_entropy(
                logits.flatten(0, 1),
                target[:, 1:].flatten(),
                ignore_index=PAD,
                label_smoothing=self.label_smoothing,
            )
            take_step(loss, model, optimizer, self.rate * learning_rate(step, steps, SCHEDULE))
        model.eval()


def trimmed(rows: Int[Tensor, "B T"]) -> Int[Tensor, "B T2"]:
    """Return ids without the columns in which all is padding."""
    return rows[:, : int((rows != PAD).sum(1).max())]


@torch.inference_mode()
def answers(model: Transformer, data: Sequences) -> tuple[Bool[Tensor, "N T"], Bool[Tensor, "N T"]]:
    """Return whether each token of the targets is the most probable one, padding too; and which are not
    padding."""
    device, right = model.text.tokens.weight.device, []
    wanted = data.target[:, 1:]
    for source, target in zip(torch.split(data.source, CHUNK), torch.split(data.target, CHUNK), strict=True):
        found = model(source.to(device), target[:, :-1].to(device)).argmax(-1).cpu()
        right.append((found == target[:, 1:]) | (target[:, 1:] == PAD))
    return torch.cat(right), wanted != PAD


class FewerChannels(nn.Module):
    """The weight or bias of a projection to heads, of whose queries and keys only some channels are used."""

    factors: Float[Tensor, " rows"]

    def __init__(self, factors: Float[Tensor, " rows"]) -> None:
        super().__init__()
        self.register_buffer("factors", factors)

    def forward(self, values: Tensor) -> Tensor:
        return values * self.factors.view(-1, *[1] * (values.ndim - 1))


def with_key_size(model: nn.Module, size: int) -> int:
    """Make all attention compute with queries and keys of `size` channels, and its softmax scale by the root
    of that; values stay as they are. Returns how many parameters have no part in it."""
    hidden = 0
    for module in list(model.modules()):
        if isinstance(module, Attention):
            projections = [(module.qkv, "qkv")]
        elif isinstance(module, CrossAttention):
            projections = [(module.query, "q"), (module.key_value, "kv")]
        else:
            continue
        for linear, parts in projections:
            channels = linear.out_features // (len(parts) * module.heads)
            used = (torch.arange(channels) < size).float()
            # The scale is 1 / sqrt(channels): queries make it 1 / sqrt(size).
            factor = {"q": used * (channels / size) ** 0.5, "k": used, "v": torch.ones(channels)}
            factors = torch.cat([factor[part].repeat(module.heads) for part in parts])
            factors = factors.to(linear.weight.device)
            unused = max(channels - size, 0) * module.heads * sum(part != "v" for part in parts)
            hidden += unused * (linear.in_features + 1)
            for name in ("weight", "bias"):
                parametrize.register_parametrization(linear, name, FewerChannels(factors))
    return hidden
