"""The experiments of the Transformer's paper (1706.03762, Table 3) on generated sequences."""

from __future__ import annotations

from vitreous.studies.sequences import SequenceTrial
from vitreous.studies.study import TRANSFORMER_PAPER, Claim, Study, Variant

# Steps by task: enough that a first look, with seeds that the results do not have, was right on some
# sequences and wrong on others.
STEPS = {"copy": 150, "parsing": 150, "agreement": 100}
HEADS = (1, 2, 4, 8, 16)
ALIKE = 0.02  # as in the studies of images


def trial(task: str) -> SequenceTrial:
    return SequenceTrial(task=task, steps=STEPS[task])


def study(name: str, variants: list[Variant], claims: list[Claim]) -> Study:
    return Study(
        name, tuple(variants), tuple(claims), "sequences", arxiv=TRANSFORMER_PAPER, world="sequences"
    )


def sinusoids() -> Study:
    """Row E; and what section 3.5 says of positions."""
    kinds = {"sinusoidal": "25.8", "learned": "25.7"}
    variants = [
        Variant(f"{kind}, {task}", trial(task).change({"position": kind}), paper)
        for task in STEPS
        for kind, paper in kinds.items()
    ]
    variants.append(Variant("none, parsing", trial("parsing").change({"position": "none"})))
    claims = [
        Claim(f"alike-{task}", ((1, f"learned, {task}"), (-1, f"sinusoidal, {task}")), "2017", "Table 3 (E)",
              "-0.1 (BLEU)", measure="sequences", rule="alike", margin=ALIKE)
        for task in ("parsing", "agreement")
    ]  # fmt: skip
    first = 1, "sinusoidal, parsing"
    claims.append(Claim("any", (first, (-1, "none, parsing")), "2017", "3.5", measure="sequences"))
    terms = (1, "sinusoidal, copy"), (-1, "learned, copy")
    claims.append(Claim("longer", terms, "2017", "3.5", measure="longer"))
    return study("sinusoids", variants, claims)


def heads() -> Study:
    """Row A: the width of a head times their number stays."""
    paper = {1: "24.9", 4: "25.5", 8: "25.8", 16: "25.8"}
    variants = [
        Variant(f"heads x{count}", trial("parsing").change({"heads": count}), paper.get(count, ""))
        for count in HEADS
    ]
    eight, row = "heads x8", "Table 3 (A)"
    claims = [
        Claim("one", ((1, eight), (-1, "heads x1")), "2017", row, "+0.9 (BLEU)", measure="sequences"),
        Claim("sixteen", ((1, "heads x16"), (-1, eight)), "2017", row, "0.0 (BLEU)", measure="sequences",
              rule="alike", margin=ALIKE),
    ]  # fmt: skip
    return study("heads", variants, claims)


def key_size() -> Study:
    """Row B: queries and keys of a half and a quarter of the values' size."""
    sizes = {"whole": (None, "25.8"), "half": (4, "25.4"), "quarter": (2, "25.1")}
    variants = [
        Variant(name, trial("parsing").change(key_size=size), paper) for name, (size, paper) in sizes.items()
    ]
    claims = [
        Claim(name, ((1, "whole"), (-1, name)), "2017", "Table 3 (B)", paper, measure="sequences")
        for name, paper in (("half", "+0.4 (BLEU)"), ("quarter", "+0.7 (BLEU)"))
    ]
    return study("key-size", variants, claims)
