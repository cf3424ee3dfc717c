"""Further seeds of the variants that a claim compares, added to the kept results of a study.

    python benchmarks/study_seeds.py data-size compute --seeds 5:15
    python benchmarks/study_seeds.py data-size --variants ResNet --seeds 0:15 --again
    python benchmarks/study_seeds.py            # writes the tables and the ledger of what is kept

`--variants` names those whose names begin so; by default all that the claims of the study name. `--again`
drops what is kept of them, where the code that they run has changed. Every seed is written as soon as its
trials are done. What is compared, and the rule, was written to design.md of the results before.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from record import facts_of

from vitreous.addons.studies.experiments import STUDIES, study_named
from vitreous.addons.studies.findings import STORED, Findings, Ledger
from vitreous.addons.studies.laboratory import Laboratory
from vitreous.addons.studies.study import Study, TrialResult
from vitreous.addons.studies.verdicts import TableRow
from vitreous.errors import cache_folder

FOLDER = Path(__file__).parent / "results" / "studies"
FACTS = ("date", "machine", "versions", "commit", "command", "recovered")


def kept(study: Study) -> dict[str, list[TrialResult]]:
    """The results of each variant, by seed."""
    found = json.loads((FOLDER / study.name / "results.json").read_text(encoding="utf-8"))
    rows: dict[str, Any] = {row["variant"]: row for row in found["rows"]}
    results: dict[str, list[TrialResult]] = {}
    for variant in study.variants:
        row = rows.get(variant.name, {"values": {}})
        seeds = zip(*row["values"].values(), strict=True)
        results[variant.name] = [
            TrialResult(
                dict(zip(row["values"], values, strict=True)),
                row["parameters"],
                row["macs"],
                row["seconds"] / len(row["values"][study.measure]),
            )
            for values in seeds
        ]
    return results


def write(study: Study, results: dict[str, list[TrialResult]], *, trained: bool) -> None:
    """Write table, plot and results, which say where they come from: as before, or as of now."""
    for trials in results.values():
        # Measures that were withdrawn stand in the older results alone.
        common = set.intersection(*(set(trial.values) for trial in trials)) if trials else set()
        for trial in trials:
            for name in set(trial.values) - common:
                del trial.values[name]
    rows = [TableRow(variant, results[variant.name]) for variant in study.variants if results[variant.name]]
    seeds = max(len(row.results) for row in rows)
    file = FOLDER / study.name / "results.json"
    before = json.loads(file.read_text(encoding="utf-8"))
    Findings(study, seeds, 1.0, rows).write(FOLDER / study.name)
    content = json.loads(file.read_text(encoding="utf-8"))
    facts = facts_of("one thread") if trained else {each: before[each] for each in FACTS if each in before}
    file.write_text(json.dumps(facts | content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*")
    parser.add_argument("--seeds", default="0:0", help="the first, and the one after the last")
    parser.add_argument("--variants", nargs="*", default=[])
    parser.add_argument("--again", action="store_true", help="drop what is kept of these variants")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    first, last = map(int, arguments.seeds.split(":"))
    laboratory = Laboratory(cache=cache_folder() / "studies", device=torch.device("cpu"))
    for name in arguments.studies:
        study = study_named(name)
        results = kept(study)
        terms = {name for claim in study.claims for _, name in claim.terms}
        chosen = [each for each in study.variants if each.name in terms or each.group in terms]
        if arguments.variants:
            chosen = [each for each in study.variants if each.name.startswith(tuple(arguments.variants))]
        for variant in chosen if arguments.again else ():
            results[variant.name] = []
        for seed in range(first, last):
            for variant in chosen:
                if len(results[variant.name]) == seed:
                    _, result = laboratory.run(variant.trial, seed)
                    results[variant.name].append(result)
                    value = f"{study.measure} {result.values[study.measure]:.3f}, {result.seconds:.0f} s"
                    print(f"{name}, {variant.name}, seed {seed}: {value}", file=sys.stderr, flush=True)
            write(study, results, trained=True)
    for name, study in STUDIES.items():
        if (FOLDER / name / "results.json").is_file():
            write(study, kept(study), trained=False)
    ledger = Ledger.read(FOLDER).write(FOLDER)
    known: dict[str, list[dict[str, Any]]] = {}
    for name, each in ledger.run:
        row = {"claim": each.claim.name, "seeds": each.seeds, "chosen": each.chosen, "unit": each.unit}
        known.setdefault(name, []).append(row)
    STORED.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
