"""What may be wrong with a dataset or a run: its sentence, its severity, and what to do; and what `doctor`
and `data check` return of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vitreous.errors import utf8_name
from vitreous.languages import phrase, speaking
from vitreous.languages.terminal import said
from vitreous.outside import read_text
from vitreous.results import Result
from vitreous.whole_files import write_text

SHOWN = 100  # images named in a finding

Severity = Literal["error", "warning", "note"]
Named = str | tuple[str, ...] | dict[str, str]  # an image, a pair of them, or an image and why


@dataclass(frozen=True)
class Finding:
    """Something that keeps a model from learning, or its accuracy from being true."""

    name: str  # in the catalog of languages: its kind and, after a dot, which of its sentences
    values: Mapping[str, object] = field(default_factory=dict)  # that its sentences need
    found: int = 1  # how often
    images: tuple[Named, ...] = ()  # names of the images, or of pairs of them; the first hundred
    # An error spoils the training or its accuracy, a warning may, a note does not.
    severity: Severity = "error"

    @property
    def kind(self) -> str:
        """A word for programs."""
        return self.name.partition(".")[0]

    @property
    def problem(self) -> str:
        """What was seen, with the numbers, in the language of the page that is made; else in English."""
        return phrase(f"findings.{self.name}.problem", found=self.found, **self.values)

    @property
    def fix(self) -> str:
        """What to do."""
        return phrase(f"findings.{self.name}.fix", found=self.found, **self.values)

    @property
    def sentence(self) -> str:
        """What was seen, where, and what to do."""
        first = self.images[0] if self.images else ""
        named = first if isinstance(first, str) else ", ".join(first)
        problem = self.problem
        is_named = f"'{named}'" in problem or f"({named}" in problem
        example = " " + phrase("finding.example", name=named) if named and not is_named else ""
        return f"{problem}{example}: {self.fix}"

    def to_json(self) -> dict[str, object]:
        names = ("kind", "severity", "problem", "fix", "found", "images")
        return {name: getattr(self, name) for name in names}


def finding(
    name: str,
    /,
    images: Sequence[Named] | None = None,
    found: int | None = None,
    severity: Severity = "error",
    **values: object,
) -> Iterator[Finding]:
    """Yield a finding, unless nothing was found.

    Args:
        name: in the catalog of languages.
        images: those concerned; bytes of a name that are not UTF-8 are shown as \\xff.
        found: how many; by default as many as there are images, one where these are not given.
        severity: how grave it is; see `Finding`.
        values: that the sentences need.
    """
    if found is None:
        found = 1 if images is None else len(images)
    if found:
        shown: list[Named] = []
        for image in (images or ())[:SHOWN]:
            if isinstance(image, str):
                shown.append(utf8_name(image))
            elif isinstance(image, tuple):
                shown.append(tuple(map(utf8_name, image)))
            else:
                shown.append(image)
        yield Finding(name, values, found, tuple(shown), severity)


@dataclass(frozen=True)
class Examination(Result):
    """What was found, the gravest first."""

    findings: tuple[Finding, ...]

    def __post_init__(self) -> None:
        ordered = sorted(self.findings, key=lambda each: ("error", "warning", "note").index(each.severity))
        object.__setattr__(self, "findings", tuple(ordered))

    def to_json(self) -> dict[str, object]:
        return {**vars(self), "findings": [each.to_json() for each in self.findings]}

    def table(self) -> list[dict[str, object]]:
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
    pipeline: str | None = None  # how `train` shows an image to a model by default


@dataclass(frozen=True)
class Diagnosis(Examination):
    """What `doctor` found in a run or a dataset."""

    subject: str


def write_findings(file: Path, findings: Sequence[Finding]) -> None:
    """Write findings, so that they can be read again in any language."""
    rows = [{**vars(each), "values": dict(each.values)} for each in findings]
    write_text(file, json.dumps(rows, indent=1, default=str))


def read_findings(file: Path) -> list[Finding]:
    """Return the findings of a file; none where there is no such file."""
    rows = json.loads(read_text(file)) if file.is_file() else []
    return [Finding(**{**row, "images": tuple(row["images"])}) for row in rows]


def findings_of(parts: Sequence[object]) -> list[Finding]:
    """Return what was seen when data were opened. parts: begins with train, validation and test."""
    found = dict[str, Finding]()
    for part in parts[:3]:
        for each in getattr(part, "findings", ()):
            found[each.kind] = each
    return list(found.values())


def data_notes(findings: Iterable[Finding]) -> list[str]:
    """Return what was seen in data, in sentences."""
    with speaking(None):
        return [said("data: {sentence}", sentence=each.sentence) for each in findings]
