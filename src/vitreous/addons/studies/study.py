"""What a study is: variants that are trained, and claims about them that a rule decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import ValidationError

from vitreous.errors import InputError, nearest
from vitreous.languages import words
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.settings import check_names, explain
from vitreous.results import percent
from vitreous.training.settings import Tree, leaves, merged

if TYPE_CHECKING:
    import torch

WORLD = "world:textures:6000@16,clutter=1,scale=0.8,test=1600"
VIT_PAPER, TRANSFORMER_PAPER = "2010.11929", "1706.03762"
VIT: dict[str, object] = {"width": 64, "depth": 3, "heads": 4, "mlp_dim": 128, "patch_size": (4, 4)}


@dataclass(frozen=True)
class TrialResult:
    """What one trial with one seed gave."""

    values: dict[str, float]  # by the name of a measure
    parameters: int
    macs: int  # multiply-accumulate operations for one example
    seconds: float  # of processor time in training


@runtime_checkable
class OwnTrial(Protocol):
    """One run without its seed that is not a training on images, and performs itself: a frozen dataclass,
    whose fields name its result in the cache."""

    revision: ClassVar[int]  # of what it computes: another number trains all again
    settings: ClassVar[tuple[str, ...]]  # the fields that a user may change

    @property
    def data(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def rate(self) -> float: ...

    def perform(self, seed: int, *, share: float, device: torch.device) -> TrialResult:
        """Return the result after this share of the steps."""
        ...


@dataclass(frozen=True)
class TrainingSetup:
    """One training run on images without its seed."""

    revision: ClassVar[int] = 1
    settings: ClassVar[tuple[str, ...]] = ("steps", "batch_size", "rate", "weight_decay")

    data: str = WORLD  # the training and test images; each seed draws its own
    labels: str = "textures"  # what is learned of them: a kind of labels of the image world
    # fields of a ViT, over those of VIT; or of a BiT, if there are `layers`
    model: Tree = field(default_factory=lambda: dict(VIT))
    # of a cosine after a warm-up of a tenth; without one the model stays as it was initialized
    steps: int = 150
    batch_size: int = 64
    rate: float = 3e-3
    optimizer: Literal["adamw", "sgd"] = "adamw"
    weight_decay: float = 0.05
    start: TrainingSetup | None = None  # what it is fine-tuned from; None: from scratch
    # None: the labels; else self-supervised, whose encoder is the result
    objective: Literal["masked-patch", "mae"] | None = None
    target: Literal["mean-color", "small-colors", "pixels"] = "mean-color"  # of masked-patch
    # those of `start` at another size: interpolated, those of the middle of its grid, or initialized again
    positions: Literal["resized", "cropped", "fresh"] = "resized"
    measures: tuple[str, ...] = ("accuracy", "few-shot")  # at the end, by name

    @property
    def config(self) -> type[ViTConfig | BiTConfig]:
        """What the model is a configuration of."""
        return BiTConfig if "layers" in self.model else ViTConfig

    def change(self, model: Tree | None = None, **fields: Any) -> TrainingSetup:
        """Return the trial with other fields; those of the model are merged."""
        return replace(self, model=merged(self.model, model or {}), **fields)


AnyTrial = TrainingSetup | OwnTrial
BASE = TrainingSetup()  # of which most variants change one thing


@dataclass(frozen=True)
class Variant:
    """A row of the table."""

    name: str
    trial: AnyTrial
    paper: str = ""  # the paper's number, as written there; empty where it has none
    group: str = ""  # its curve, of several rates what they are rates of
    x: float = 0.0  # its place on it


@dataclass(frozen=True)
class Claim:
    """A sentence that the differences over the seeds decide, by a rule fixed before they are known.

    The value of a seed is the sum of `terms`: a sign times the measure of a variant. A name of a group stands
    for its variant with the best mean of that measure on the validation images.
    """

    name: str  # of the sentence among the words of its study
    terms: tuple[tuple[int, str], ...]
    # who says it: the paper, that of 2017, a later one, or this project
    source: Literal["paper", "2017", "later", "ours"]
    place: str  # where it stands
    paper: str = ""  # the same difference in the paper, with its unit
    measure: str = "accuracy"
    rule: Literal["more", "alike"] = "more"  # the value is above 0, or within ± margin
    margin: float = 0.01  # the smallest difference that matters, in the measure's unit
    points: bool = True  # whether the measure is a share, and printed as points of a hundred
    # For a measure other than a share: an untrained variant, whose standard deviation over seeds is the unit.
    null: str = ""


@dataclass(frozen=True)
class Study:
    """One experiment: its variants, and the claims about them."""

    name: str
    variants: tuple[Variant, ...]
    claims: tuple[Claim, ...]
    measure: str = "accuracy"  # what the table shows
    points: bool = True  # whether it is a share, and printed in %
    arxiv: str = VIT_PAPER  # the paper
    world: Literal["images", "sequences", "layers", "own"] = "images"  # what the variants learn from

    @property
    def words(self) -> dict[str, Any]:
        """The study in the catalog: title, place, measure, differs, claims, and the axis of curves."""
        return words(f"studies.{self.name}")

    def number(self, value: float) -> str:
        """Return a value of `measure` as the table shows it."""
        return percent(value) if self.points else f"{value:.2f}"


def trials_of(study: Study) -> list[Any]:
    """Return the trial of each variant, and what it is fine-tuned from."""
    trials: list[Any] = [variant.trial for variant in study.variants]
    return trials + [trial.start for trial in trials if getattr(trial, "start", None)]


def with_settings(study: Study, tree: Tree) -> Study:
    """Return the study with other values of what all of its trials have in common.

    Args:
        tree: fields of a trial, such as `steps`, and of its `model`.

    Raises:
        InputError: an unknown field, a value that does not fit, or a field that the study compares.
    """
    known = study.variants[0].trial.settings
    # An untrained model beside trained ones is a null: it has no steps, whatever the others have.
    trials = [trial for trial in trials_of(study) if trial.steps] or trials_of(study)
    if not known:
        raise InputError(f"the study {study.name} has no settings: leave out {next(iter(leaves(tree)))}")
    fields = {name: value for name, value in tree.items() if name != "model"}
    for name, value in fields.items():
        if name not in known:
            raise InputError(f"unknown setting {name}: {nearest(name, [*known, 'model.width'])}")
        kind = type(getattr(trials[0], name))
        if isinstance(value, bool) or not isinstance(value, kind | int) or not value > 0:
            raise InputError(f"{name} is {value!r}: pass a number above 0")
    model = tree.get("model", {})
    if not isinstance(model, Mapping):
        raise InputError("model is a group of settings, not a value: set model.width, for example")
    if model and any("layers" in trial.model for trial in trials):
        name = f"model.{next(iter(model))}"
        raise InputError(f"the study {study.name} compares architectures: leave out {name}")
    check_names(model, trials[0].config)
    for name in leaves(tree):
        found = {repr(value_at(trial, name)) for trial in trials}
        if len(found) > 1 or name in ("model.num_classes", "model.image_size", "model.vocabulary"):
            raise InputError(f"the study {study.name} sets {name} itself: leave it out")

    def changed(trial: Any) -> Any:
        own = dict(fields)
        if not trial.steps:
            own.pop("steps", None)
        if getattr(trial, "start", None):
            own["start"] = changed(trial.start)
        new = trial.change(model, **own)
        tried = dict(new.model)
        if "vocabulary" in tried:
            tried["vocabulary"] = 9
        try:
            trial.config(**tried)
        except ValidationError as error:
            raise InputError(explain(error, "model", trial.config)) from None
        return new

    variants = tuple(replace(each, trial=changed(each.trial)) for each in study.variants)
    return replace(study, variants=variants)


def value_at(trial: object, name: str) -> Any:
    """Return a field of a trial, or of its model by a dotted name; None where the model has the default."""
    first, *rest = name.split(".")
    value: object = getattr(trial, first)
    for part in rest:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def variant_label(name: str) -> str:
    """Return the name of a variant in the language of the page: each part between commas, without numbers."""
    known = words("study.variants")
    labels: list[str] = []
    for part in name.split(", "):
        what, sign, number = part.partition(" x")
        labels.append(known.get(what, what) + sign + number)
    return ", ".join(labels)
