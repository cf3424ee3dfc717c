"""Claims of the ledger, asked of real images: the trials of the studies on MNIST.

    python benchmarks/real_claims.py --seeds 5

What is compared, and the rule, was written to results/claims_on_mnist/design.md before anything was run.
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
from typing import Any

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

FOLDER = Path(__file__).parent / "results" / "claims_on_mnist"
STEPS, FEW = 150, 300
SIZES = {"attention": 24}  # pixels of a side; 16 of the others
CLAIMS = {
    "positions": ("any",),
    "shape": ("depth", "patches"),
    "data-size": ("little",),
    "attention": ("depth", "nearness"),
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
            variants.append(replace(each, trial=replace(each.trial, steps=steps)))
    return replace(study, variants=tuple(variants), claims=claims)


@lru_cache
def read(folder: Path, size: int) -> OwnImages:
    return OwnImages.read(str(make_folders("mnist5k", 0, folder)), (size, size))


def images_of(name: str, folder: Path) -> OwnImages:
    own = read(folder, SIZES.get(name, 16))
    return FewImages(f"{own.name}, {FEW}", *own[1:]) if name == "data-size" else own


def verdicts(rows: dict[str, Any]) -> list[tuple[Study, Verdict]]:
    """The verdict on each claim, with Holm's correction over all of them."""
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


def table(rows: dict[str, Any]) -> str:
    """The table of the documentation, in the language that is spoken."""
    cells = []
    for study, each in verdicts(rows):
        place = phrase("study.reference", value=each.claim.place)
        sentence = study.words["claims"][each.claim.name]
        cells.append((f"{sentence}<br>*{place}; `{study.name}`*", each.difference, each.text))
    return markdown_table(list(words("study.ledger-columns").values()), cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", type=Path, default=Path("real-images"), help="folder of the packages")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = FOLDER / "results.json"
    rows: dict[str, Any] = json.loads(results.read_text("utf-8"))["rows"] if results.exists() else {}
    for seed in range(arguments.seeds):
        for name in CLAIMS:
            own = images_of(name, arguments.data)
            laboratory = Laboratory(cache_folder() / "studies", torch.device("cpu"), own=own)
            kept = rows.setdefault(name, {})
            for variant in on_images(name, own).variants:
                values = kept.setdefault(variant.name, [])
                if len(values) == seed:
                    _, result = laboratory.run(variant.trial, seed)
                    values.append({key: round(value, 5) for key, value in result.values.items()})
                    text = f"{result.values['accuracy']:.3f}, {result.seconds:.0f} s"
                    print(f"{name}, {variant.name}, seed {seed}: {text}", file=sys.stderr, flush=True)
        # A seed is kept once it is whole.
        write_results({"rows": rows}, results, packages=("mlxtend",), shown=False)
    for language in LANGUAGES:
        with speaking(language):
            (FOLDER / f"table.{language}.md").write_text(table(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
