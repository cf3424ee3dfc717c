"""Every study runs, says what it found, and never trains the same thing twice."""

from __future__ import annotations

import json
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.checkpoints import load
from vitreous.cli import run
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.models.vit import ViT
from vitreous.studies import complexity
from vitreous.studies import laboratory as laboratory_module
from vitreous.studies.experiments import STUDIES, study_named
from vitreous.studies.findings import Findings, TableRow, refuse_overwritten, run_variants, verdict
from vitreous.studies.laboratory import Laboratory, TrialResult, select_part
from vitreous.studies.study import Effect, Part, Trial, Variant, settings_of
from vitreous.studies.writing import atomic_files, markdown, results_folder, write_study
from vitreous.training.trainer import Interrupted

TINY: dict[str, Any] = {
    "model": {"width": 8, "depth": 2, "heads": 2, "mlp_dim": 8},
    "training": {"steps": 1, "batch_size": 32},
}


def laboratory(cache: Path, name: str = "positions") -> Laboratory:
    settings = settings_of(study_named(name), 1, TINY)
    return Laboratory("digits", settings, cache=cache, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("data-size", "self-supervised") else pytest.mark.slow)
        for name in STUDIES
    ],
)
def test_every_study_runs_and_is_written(
    name: str, shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_named(name)
    told: list[str] = []
    findings = run_variants(study, laboratory(shared_cache, name), 1, progress=told.append)
    assert len(told) == len(findings.rows) >= 3
    assert all(0 <= row.mean <= 1 for row in findings.rows)
    assert len(findings.verdicts) == len(study.effects) >= 1
    for path in write_study(findings, tmp_path).files:
        assert path.stat().st_size > 200
    table = (tmp_path / "table.md").read_text()
    assert all(f"| {row.variant.name} |" in table for row in findings.rows)
    assert study.words["differs"] in table
    kept = json.loads((tmp_path / "results.json").read_text())
    assert [row["ours"] for row in kept["rows"]] == [row.mean for row in findings.rows]
    monkeypatch.setattr(laboratory_module, "learn", lambda *_, **__: pytest.fail("trained twice"))
    again = run_variants(study, laboratory(shared_cache, name), 1, progress=told.append)
    assert again.to_json() == findings.to_json()


@pytest.mark.parametrize("name", STUDIES)
def test_effects_compare_variants_that_there_are(name: str, tmp_path: Path) -> None:
    """Seen before anything is trained, not after hours."""
    study = study_named(name)
    names = {variant.name for variant in study.variants(laboratory(tmp_path, name).base())}
    assert {each for effect in study.effects for each in (effect.first, effect.second)} <= names


def test_positions_differ_only_in_positions(tmp_path: Path) -> None:
    """Above all they begin as large as those of the base."""
    lab = laboratory(tmp_path)
    configs = [lab.prepare(variant.trial, 0)[0] for variant in study_named("positions").variants(lab.base())]
    base = lab.base().model.model_dump(exclude={"position"})
    assert all(config.model.model_dump(exclude={"position"}) == base for config in configs)
    models = [config.model.model_dump()["position"] for config in configs]
    assert {position["init_std"] for position in models} == {0.5}
    assert len({(position["kind"], position["where"]) for position in models}) == 8


def test_compute_is_about_equal_between_architectures(shared_cache: Path) -> None:
    lab = laboratory(shared_cache, "hybrid")
    macs = [lab.run(variant.trial, 0)[1].macs for variant in study_named("hybrid").variants(lab.base())]
    assert max(macs) < 1.05 * min(macs)


def test_an_interrupted_study_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, trained = study_named("hybrid"), []
    learn = laboratory_module.learn

    def sometimes(run: Any, *arguments: Any, **options: Any) -> Any:
        trained.append(run.path)
        if len(trained) == 3:
            raise Interrupted(1)
        return learn(run, *arguments, **options)

    monkeypatch.setattr(laboratory_module, "learn", sometimes)
    with pytest.raises(Interrupted):
        run_variants(study, laboratory(tmp_path, "hybrid"), 1, progress=lambda _: None)
    run_variants(study, laboratory(tmp_path, "hybrid"), 1, progress=lambda _: None)
    assert len(trained) == 4, "two were done, the third was begun twice"
    assert trained[2] == trained[3]


def test_fresh_positions_are_not_resized_ones(shared_cache: Path) -> None:
    lab = laboratory(shared_cache, "resolution")
    start = Trial({"model": {"image_size": (4, 4)}})
    higher: dict[str, Any] = {"model": {"image_size": (8, 8)}}
    resized = lab.starting_checkpoint(Trial(higher, start=start), seed=0)
    fresh = lab.starting_checkpoint(Trial(higher, start=start, fresh_positions=True), seed=0)
    old, new = load(resized, image_size=(8, 8)), load(fresh)
    assert isinstance(old, ViT)
    assert isinstance(new, ViT)
    assert not torch.equal(old.get_parameter("position.table"), new.get_parameter("position.table"))
    torch.testing.assert_close(old.prefix, new.prefix)
    torch.testing.assert_close(
        old.state_dict()["blocks.0.mlp.expand.weight"], new.state_dict()["blocks.0.mlp.expand.weight"]
    )


def test_what_is_fine_tuned_begins_where_its_start_ended(shared_cache: Path) -> None:
    lab = laboratory(shared_cache, "optimizer")
    trial = Trial(part=Part("second half"), start=Trial(part=Part("first half")))
    config, splits = lab.prepare(trial, 0)
    assert config.init is not None
    assert load(config.init).labels == ["0", "1", "2", "3", "4"]
    assert splits.train.classes == ("5", "6", "7", "8", "9")
    assert config.model.num_classes == 5


def test_but_for_its_weights_a_fine_tuned_model_learns_as_one_from_scratch(shared_cache: Path) -> None:
    lab = laboratory(shared_cache, "optimizer")
    scratch, _ = lab.prepare(Trial(part=Part("second half")), 0)
    tuned, _ = lab.prepare(Trial(part=Part("second half"), start=Trial(part=Part("first half"))), 0)
    assert tuned.model_copy(update={"init": None}) == scratch


def test_the_name_of_a_run_follows_what_it_depends_on(tmp_path: Path) -> None:
    lab = laboratory(tmp_path)
    names = {
        laboratory_module.cache_key(*lab.prepare(trial, seed))
        for trial, seed in (
            (Trial(), 0),
            (Trial(), 1),
            (Trial({"training": {"peak_lr": 0.5}}), 0),
            (Trial(part=Part(fraction=0.5)), 0),
            (Trial(part=Part("first half")), 0),
        )
    }
    assert len(names) == 5
    assert laboratory_module.cache_key(*lab.prepare(Trial(), 0)) in names


def test_parts_of_the_data() -> None:
    splits = open_data("digits", DataConfig())
    few = select_part(splits, Part(per_class=3), seed=0)
    assert np.bincount(few.train.targets).tolist() == [3] * 10
    assert few.test is splits.test
    half = select_part(splits, Part("second half", fraction=0.5), seed=0)
    assert half.train.classes == ("5", "6", "7", "8", "9")
    assert half.test is not None
    assert set(half.test.targets) == {0, 1, 2, 3, 4}
    index = int(np.flatnonzero(half.test.targets == 2)[0])
    assert half.test.classes[half.test.targets[index]] == "7"
    assert splits.test is not None
    original = [splits.test.name(i) for i in np.flatnonzero(splits.test.targets == 7).tolist()]
    assert half.test.name(index) in original
    sizes = np.bincount(splits.train.targets)[5:]
    assert np.bincount(half.train.targets).tolist() == [round(0.5 * size) for size in sizes]


def test_a_small_part_has_small_batches(tmp_path: Path) -> None:
    config, splits = laboratory(tmp_path).prepare(Trial(part=Part(per_class=1)), 0)
    assert config.training.batch_size == len(splits.train) == 10


def test_several_labels_for_an_image_are_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = []
    for i in range(60):
        Image.new("L", (8, 8), i).save(tmp_path / f"{i}.png")
        rows.append(f"{i}.png,{'cat|dog' if i % 2 else 'cat'}\n")
    (tmp_path / "m.csv").write_text("path,label\n" + "".join(rows))
    monkeypatch.setattr(laboratory_module, "learn", lambda *_, **__: pytest.fail("trained"))
    lab = Laboratory(str(tmp_path / "m.csv"), TINY, cache=tmp_path / "cache", device=torch.device("cpu"))
    with pytest.raises(InputError, match=r"one class for each image, and those of .*m\.csv have several"):
        run_variants(study_named("positions"), lab, 1, progress=lambda _: None)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("study", ["complexity", "positions"])
def test_a_folder_that_takes_no_files_is_told_before_anything_is_measured(
    study: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(complexity, "measure", lambda _: pytest.fail("measured"))
    monkeypatch.setattr(laboratory_module, "learn", lambda *_, **__: pytest.fail("trained"))
    assert run(["study", study, "--quick", "--out", "/proc/folder"]) == 2
    assert capsys.readouterr().err == (
        "vitreous: cannot write /proc/folder: No such file or directory; "
        "free some space, or choose another --out\n"
    )


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


def test_a_half_needs_two_classes() -> None:
    splits = select_part(open_data("digits", DataConfig()), Part("first half"), seed=0)
    three = select_part(splits, Part("second half"), seed=0)
    with pytest.raises(InputError, match="two halves"):
        select_part(three, Part("first half"), seed=0)


EFFECT = Effect("first is better", "a", "b")


def test_verdicts_are_paired_differences_by_hand() -> None:
    from scipy.stats import t

    found = verdict(EFFECT, [0.9, 0.8, 0.7], [0.8, 0.7, 0.5])
    assert found.difference == pytest.approx(0.4 / 3)
    spread = np.std([0.1, 0.1, 0.2], ddof=1) / 3**0.5
    assert found.half_width == pytest.approx(t.ppf(0.975, 2) * spread)
    assert "not significant" in found.words
    assert "reproduced" in verdict(EFFECT, [0.9, 0.8, 0.7], [0.8, 0.7, 0.6001]).words
    assert "'b' is better" in verdict(EFFECT, [0.8, 0.7, 0.6001], [0.9, 0.8, 0.7]).words
    assert "one seed" in verdict(EFFECT, [0.9], [0.1]).words


def test_two_that_should_be_alike() -> None:
    alike = Effect("both are alike", "a", "b", alike=True)
    assert "no significant difference" in verdict(alike, [0.9, 0.8, 0.7], [0.8, 0.8, 0.8]).words
    assert "'a' is better" in verdict(alike, [0.9, 0.8, 0.7], [0.8, 0.7, 0.6001]).words


def test_data_that_are_too_small_are_said_to_be() -> None:
    study = study_named("positions")
    results = [TrialResult(accuracy, 360, 10, 10, 1.0) for accuracy in (0.9, 0.8)]
    rows = [TableRow(Variant(each.name, each.trial, each.paper), results) for each in some_variants()]
    table = markdown(Findings(study, "digits", 2, 1.0, rows))
    assert "too small to show it" in table
    assert "| none | 0.61382 | 85.0 % |" in table


def some_variants() -> list[Variant]:
    return list(study_named("positions").variants(laboratory(Path("unused")).base()))


def test_studies_have_the_papers_numbers() -> None:
    papers = {variant.name: variant.paper for variant in some_variants()}
    assert papers["none"] == "0.61382"
    assert papers["1-D, every layer, shared"] == "0.64292"
    assert papers["relative"] == "0.64032"


def test_an_unknown_study_is_named() -> None:
    with pytest.raises(InputError, match="did you mean 'positions'"):
        study_named("position")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"seed": 7}, "leave out seed, and choose their number with --seeds"),
        ({"data": {"split_seed": 7}}, r"leave out data\.split_seed"),
        (
            {"model": {"position": {"kind": "sincos-2d"}}},
            r"variant .* sets model\.position\.kind itself",
        ),
    ],
)
def test_settings_without_effect_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(laboratory_module, "learn", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(InputError, match=message):
        vt.study("positions", settings=wanted, out=tmp_path / "study", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_settings_that_variants_multiply_take_effect(tmp_path: Path) -> None:
    plain, lab = laboratory(tmp_path, "head"), laboratory(tmp_path, "head")
    lab.settings = {**lab.settings, "training": {**lab.settings["training"], "peak_lr": 0.125}}
    refuse_overwritten(study_named("head"), {"training": {"peak_lr": 0.125}}, lab, plain)
    assert {variant.x for variant in study_named("head").variants(lab.base())} >= {0.125, 0.375}
