"""What a study is: variants that are trained, and claims about them that a rule decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import ValidationError

from vitreous.errors import InputError, nearest
from vitreous.languages import percentage, words
from vitreous.models.config import ViTConfig
from vitreous.models.settings import check_names, explain
from vitreous.training.settings import Tree, leaves, merged

if TYPE_CHECKING:
    from vitreous.models.names import Model
    from vitreous.studies.laboratory import Laboratory

WORLD = "world:textures:6000@16,clutter=1,scale=0.8,test=1600"
VIT_PAPER, TRANSFORMER_PAPER = "2010.11929", "1706.03762"
VIT: dict[str, Any] = {"width": 64, "depth": 3, "heads": 4, "mlp_dim": 128, "patch_size": (4, 4)}


@dataclass(frozen=True)
class TrialResult:
    """What one trial with one seed gave.

    Attributes:
        values: by the name of a measure.
        macs: multiply-accumulate operations for one example.
        seconds: of processor time in training.
    """

    values: dict[str, float]
    parameters: int
    macs: int
    seconds: float


@runtime_checkable
class AnyTrial(Protocol):
    """One run without its seed: a frozen dataclass, whose fields name its result in the cache.

    Attributes:
        settings: the fields that a user may change.
    """

    settings: ClassVar[tuple[str, ...]]

    @property
    def data(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def rate(self) -> float: ...

    def perform(self, laboratory: Laboratory, seed: int) -> tuple[Model | None, TrialResult]:
        """Return the result, and the model if other trials begin with it."""
        ...


@dataclass(frozen=True)
class Trial:
    """One training run without its seed.

    Attributes:
        data: the training and test images; each seed draws its own.
        labels: what is learned of them: a kind of labels of the image world.
        model: fields of a ViT, over those of VIT; or of a BiT, if there are `layers`.
        steps, batch_size, rate, optimizer, weight_decay: a cosine after a warm-up of a tenth; without a step
            the model stays as it was initialized.
        start: what it is fine-tuned from; None: from scratch.
        objective: None: the labels; else a self-supervised objective, whose encoder is the result.
        fresh_positions: the positions of `start` are initialized again instead of resized.
        measures: what is measured at the end, by name.
    """

    settings: ClassVar[tuple[str, ...]] = ("steps", "batch_size", "rate", "weight_decay")
    config: ClassVar[Any] = ViTConfig

    data: str = WORLD
    labels: str = "textures"
    model: Tree = field(default_factory=lambda: dict(VIT))
    steps: int = 150
    batch_size: int = 64
    rate: float = 3e-3
    optimizer: Literal["adamw", "sgd"] = "adamw"
    weight_decay: float = 0.05
    start: Trial | None = None
    objective: Literal["masked-patch", "mae"] | None = None
    fresh_positions: bool = False
    measures: tuple[str, ...] = ("accuracy", "few-shot")

    def change(self, model: Tree | None = None, **fields: Any) -> Trial:
        """Return the trial with other fields; those of the model are merged."""
        return replace(self, model=merged(self.model, model or {}), **fields)

    def perform(self, laboratory: Laboratory, seed: int) -> tuple[Model | None, TrialResult]:
        return laboratory.learn_images(self, seed)


BASE = Trial()  # of which most variants change one thing


@dataclass(frozen=True)
class Variant:
    """A row of the table.

    Attributes:
        paper: the paper's number, as written there; empty where it has none.
        group, x: its curve and its place on it; of several learning rates, what they are rates of.
    """

    name: str
    trial: AnyTrial
    paper: str = ""
    group: str = ""
    x: float = 0.0


@dataclass(frozen=True)
class Claim:
    """A sentence that the differences over the seeds decide, by a rule fixed before they are known.

    The value of a seed is the sum of `terms`: a sign times the measure of a variant. A name of a group stands
    for its variant with the best mean on the validation images.

    Attributes:
        name: of the sentence among the words of its study.
        source: who says it: the paper, that of 2017, a later one, or this project.
        place: where it stands.
        paper: the same difference in the paper, with its unit.
        rule: "more": the value is above 0. "alike": it is within ± margin. "none": it is 0 exactly.
        margin: the smallest difference that matters, in the measure's unit.
        points: whether the measure is a share, and printed as points of a hundred.
    """

    name: str
    terms: tuple[tuple[int, str], ...]
    source: Literal["paper", "2017", "later", "ours"]
    place: str
    paper: str = ""
    measure: str = "accuracy"
    rule: Literal["more", "alike", "none"] = "more"
    margin: float = 0.01
    points: bool = True


@dataclass(frozen=True)
class Study:
    """One experiment: its variants, and the claims about them.

    Attributes:
        measure: what the table shows.
        points: whether it is a share, and printed in %.
        arxiv: the paper.
        world: what the variants learn from.
    """

    name: str
    variants: tuple[Variant, ...]
    claims: tuple[Claim, ...]
    measure: str = "accuracy"
    points: bool = True
    arxiv: str = VIT_PAPER
    world: Literal["images", "sequences", "layers", "own"] = "images"

    @property
    def words(self) -> dict[str, Any]:
        """The study in the catalog: title, place, measure, differs, claims, and the axis of curves."""
        return words(f"studies.{self.name}")

    def number(self, value: float) -> str:
        """Return a value of `measure` as the table shows it."""
        return percentage(value) if self.points else f"{value:.2f}"


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
    trials, known = trials_of(study), study.variants[0].trial.settings
    if not known:
        raise InputError(f"the study {study.name} has no settings: leave out {next(iter(leaves(tree)))}")
    fields = {name: value for name, value in tree.items() if name != "model"}
    for name, value in fields.items():
        if name not in known:
            raise InputError(f"unknown setting {name}: {nearest(name, [*known, 'model.width'])}")
        kind = type(getattr(trials[0], name))
        if isinstance(value, bool) or not isinstance(value, kind | int) or not value > 0:
            raise InputError(f"{name} is {value!r}: give a number above 0")
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
        start = {"start": changed(trial.start)} if getattr(trial, "start", None) else {}
        new = trial.change(model, **fields, **start)
        try:
            trial.config(**{**new.model, **({"vocabulary": 9} if "vocabulary" in new.model else {})})
        except ValidationError as error:
            raise InputError(explain(error, "model")) from None
        return new

    variants = tuple(replace(each, trial=changed(each.trial)) for each in study.variants)
    return replace(study, variants=variants)


def value_at(trial: Any, name: str) -> Any:
    """Return a field of a trial, or of its model by a dotted name; None where the model has the default."""
    first, *rest = name.split(".")
    value: Any = getattr(trial, first)
    for part in rest:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def variant_label(name: str) -> str:
    """Return the name of a variant in the language of the page: each part between commas, without numbers."""
    known = words("study.variants")
    parts = [part.partition(" x") for part in name.split(", ")]
    return ", ".join(known.get(part, part) + sign + number for part, sign, number in parts)
