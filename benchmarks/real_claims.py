"""Claims of the ledger, asked of real images: the trials of the studies on public sets.

    python benchmarks/real_claims.py --sets mnist5k --seeds 5

What is compared, and the rule, was written to results/claims_on_images/design.md before anything was run.
Trials are kept in the cache of the studies, so that a stopped run goes on. With `--seeds 0` nothing is
trained, and the tables of the documentation are written again.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from real_images import make_folders
from record import write_results

from vitreous.addons.studies.experiments import STUDIES
from vitreous.addons.studies.laboratory import HELD_OUT, Laboratory, OwnImages, PartImages
from vitreous.addons.studies.study import Study, TrialResult, Variant
from vitreous.addons.studies.verdicts import TableRow, Verdict, verdict, with_holm
from vitreous.addons.studies.writing import markdown_table
from vitreous.errors import cache_folder
from vitreous.languages import LANGUAGES, phrase, speaking, words
from vitreous.rng import numpy_generator

FOLDER = Path(__file__).parent / "results" / "claims_on_images"
STEPS, FEW = 150, 300
# Emoji, Tux Paint and elpv were here with random quarters, in which kin of test images are learned from:
# their values were withdrawn.
SETS = {"mnist5k": "MNIST"}
SIZES = {"mnist5k": 16}  # pixels of a side
AT_CHANCE, AT_CEILING = 0.03, 0.985  # less above the majority class, or at least: a set says nothing then
UNITS = {"en": ("sd of untrained models", "points"), "ko": ("학습하지 않은 모델의 표준 편차 기준", "%p")}
SEEDS = {"en": "{} seeds", "ko": "시드 {}개"}
NOTHING = {
    "en": {
        "chance": "says nothing: no model is better than the majority class",
        "ceiling": "says nothing: all classify nearly everything",
    },
    "ko": {
        "chance": "알 수 없음: 최빈 클래스보다 나은 모델이 없음",
        "ceiling": "알 수 없음: 모든 모델이 거의 다 맞힘",
    },
}
Rows = dict[str, dict[str, list[dict[str, float]]]]  # by study, variant, seed, measure
CLAIMS = {
    "positions": ("any",),
    "shape": ("depth", "patches"),
    "data-size": ("little",),
    "attention": ("depth",),
}


class FewImages(OwnImages):
    """Images of which each seed learns few."""

    def part(self, part: str, seed: int) -> PartImages:
        whole = super().part(part, seed)
        if part == "test":
            return whole
        rows = np.sort(numpy_generator(seed, "few images").permutation(whole.images)[:FEW])
        factors = {name: labels[rows] for name, labels in whole.factors.items()}
        pixels = whole.whole[torch.from_numpy(rows)]
        return PartImages(len(rows), pixels.__getitem__, factors, whole.looks)


def on_images(name: str, own: OwnImages) -> Study:
    """The study with the variants that its claims here compare."""
    study = own.study(STUDIES[name])
    claims = tuple(claim for claim in study.claims if claim.name in CLAIMS[name])
    named = {term for claim in claims for _, term in claim.terms}
    variants = list[Variant]()
    for each in study.variants:
        if each.name in named or each.group in named:
            steps = STEPS if each.trial.steps else 0  # an untrained one is a null
            variants.append(replace(each, trial=replace(cast("Any", each.trial), steps=steps)))
    return replace(study, variants=tuple(variants), claims=claims)


@lru_cache
def read(name: str, folder: Path, size: int) -> OwnImages:
    return OwnImages.read(str(make_folders(name, 0, folder)), (size, size))


def images_of(study: str, name: str, folder: Path) -> OwnImages:
    """The images of a set as a study has them."""
    own = read(name, folder, 24 if (name, study) == ("mnist5k", "attention") else SIZES[name])
    return FewImages(f"{own.name}, {FEW}", *own[1:]) if study == "data-size" else own


def verdicts(rows: Rows) -> list[tuple[Study, Verdict]]:
    """The verdict on each claim, with Holm's correction over all of a set."""
    found: list[tuple[Study, Verdict]] = []
    nothing = torch.zeros(1, 1, 1, 3, dtype=torch.uint8)
    for name in CLAIMS:
        study = on_images(name, OwnImages("", nothing, np.zeros(1, np.int64), (16, 16)))
        table = []
        for variant in study.variants:
            trials = [TrialResult(values, 0, 0, 0.0) for values in rows[name][variant.name]]
            table.append(TableRow(variant, trials, 1 / (HELD_OUT - 1)))
        found += ((study, verdict(claim, table)) for claim in study.claims)
    tested = with_holm([each for _, each in found])
    return [(study, each) for (study, _), each in zip(found, tested, strict=True)]


def says_nothing(study: Study, found: Verdict, rows: Rows, majority: float) -> str | None:
    """Whether no trained model of a claim is above the majority class, or all are at the ceiling."""
    named = [variant for variant in study.variants if variant.trial.steps]
    named = [each for each in named if {each.name, each.group} & {term for _, term in found.claim.terms}]
    means = [np.mean([seed["accuracy"] for seed in rows[study.name][each.name]]) for each in named]
    if max(means) < majority + AT_CHANCE:
        return "chance"
    return "ceiling" if min(means) >= AT_CEILING else None


def table(sets: dict[str, Any], language: str) -> str:
    """The table of the documentation, in the language that is spoken: a column for each set."""
    cells: dict[str, list[str]] = {}
    for kept in sets.values():
        for study, each in verdicts(kept["rows"]):
            place = phrase("study.reference", value=each.claim.place)
            unit = UNITS[language][each.claim.points]
            sentence = f"{study.words['claims'][each.claim.name]} ({unit})<br>*{place}; `{study.name}`*"
            nothing = says_nothing(study, each, kept["rows"], kept["majority"])
            if nothing:
                cell = NOTHING[language][nothing]
            else:
                number = f"{each.number(each.mean, '+')} ± {each.number(each.half_width)}"
                cell = f"{number}<br>{words('study')['verdicts'][each.in_ledger]}"
            cells.setdefault(sentence, []).append(cell)
    seeds = {name: len(kept["rows"]["shape"]["the base"]) for name, kept in sets.items()}
    head = [words("study")["ledger-columns"]["claim"]]
    head += [f"{SETS[name]}<br>{SEEDS[language].format(seeds[name])}" for name in sets]
    return markdown_table(head, [(claim, *row) for claim, row in cells.items()])


def train(name: str, seed: int, folder: Path, rows: Rows) -> None:
    """Add what a seed finds on a set."""
    for study in CLAIMS:
        own = images_of(study, name, folder)
        laboratory = Laboratory(cache_folder() / "studies", torch.device("cpu"), own=own)
        kept = rows.setdefault(study, {})
        for variant in on_images(study, own).variants:
            values = kept.setdefault(variant.name, [])
            if len(values) == seed:
                _, result = laboratory.run(variant.trial, seed)
                values.append({key: round(value, 5) for key, value in result.values.items()})
                text = f"{result.values['accuracy']:.3f}, {result.seconds:.0f} s"
                print(f"{name}, {study}, {variant.name}, seed {seed}: {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", type=Path, default=Path("real-images"), help="folder of the packages")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.sets:
        results = FOLDER / f"{name}.json"
        rows: Rows = json.loads(results.read_text("utf-8"))["rows"] if results.exists() else {}
        for seed in range(arguments.seeds):
            train(name, seed, arguments.data, rows)
            # A seed is kept once it is whole.
            counts = np.bincount(read(name, arguments.data, SIZES[name]).targets)
            kept = {"rows": rows, "majority": round(float(counts.max() / counts.sum()), 4)}
            write_results(
                kept, results, packages=("mlxtend", "elpv-dataset"), seeds=range(arguments.seeds), shown=False
            )
    found = {}
    for name in SETS:
        if (FOLDER / f"{name}.json").exists():
            found[name] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    for language in LANGUAGES:
        with speaking(language):
            (FOLDER / f"table.{language}.md").write_text(table(found, language) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
