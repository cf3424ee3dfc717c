"""What a study is: variants that are trained, and claims about them that a rule decides."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from vitreous.languages import words
from vitreous.training.settings import Tree, merged

WORLD = "world:textures:6000@16,clutter=1,scale=0.8,test=1600"
VIT: dict[str, Any] = {"width": 64, "depth": 3, "heads": 4, "mlp_dim": 128, "patch_size": (4, 4)}


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


BASE = Trial()  # of which most variants change one thing


@dataclass(frozen=True)
class Variant:
    """A row of the table.

    Attributes:
        paper: the paper's number, as written there; empty where it has none.
        group, x: its curve and its place on it; of several learning rates, what they are rates of.
    """

    name: str
    trial: Trial
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
        source: who says it: the paper, a later one, or this project.
        place: where it stands.
        paper: the same difference in the paper, with its unit.
        rule: "more": the value is above 0. "alike": it is within ± margin. "none": it is 0 exactly.
        margin: the smallest difference that matters, in the measure's unit.
        points: whether the measure is a share, and printed as points of a hundred.
    """

    name: str
    terms: tuple[tuple[int, str], ...]
    source: Literal["paper", "later", "ours"]
    place: str
    paper: str = ""
    measure: str = "accuracy"
    rule: Literal["more", "alike", "none"] = "more"
    margin: float = 0.01
    points: bool = True


@dataclass(frozen=True)
class Study:
    """One experiment: its variants, and the claims about them."""

    name: str
    variants: tuple[Variant, ...]
    claims: tuple[Claim, ...]
    measure: str = "accuracy"

    @property
    def words(self) -> dict[str, Any]:
        """The study in the catalog: title, place, measure, differs, claims, and the axis of curves."""
        return words(f"studies.{self.name}")


def variant_label(name: str) -> str:
    """Return the name of a variant in the language of the page: each part between commas, without numbers."""
    known = words("study.variants")
    parts = [part.partition(" x") for part in name.split(", ")]
    return ", ".join(known.get(part, part) + sign + number for part, sign, number in parts)
