"""Every study runs, decides its claims by the rule, and never trains the same thing twice."""

from __future__ import annotations

import json
import re
import resource
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.addons.studies.complexity import LayerTrial
from vitreous.addons.studies.experiments import STUDIES, study_named
from vitreous.addons.studies.findings import Ledger, run_study
from vitreous.addons.studies.laboratory import (
    Laboratory,
    OwnImages,
    cache_key,
    normalized_images,
    pixels_of,
    world_of,
)
from vitreous.addons.studies.measures import (
    LabeledImages,
    equivariance,
    few_shot,
    heads,
    larger_canvas,
    position_plane,
    shuffled,
)
from vitreous.addons.studies.sequences import SequenceTrial
from vitreous.addons.studies.study import (
    BASE,
    Claim,
    Study,
    TrialResult,
    Variant,
    variant_label,
    with_settings,
)
from vitreous.addons.studies.verdicts import TableRow, Verdict, row_named, verdict, with_holm
from vitreous.addons.studies.world import WorldImages, class_names
from vitreous.addons.studies.writing import atomic_files, results_folder, study_plot
from vitreous.cli import run
from vitreous.errors import InputError
from vitreous.evaluation.scores import half_width
from vitreous.languages import speaking
from vitreous.models.config import ViTConfig
from vitreous.models.model import build_model
from vitreous.models.vit import ViT

SHORT = 0.004  # of the steps: one


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    cache = tmp_path_factory.mktemp("cache")
    return Laboratory(cache=cache, device=torch.device("cpu"), share=SHORT)


def tiny(study: Study) -> Study:
    """The same study on 96 images or 60 sequences, or of short sequences."""

    def small(trial: Any) -> Any:
        if isinstance(trial, SequenceTrial):
            return replace(trial, train=60, test=20, batch_size=8)
        if isinstance(trial, LayerTrial):
            sizes = {"lengths": (8, 16, 32), "widths": (4, 8, 16), "held_length": 8, "held_width": 4}
            return replace(trial, repeats=1, **sizes)
        count, _, rest = trial.data.partition("@")
        data = f"{count.rpartition(':')[0]}:96@{rest.replace('test=1600', 'test=400')}"
        return replace(trial, data=data, batch_size=16, start=trial.start and small(trial.start))

    return replace(study, variants=tuple(replace(each, trial=small(each.trial)) for each in study.variants))


def results_in(cache: Path) -> dict[Path, int]:
    """The results of trials, each with the time at which it was written."""
    return {path: path.stat().st_mtime_ns for path in cache.rglob("result.json")}


FAST = ("inductive-bias", "complexity")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in STUDIES]
)
def test_every_study_runs_and_is_written(name: str, laboratory: Laboratory, tmp_path: Path) -> None:
    study, told = tiny(study_named(name)), list[str]()
    findings = run_study(study, laboratory, 2, progress=told.append)
    assert len(told) == 2 * len(study.variants)
    written = findings.write(tmp_path / name)
    assert all(path.stat().st_size > 200 for path in written.files)
    table = (tmp_path / name / "table.md").read_text(encoding="utf-8")
    assert study.words["differs"] in table
    assert all(study.words["claims"][each.claim.name] in table for each in findings.verdicts)
    kept = json.loads((tmp_path / name / "results.json").read_text(encoding="utf-8"))
    assert [claim["seeds"] for claim in kept["claims"]] == [list(each.seeds) for each in findings.verdicts]
    with pytest.raises(InputError, match="has no results of studies"):  # one step each decides nothing
        Ledger.read(tmp_path)
    if not study.claims:  # numbers without a verdict
        return
    ledger = Ledger.read(tmp_path, SHORT)
    assert [each.mean for _, each in ledger.run] == [each.mean for each in findings.verdicts]
    assert all(sentence in ledger.markdown() for sentence in study.words["claims"].values())
    trials = results_in(laboratory.cache)
    assert run_study(study, laboratory, 2, progress=told.append).to_json() == findings.to_json()
    assert results_in(laboratory.cache) == trials  # nothing is trained twice


@pytest.mark.parametrize("name", STUDIES)
def test_claims_are_about_what_there_is(name: str) -> None:
    """Seen before anything is trained, not after hours."""
    study = study_named(name)
    rows = [TableRow(variant, [TrialResult({"validation": 0.5}, 1, 1, 1.0)]) for variant in study.variants]
    assert {claim.name for claim in study.claims} == set(study.words["claims"])
    for claim in study.claims:
        assert [row_named(term, rows) for _, term in claim.terms]
    assert len({variant.name for variant in study.variants}) == len(study.variants)


@pytest.mark.parametrize("name", ["transfer", "optimizer", "data-size"])
def test_a_plot_has_every_curve(name: str) -> None:
    study = study_named(name)
    values = {"accuracy": 0.5, "few-shot": 0.5, "validation": 0.5}
    rows = [TableRow(each, [TrialResult(values, 1, 1, 1.0)] * 2) for each in study.variants]
    (axes,) = study_plot(study, rows, "").figure.axes
    shown = {text.get_text() for text in axes.get_legend().get_texts()}
    assert shown == {variant_label(each.group) for each in study.variants}


def test_compute_is_about_equal_between_architectures() -> None:
    from vitreous.addons.studies.experiments import ARCHITECTURES
    from vitreous.models.bit import BiTConfig
    from vitreous.models.description import describe

    macs = []
    for trial in ARCHITECTURES.values():
        kind: Any = BiTConfig if "layers" in trial.model else ViTConfig
        macs.append(describe(kind(image_size=16, num_classes=8, **trial.model)).macs)
    assert max(macs) < 1.25 * min(macs)


@pytest.mark.slow
def test_an_interrupted_study_goes_on(tmp_path: Path) -> None:
    study = tiny(study_named("inductive-bias"))
    lab = Laboratory(cache=tmp_path, device=torch.device("cpu"), share=SHORT)

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(study, lab, 1, progress=interrupt)
    first = results_in(tmp_path)
    run_study(study, lab, 1, progress=lambda _: None)
    every = results_in(tmp_path)
    assert (len(first), len(every)) == (1, len(study.variants))
    assert first.items() <= every.items()


def test_a_trial_that_another_process_removes_from_the_cache_is_run(laboratory: Laboratory) -> None:
    trial = replace(tiny(study_named("inductive-bias")).variants[0].trial, measures=("accuracy",))  # type: ignore[type-var]
    folder, result = laboratory.run(trial, 5)
    (folder / "result.json").unlink()
    again, other = laboratory.run(trial, 5)
    assert (again, other.values) == (folder, result.values)
    assert (folder / "result.json").is_file()


def test_a_trial_depends_on_everything_that_it_is_given() -> None:
    others = [
        cache_key(trial, seed, share)
        for trial, seed, share in (
            (BASE, 0, 1.0),
            (BASE, 1, 1.0),
            (BASE, 0, 0.1),
            (BASE.change({"depth": 1}), 0, 1.0),
            (BASE.change(labels="shapes"), 0, 1.0),
            (BASE.change(start=BASE), 0, 1.0),
        )
    ]
    assert len(set(others)) == len(others)
    assert cache_key(BASE.change(), 0, 1.0) == others[0]
    assert cache_key(BASE, 0, 1.0, "fp32") == others[0]
    assert cache_key(BASE, 0, 1.0, "bf16") not in others


def test_what_is_fine_tuned_begins_where_its_start_ended(laboratory: Laboratory) -> None:
    trial = tiny(study_named("resolution")).variants[1].trial
    assert trial.start is not None
    low = laboratory.run(replace(trial.start, measures=()), 0)[0]
    model, fresh = (
        laboratory.starting_model(replace(trial, positions=each), 0) for each in ("resized", "fresh")
    )
    before, after, other = (vt.load(low).state_dict(), model.state_dict(), fresh.state_dict())
    name = "blocks.0.mlp.expand.weight"
    torch.testing.assert_close(before[name], after[name])
    torch.testing.assert_close(before[name], other[name])
    assert after["position.table"].shape != before["position.table"].shape
    assert not torch.equal(after["position.table"], other["position.table"])
    torch.testing.assert_close(before["head.weight"], after["head.weight"])  # the labels are the same


def test_each_target_of_masked_patches_is_that_of_its_objective(laboratory: Laboratory) -> None:
    starts = {each.group: each.trial.start for each in tiny(study_named("transfer")).variants}  # type: ignore[attr-defined]
    learned: list[torch.Tensor] = []
    for group, target in (
        ("mean colors", "mean-color"),
        ("small colors", "small-colors"),
        ("pixels", "pixels"),
    ):
        assert starts[group].target == target
        model = vt.load(laboratory.run(replace(starts[group], measures=()), 7)[0])
        learned.append(model.state_dict()["blocks.0.mlp.expand.weight"])
    assert not torch.equal(learned[0], learned[1])
    assert not torch.equal(learned[1], learned[2])


def test_cropped_positions_are_those_of_the_middle(laboratory: Laboratory) -> None:
    trial = tiny(study_named("resolution")).variants[-1].trial
    assert trial.start is not None
    assert trial.positions == "cropped"
    before = vt.load(laboratory.run(replace(trial.start, measures=()), 0)[0]).get_parameter("position.table")
    table = laboratory.starting_model(trial, 0).get_parameter("position.table")
    extra = len(before) % 4  # of a grid of 4 x 4, of which 2 x 2 are the middle
    torch.testing.assert_close(table, before[[*range(extra), *(extra + row for row in (5, 6, 9, 10))]])


def test_images_are_drawn_when_they_are_asked_for_and_are_those_of_the_dataset() -> None:
    world = world_of(replace(BASE, data="world:textures:200@16,test=8"))
    counts = list[int]()

    class Counted(WorldImages):
        def draw(self, indices: Any) -> Any:
            counts.append(len(indices))
            return super().draw(indices)

    part, dataset = pixels_of(world, "train", 11), Counted(world, "train", 11)
    rows = torch.tensor([150, 3, 99, 3])
    drawn = part.take(rows)
    for _ in range(2):
        assert (dataset.rows(rows.numpy()) == drawn.numpy()).all()
    assert counts == [3]
    for image, row in zip(drawn, rows.tolist(), strict=True):
        assert (image.numpy() == np.asarray(dataset.image(row))).all()
    assert torch.equal(part.whole[rows], drawn)


def test_batches_are_whole_passes_in_the_same_order_for_all_variants(laboratory: Laboratory) -> None:
    trial = replace(BASE, data="world:textures:48@16,test=8", batch_size=16)
    rows = [batch.indices for batch in laboratory.batches(trial, 0, 6, (16, 16))]
    assert sorted(torch.cat(rows[:3]).tolist()) == list(range(48))
    assert not torch.equal(torch.cat(rows[:3]), torch.cat(rows[3:]))
    wider = laboratory.batches(trial.change({"width": 128}), 0, 6, (16, 16))
    assert all(torch.equal(one, batch.indices) for one, batch in zip(rows, wider, strict=True))


def fresh(**fields: Any) -> ViT:
    tree: dict[str, Any] = {"width": 32, "depth": 2, "heads": 2, "mlp_dim": 32, "num_classes": 8}
    config = ViTConfig(image_size=16, patch_size=(4, 4), stem={"kind": "patch"}, **tree | fields)  # type: ignore[arg-type]
    model = build_model(config, seed=0).eval()
    assert isinstance(model, ViT)
    return model


@pytest.fixture(scope="module")
def images() -> LabeledImages:
    part = pixels_of(world_of(replace(BASE, data="world:textures:8@16,test=64")), "test", 0)
    return LabeledImages(
        normalized_images(part.whole, (16, 16), torch.device("cpu")), part.factors, "textures", 0
    )


def test_shuffling_changes_nothing_without_positions_and_something_with_them(images: LabeledImages) -> None:
    with torch.inference_mode():
        assert shuffled(fresh(position={"kind": "none"}), images) == {"shuffle-change": 0.0}
        assert shuffled(fresh(), images)["shuffle-change"] > 1e-4


def test_a_shift_moves_the_window_over_the_image_and_not_its_border() -> None:
    """What a model sees after a shift is computed here from crops, and a model that sees nothing is even."""
    world = larger_canvas(world_of(replace(BASE, data="world:textures:8@16,scale=0.8,test=64")))
    assert (world.size, world.scale, world.shift) == (32, 0.4, 0.0)
    part = pixels_of(replace(world, test=8), "test", 0)
    canvas = LabeledImages(
        normalized_images(part.whole, (32, 32), torch.device("cpu")), part.factors, "textures", 0
    )
    model = fresh()
    with torch.inference_mode():
        found = equivariance(model, canvas)
        still, moved = (model.features(canvas.pixels[:, :, at : at + 16, at : at + 16]) for at in (8, 11))
        wanted = (moved - still).norm(dim=1).mean() / (still - still.roll(1, 0)).norm(dim=1).mean()
        assert found["equivariance-3"] == pytest.approx(float(wanted), rel=1e-4)
        assert set(found) == {"equivariance", *(f"equivariance-{shift}" for shift in range(1, 5))}
        even = replace(canvas, pixels=torch.arange(8.0).view(8, 1, 1, 1).expand(8, 3, 32, 32))
        assert equivariance(model, even)["equivariance"] < 1e-5


def test_uniform_attention_has_a_distance_of_one(images: LabeledImages) -> None:
    model = fresh()
    for block in model.blocks:
        torch.nn.init.zeros_(block.attention.qkv.weight)  # type: ignore[union-attr, arg-type]
    with torch.inference_mode():
        found = heads(model, images)
    assert found["nearest-head"] == pytest.approx(1, abs=1e-5)
    assert found["distance-slope"] == pytest.approx(0, abs=1e-5)


def test_positions_of_the_plane(images: LabeledImages) -> None:
    computed, random = fresh(position={"kind": "sincos-2d"}), fresh()
    with torch.inference_mode():
        known, unknown = position_plane(computed, images), position_plane(random, images)
    assert known["nearness"] > 0.7
    assert known["nearness-in-rings"] > 0.4
    assert abs(unknown["nearness"]) < 0.3
    assert abs(unknown["nearness-in-rings"]) < 0.3


def test_positions_that_know_the_distance_from_the_middle_alone_are_not_near_within_rings(
    images: LabeledImages,
) -> None:
    model = fresh()
    side, width = model.config.grid[0], model.config.width
    place = torch.arange(side) - (side - 1) / 2
    ring = (place[:, None] ** 2 + place**2).flatten()
    table = model.position.table  # type: ignore[union-attr]
    with torch.inference_mode():
        table[1:].copy_(torch.cos(ring[:, None] * torch.linspace(0.1, 1.0, width)))  # type: ignore[union-attr]
        found = position_plane(model, images)
    assert abs(found["nearness"]) > 0.1
    assert found["nearness-in-rings"] == pytest.approx(0, abs=1e-6)


CLAIM = Claim("any", ((1, "a"), (-1, "b")), "ours", "here")


def rows_of(**values: list[float]) -> list[TableRow]:
    return [
        TableRow(Variant(name, BASE), [TrialResult({"accuracy": each}, 1, 1, 1.0) for each in seeds])
        for name, seeds in values.items()
    ]


def test_verdicts_are_paired_differences_by_hand() -> None:
    from scipy.stats import t, ttest_rel

    first, second = [0.9, 0.8, 0.7], [0.8, 0.7, 0.5]
    found = verdict(CLAIM, rows_of(a=first, b=second))
    assert found.mean == pytest.approx(0.4 / 3)
    spread = np.std([0.1, 0.1, 0.2], ddof=1) / 3**0.5
    assert found.half_width == pytest.approx(t.ppf(0.975, 2) * spread)
    assert found.p_value == pytest.approx(ttest_rel(first, second).pvalue)
    assert found.verdict == "undecided"
    assert found.detectable > found.half_width


@pytest.mark.parametrize(
    ("rule", "seeds", "expected"),
    [
        ("more", (0.05, 0.06, 0.07), "seen"),
        ("more", (-0.05, -0.06, -0.07), "not-seen"),
        ("more", (0.0001, -0.0001, 0.0002), "not-seen"),  # no difference that matters
        ("more", (0.05, -0.05, 0.06), "undecided"),
        ("alike", (0.001, -0.002, 0.0), "seen"),
        ("alike", (0.05, 0.06, 0.07), "not-seen"),
        ("alike", (0.01, 0.02, 0.03), "undecided"),  # past the margin, and not all of the interval
        ("alike", (0.05, -0.05, 0.06), "undecided"),
    ],
)
def test_the_rule(rule: Any, seeds: tuple[float, ...], expected: str) -> None:
    assert Verdict(replace(CLAIM, rule=rule, margin=0.01), seeds).verdict == expected


def test_a_group_is_its_best_by_validation() -> None:
    rows = [
        TableRow(
            Variant(f"a x{rate}", BASE, group="a"),
            [TrialResult({"accuracy": value, "validation": chosen}, 1, 1, 1.0)] * 2,
        )
        for rate, value, chosen in ((1, 0.9, 0.5), (2, 0.7, 0.6))
    ]
    found = verdict(replace(CLAIM, terms=((1, "a"),)), rows)
    assert found.chosen == ("a x2",)
    assert found.mean == pytest.approx(0.7)


def test_few_shots_choose_a_group_by_other_images_than_they_judge_it_by() -> None:
    """The images with labels are the first half, those that choose the eighth after it."""
    targets = np.arange(160) % 4
    values = torch.eye(4)[torch.from_numpy(targets)]
    shown = LabeledImages(torch.zeros(160, 3, 4, 4), {"labels": targets}, "labels", 0)

    def measured(known: slice) -> dict[str, float]:
        """Of a model that tells the classes of the images with labels and of these."""
        table = torch.zeros(160, 4)
        table[:80], table[known] = values[:80], values[known]

        class Knowing(ViT):
            def features(self, images: torch.Tensor) -> torch.Tensor:
                return table

        return few_shot(Knowing(fresh().config), shown)

    chosen, judged = measured(slice(80, 100)), measured(slice(100, 160))
    assert chosen == {"few-shot": 0.25, "few-shot-validation": 1.0}
    assert judged == {"few-shot": 1.0, "few-shot-validation": 0.25}
    rows = [
        TableRow(
            Variant(f"a x{rate}", BASE, group="a"),
            [TrialResult({"few-shot": value, "few-shot-validation": by, "validation": 1 - by}, 1, 1, 1.0)],
        )
        for rate, value, by in ((1, 0.9, 0.5), (2, 0.7, 0.6))
    ]
    assert row_named("a", rows, "few-shot").variant.name == "a x2"
    assert row_named("a", rows, "accuracy").variant.name == "a x1"


def test_holm_by_hand() -> None:
    strong, weak = (0.100, 0.101, 0.102, 0.1, 0.101), (0.02, 0.03, 0.005, 0.02, 0.03)
    tested = with_holm([Verdict(CLAIM, weak), *[Verdict(CLAIM, strong)] * 2, Verdict(CLAIM, (0.1, -0.1))])
    assert [each.holm for each in tested] == [True, True, True, None]
    assert tested[0].p_value * 2 < 0.05 < tested[0].p_value * 8
    many = with_holm([Verdict(CLAIM, weak), *[Verdict(CLAIM, (0.1, -0.1))] * 7])
    assert many[0].verdict == "seen"
    assert many[0].holm is False


def test_overlapping_splits_have_wider_intervals() -> None:
    """Nadeau and Bengio 2003, equation 9."""
    values = [0.8, 0.82, 0.84, 0.86]
    assert half_width(values, overlap=0.25) == pytest.approx(half_width(values) * (0.5 / 0.25) ** 0.5)
    assert half_width([0.8]) == float("inf")


def test_the_kept_ledger_is_of_full_length() -> None:
    """At full length, and what the claims are now."""
    folder = Path(__file__).parents[3] / "benchmarks" / "results" / "studies"
    ledger = Ledger.read(folder)
    for name, each in ledger.run:
        kept = json.loads((folder / name / "results.json").read_text(encoding="utf-8"))
        assert kept["share_of_steps"] == 1
        assert len(each.seeds) >= 5
    for language in ("en", "ko"):
        with speaking(language):
            written = (folder / f"ledger.{language}.md").read_text(encoding="utf-8")
            assert written == ledger.markdown(), "run vitreous study ledger --out benchmarks/results/studies"
            table, points = {"en": ("*Table 8;", " points"), "ko": ("*표 8;", "%p")}[language]
            assert table in written
            assert re.search(rf"± [0-9.]+{points}", written)
            assert re.search("[가-힣] (?:Table|Fig)|[0-9] %p", written) is None
    for name, study in STUDIES.items():
        file = folder / name / "results.json"
        if file.is_file():
            kept = json.loads(file.read_text(encoding="utf-8"))
            assert [each["claim"] for each in kept["claims"]] == [claim.name for claim in study.claims]
            assert [each["terms"] for each in kept["claims"]] == [
                [list(term) for term in claim.terms] for claim in study.claims
            ]


def test_the_figure_of_the_docs_is_that_of_the_kept_study() -> None:
    root = Path(__file__).parents[3]
    kept = root / "benchmarks" / "results" / "studies" / "data-size" / "plot.svg"
    assert (root / "docs" / "figures" / "study-data-size.svg").read_bytes() == kept.read_bytes()


def test_no_kept_claim_compares_what_is_at_chance() -> None:
    """Where no variant has learned anything, an effect cannot appear, and its absence says nothing."""
    folder = Path(__file__).parents[3] / "benchmarks" / "results" / "studies"
    for name, study in STUDIES.items():
        file = folder / name / "results.json"
        kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"rows": [], "claims": []}
        means = {row["variant"]: row["values"] for row in kept["rows"]}
        trials: dict[str, Any] = {each.name: each.trial for each in study.variants}
        groups = {each.name: each.group for each in study.variants}
        for claim in kept["claims"]:
            if study.world == "images" and claim["measure"] in ("accuracy", "few-shot", "moved"):
                terms = [term for _, term in claim["terms"]]
                named = [each for each in trials if each in terms or groups[each] in terms]
                reached = max(np.mean(means[each][claim["measure"]]) for each in named)
                chance = 1 / len(class_names()[trials[named[0]].labels])
                assert reached > 2 * chance, (name, claim["claim"])


def test_no_kept_claim_calls_two_perfect_results_alike() -> None:
    """At a ceiling any two results are alike, whatever was compared."""
    folder = Path(__file__).parents[3] / "benchmarks" / "results" / "studies"
    for name, study in STUDIES.items():
        if not study.claims:
            continue
        kept = json.loads((folder / name / "results.json").read_text(encoding="utf-8"))
        means = {row["variant"]: row["values"] for row in kept["rows"]}
        groups = {each.name: each.group for each in study.variants}
        for claim in kept["claims"]:
            if claim["rule"] != "alike":
                continue
            terms = [term for _, term in claim["terms"]]
            named = [each for each in means if each in terms or groups[each] in terms]
            worst = min(np.mean(means[each][claim["measure"]]) for each in named)
            assert worst < 0.98, (name, claim["claim"])


def test_a_measure_that_is_no_accuracy_is_claimed_beside_a_null() -> None:
    """Its zero is not that of chance: the claim is a difference from the null, whose spread is the unit."""
    for study in STUDIES.values():
        for claim in study.claims:
            if not claim.points:
                assert (-1, claim.null) in claim.terms, (study.name, claim.name)
                assert claim.margin == 1


def test_the_unit_is_the_spread_of_the_null() -> None:
    claim = replace(CLAIM, terms=((1, "a"), (-1, "b")), points=False, null="b", margin=1.0)
    first, second = [0.5, 0.6, 0.7], [0.1, 0.2, 0.3]
    assert verdict(claim, rows_of(a=first, b=second)).seeds == pytest.approx([4, 4, 4])


def test_seeds_that_one_variant_alone_has_are_not_compared() -> None:
    found = verdict(CLAIM, rows_of(a=[0.9, 0.8, 0.7, 0.1], b=[0.8, 0.7, 0.5]))
    assert found.seeds == pytest.approx([0.1, 0.1, 0.2])


def test_what_does_not_stay_among_all_claims_is_undecided() -> None:
    weak = (0.02, 0.03, 0.005, 0.02, 0.03)
    many = with_holm([Verdict(CLAIM, weak), *[Verdict(CLAIM, (0.1, -0.1))] * 7])
    assert many[0].in_ledger == "undecided"
    assert "seen if tested alone" in many[0].text


def test_the_claims_of_the_ledger_are_those_of_its_design() -> None:
    design = (Path(__file__).parents[3] / "benchmarks" / "results" / "studies" / "design.md").read_text(
        encoding="utf-8"
    )
    written = re.findall(r"^\| `([\w-]+)` \| ([\w -]+) \|", design, re.MULTILINE)
    assert written == [(name, claim.name) for name, study in STUDIES.items() for claim in study.claims]


def test_studies_have_the_papers_numbers() -> None:
    papers = {variant.name: variant.paper for variant in study_named("positions").variants}
    assert papers["none"] == "0.61382"
    assert papers["1-D, every layer, shared"] == "0.64292"
    assert papers["relative"] == "0.64032"


@pytest.mark.parametrize("study", ["complexity", "positions"])
def test_a_folder_that_takes_no_files_is_told_before_anything_is_measured(
    study: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    assert run(["study", study, "--quick", "--out", "/proc/folder"]) == 2
    assert not results_in(tmp_path)
    assert capsys.readouterr().err == (
        "vitreous: cannot write /proc/folder: No such file or directory; "
        "free some space, or choose another --out\n"
    )


def test_results_replace_no_file_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "table.md").write_text("mine")
    assert run(["study", "positions", "--quick", "--out", "."]) == 2
    assert "table.md exists, and is not the result of a study" in capsys.readouterr().err
    assert (tmp_path / "table.md").read_text() == "mine"
    assert not results_in(tmp_path)
    (tmp_path / "results.json").write_text('{"study": "positions"}')
    with results_folder(tmp_path):  # of a study that is run again
        pass


def test_results_come_together_or_not_at_all(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: the table would fit, the plot does not."""

    def write_results() -> None:
        with results_folder(tmp_path / "all" / "new") as folder, atomic_files(folder) as beside:
            (beside / "table.md").write_text("small")
            (beside / "plot.svg").write_text("large" * 1000)

    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(InputError, match=r"^cannot write .*: File too large; free some space"):
            write_results()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert not list(tmp_path.iterdir())
    write_results()
    assert sorted(file.name for file in (tmp_path / "all" / "new").iterdir()) == ["plot.svg", "table.md"]


def test_an_unknown_study_is_named() -> None:
    with pytest.raises(InputError, match="did you mean 'positions'"):
        study_named("position")


def test_a_ledger_of_nothing_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run vitreous study all --out"):
        vt.study("ledger", out=tmp_path)


def test_the_ledger_outside_a_clone_is_that_of_the_kept_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one that comes with the package."""
    monkeypatch.chdir(tmp_path)
    assert run(["study", "ledger", "--language", "en"]) == 0
    printed = capsys.readouterr().out
    kept = Path(__file__).parents[3] / "benchmarks" / "results" / "studies" / "ledger.en.md"
    assert printed == kept.read_text(encoding="utf-8"), "run python benchmarks/study_seeds.py"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study on a user's own images."""
    folder = tmp_path_factory.mktemp("own") / "attention"
    settings = {"steps": 1, "batch_size": 8, "model.width": 32, "image_size": 12}
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VITREOUS_CACHE", str(cache))
        vt.study("attention", "synthetic:48@16", seeds=2, out=folder, settings=settings, progress=False)
    return folder


def test_a_study_of_own_images_and_settings(own: Path) -> None:
    kept = json.loads((own / "results.json").read_text(encoding="utf-8"))
    assert kept["data"].startswith("synthetic:48@16 ")
    assert kept["settings"] == {"steps": 1, "batch_size": 8, "model": {"width": 32}, "image_size": 12}
    first = kept["claims"][0]
    assert first["half_width"] == pytest.approx(half_width(first["seeds"], overlap=1 / 3))
    assert first["half_width"] > half_width(first["seeds"])
    row = kept["rows"][0]
    assert row["interval"][1] - row["mean"] == pytest.approx(half_width(row["values"]["accuracy"], 1 / 3))
    assert "each seed holds out a quarter of them" in (own / "table.md").read_text(encoding="utf-8")
    with pytest.raises(InputError, match="has no results of studies"):  # nor does it count for the ledger
        Ledger.read(own.parent)


def test_own_images_are_judged_by_accuracy_where_few_shots_would_be_of_the_learned_classes() -> None:
    images = OwnImages("mine", torch.zeros(8, 16, 16, 3, dtype=torch.uint8), np.arange(8) % 2, (16, 16))
    for name in ("positions", "head", "shape"):
        study = images.study(study_named(name))
        assert study.measure == "accuracy"
        assert {claim.measure for claim in study.claims} == {"accuracy"}
        assert all(each.trial.measures == ("accuracy",) for each in study.variants)  # type: ignore[attr-defined]


def test_each_seed_holds_out_its_own_quarter_of_each_class() -> None:
    pixels = torch.arange(40, dtype=torch.uint8).view(40, 1, 1, 1).expand(40, 4, 4, 3)
    images = OwnImages("a", pixels, np.arange(40) % 2, (4, 4))
    test, train = images.part("test", 0), images.part("train", 0)
    rows = [set(part.whole[:, 0, 0, 0].tolist()) for part in (test, train)]
    assert not rows[0] & rows[1]
    assert rows[0] | rows[1] == set(range(40))
    assert np.bincount(test.factors["labels"]).tolist() == [5, 5]
    assert rows[0] != set(images.part("test", 1).whole[:, 0, 0, 0].tolist())
    assert (test.factors["labels"] == test.whole[:, 0, 0, 0].numpy() % 2).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["inductive-bias", "digits"], "takes no DATA, since it generates its own"),
        (["data-size", "digits"], "takes no DATA"),
        (["transfer", "digits"], "takes no DATA"),
        (["heads", "digits"], "takes no DATA"),
        (["all", "digits"], "DATA has no effect on the study all"),
        (["ledger", "--set", "steps=3"], "--set or --config has no effect on the study ledger"),
        (["positions", "--set", "model.position.kind=learned"], "sets model.position.kind itself"),
        (["head", "--set", "rate=1e-3"], "sets rate itself"),
        (["shape", "--set", "model.depth=2"], "sets model.depth itself"),
        (["resolution", "--set", "steps=3"], "sets steps itself"),
        (["data-size", "--set", "model.width=32"], "compares architectures: leave out model.width"),
        (["complexity", "--set", "steps=3"], "has no settings: leave out steps"),
        (["positions", "--set", "model.widht=3"], "unknown setting widht: did you mean 'width'"),
        (["positions", "--set", "step=3"], "unknown setting step: did you mean 'steps'"),
        (["positions", "--set", "steps=-3"], "steps is -3: pass a number above 0"),
        (["positions", "--set", "model=3"], "model is a group of settings"),
        (["positions", "--set", "model.heads=0"], "model.heads"),
        (["heads", "--set", "model.heads=2"], "sets model.heads itself"),
    ],
)
def test_what_has_no_effect_on_a_study_is_refused(
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    assert run(["study", *words]) == 2
    assert message in capsys.readouterr().err
    assert not results_in(tmp_path)


def test_settings_reach_every_architecture() -> None:
    study = with_settings(study_named("compute"), {"batch_size": 7, "weight_decay": 0.5})
    assert {(each.trial.batch_size, each.trial.weight_decay) for each in study.variants} == {(7, 0.5)}  # type: ignore[attr-defined]


def test_settings_reach_every_trial_and_what_it_begins_with() -> None:
    study = with_settings(study_named("resolution"), {"batch_size": 7, "model": {"width": 16}})
    for variant in study.variants:
        trial: Any = variant.trial
        for each in (trial, trial.start):
            assert each.batch_size == 7
            assert each.model["width"] == 16
    positions = with_settings(study_named("positions"), {"model": {"depth": 1}})
    kinds = {variant.trial.model["position"]["kind"] for variant in positions.variants}  # type: ignore[attr-defined]
    assert len(kinds) == 4
    sequences = with_settings(study_named("key-size"), {"steps": 3, "model": {"mlp_dim": 32}})
    assert {variant.trial.steps for variant in sequences.variants} == {3}
