"""What may answer for a run: methods that are fitted in seconds, frozen features with a head, networks, and
the mean of two of them. All are compared on the same images, which none of them has learned from, by the same
measure; the first of the table becomes the model of the run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from vitreous.data.dataset import ClassTargets, ImageDataset, Splits
from vitreous.data.image_samples import Batch
from vitreous.data.workers import loading_workers
from vitreous.evaluation.classical import (
    MOST_FITTED,
    Baseline,
    Classical,
    Fitted,
    Problem,
    Rows,
    Seen,
    Shown,
    fit_classical,
    linear,
    nearest_neighbors,
    seen_by_classical,
    shown,
    squashed,
    support_vectors,
    without_images,
)
from vitreous.evaluation.features import cached_features, feature_outputs
from vitreous.evaluation.measures import Outputs, Truth, candidate_title
from vitreous.evaluation.outputs import Batching, compute_outputs, number_outputs
from vitreous.evaluation.scores import Interval
from vitreous.languages.terminal import said, said_time
from vitreous.models.ensemble import (
    DescribedConfig,
    Ensemble,
    EnsembleConfig,
    LinearConfig,
    MemberConfig,
    NetworkConfig,
    mean_answer,
)
from vitreous.models.model import Model
from vitreous.models.preprocessing import Preprocessing
from vitreous.results import percent
from vitreous.tasks.task import AnyTask, Trained
from vitreous.training.config import RunConfig
from vitreous.training.initial_model import starting_model

FEWEST = 30  # validation images, from which on they decide; with fewer, folds of the training part do


@dataclass(frozen=True)
class Trial:
    """A row of the table: what a candidate gave on images that it did not learn from.

    Attributes:
        score: by the measure of the task: accuracy, R2 or mean average precision.
        measured_on: which images those are: "validation", or "cross-fitted".
        loss: the mean loss of its answers, which decides between equal scores.
        speed: images a second that it learned from; 0 where it did not learn by steps.
        words: its name in the catalog of languages; of a mean the names of both.
        init: the encoder that each name speaks of.
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

    @property
    def merit(self) -> tuple[float, float]:
        """What it is compared by: the score, and of equal ones the loss."""
        score = -math.inf if math.isnan(self.score) else self.score
        return score, -math.inf if self.loss is None else -self.loss

    def title(self) -> str:
        """Return its name in the language that is spoken."""
        return candidate_title(asdict(self))

    def text(self, value: float) -> str:
        """Return a score as people read it."""
        return percent(value) if self.measure != "r2" else f"R2 {value:.4g}"

    def sentence(self) -> str:
        """Return the row as a line of the progress."""
        numbers: dict[str, object] = {
            "name": self.title(),
            "score": self.text(self.score),
            "low": self.text(self.interval[0]),
            "high": self.text(self.interval[1]),
            "count": self.count,
        }
        line = said("{name}: {score} ({low} to {high}) of {count} images, cross-fitted", **numbers)
        if self.measured_on == "validation":
            line = said("{name}: {score} ({low} to {high}) of {count} validation images", **numbers)
        return said("{line}, in {time}", line=line, time=said_time(self.seconds)) if self.seconds else line


class Part(NamedTuple):
    """One that answers, alone or in a mean.

    Attributes:
        words, init: its name, as in `Trial`.
        fitted: the method; None: a network that learns by steps.
        frozen: the encoder whose features the method sees; None: it sees a descriptor.
        columns: of the features, where it does not see all of them.
    """

    name: str
    words: str
    init: str | None
    fitted: Fitted | None = None
    frozen: Frozen | None = None
    columns: tuple[int, int] | None = None


@dataclass(frozen=True)
class Candidate:
    """Parts that answer together, and their answers to the images that decide; a row of NaN for an image that
    could not be read."""

    parts: tuple[Part, ...]
    outputs: Outputs
    trial: Trial

    @property
    def learns(self) -> bool:
        """Whether a network that learns by steps is among them."""
        return any(part.fitted is None for part in self.parts)


@dataclass(frozen=True)
class Frozen:
    """An encoder as it is, its configuration for these images, and what it gives of them.

    Attributes:
        train, other: of the training images, and of those that decide where they are others.
        rows, other_rows: the numbers of those that could be read.
    """

    name: str
    config: RunConfig
    model: Model
    train: Seen
    rows: Rows
    other: Seen | None = None
    other_rows: Rows | None = None


@dataclass
class Table:
    """The candidates of a run, on the images that decide.

    Attributes:
        images: the validation part; where that is small, the training part, whose images are answered by
            what was fitted without them.
        truth: what is known of them.
    """

    problem: Problem
    images: ImageDataset
    measured_on: str
    truth: Truth
    candidates: list[Candidate] = field(default_factory=list)
    reference: Trial | None = None  # the answer that knows no image
    classical: Classical | None = None
    other: Shown | None = None  # the images that decide as classical methods see them, where they are others
    frozen: Frozen | None = None

    @classmethod
    def of(cls, data: Splits, problem: Problem) -> Table:
        """Return a table without candidates."""
        if has_validation(data):
            assert data.validation is not None
            return cls(problem, data.validation, "validation", data.validation.targets.tensor())
        return cls(problem, data.train, "cross-fitted", data.train.targets.tensor())

    @property
    def held_out(self) -> bool:
        """Whether the images are others than the training images."""
        return self.measured_on == "validation"

    def add(self, parts: Sequence[Part], outputs: Outputs, *, seconds: float = 0, speed: float = 0) -> Trial:
        """Measure a candidate, and return its row."""
        trial = self.measured(
            [part.name for part in parts],
            outputs,
            seconds=seconds,
            speed=speed,
            words=tuple(part.words for part in parts),
            init=tuple(part.init for part in parts),
        )
        self.candidates.append(Candidate(tuple(parts), outputs, trial))
        return trial

    def measured(self, names: Sequence[str], outputs: Outputs, **more: Any) -> Trial:
        """Return the row of answers."""
        known = ~outputs.isnan().any(dim=1)
        found, truth, measures = outputs[known], self.truth[known], self.problem.measures
        name = names[0] if len(names) == 1 else f"mean of {names[0]} and {names[1]}"
        return Trial(
            name,
            measures.of(found, truth),
            measures.interval(found, truth),
            len(truth),
            self.measured_on,
            measures.score,
            measures.loss(found, truth),
            **more,
        )

    def ranked(self) -> list[Candidate]:
        """Return the candidates, the best first."""
        return sorted(self.candidates, key=lambda each: each.trial.merit, reverse=True)

    @property
    def best(self) -> Candidate | None:
        """Return the first of the table."""
        return next(iter(self.ranked()), None)

    def rows(self) -> list[Trial]:
        """Return the table: the candidates, the best first, and the answer that knows no image."""
        return [*(each.trial for each in self.ranked()), *([self.reference] if self.reference else [])]

    def lost(self, other: Candidate, to: Candidate) -> bool:
        """Return whether a candidate is below another one by more than chance explains: two standard errors
        of the difference of their answers to the same images."""
        known = ~(other.outputs.isnan() | to.outputs.isnan()).any(dim=1)
        if self.problem.task != "classification":
            return other.trial.interval.high < to.trial.score
        truth = self.truth[known]
        right = [each.outputs[known].argmax(dim=1) == truth for each in (other, to)]
        lost, won = int((right[1] & ~right[0]).sum()), int((right[0] & ~right[1]).sum())
        return lost - won > 2 * (lost + won) ** 0.5


def has_validation(data: Splits) -> bool:
    """Return whether there are enough validation images to decide by."""
    return data.validation is not None and len(data.validation) >= FEWEST


def problem_of(config: RunConfig, data: Splits) -> Problem:
    """Return what is asked of images in a run."""
    return Problem(config.task, 1 if config.task == "regression" else len(data.train.classes))


# ---- Methods without steps


def add_classical(table: Table, data: Splits, *, mirrored: bool, tell: Callable[[str], None]) -> None:
    """Add the methods that see a descriptor, and the answer that knows no image.

    Args:
        mirrored: whether they may learn from mirror images, as the network does.
    """
    began = time.monotonic()
    table.classical = classical = fit_classical(data, table.problem, mirrored=mirrored, everything=False)
    table.other = other = shown(table.images, classical.prepared) if table.held_out else None
    reading = time.monotonic() - began - sum(each.seconds for each in classical.methods)
    for fitted in classical.methods:
        if other is None:
            outputs = scattered(fitted.answers, classical.shown.rows, len(table.images))
        else:
            values = seen_by_classical(other.pixels, fitted.sees)
            outputs = scattered(fitted.ask(values), other.rows, len(table.images))
        part = Part(fitted.name, f"baselines.{fitted.name}", None, fitted)
        tell(table.add([part], outputs, seconds=reading + fitted.seconds).sentence())
    name, outputs = without_images(classical.truth, table.problem, len(table.images))
    table.reference = table.measured([name], outputs, words=(f"baselines.{name}",), init=(None,))
    tell(table.reference.sentence())


def scattered(outputs: Outputs, rows: Rows, count: int) -> Outputs:
    """Return answers to some of so many images, and NaN for the others."""
    found = torch.full((count, outputs.shape[1]), math.nan)
    found[torch.from_numpy(np.asarray(rows))] = outputs.float()
    return found


def add_frozen(
    table: Table,
    data: Splits,
    name: str,
    config: RunConfig,
    *,
    device: torch.device,
    tell: Callable[[str], None],
    columns: tuple[int, int] | None = None,
) -> None:
    """Add what heads make of the features of an encoder that stays as it is.

    Args:
        name: of the encoder, as people read it.
        config: of a run that begins with it.
        columns: those of its features that a support vector machine sees, where it has several maps.
    """
    began = time.monotonic()
    table.frozen = frozen = frozen_features(table, data, name, config, device)
    reading = time.monotonic() - began
    truth = data.train.targets.tensor(frozen.rows)
    kinds: list[tuple[str, Callable[..., Fitted]]] = [("linear", linear)]
    if table.problem.task == "classification" and len(data.train.classes) <= 200:
        kinds.append(("svm", support_vectors))
    kinds.append(("neighbors", nearest_neighbors))
    problem = table.problem._replace(groups=data.train.together(frozen.rows))
    for kind, fit in kinds:
        some = columns if kind == "svm" else None
        fitted = fit(f"{kind} on {name}", name, frozen.train.columns(some), truth, problem)
        answers, rows = fitted.answers, frozen.rows
        if frozen.other is not None and frozen.other_rows is not None:
            answers, rows = fitted.ask(frozen.other.columns(some).values), frozen.other_rows
        part = Part(f"{kind} on {name}", f"candidates.{kind}", name, fitted, frozen, some)
        outputs = scattered(answers, rows, len(table.images))
        tell(table.add([part], outputs, seconds=reading + fitted.seconds).sentence())


def frozen_features(table: Table, data: Splits, name: str, config: RunConfig, device: torch.device) -> Frozen:
    """Return what an encoder gives of the images; of many training images, of some."""
    model = starting_model(config, data.train.classes)
    images, known = data.train, np.arange(len(data.train))
    if len(images) > MOST_FITTED:
        known = np.array(images.sample(MOST_FITTED))
        images = images.subset(known)
    train, rows = features_of(model, images, config, device)
    if not table.held_out:
        return Frozen(name, config, model, train, known[rows])
    other, other_rows = features_of(model, table.images, config, device)
    return Frozen(name, config, model, train, known[rows], other, other_rows)


def features_of(
    model: Model, images: ImageDataset, config: RunConfig, device: torch.device
) -> tuple[Seen, Rows]:
    """Return the features of images, with the numbers of those that could be read. Those of images with a
    class are kept in the cache, where a training that begins with a head on them finds them again."""
    options = Batching(device=device, workers=loading_workers(config.data.read.workers))
    if isinstance(images.targets, ClassTargets):
        found = cached_features(model, images, **options)
        return Seen(torch.from_numpy(found.values)), found.rows
    outputs = feature_outputs(model, images, **options)
    return Seen(outputs.values), outputs.indices


def add_means(table: Table) -> list[Trial]:
    """Add the mean of the best of each two families: methods that see a descriptor, heads on frozen features,
    networks. Return their rows."""
    families: dict[str, Candidate] = {}
    for each in table.ranked():
        if len(each.parts) == 1:
            [part] = each.parts
            family = "network" if part.fitted is None else "descriptor" if part.frozen is None else "frozen"
            families.setdefault(family, each)
    known = {each.trial.name for each in table.candidates}
    added: list[Trial] = []
    best = list(families.values())
    for place, first in enumerate(best):
        for second in best[place + 1 :]:
            parts = first.parts + second.parts
            if f"mean of {parts[0].name} and {parts[1].name}" in known:
                continue
            outputs = mean_of(first.outputs, second.outputs, table.problem.task)
            added.append(table.add(parts, outputs))
    return added


def mean_of(first: Outputs, second: Outputs, task: str) -> Outputs:
    """Return what two say together."""
    return mean_answer(torch.stack([first, second]), task)


# ---- On the held-out part


def baselines_of(task: AnyTask, trained: Trained[Any, Any]) -> tuple[Baseline, ...]:
    """Return what methods without a network get on the images that a run is evaluated on: they learn from all
    others, and from mirror images where the network does."""
    data, config = trained.data, trained.run.config
    part, held_out = task.held_out_part(data)
    if held_out is None:
        return ()
    if isinstance(trained.compared, Table) and part == "test" and trained.compared.classical is not None:
        return fitted_on_all(trained.compared, trained.compared.classical).baselines(held_out)
    learned = data if part == "test" else data._replace(validation=None)
    mirrored = any(config.augmentation.flip)
    return fit_classical(learned, problem_of(config, data), mirrored=mirrored).baselines(held_out)


def fitted_on_all(table: Table, classical: Classical) -> Classical:
    """Return methods with the settings that they have, fitted on the images that decided as well."""
    pixels, truth = images_to_learn(table, classical, everything=True)
    methods: list[Fitted] = []
    for each in classical.methods:
        methods.append(each.refitted(seen_with_mirrors(pixels, each), truth))
    return classical._replace(methods=tuple(methods), truth=truth)


def images_to_learn(table: Table, classical: Classical, *, everything: bool) -> tuple[torch.Tensor, Truth]:
    """Return the training images as classical methods see them, with what is known of each; with `everything`
    also those that decide, where they are others."""
    if table.other is None or not everything:
        return classical.shown.pixels, classical.truth
    pixels = torch.cat([classical.shown.pixels, table.other.pixels])
    return pixels, torch.cat([classical.truth, table.images.targets.tensor(table.other.rows)])


def seen_with_mirrors(pixels: torch.Tensor, fitted: Fitted) -> Seen:
    """Return images as a method sees them; with mirror images where it learns from these."""
    values = seen_by_classical(pixels, fitted.sees)
    return Seen(values, seen_by_classical(pixels.flip(-1), fitted.sees) if fitted.mirrored else None)


# ---- Networks


def network_outputs(
    model: nn.Module, images: ImageDataset, task: str, *, device: torch.device, workers: int, batch_size: int
) -> Outputs:
    """Return what a trained network answers to images; NaN where they cannot be read."""

    def outputs(batch: Batch) -> torch.Tensor:
        if task == "regression":
            return number_outputs(model, batch.images)
        return model(batch.images).float()

    found = compute_outputs(model, images, outputs, device=device, workers=workers, batch_size=batch_size)
    return scattered(found.values, found.indices, len(images))


# ---- The model


def final_model(
    table: Table, chosen: Candidate, data: Splits, config: RunConfig, network: Model | None
) -> Model:
    """Return what was chosen as a model: methods without steps fitted on all images to learn from, the
    validation part among them.

    Args:
        network: that was trained, where one answers.
    """
    single = chosen.parts[0] if len(chosen.parts) == 1 else None
    if single and single.fitted is None:
        assert network is not None
        return network
    if (
        single
        and single.frozen
        and single.columns is None
        and isinstance(single.fitted and single.fitted.config, LinearConfig)
    ):
        return encoder_with_head(single, table, data)
    prepared = preprocessing_of(chosen, config, network, data)
    members: list[MemberConfig] = []
    heads: list[nn.Module] = []
    networks: list[Model | None] = []
    for part in chosen.parts:
        if part.fitted is None:
            assert network is not None
            members.append(MemberConfig(features=network_config(network), head=LinearConfig()))
            heads.append(network.head)
            networks.append(network)
            continue
        if part.frozen:
            encoder = part.frozen.model
            seen, truth = all_frozen(part.frozen, table, data)
            fitted = part.fitted.refitted(seen.columns(part.columns), truth)
            members.append(
                MemberConfig(features=network_config(encoder), head=fitted.config, columns=part.columns)
            )
            networks.append(encoder)
        else:
            fitted = part.fitted.refitted(*all_described(part.fitted, table, data, prepared))
            described = DescribedConfig(kind=part.fitted.sees)
            members.append(MemberConfig(features=described, head=fitted.config))
            networks.append(None)
        heads.append(fitted.head)
    return assembled(table.problem, members, heads, networks, prepared, data)


def assembled(
    problem: Problem,
    members: Sequence[MemberConfig],
    heads: Sequence[nn.Module],
    networks: Sequence[Model | None],
    prepared: Preprocessing,
    data: Splits,
) -> Ensemble:
    """Return an ensemble of members with these heads and networks."""
    ensemble_config = EnsembleConfig(
        image_size=prepared.size,
        channels=prepared.channels,
        num_classes=problem.outputs,
        members=tuple(members),
    )
    labels = None if problem.task == "regression" else list(data.train.classes)
    model = Ensemble(ensemble_config, preprocessing=prepared, labels=labels, task=problem.task)
    with torch.no_grad():
        for own, head in zip(model.head.heads, heads, strict=True):
            own.load_state_dict(head.state_dict())
        for seen, of in zip(model.seen, networks, strict=True):
            if of is not None:
                weights = of.state_dict()
                own_network: Any = seen
                own_network.network.load_state_dict(
                    {name: value for name, value in weights.items() if not name.startswith("head.")}
                )
    return model.eval()


def network_config(model: Model) -> NetworkConfig:
    """Return a network without its head, as a member sees by it."""
    how = model.preprocessing
    without_head = model.config.model_copy(update={"num_classes": None})
    return NetworkConfig(network=without_head, mean=how.mean, std=how.std)


def preprocessing_of(
    chosen: Candidate, config: RunConfig, network: Model | None, data: Splits
) -> Preprocessing:
    """Return how images are prepared for an ensemble: as for its network, or for classical methods."""
    for part in chosen.parts:
        if part.fitted is None:
            assert network is not None
            return network.preprocessing
        if part.frozen:
            return part.frozen.config.prepared
    return squashed(data.summary.channels, data.summary.value_range)


def encoder_with_head(part: Part, table: Table, data: Splits) -> Model:
    """Return an encoder whose head is a linear map that was fitted on its features."""
    assert part.frozen is not None
    assert part.fitted is not None
    model = deepcopy(part.frozen.model)
    model.task = table.problem.task
    if table.problem.task == "regression":
        model.labels = None
    fitted = part.fitted.refitted(*all_frozen(part.frozen, table, data))
    model.get_submodule("head").load_state_dict(fitted.head.state_dict())
    return model.eval()


def all_frozen(frozen: Frozen, table: Table, data: Splits) -> tuple[Seen, Truth]:
    """Return the features of all images to learn from, and what is known of them."""
    truth = data.train.targets.tensor(frozen.rows)
    if frozen.other is None or frozen.other_rows is None:
        return frozen.train, truth
    both = zip(frozen.train, frozen.other, strict=True)
    values, mirrored = (None if a is None or b is None else torch.cat([a, b]) for a, b in both)
    assert values is not None
    return Seen(values, mirrored), torch.cat([truth, table.images.targets.tensor(frozen.other_rows)])


def all_described(fitted: Fitted, table: Table, data: Splits, prepared: Preprocessing) -> tuple[Seen, Truth]:
    """Return what a descriptor gives of all images to learn from, as a model sees them: for a model of a
    network its images, which are read again."""
    classical = table.classical
    if classical is not None and prepared == classical.prepared:
        everything = data.validation is not None
        pixels, truth = images_to_learn(table, classical, everything=everything)
        return seen_with_mirrors(pixels, fitted), truth
    parts = [part for part in (data.train, data.validation) if part is not None and len(part)]
    count = sum(map(len, parts))
    read_pixels: list[torch.Tensor] = []
    known: list[Truth] = []
    for part in parts:
        some = part
        if count > MOST_FITTED:
            some = part.subset(np.array(part.sample(max(MOST_FITTED * len(part) // count, 1))))
        read = shown(some, prepared)
        read_pixels.append(read.pixels)
        known.append(some.targets.tensor(read.rows))
    return seen_with_mirrors(torch.cat(read_pixels), fitted), torch.cat(known)
