"""What may answer for a run: methods that are fitted in seconds, frozen features with a head, networks, and
the mean of two of them. All are compared on the same images, which none of them has learned from, by the same
measure; the first of the table becomes the model of the run."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import nn

from vitreous.data.dataset import ClassTargets, ImageDataset, Splits
from vitreous.data.image_samples import Batch
from vitreous.data.workers import loading_workers
from vitreous.evaluation.classical import (
    MOST_FITTED,
    Baseline,
    Fitted,
    ImageFeatures,
    Learned,
    Method,
    Problem,
    RowNumbers,
    baselines_on,
    described,
    fit_classical,
    images_to_learn,
    kernel_ridge,
    linear,
    nearest_neighbors,
    seen_by_classical,
    squashed,
)
from vitreous.evaluation.features import cached_features, feature_outputs
from vitreous.evaluation.outputs import Batching, compute_outputs, number_outputs
from vitreous.evaluation.scores import Interval, Outputs, Truth, candidate_title, is_better
from vitreous.extensions import outputs_of_task
from vitreous.languages import speaking
from vitreous.languages.terminal import said, said_time
from vitreous.models.config_parts import Config
from vitreous.models.ensemble import (
    DescribedConfig,
    Ensemble,
    EnsembleConfig,
    KernelConfig,
    KernelRidgeConfig,
    LinearConfig,
    MemberConfig,
    NeighborsConfig,
    NetworkConfig,
    mean_answer,
)
from vitreous.models.model import Model, as_probabilities
from vitreous.models.preprocessing import Preprocessing
from vitreous.results import percent
from vitreous.tasks import task_named
from vitreous.tasks.task import AnyTask, Trained, get_held_out, read_candidates
from vitreous.training.config import RunConfig
from vitreous.training.initial_model import starting_model
from vitreous.training.machine import Threads
from vitreous.training.settings import validated

# Validation images, from which on they decide; with fewer, folds of the training set do. Of two methods that
# differ on a fifth of 100 images, one is ahead of the other by 4.5 points by chance alone; of 30, by 8.
FEWEST = 100

FittedHead = tuple[KernelConfig | KernelRidgeConfig | LinearConfig | NeighborsConfig, nn.Module]


@dataclass(frozen=True)
class Trial:
    """A row of the table: what a candidate gave on images that it did not learn from.

    Attributes:
        score: by the measure of the task: accuracy, R2 or mean average precision.
        measured_on: which images those are: "validation"; "cross-fitted", where the training set is among
            them; or "difference": validation images, on which it differs from a cross-fitted candidate so
            much.
        loss: the mean loss of its answers, which decides between equal scores.
        speed: images a second that it learned from; 0 where it did not learn by steps.
        words: its name in the catalog of languages; of a mean the names of both.
        init: the encoder that each name speaks of.
        short: of each, whether it is the network of a short trial, beside one that was trained longer.
        passed_over: whether it is ahead of what answers, but cannot answer: its network was not kept.
    """

    name: str
    score: float
    interval: Interval
    count: int
    measured_on: str
    measure: str = "accuracy"
    loss: float | None = None
    seconds: float = 0.0
    speed: float = 0.0
    words: tuple[str, ...] = ()
    init: tuple[str | None, ...] = ()
    short: tuple[bool, ...] = ()
    passed_over: bool = False

    @property
    def merit(self) -> tuple[float, float]:
        """What it is compared by: the score, and of equal ones the loss."""
        score = -math.inf if math.isnan(self.score) else self.score
        return score, -math.inf if self.loss is None else -self.loss

    def title(self) -> str:
        """Return its name for the terminal, which has the language of the locale also where the report has
        another."""
        with speaking(None):
            return candidate_title(asdict(self))

    def text(self, value: float) -> str:
        """Return a score as people read it."""
        if self.measure != "r2":
            return percent(value)
        # The R2 of the mean is 0, or -2.474e-06, which is shown as 0.
        return f"R2 {round(value, 4) + 0.0:.4g}"

    def sentence(self) -> str:
        """Return the row as a line of the progress."""
        numbers: dict[str, object] = {
            "name": self.title(),
            "score": self.text(self.score),
            "low": self.text(self.interval[0]),
            "high": self.text(self.interval[1]),
            "count": self.count,
        }
        match self.measured_on:
            case "validation":
                line = said("{name}: {score} ({low} to {high}) of {count} validation images", **numbers)
            case "difference":
                line = said(
                    "{name}: {score} ({low} to {high}), estimated by the difference from the most "
                    "similar candidate on {count} validation images",
                    **numbers,
                )
            case _:
                line = said("{name}: {score} ({low} to {high}) of {count} images, cross-fitted", **numbers)
        return said("{line}, in {time}", line=line, time=said_time(self.seconds)) if self.seconds else line


class Part(Config):
    """One that answers, alone or in a mean: all that is needed to make it again.

    Attributes:
        words, init: its name, as in `Trial`.
        method: None: a network that learns by steps.
        begun: the configuration of a run that begins with the encoder whose features the method sees; None:
            it sees a descriptor.
        short: whether it is the network of a short trial, beside one that was trained longer.
    """

    name: str
    words: str
    init: str | None = None
    method: Method | None = None
    begun: dict[str, Any] | None = None
    short: bool = False

    @property
    def family(self) -> str:
        """What it is: "network", "frozen" (a head on frozen features), "descriptor" or "constant"."""
        if self.method is None:
            return "network"
        if self.method.is_constant:
            return "constant"
        return "descriptor" if self.begun is None else "frozen"

    @property
    def descriptor(self) -> str | None:
        """Whether it sees "gradients" or "pixels" (thumbnails of them among these); None where it sees no
        descriptor."""
        if self.method is None or self.family != "descriptor":
            return None
        return "gradients" if self.method.sees == "gradients" else "pixels"


@dataclass(frozen=True)
class Candidate:
    """Parts that answer together, and their answers to the images that decide; a row of NaN for an image that
    could not be read.

    Attributes:
        can_answer: False where it has a network that was not kept.
    """

    parts: tuple[Part, ...]
    outputs: Outputs
    trial: Trial
    can_answer: bool = True

    @property
    def learns(self) -> bool:
        """Whether a network that learns by steps is among them."""
        return any(part.method is None for part in self.parts)

    @property
    def is_constant(self) -> bool:
        """Whether it gives every image the same answer."""
        return self.parts[0].family == "constant"

    @property
    def is_short(self) -> bool:
        """Whether the network of a short trial is among them, beside one that was trained longer."""
        return any(part.short for part in self.parts)

    def as_short(self, kept: str | None) -> Candidate:
        """Return it as one of the short trials, which another network may have the name of. kept: the one
        whose network is there."""
        if not self.learns:
            return self
        parts = tuple(part.model_copy(update={"short": part.method is None}) for part in self.parts)
        name = f"{self.trial.name} (short trial)"
        short = replace(
            self, parts=parts, trial=replace(self.trial, name=name, short=tuple(p.short for p in parts))
        )
        return short.with_network(kept)

    def with_network(self, kept: str | None) -> Candidate:
        """Return it as it can answer where one network is there, by its name, or none."""
        there = all(part.method is not None or part.name == kept for part in self.parts)
        return replace(self, can_answer=there)


@dataclass(frozen=True)
class Frozen:
    """An encoder as it is, and what it gives of the training set, and of the validation set where there is
    one: of the images that could be read."""

    model: Model
    train: ImageFeatures
    rows: RowNumbers
    other: tuple[ImageFeatures, RowNumbers] | None = None


@dataclass
class CandidateTable:
    """The candidates of a run, on the images that decide.

    A validation set is small, and of many candidates the one that is ahead on it is often ahead by chance.
    So methods without steps are compared on the training set as well, each of whose images they answer by
    what was fitted without it. A network has learned from that part: it stands as far from the candidate
    whose answers are most like its own as on the validation images that both answer (the difference
    estimator of sampling theory), so that all scores are of the same images.

    Attributes:
        images: the validation set; where that is small, the training set.
        before: so many training images are compared on as well, before those.
        truth: what is known of all of them.
        learned, others, frozen: what candidates see of the training set, and of the validation set where
            there is one; read when it is needed.
        most: training images that descriptors are computed of.
        seconds_to_read: an image.
        seconds_to_answer: an image, with the features of the slowest encoder that was tried.
        threads: that compute features; None: as many as there are.
        heads: fitted on all of these, by the name of the part and how images are prepared for a descriptor.
    """

    data: Splits
    problem: Problem
    images: ImageDataset
    measured_on: str
    truth: Truth
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    before: int = 0
    candidates: list[Candidate] = field(default_factory=list)
    learned: Learned | None = None
    others: Learned | None = None
    frozen: dict[str, Frozen] = field(default_factory=dict)
    heads: dict[tuple[str, Preprocessing | None], FittedHead] = field(default_factory=dict)
    most: int = MOST_FITTED
    seconds_to_read: float = 0.0
    seconds_to_answer: float = 0.0
    threads: Threads | None = None

    @classmethod
    def of(
        cls, data: Splits, problem: Problem, device: torch.device, most: int = MOST_FITTED
    ) -> CandidateTable:
        """Return a table without candidates. most: images that descriptors are computed of."""
        train, validation = data.train, data.validation
        if validation is None or not has_validation(data):
            return cls(data, problem, train, "cross-fitted", train.targets.tensor(), device, most=most)
        truth, before = validation.targets.tensor(), 0
        if len(train) <= most:
            truth, before = torch.cat([train.targets.tensor(), truth]), len(train)
        return cls(data, problem, validation, "validation", truth, device, before, most=most)

    @property
    def uses_validation(self) -> bool:
        """Whether the images that decide are others than the training images."""
        return self.measured_on == "validation"

    @cached_property
    def content(self) -> str:
        """A hash of the images that candidates learned from, and of those that decided."""
        digest = hashlib.blake2b(f"{self.measured_on} {self.before}".encode(), digest_size=20)
        for images in (self.data.train, self.images) if self.uses_validation else (self.data.train,):
            rows = np.arange(len(images))
            names = [images.key(row) for row in range(len(images))]
            digest.update(json.dumps([names, images.fingerprints(rows)]).encode())
            digest.update(images.targets.tensor().numpy().tobytes())
        return digest.hexdigest()

    @property
    def names(self) -> set[str]:
        """The names of the candidates."""
        return {each.trial.name for each in self.candidates}

    def add(self, parts: Sequence[Part], outputs: Outputs, *, seconds: float = 0, speed: float = 0) -> Trial:
        """Measure a candidate, and return its row. outputs: to all images, or to `images` alone."""
        if len(outputs) < len(self.truth):
            outputs = torch.cat([torch.full((self.before, outputs.shape[1]), math.nan), outputs])
        trial = self.measured(
            [part.name for part in parts],
            outputs,
            seconds=seconds,
            speed=speed,
            words=tuple(part.words for part in parts),
            init=tuple(part.init for part in parts),
            short=tuple(part.short for part in parts),
        )
        self.candidates.append(Candidate(tuple(parts), outputs, trial))
        return trial

    def measured(self, names: Sequence[str], outputs: Outputs, **facts: Any) -> Trial:
        """Return the row of answers."""
        known, measures = has_answer(outputs), self.problem.measures
        found, truth = outputs[known], self.truth[known]
        name = names[0] if len(names) == 1 else f"mean of {names[0]} and {names[1]}"
        score, loss = measures.of(found, truth), measures.loss(found, truth)
        low, high = measures.interval(found, truth)
        measured_on = "cross-fitted" if self.before else self.measured_on
        if self.before and not known[: self.before].any():
            measured_on = "difference"
            if like := self.most_like(outputs):
                theirs, of = like.outputs[known], self.truth[known]
                more_right = like.trial.score - measures.of(theirs, of)
                score, low, high = (min(each + more_right, 1.0) for each in (score, low, high))
                if measures.score != "r2":
                    score, low, high = (max(each, 0.0) for each in (score, low, high))
                loss += (like.trial.loss or 0.0) - measures.loss(theirs, of)
        interval = Interval(low, high)
        return Trial(name, score, interval, len(truth), measured_on, measures.score, loss, **facts)

    def most_like(self, outputs: Outputs) -> Candidate | None:
        """Return the candidate without steps whose answers are most like others, to the images that have
        both; not one that gives all of them the same answer."""
        found, least, meaning = None, math.inf, self.problem.meaning
        for each in self.candidates:
            known = has_answer(outputs) & has_answer(each.outputs)
            if each.learns or each.is_constant or not known.any():
                continue
            mine, theirs = outputs[known], each.outputs[known]
            if meaning != "number":
                mine, theirs = as_probabilities(mine, meaning), as_probabilities(theirs, meaning)
            if (difference := float((mine - theirs).square().mean())) < least:
                found, least = each, difference
        return found

    def after(self, crossed: Outputs, asked: Outputs) -> Outputs:
        """Return the answers that are compared, of those to the training set and to the validation set."""
        return torch.cat([crossed, asked]) if self.before else asked

    def ranked(self) -> list[Candidate]:
        """Return the candidates, the best first; what is ahead of it, but cannot answer, after that.

        Where folds of the training set decide, the network that was measured is not the one that would
        answer: that one learns longer and from all images, and none is left to measure it. There a network,
        or a mean with one, stands before the best method without steps only if it is ahead of it by more
        than chance.
        """
        ranked, passed_over = list[Candidate](), list[Candidate]()
        for each in sorted(self.candidates, key=lambda each: each.trial.merit, reverse=True):
            (passed_over if each.trial.passed_over else ranked).append(each)
        without_steps = next((each for each in ranked if not each.learns), None)
        if not self.uses_validation and without_steps is not None:
            first, by_chance = list[Candidate](), list[Candidate]()
            place = next(place for place, each in enumerate(ranked) if each is without_steps)
            for each in ranked[:place]:
                (first if self.is_clearly_worse(without_steps, each) else by_chance).append(each)
            ranked = [*first, without_steps, *by_chance, *ranked[place + 1 :]]
        return [*ranked[:1], *passed_over, *ranked[1:]]

    def choose(self) -> Candidate | None:
        """Return the first that can answer; those ahead of it are marked as passed over."""
        ranked = self.ranked()
        place = next((place for place, each in enumerate(ranked) if each.can_answer), None)
        if place is None:
            return None
        passed_over = [replace(each, trial=replace(each.trial, passed_over=True)) for each in ranked[:place]]
        self.candidates = [*passed_over, *ranked[place:]]
        return ranked[place]

    @property
    def best(self) -> Candidate | None:
        """The first of the table."""
        return next(iter(self.ranked()), None)

    @property
    def is_solved(self) -> bool:
        """Whether a method without steps answers all images correctly, and they are many: a training can gain
        nothing that is seen."""
        able = [each for each in self.candidates if not each.learns and each.trial.score >= 1]
        return bool(able) and len(self.images) >= FEWEST

    def merit_on_features(self, encoder: str) -> tuple[float, float]:
        """Return the merit of the best head on the features of an encoder; the lowest where there is none."""
        merits = [each.trial.merit for each in self.heads_on(encoder)]
        return max(merits, default=(-math.inf, -math.inf))

    def heads_on(self, encoder: str) -> list[Candidate]:
        """Return the candidates that are a head on the features of an encoder, of images of any size."""
        found: list[Candidate] = []
        for each in self.candidates:
            [part, *others] = each.parts
            if not others and part.begun is not None and part.begun["init"] == encoder:
                found.append(each)
        return found

    def rows(self) -> list[Trial]:
        """Return the table: the candidates, the best first."""
        return [each.trial for each in self.ranked()]

    def is_clearly_worse(self, candidate: Candidate, than: Candidate) -> bool:
        """Return whether a candidate is below another one by more than chance explains, of their answers to
        the same images."""
        if self.problem.meaning != "softmax":
            return candidate.trial.interval.high < than.trial.score
        known = has_answer(candidate.outputs) & has_answer(than.outputs)
        worse, better = (
            (each.outputs[known].argmax(dim=1) == self.truth[known]).numpy() for each in (candidate, than)
        )
        return is_better(better, worse)


def has_answer(outputs: Outputs) -> torch.Tensor:
    """Return which images have an answer."""
    return ~outputs.isnan().any(dim=1)


def has_validation(data: Splits) -> bool:
    """Return whether there are enough validation images to decide by."""
    return data.validation is not None and len(data.validation) >= FEWEST


def problem_of(config: RunConfig, data: Splits) -> Problem:
    """Return what is asked of images in a run."""
    one_number = outputs_of_task(config.task) == "number"
    return Problem(config.task, 1 if one_number else len(data.train.classes))


# ---- Methods without steps


def add_classical(table: CandidateTable, *, flip: tuple[float, float], tell: Callable[[str], None]) -> None:
    """Add the methods that see a descriptor; one of them gives every image the same answer.

    Args:
        flip: how often images are mirrored for the network: as they, these methods may learn from mirror
            images.
    """
    began = time.monotonic()
    classical = fit_classical(table.data, table.problem, flip=flip, everything=False, most=table.most)
    table.learned = learned = classical.learned
    fitting = sum(each.method.seconds for each in classical.methods)
    table.seconds_to_read = (time.monotonic() - began - fitting) / len(learned.rows)
    others = read_others(table, learned.prepared) if table.uses_validation else None
    reading = time.monotonic() - began - sum(each.method.seconds for each in classical.methods)
    for fitted in classical.methods:
        method = fitted.method
        outputs = scattered(fitted.answers, learned.rows, table.before or len(table.data.train))
        if others is not None:
            asked = fitted.ask(seen_by_classical(others.pixels, method.sees))
            outputs = table.after(outputs, scattered(asked, others.rows, len(table.images)))
        part = Part(name=method.name, words=f"baselines.{method.name}", method=method)
        tell(table.add([part], outputs, seconds=reading + method.seconds).sentence())


def read_others(table: CandidateTable, prepared: Preprocessing) -> Learned | None:
    """Read the validation set as classical methods see it, where there is one: it decides, or is learned
    from at the end."""
    if validation := table.data.validation:
        table.others = images_to_learn([validation], prepared, most=len(validation))
    return table.others


def scattered(outputs: Outputs, rows: RowNumbers, count: int) -> Outputs:
    """Return answers to some of so many images, and NaN for the others."""
    found = torch.full((count, outputs.shape[1]), math.nan)
    found[torch.from_numpy(np.asarray(rows))] = outputs.float()
    return found


def add_frozen(table: CandidateTable, name: str, config: RunConfig, *, tell: Callable[[str], None]) -> None:
    """Add what heads make of the features of an encoder that stays as it is.

    Args:
        name: of the encoder, as people read it.
        config: of a run that begins with it.
    """
    began = time.monotonic()
    table.frozen[name] = frozen = frozen_features(table, config)
    reading = time.monotonic() - began
    seen = len(frozen.rows) + (len(frozen.other[1]) if frozen.other else 0)
    table.seconds_to_answer = max(table.seconds_to_answer, reading / seen)
    begun, data = config.model_dump(mode="json"), table.data
    truth = data.train.targets.tensor(frozen.rows)
    kinds: list[tuple[str, Callable[..., Fitted]]] = [
        ("linear", linear),
        ("kernel ridge", kernel_ridge),
        ("neighbors", nearest_neighbors),
    ]
    problem = table.problem._replace(groups=data.train.together(frozen.rows))
    for kind, fit in kinds:
        fitted = fit(f"{kind} on {name}", name, frozen.train, truth, problem)
        outputs = scattered(fitted.answers, frozen.rows, table.before or len(data.train))
        if table.uses_validation:
            assert frozen.other is not None
            other, other_rows = frozen.other
            asked = fitted.ask(other.values)
            outputs = table.after(outputs, scattered(asked, other_rows, len(table.images)))
        part = Part(
            name=f"{kind} on {name}",
            words=f"candidates.{kind}",
            init=name,
            method=fitted.method,
            begun=begun,
        )
        tell(table.add([part], outputs, seconds=reading + fitted.method.seconds).sentence())


def frozen_of(table: CandidateTable, part: Part) -> Frozen:
    """Return the encoder whose features a part sees, with these."""
    assert part.begun is not None
    name = str(part.init)
    if name not in table.frozen:
        kind: type[RunConfig] = task_named(part.begun["task"]).config
        table.frozen[name] = frozen_features(table, validated(part.begun, kind))
    return table.frozen[name]


def frozen_features(table: CandidateTable, config: RunConfig) -> Frozen:
    """Return what an encoder gives of the images; of many training images, of some."""
    images, known = table.data.train, np.arange(len(table.data.train))
    model = starting_model(config, images.classes)
    if len(images) > MOST_FITTED:
        known = np.array(images.sample(MOST_FITTED))
        images = images.subset(known)
    train, rows = candidate_features(model, images, config, table)
    validation = table.data.validation
    other = candidate_features(model, validation, config, table) if validation else None
    return Frozen(model, train, known[rows], other)


def candidate_features(
    model: Model, images: ImageDataset, config: RunConfig, table: CandidateTable
) -> tuple[ImageFeatures, RowNumbers]:
    """Return the features of images, with the numbers of those that could be read. Those of images with a
    class are kept in the cache, where a training that begins with a head on them finds them again."""
    workers = loading_workers(config.data.read.workers)
    options = Batching(device=table.device, workers=workers, threads=table.threads)
    if isinstance(images.targets, ClassTargets):
        found = cached_features(model, images, **options)
        return ImageFeatures(torch.from_numpy(found.values)), found.rows
    outputs = feature_outputs(model, images, **options)
    return ImageFeatures(outputs.values), outputs.indices


def add_means(table: CandidateTable) -> list[Trial]:
    """Add the mean of the best of each two families (methods that see a descriptor, heads on frozen features,
    networks), and that of the best on gradients and the best on pixels. Return their rows.

    No other pairs: of many means on the same images, one would be ahead by chance.
    """
    families: dict[str, Candidate] = {}
    descriptors: dict[str, Candidate] = {}
    for each in table.ranked():
        [part, *others] = each.parts
        if not others and each.can_answer and not each.is_constant:
            families.setdefault(part.family, each)
            if part.descriptor is not None:
                descriptors.setdefault(part.descriptor, each)
    known = {frozenset((part.name, part.short) for part in each.parts) for each in table.candidates}
    added: list[Trial] = []
    for best in (families, descriptors):
        for first, second in combinations(best.values(), 2):
            parts = first.parts + second.parts
            if frozenset((part.name, part.short) for part in parts) in known:
                continue
            both = torch.stack([first.outputs, second.outputs])
            added.append(table.add(parts, mean_answer(both, table.problem.meaning)))
    return added


# ---- On the held-out part


def baselines_of(task: AnyTask, trained: Trained[Any, Any]) -> tuple[Baseline, ...]:
    """Return what methods without a network get on the images that a run is evaluated on: they learn from all
    others, and from mirror images where the network does."""
    data, config = trained.data, trained.run.config
    part, held_out = get_held_out(task, data)
    if held_out is None:
        return ()
    table: CandidateTable | None = getattr(trained.compared, "table", None)
    if table is not None and part == "test":
        return baselines_of_table(table, held_out)
    learned = data if part == "test" else data._replace(validation=None)
    flip = config.augmentation.flip
    return fit_classical(learned, problem_of(config, data), flip=flip).baselines(held_out)


def compared_fields(task: AnyTask, trained: Trained[Any, Any]) -> dict[str, Any]:
    """Return what a training command's JSON has of other methods."""
    return {
        "baselines": [each._asdict() for each in baselines_of(task, trained)],
        "candidates": read_candidates(trained.run.path),
    }


def baselines_of_table(table: CandidateTable, held_out: ImageDataset) -> tuple[Baseline, ...]:
    """Return what the methods of a table that see a descriptor get on other images, with the settings that
    they have: fitted on the images that decided as well."""
    prepared = squashed(table.data.summary.channels, table.data.summary.value_range)
    fitted: list[tuple[Method, nn.Module]] = []
    for each in table.candidates:
        [part, *others] = each.parts
        if not others and part.begun is None and part.method is not None:
            fitted.append((part.method, fitted_head(table, part, prepared)[1]))
    return baselines_on(held_out, fitted, all_described(table, prepared), table.problem)


def fitted_head(table: CandidateTable, part: Part, prepared: Preprocessing) -> FittedHead:
    """Return the head of a method, fitted on all images to learn from.

    Args:
        prepared: how images are, of which a descriptor is computed.
    """
    assert part.method is not None
    setting, key = part.method.setting, (part.name, None if part.begun else prepared)
    if key not in table.heads:
        if part.begun:
            seen, truth = all_frozen(frozen_of(table, part), table)
            table.heads[key] = setting.fit(seen, truth)
        else:
            learned = all_described(table, prepared)
            seen = described(learned.pixels, part.method.sees, part.method.flip)
            table.heads[key] = setting.fit(seen, learned.truth)
    return table.heads[key]


def all_described(table: CandidateTable, prepared: Preprocessing) -> Learned:
    """Return all images to learn from as methods that see a descriptor see them: from images that are
    prepared for these methods, or for a model."""
    if table.learned is None or table.learned.prepared != prepared:
        table.learned, table.others = images_to_learn([table.data.train], prepared, table.most), None
    if table.others is None:
        read_others(table, prepared)
    return table.learned if table.others is None else table.learned.and_others(table.others)


# ---- Networks


def network_outputs(
    model: nn.Module, images: ImageDataset, task: str, *, device: torch.device, workers: int, batch_size: int
) -> Outputs:
    """Return what a trained network answers to images; NaN where they cannot be read."""

    def outputs(batch: Batch) -> torch.Tensor:
        if outputs_of_task(task) == "number":
            return number_outputs(model, batch.images)
        return model(batch.images).float()

    found = compute_outputs(model, images, outputs, device=device, workers=workers, batch_size=batch_size)
    return scattered(found.values, found.indices, len(images))


# ---- The model


def final_model(table: CandidateTable, chosen: Candidate, network: Model | None = None) -> Model:
    """Return what was chosen as a model: methods without steps fitted on all images to learn from, those that
    decided among them.

    Args:
        network: that was trained, where one answers.
    """
    if len(chosen.parts) == 1 and chosen.learns:
        assert network is not None
        return network
    prepared, problem = ensemble_preprocessing(table, chosen, network), table.problem
    members: list[tuple[MemberConfig, nn.Module, Model | None]] = []  # with its head and its network
    for part in chosen.parts:
        if part.method is None:
            assert network is not None
            member = MemberConfig(features=network_config(network), head=LinearConfig())
            members.append((member, network.head, network))
            continue
        config, head = fitted_head(table, part, prepared)
        encoder = frozen_of(table, part).model if part.begun else None
        if encoder is None:
            features: NetworkConfig | DescribedConfig = DescribedConfig(kind=part.method.sees)
        elif len(chosen.parts) == 1 and isinstance(head, nn.Linear):
            return encoder_with_head(encoder, head, problem)
        else:
            features = network_config(encoder)
        member = MemberConfig(features=features, head=config)
        members.append((member, head, encoder))
    ensemble = EnsembleConfig(
        image_size=prepared.size,
        channels=prepared.channels,
        num_classes=problem.outputs,
        members=tuple(member for member, _, _ in members),
    )
    labels = None if problem.meaning == "number" else list(table.data.train.classes)
    model = Ensemble(ensemble, preprocessing=prepared, labels=labels, task=problem.task)
    with torch.no_grad():
        for (_, head, of), own, seen in zip(members, model.head.heads, model.seen, strict=True):
            own.load_state_dict(head.state_dict())
            if of is not None:
                sees: Any = seen
                weights = of.state_dict().items()
                sees.network.load_state_dict({name: w for name, w in weights if not name.startswith("head.")})
    return model.eval()


def network_config(model: Model) -> NetworkConfig:
    """Return a network without its head, as a member sees by it."""
    how = model.preprocessing
    without_head = model.config.model_copy(update={"num_classes": None})
    return NetworkConfig(network=without_head, mean=how.mean, std=how.std)


def ensemble_preprocessing(table: CandidateTable, chosen: Candidate, network: Model | None) -> Preprocessing:
    """Return how images are prepared for an ensemble: as for its network, or for classical methods."""
    for part in chosen.parts:
        if part.method is None:
            assert network is not None
            return network.preprocessing
        if part.begun:
            return frozen_of(table, part).model.preprocessing
    return squashed(table.data.summary.channels, table.data.summary.value_range)


def encoder_with_head(encoder: Model, head: nn.Module, problem: Problem) -> Model:
    """Return an encoder whose head is a linear map that was fitted on its features."""
    model = deepcopy(encoder)
    model.task = problem.task
    if problem.meaning == "number":
        model.labels = None
    model.get_submodule("head").load_state_dict(head.state_dict())
    return model.eval()


def all_frozen(frozen: Frozen, table: CandidateTable) -> tuple[ImageFeatures, Truth]:
    """Return the features of all images to learn from, and what is known of them."""
    truth = table.data.train.targets.tensor(frozen.rows)
    validation = table.data.validation
    if validation is None or frozen.other is None:
        return frozen.train, truth
    other, other_rows = frozen.other
    values = torch.cat([frozen.train.values, other.values])
    return ImageFeatures(values), torch.cat([truth, validation.targets.tensor(other_rows)])
