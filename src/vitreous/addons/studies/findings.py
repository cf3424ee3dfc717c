"""Running a study: every variant with every seed; and the ledger of all claims that studies have decided."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.addons.studies.experiments import STUDIES
from vitreous.addons.studies.laboratory import HELD_OUT, Laboratory
from vitreous.addons.studies.study import Study, TrialResult
from vitreous.addons.studies.verdicts import TableRow, Verdict, verdict, with_holm
from vitreous.addons.studies.writing import (
    atomic_files,
    markdown_table,
    study_cells,
    study_plot,
    write_results,
)
from vitreous.errors import InputError
from vitreous.languages import LANGUAGES, phrase, speaking, words
from vitreous.outside import read_text
from vitreous.results import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


STORED = Path(__file__).with_name("ledger.json")  # claims of benchmarks/results/studies


@dataclass(frozen=True)
class Findings(Result):
    """All of a study: rows in its order, a verdict on each claim, and the files of table and plot."""

    study: Study
    seeds: int
    share: float
    rows: Sequence[TableRow]
    files: tuple[Path, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def verdicts(self) -> list[Verdict]:
        return [verdict(claim, self.rows) for claim in self.study.claims]

    def to_json(self) -> dict[str, object]:
        about = self.study.words
        return {
            "study": self.study.name,
            "measure": self.study.measure,
            "differs": about["differs"],
            "seeds": self.seeds,
            "share_of_steps": self.share,
            "data": self.rows[0].variant.trial.data if self.study.world == "own" else None,
            "settings": self.settings,
            "rows": self.table(),
            "claims": [each.to_json(about["claims"][each.claim.name]) for each in self.verdicts],
            "files": [str(file) for file in self.files],
        }

    def figures(self) -> dict[str, Figure]:
        """Return the plot of the table."""
        return {"plot": study_plot(self.study, self.rows, self.runs).figure}

    @property
    def runs(self) -> str:
        """The data, the steps and the number of seeds in words."""
        steps = max(row.variant.trial.steps for row in self.rows) * self.share
        counts = [len(row.results) for row in self.rows]
        least, most = min(counts), max(counts)
        seeds = phrase("study.from-to", least=least, most=most) if least < most else least
        return phrase("study.runs", steps=round(steps), seeds=seeds, several=most > 1)

    def markdown(self) -> str:
        """Return the table, how it differs from the paper, and the verdicts."""
        about, rows = dict(self.study.words), list[tuple[str, ...]]()
        for row in self.rows:
            size = row.results[0]
            rows.append((*study_cells(row, self.study), f"{size.parameters:,}", f"{size.macs:,}"))
        table = markdown_table(list(words("study.columns").values()), rows)
        about |= {"arxiv": self.study.arxiv, "world": words("study.worlds")[self.study.world]}
        text = phrase("study.about", runs=self.runs, **about)
        claims = "\n".join(f"- {claim_text(self.study, each)}" for each in self.verdicts)
        return "\n\n".join(filter(None, (f"# {about['title']}", text, table, claims))) + "\n"

    def write(self, folder: Path) -> Findings:
        """Return the findings with the files that were written."""
        with speaking("en"):
            numbers = {name: value for name, value in self.to_json().items() if name != "files"}
        plot = study_plot(self.study, self.rows, self.runs)
        return replace(self, files=write_results(folder, self.markdown(), numbers, plot))

    def table(self) -> list[dict[str, object]]:
        """Return one row for each variant."""
        rows: list[dict[str, object]] = []
        for row in self.rows:
            variant, first = row.variant, row.results[0]
            interval = list(row.interval(self.study.measure)) if self.seeds > 1 else None
            rows.append(
                {
                    "variant": variant.name,
                    "paper": variant.paper or None,
                    "values": {name: row.values(name) for name in first.values},
                    "mean": row.mean(self.study.measure),
                    "interval": interval,
                    "parameters": first.parameters,
                    "macs": first.macs,
                    "seconds": sum(result.seconds for result in row.results),
                    "group": variant.group or None,
                    "x": variant.x or None,
                    "data": variant.trial.data,
                    "steps": variant.trial.steps,
                    "rate": variant.trial.rate,
                }
            )
        return rows


def claim_text(study: Study, verdict: Verdict) -> str:
    sentence = study.words["claims"][verdict.claim.name]
    place = phrase("study.reference", value=verdict.claim.place)
    return f"{sentence} ({place}): {verdict.difference}; {verdict.text}"


def run_study(
    study: Study, laboratory: Laboratory, seeds: int, *, progress: Callable[[str], None]
) -> Findings:
    """Train every variant with every seed, seed by seed, so that an interrupted study has whole comparisons.
    progress: called with a line for each trial."""
    results: list[list[TrialResult]] = [[] for _ in study.variants]
    for seed in range(seeds):
        for place, variant in enumerate(study.variants):
            _, result = laboratory.run(variant.trial, seed)
            results[place].append(result)
            done, whole = seed * len(study.variants) + place + 1, seeds * len(study.variants)
            value = result.values[study.measure]
            progress(
                f"{study.name} {done}/{whole}  {variant.name}, seed {seed}: "
                f"{study.measure} {value:.3f}, {result.seconds:.0f} s"
            )
    # The seeds split the same images, of which one of so many is held out.
    overlap = 1 / (HELD_OUT - 1) if laboratory.own else 0.0
    rows = [TableRow(variant, each, overlap) for variant, each in zip(study.variants, results, strict=True)]
    return Findings(study, seeds, laboratory.share, rows)


@dataclass(frozen=True)
class Ledger(Result):
    """Every claim of every study, with its verdict where the study has been run.

    Attributes:
        verdicts: with the name of the study; without seeds where it has not been run.
    """

    verdicts: tuple[tuple[str, Verdict], ...]

    @classmethod
    def read(cls, folder: Path, share: float = 1.0) -> Ledger:
        """Return the ledger of the results that are kept in the sub-folders of `folder`: of studies that
        trained this share of the steps. Raises InputError: there are none."""
        known: dict[str, Any] = {}
        for name in STUDIES:
            file = folder / name / "results.json"
            results = json.loads(read_text(file)) if file.is_file() else {"claims": []}
            if results.get("data") or results.get("settings"):  # of a user's own
                continue
            if results.get("share_of_steps", share) == share:  # a quick look decides nothing
                known[name] = results["claims"]
        if not any(len(each["seeds"]) > 1 for claims in known.values() for each in claims):
            raise InputError(f"{folder} has no results of studies: run vitreous study all --out {folder}")
        return cls.of(known)

    @classmethod
    def stored(cls) -> Ledger:
        """Return the ledger of the project's own runs, which comes with the package."""
        return cls.of(json.loads(STORED.read_text(encoding="utf-8")))

    @classmethod
    def of(cls, known: Mapping[str, Sequence[Mapping[str, Any]]]) -> Ledger:
        """Return the ledger of the kept claims of studies."""
        found: list[tuple[str, Verdict]] = []
        for name, claims in known.items():
            kept = {each["claim"]: each for each in claims if len(each["seeds"]) > 1}
            for claim in STUDIES[name].claims:
                one = kept.get(claim.name, {"seeds": [], "chosen": []})
                seeds, chosen = tuple(one["seeds"]), tuple(one["chosen"])
                found.append((name, Verdict(claim, seeds, chosen, unit=one.get("unit"))))
        tested = iter(with_holm([each for _, each in found if each.seeds]))
        return cls(tuple((name, next(tested) if each.seeds else each) for name, each in found))

    @property
    def run(self) -> list[tuple[str, Verdict]]:
        """Those that have been run."""
        return [each for each in self.verdicts if each[1].seeds]

    def to_json(self) -> dict[str, object]:
        return {"claims": self.table(), "counts": self.counts}

    def table(self) -> list[dict[str, object]]:
        """Return one row for each claim that has been tried."""
        rows: list[dict[str, object]] = []
        for name, each in self.run:
            sentence = STUDIES[name].words["claims"][each.claim.name]
            row = {"study": name, **each.to_json(sentence)}
            rows.append({**row, "holm": each.holm, "verdict_in_ledger": each.in_ledger})
        return rows

    @property
    def counts(self) -> dict[str, int]:
        """How many claims have each verdict, or have not been tried."""
        tried = Counter[str](each.in_ledger for _, each in self.run)
        return {**tried, "not-run": len(self.verdicts) - len(self.run)}

    def markdown(self) -> str:
        """Return the ledger as a table, with how many claims are decided. It has three columns, which a phone
        shows: (claim with its place, study and seeds; ours; verdict)."""
        sources, missing = words("study.sources"), words("study.verdicts")["not-run"]
        rows: list[tuple[str, ...]] = []
        for name, each in self.verdicts:
            claim = each.claim
            place = phrase("study.reference", value=claim.place)
            paper = phrase("study.reference", value=claim.paper)
            about = phrase(
                "study.ledger-about",
                sentence=STUDIES[name].words["claims"][claim.name],
                place=", ".join(filter(None, (sources[claim.source], place))),
                study=name,
                seeds=len(each.seeds),
                paper=paper,
            )
            rows.append((about, each.difference if each.seeds else "-", each.text if each.seeds else missing))
        table, counts = markdown_table(list(words("study.ledger-columns").values()), rows), self.counts
        note = phrase(
            "study.ledger-note",
            decided=counts.get("seen", 0) + counts.get("not-seen", 0),
            claims=len(self.verdicts),
            alone=sum(each.holm is False for _, each in self.verdicts),
        )
        return f"{table}\n\n{note}\n"

    def write(self, folder: Path) -> Ledger:
        """Write ledger.en.md and ledger.ko.md into `folder`."""
        with atomic_files(folder) as temporary:
            for language in LANGUAGES:
                with speaking(language):
                    (temporary / f"ledger.{language}.md").write_text(self.markdown(), encoding="utf-8")
        return self
