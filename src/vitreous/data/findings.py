"""What may be wrong with a dataset or a run: its sentence, its severity, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from vitreous.results import Result

SHOWN = 100  # images named in a finding

Severity = Literal["error", "warning", "note"]


class Finding(NamedTuple):
    """Something that keeps a model from learning, or its accuracy from being true.

    Attributes:
        kind: a word for programs.
        severity: an error spoils the training or its accuracy, a warning may, and a note does not.
        problem: what was seen, with the numbers.
        fix: what to do.
        found: how often.
        images: names of the images, or of pairs of them; the first hundred.
    """

    kind: str
    severity: Severity
    problem: str
    fix: str
    found: int = 1
    images: tuple[Any, ...] = ()

    @property
    def sentence(self) -> str:
        """What was seen, where, and what to do."""
        such = f" (such as {self.images[0]})" if self.images else ""
        return f"{self.problem}{such}: {self.fix}"


# Of each kind what was seen, and what to do; `finding` fills the gaps in the sentences.
ERRORS = {
    "broken": ("{found} files cannot be read", "fix or remove them"),
    "leak": (
        "{found} pairs of images in two splits are the same",
        "remove them from train: the accuracy would be too good",
    ),
    "conflict": ("{found} pairs of equal images have two {labels}", "keep the right one"),
    "labels": (
        "the {part} part has labels from {low} to {high}, but there are {classes} classes",
        "number the classes from 0 to {last}",
    ),
    "split": (
        "{share} of the {part} part is in classes that the training part shows less often{unseen}: the "
        "list was probably sorted by class when it was cut",
        "sample the split at random: leave it to data.test_fraction, or shuffle the list first",
    ),
    "without mask": ("{found} images have no mask", "add masks, or remove the images: training refuses them"),
    "wrong mask": (
        "{found} masks do not fit their images or the classes",
        "fix them: training refuses such masks",
    ),
}
WARNINGS = {
    "near-leak": (
        "{found} pairs of images in two splits are nearly the same",
        "remove them from train: the accuracy would be too good",
    ),
    "empty": ("{found} class folders hold no image, and are left out", "add some, or remove the folders"),
    "format": ("{found} images are in formats that are not read ({formats})", "{install}"),
    "loop": ("{found} links lead to a folder that they are in, and are not followed", "remove them"),
    "repaired": (
        "{found} files end too early, and their missing rows are gray",
        "fetch them again",
    ),
    "tiny": (
        "{found} images are less than a quarter as large as the median",
        "look whether they are thumbnails or errors",
    ),
    "masks": (
        "the classes are called {classes}",
        "where these are images and their masks, check them, and train, with --task segmentation",
    ),
    "texts": (
        "{found} of {classes} classes have a single image",
        "where the labels are texts, train with --task captioning; where they are classes, add images",
    ),
    "few": ("{found} classes have fewer than {least} images", "add images, or join classes"),
    "imbalance": (
        "{most} images of {largest!r} but {fewest} of {smallest!r}",
        "set data.class_balance=true or add images, and look at the recall of each class",
    ),
    "unrecorded split": (
        "the run has no split.csv, which versions before did not write: its parts are sampled again from the "
        "images that are there now",
        "leave the images as they were; a new run records its split",
    ),
    "new images": (
        "{found} images are new since the run began, and are left out",
        "evaluate with data.new_images=true to take those of known classes in, or train a new run",
    ),
    "added images": (
        "{found} images are new since the run began; those of known classes are taken in",
        "leave out data.new_images to leave them out",
    ),
    "gone images": ("{found} images of the run are gone", "put them back to compare its accuracy"),
    "changed images": (
        "{found} images have another content than when the run began",
        "check them: what was measured before was measured on others",
    ),
    "relabeled images": (
        "{found} images have another label than when the run began; the present one is used",
        "train a new run where they are many",
    ),
    "moved images": (
        "{found} images were moved to another part of the data, and are left out",
        "move them back, or train a new run",
    ),
    "not excluded": (
        "{found} images that {file} excludes are not in the data",
        "no harm, unless their names are mistakes",
    ),
    "no text": ("{found} images have no text, and are left out", "write their texts, or remove the lines"),
    "unseen character": (
        "{found} characters are in texts to test on, and in none to learn from",
        "add images with them to train: they cannot be read",
    ),
    "unseen": (
        "{found} classes are in no mask of train",
        "add masks that show them, or take them out of classes.txt and number the others again",
    ),
    "ignored": (
        "{found} masks are {value} everywhere",
        "save their classes, or remove the images: nothing is learned from them",
    ),
}
NOTES = {
    "excluded": ("{found} images are left out", "{file} excludes them"),
    "hidden": ("{found} hidden images are not looked at", "no harm, unless their names are a mistake"),
    "system": ("{found} folders of the operating system are not looked at", "remove them at any time"),
    "duplicate": ("{found} pairs of images in one split are the same", "keep one of each"),
    "near-duplicate": ("{found} pairs of images in one split are nearly the same", "keep one of each"),
    "gray": ("{found} images among colored ones are gray", "no harm, unless one class has most of them"),
    "suspect-label": (
        "{found} images look like another class's",
        "look at them: coarse colors and shapes are all that was compared",
    ),
    "rare character": (
        "{found} characters are fewer than {times} times in what is learned from",
        "look whether they are slips, or add images with them",
    ),
    "long text": (
        "{found} texts are more than {times} times as long as the median ({usual:.0f} characters)",
        "look whether their images are single lines",
    ),
    "without image": ("{found} masks have no image", "no harm, unless images are missing"),
    "rare": (
        "{found} classes have less than {share} of the pixels",
        "look at the IoU of each class, and add images that show them",
    ),
}
FINDINGS: dict[str, tuple[Severity, str, str]] = {
    **{kind: ("error", *sentences) for kind, sentences in ERRORS.items()},
    **{kind: ("warning", *sentences) for kind, sentences in WARNINGS.items()},
    **{kind: ("note", *sentences) for kind, sentences in NOTES.items()},
}


def finding(
    kind: str, images: Sequence[Any] = (), found: int | None = None, **values: Any
) -> Iterator[Finding]:
    """Yield a finding, unless nothing was found.

    Args:
        images: those concerned.
        found: how many; as many as there are images if None.
        values: that the sentence names.
    """
    found = len(images) if found is None else found
    if found:
        severity, problem, fix = FINDINGS[kind]
        problem, fix = problem.format(found=found, **values), fix.format(**values)
        yield Finding(kind, severity, problem, fix, found, tuple(images[:SHOWN]))


@dataclass(frozen=True)
class Examination(Result):
    """What was found, the gravest first."""

    findings: tuple[Finding, ...]

    def __post_init__(self) -> None:
        ordered = sorted(self.findings, key=lambda each: ("error", "warning", "note").index(each.severity))
        object.__setattr__(self, "findings", tuple(ordered))

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "findings": [each._asdict() for each in self.findings]}

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each finding."""
        return [
            {"severity": each.severity, "problem": each.problem, "fix": each.fix} for each in self.findings
        ]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that spoil a training or its accuracy."""
        return tuple(each for each in self.findings if each.severity == "error")


@dataclass(frozen=True)
class DataReport(Examination):
    """Counts and findings of a dataset."""

    images: dict[str, int]  # by split
    classes: dict[str, int]  # all splits together
    unreadable: tuple[str, ...] = ()  # names of all files that cannot be read
    moved: tuple[str, ...] = ()  # those of them that are in quarantine now
    page: str | None = None  # what --report wrote
    actions: str | None = None  # the CSV beside it


@dataclass(frozen=True)
class Diagnosis(Examination):
    """What `doctor` found in a run or a dataset."""

    subject: str
