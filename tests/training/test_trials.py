"""What answers for a run where nothing is asked for."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.api.inspection import across_folders, right_and_wrong
from vitreous.api.training import TrainRequest
from vitreous.checkpoints import pretrained_encoders
from vitreous.checkpoints.pretrained_encoders import INSTALLED_ENCODERS
from vitreous.checkpoints.runs import has_compared
from vitreous.checkpoints.tensors import write_safetensors
from vitreous.cli.training import print_result
from vitreous.data.config import DataConfig
from vitreous.data.dataset import ArrayImages, ImageDataset
from vitreous.data.sources import open_data
from vitreous.evaluation import classical
from vitreous.evaluation.classical import (
    ConstantSetting,
    ImageFeatures,
    Method,
    NeighborsSetting,
    Problem,
    linear,
    mirroring_of,
    try_mirroring,
)
from vitreous.evaluation.result import Metric
from vitreous.evaluation.scores import MEASURES, Interval, candidate_title, is_better, is_network
from vitreous.languages import speaking
from vitreous.models.settings import merged
from vitreous.results import duration
from vitreous.tasks import doctor, task_named, trials
from vitreous.tasks.candidates import (
    Candidate,
    CandidateTable,
    Part,
    Trial,
    add_classical,
    add_means,
    has_answer,
)
from vitreous.tasks.course import below_baseline
from vitreous.tasks.kept_trials import kept_trials
from vitreous.tasks.regression import scores_of
from vitreous.tasks.task import Trained
from vitreous.training.callbacks import Callback
from vitreous.training.config import RunConfig
from vitreous.training.machine import ON_CPU
from vitreous.training.run import RunDirectory

pytestmark = pytest.mark.usefixtures("quick_figures")
CPU = torch.device("cpu")
PHOTOS = INSTALLED_ENCODERS["vitreous:photos"]


@pytest.fixture(autouse=True)
def _small_encoders(monkeypatch: pytest.MonkeyPatch) -> None:
    """No encoder of photographs, whose features take seconds."""
    monkeypatch.delitem(INSTALLED_ENCODERS, "vitreous:photos")


def draw(folder: Path, count: int, *, arrows: bool = False, gray: bool = False) -> Path:
    """Two classes: stripes of two directions, or wedges that point to the left and to the right."""
    rng = np.random.default_rng(0)
    for label in (0, 1):
        (folder / f"{label}").mkdir(parents=True)
        for number in range(count):
            rows, columns = np.mgrid[:64, :64]
            if arrows:
                wedge = abs(rows - 32) < (columns if label else 63 - columns) / 2
                shape = wedge * 150
            else:
                shape = ((rows if label else columns) // 8 % 2) * 150
            pixels = shape[..., None] + rng.integers(0, 100, (64, 64, 1 if gray else 3))
            image = pixels.astype(np.uint8)
            Image.fromarray(image[..., 0] if gray else image).save(folder / f"{label}" / f"{number}.png")
    return folder


@pytest.fixture
def hub(in_hub_cache: Callable[..., str]) -> str:
    """The hub's cache with a small DINOv2 as it is published; the name of it."""
    model = vt.create(
        "ViT-S/14", num_classes=None, image_size=56, width=32, depth=2, heads=2, mlp_dim=64, layer_scale=1.0
    )
    return in_hub_cache(model, "facebook/dinov2-small")


def test_an_encoder_of_the_hubs_cache_is_tried(hub: str, tmp_path: Path) -> None:
    """Found, announced, frozen, fine-tuned; the model that is kept loads and predicts as any other."""
    data, said = draw(tmp_path / "photos", 6), list[str]()
    _, table = compare(data, {"training": {"length": "1 steps"}}, said.append, tmp_path / "run")
    told = "\n".join(said)
    assert f"encoder: {hub} (" in told
    assert "MB, in the Hugging Face cache" in told
    rows = table.rows()
    assert {each.measured_on for each in rows} == {"cross-fitted"}
    assert len({each.count for each in rows}) == 1, "all are measured on the same images"
    merits = [each.merit for each in rows]
    assert merits == sorted(merits, reverse=True), "the first of the table is the best"
    names = [each.name for each in rows]
    assert {"majority class", "SVM on HOG and color", f"linear on {hub}"} <= set(names)
    assert {f"kernel ridge on {hub}", f"fine-tuned {hub}"} <= set(names)
    assert all(each.interval.low <= each.score <= each.interval.high for each in rows)
    opened = vt.load(tmp_path / "run")
    image = Image.open(next((data / "1").iterdir()))
    (answer,) = vt.predict(tmp_path / "run", [image])
    with torch.inference_mode():
        logits = opened(opened.preprocessing([image]))
    assert opened.labels[int(logits.argmax())] == answer.label


@pytest.mark.parametrize("length", [pytest.param("1 steps", marks=pytest.mark.slow), "0.2 minutes"])
def test_the_encoder_of_photographs_is_tried_beside_one_of_the_hub(
    length: str, hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is time, else a sentence says how much is needed; the one whose features are better is
    fine-tuned, and not both."""
    monkeypatch.setitem(INSTALLED_ENCODERS, "vitreous:photos", PHOTOS)
    monkeypatch.setattr(trials, "FROZEN_UNTIL", 1e-6)
    monkeypatch.setattr(trials, "FEATURES_UNTIL", 1e6)
    data, settings, said = draw(tmp_path / "photos", 6), {"training": {"length": length}}, list[str]()
    _, table = compare(data, settings, said.append, tmp_path / "run")
    features = [name for name in table.names if name.startswith("linear on ")]
    timeless = length == "1 steps"
    assert f"linear on {hub}" in features
    assert ("linear on vitreous:photos (128x128)" in features) == timeless
    assert not [name for name in features if "224x224" in name]
    not_tried = "vitreous:photos is not tried, since too little time is left for it: give --minutes"
    assert (not_tried in "\n".join(said)) != timeless
    if timeless:
        merits = {name: table.merit_on_features(name) for name in (hub, "vitreous:photos")}
        best, worse = sorted(merits, key=lambda name: merits[name], reverse=True)
        assert f"fine-tuned {best}" in table.names
        assert f"fine-tuned {worse}" not in table.names


@pytest.mark.parametrize(("per_image", "share"), [(10.0, 1.0), (0.0, 1e-6)], ids=["slow features", "no time"])
def test_an_encoder_that_no_time_is_left_for_is_named_and_not_tuned(
    per_image: float, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its training would take its features, too."""
    monkeypatch.setitem(INSTALLED_ENCODERS, "vitreous:photos", PHOTOS)
    monkeypatch.setitem(trials.SECONDS_AT, 128, per_image)
    monkeypatch.setattr(trials, "FEATURES_UNTIL", share)
    said = list[str]()
    settings: dict[str, Any] = {"training": {"length": "0.1 minutes"}}
    _, table = compare(draw(tmp_path / "photos", 6), settings, said.append, tmp_path / "run")
    assert not [name for name in table.names if "vitreous:photos" in name]
    assert "vitreous:photos is not tried" in "\n".join(said)


def test_an_encoder_that_was_tried_before_an_interruption_is_not_tried_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its features are there, and its training stays among those that are compared."""
    monkeypatch.setitem(INSTALLED_ENCODERS, "vitreous:photos", PHOTOS)
    found = list[str]()
    monkeypatch.setattr(trials.Trials, "train_briefly", lambda _, training, data: found.append(training.name))
    monkeypatch.setattr(trials, "TRIALS_UNTIL", 1e6)
    monkeypatch.setattr(trials, "SHORTEST_TRIAL", 0.0)
    data, out, said = draw(tmp_path / "photos", 6), tmp_path / "run", list[str]()
    compare(data, {"training": {"length": "1 steps"}}, said.append, out)
    assert "fine-tuned vitreous:photos" in found
    monkeypatch.setattr(trials, "FEATURES_UNTIL", 1e-6)
    found.clear()
    plan = task_named("classification").plan(str(data), settings := {"training": {"length": "0.1 minutes"}})
    options: dict[str, Any] = {"out": out, "offline": True, "place": ON_CPU, "tell": said.append}
    trials.plan_by_trials(plan, settings, kept=kept_trials(out), **options)
    assert "is not tried" not in "\n".join(said)
    assert "fine-tuned vitreous:photos" in found


@pytest.mark.slow
def test_a_large_encoder_is_tried_with_lora_too(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is kept of it is an ordinary model."""
    monkeypatch.setattr(trials, "SMALL_ENCODER", 0)  # this one counts as large
    data = draw(tmp_path / "photos", 20)
    epochs = {"training": {"length": "1 epochs"}}
    run = vt.train(data, out=tmp_path / "run", settings=epochs, offline=True, progress=False)
    names = [each["name"] for each in run.result.to_json()["candidates"]]
    assert f"LoRA of {hub}" in names
    settings = merged({"training": {"head": {"kind": "linear"}, **trials.LORA}}, epochs)
    vt.train(data, init=hub, out=tmp_path / "lora", settings=settings, offline=True, progress=False)
    assert "rank = 8" in (tmp_path / "lora" / "config.toml").read_text(encoding="utf-8")
    assert not [name for name in vt.load(tmp_path / "lora").state_dict() if "parametrizations" in name]


def test_the_cache_of_the_hub_is_read_with_care(hub: str, tmp_path: Path) -> None:
    """Models of other kinds, broken and enormous ones are passed over."""
    root = tmp_path / "hub"
    for name, text in (("a--text", '{"model_type": "bert"}'), ("b--broken", "{"), ("c--list", "[]")):
        folder = root / f"models--{name}" / "snapshots" / "1"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(text)
        (folder / "model.safetensors").write_bytes(b"1")
    assert [each.name for each in pretrained_encoders.cached_encoders()] == [hub]


def test_nobody_asks_the_hub_who_is_offline(
    hub_constants: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_constants(HF_HUB_OFFLINE=False)
    asked = []

    def refuse(*_: Any, **given: Any) -> None:
        asked.append(given["timeout"])
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuse)
    assert pretrained_encoders.reachable_encoder() is None
    assert asked == [pretrained_encoders.PATIENCE]
    hub_constants(HF_HUB_OFFLINE=True)
    assert pretrained_encoders.reachable_encoder() is None
    assert len(asked) == 1


def test_a_head_fitted_on_frozen_features_is_the_regression_itself() -> None:
    """Its standardization is folded in; a class without images is never answered."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    targets = rng.integers(3, size=120) + 1
    values = (rng.normal(size=(120, 5)) + 2 * np.eye(5)[targets]).astype(np.float32) * [1, 10, 3, 5, 0.1] + 7
    weight, bias = fitted(values, targets, 4)
    logits = values @ weight.T + bias
    assert (logits.argmax(axis=1) != 0).all()
    assert (logits.argmax(axis=1) == targets).mean() > 0.8
    scaled = (values - values.mean(axis=0)) / (values.std(axis=0) + 1e-6)
    best = max(
        (LogisticRegression(C=1 / (penalty * 120), max_iter=200).fit(scaled, targets) for penalty in (1e-2,)),
        key=lambda each: each.score(scaled, targets),
    )
    assert (best.predict(scaled) == logits.argmax(axis=1)).mean() > 0.95
    weight, bias = fitted(values[:, :2], targets % 2, 2)
    assert weight.shape == (2, 2)
    np.testing.assert_allclose(weight[0], -weight[1], rtol=1e-5)


def fitted(values: np.ndarray, targets: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """The weight and the bias of a linear head."""
    problem = Problem("classification", classes)
    seen = ImageFeatures(torch.from_numpy(values.astype(np.float32)))
    head: Any = linear("", "", seen, torch.from_numpy(targets), problem).head
    return head.weight.numpy(), head.bias.numpy()


def test_candidates_have_their_names_in_the_language_of_the_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report may have another language than the terminal."""
    trial = Trial(
        "svm", 0.5, Interval(0, 1), 10, "validation", words=("baselines.k nearest neighbors",), init=(None,)
    )
    for locale, name in (("en_US.UTF-8", "k nearest neighbors"), ("ko_KR.UTF-8", "k-최근접 이웃")):
        monkeypatch.setenv("LC_ALL", locale)
        for language in ("en", "ko"):
            with speaking(language):
                assert trial.sentence().startswith(f"{name}: ")


def row(score: float, loss: float | None, seconds: float = 0.0) -> Trial:
    return Trial("x", score, Interval(0, 1), 10, "validation", "accuracy", loss, seconds)


def test_the_seconds_of_a_candidate_can_be_read() -> None:
    """1.21 s were 1.21e+03 ms."""
    assert row(0.5, 1.0, 1.21).sentence().endswith("of 10 validation images, in 1.21 s")
    assert [duration(each) for each in (0.5, 1, 90, 150)] == ["500 ms", "1 s", "90 s", "2.5 minutes"]


def test_an_r2_of_nearly_nothing_is_0() -> None:
    trial = Trial("mean", -2.474e-06, Interval(-0.003, 0), 10, "cross-fitted", "r2")
    assert trial.sentence().startswith("mean: R2 0 (R2 -0.003 to R2 0) of 10 ")


def test_the_loss_breaks_a_tie() -> None:
    assert row(0.209, 2.4).merit > row(0.209, 2.6).merit
    assert row(0.3, math.inf).merit > row(0.2, 0.1).merit
    assert row(0.2, 0.1).merit > row(math.nan, 0.1).merit


@pytest.mark.parametrize("most", [100, 6000])
def test_methods_may_learn_from_fewer_images_than_there_are(most: int) -> None:
    """Beside a validation set, too, by which they are compared then; the last of these 100 is beyond it."""
    data = open_data("digits", DataConfig(validation_fraction=0.1))
    assert data.validation is not None
    table = CandidateTable.of(data, Problem("classification", 10), torch.device("cpu"), most=most)
    add_classical(table, flip=(0.0, 0.0), tell=lambda sentence: None)
    assert table.learned is not None
    assert len(table.learned.rows) == min(most, len(data.train))
    [unseeing] = (each.trial for each in table.candidates if each.is_constant)
    rows = {each.trial.name: each.trial for each in table.candidates}
    assert rows["SVM on pixels"].score > unseeing.score + 0.4
    answered = {int(has_answer(each.outputs).sum()) for each in table.candidates}
    assert answered == {len(data.validation) + (0 if most == 100 else len(data.train))}


def table_of(**answers: list[float]) -> CandidateTable:
    """A table of two classes; `answers` are the logits of the second class of each image, by family."""
    data: Any = open_data("digits", DataConfig())
    truth = torch.tensor([1] * 5 + [0] * 5)
    table = CandidateTable(data, Problem("classification", 2), data.test, "validation", truth)
    for name, logits in answers.items():
        setting = NeighborsSetting(neighbors=1, task="classification", outputs=2)
        method = None if name == "network" else Method(name=name, sees="pixels", setting=setting)
        part = Part(name=name, words="", method=method, begun={"task": ""} if name == "frozen" else None)
        second = torch.tensor(logits)
        table.add([part], torch.stack([-second, second], dim=1))
    return table


def test_the_mean_of_two_is_chosen_where_it_is_better() -> None:
    """Each is wrong where the other one is sure."""
    table = table_of(
        descriptor=[3, 3, 3, 3, -1, -3, -3, -3, 1, 1.0], network=[3, -1, -1, 3, 3, -3, -3, -3, -3, -3.0]
    )
    add_means(table)
    assert table.best is not None
    assert table.best.trial.name == "mean of network and descriptor"
    assert table.best.trial.score == 1
    assert [each.score for each in table.rows()] == sorted(
        (each.score for each in table.rows()), reverse=True
    )


def test_a_mean_of_gradients_and_pixels_is_compared_and_no_other_of_two_descriptors() -> None:
    """Of many means on the same images, one would be ahead by chance."""
    table = table_of(
        pixels=[3, 3, 3, 3, -1, -3, -3, -3, 1, 1.0], thumbnail=[3, -1, -1, -1, -1, -3, -3, -3, -3, -3]
    )
    assert add_means(table) == [], "both see pixels"
    setting = NeighborsSetting(neighbors=1, task="classification", outputs=2)
    for name, logits in (("HOG", [3, -1, -1, 3, 3, -3, -3, -3, -3, -3.0]), ("worse", [-1.0] * 10)):
        part = Part(name=name, words="", method=Method(name=name, sees="gradients", setting=setting))
        second = torch.tensor(logits)
        table.add([part], torch.stack([-second, second], dim=1))
    added = add_means(table)
    assert [(each.name, each.score) for each in added] == [("mean of HOG and pixels", 1.0)]
    assert table.best is not None
    assert table.best.trial is added[0]
    assert add_means(table) == [], "it is there"


def test_a_lucky_validation_part_does_not_decide() -> None:
    """What is best on training images, answered by what was fitted without them, and on the validation images
    together is ahead; a network, which has learned from the former, stands by what is most like it."""
    data: Any = open_data("digits", DataConfig())
    few = data.train.subset(np.arange(100))
    truth = torch.tensor([1] * 50 + [0] * 50 + [1] * 5 + [0] * 5)
    right = torch.where(truth == 1, 2.0, -2.0)
    lucky, sound, network = right.clone(), right.clone(), right.clone()
    lucky[:40] *= -1  # 60 of 100 training images, and 9 of 10 validation images
    lucky[100] *= -1
    sound[:20] *= -1  # 80, and 8
    sound[100:102] *= -1
    network[:100] = math.nan  # 10 of 10, elsewhere alike
    problem = Problem("classification", 2)
    table = CandidateTable(data._replace(train=few), problem, data.test, "validation", truth, before=100)
    setting = NeighborsSetting(neighbors=1, task="classification", outputs=2)
    for name, logits in (("lucky", lucky), ("sound", sound), ("network", network)):
        method = None if name == "network" else Method(name=name, sees="pixels", setting=setting)
        table.add([Part(name=name, words="", method=method)], torch.stack([-logits, logits], dim=1))
    assert [each.trial.name for each in table.ranked()] == ["sound", "network", "lucky"]
    scores = {each.trial.name: each.trial.score for each in table.candidates}
    assert scores == pytest.approx({"sound": 88 / 110, "network": 69 / 110 + 0.1, "lucky": 69 / 110})
    measured = {each.trial.name: each.trial.measured_on for each in table.candidates}
    assert measured == {"sound": "cross-fitted", "network": "difference", "lucky": "cross-fitted"}


def test_nothing_is_trained_where_nothing_is_left_to_gain() -> None:
    right, wrong = [1.0] * 5 + [-1.0] * 5, [1.0] * 10
    assert table_of(descriptor=right, network=wrong).is_solved
    assert not table_of(descriptor=wrong, network=right).is_solved, "it is the network that is trained"
    solved = table_of(descriptor=right)
    assert replace(solved, images=solved.images.subset(np.arange(100))).is_solved
    assert not replace(solved, images=solved.images.subset(np.arange(99))).is_solved, "of a few images"


def test_what_is_behind_by_chance_is_not_lost() -> None:
    table = table_of(descriptor=[1.0] * 5 + [-1.0] * 5, network=[-1.0] * 5 + [1.0] * 5, frozen=[1.0] * 10)
    by_name: dict[str, Candidate] = {each.trial.name: each for each in table.candidates}
    assert table.is_clearly_worse(by_name["network"], by_name["descriptor"])
    assert not table.is_clearly_worse(by_name["descriptor"], by_name["network"])
    assert table.is_clearly_worse(by_name["frozen"], by_name["descriptor"])
    assert not table.is_clearly_worse(by_name["descriptor"], by_name["descriptor"])


def test_a_network_that_nothing_measures_again_must_be_ahead_by_more_than_chance() -> None:
    """Folds of the training set measured its short trial. The network that would answer learns longer, from
    all images: it was once 6 points below a head that had been 0.7 points behind that trial."""
    right = torch.tensor([1.0] * 5 + [-1.0] * 5)
    one_wrong, many_wrong = right.clone(), torch.full((10,), 1.0)
    one_wrong[0] = -1
    for head, first in ((one_wrong, ["frozen", "network"]), (many_wrong, ["network", "frozen"])):
        table = table_of(descriptor=(-right).tolist(), network=right.tolist(), frozen=head.tolist())
        assert [each.trial.name for each in table.ranked()][:2] == ["network", "frozen"], (
            "it is measured at the end"
        )
        crossed = replace(table, measured_on="cross-fitted")
        assert [each.trial.name for each in crossed.ranked()][:2] == first
        assert crossed.best is crossed.ranked()[0]
    none = replace(crossed, candidates=[each for each in crossed.candidates if each.learns])
    assert [each.trial.name for each in none.ranked()] == ["network"]


@pytest.mark.parametrize("longer", [0.7, 0.95])
def test_the_best_short_trial_answers_where_the_longer_training_is_no_better(
    longer: float, tmp_path: Path
) -> None:
    """The table has all of them; what is kept of the trial goes where it does not answer."""

    def answers(wrong: int) -> torch.Tensor:
        second = torch.where(table.truth == 1, 2.0, -2.0)
        second[:wrong] *= -1
        return torch.stack([-second, second], dim=1)

    data: Any = open_data("digits", DataConfig())
    truth = torch.tensor([1, 0] * 10)
    images = data.test.subset(np.arange(20))
    table = CandidateTable(data, Problem("classification", 2), images, "validation", truth)
    method = trials.TrainingMethod("a", "scratch")
    for name, wrong in (("a", 2), ("b", 4)):
        table.add([Part(name=name, words="candidates.scratch")], answers(wrong), speed=1.0)

    sizes = {"image_size": 8, "patch_size": 4, "channels": 1, "width": 16, "depth": 1, "heads": 1}
    networks = [vt.create("ViT-Ti/16", num_classes=2, mlp_dim=16, seed=seed, **sizes) for seed in (1, 2)]
    networks[1].register_forward_hook(lambda *_: answers(round(20 * (1 - longer))))
    run = RunDirectory.create(tmp_path / "run", RunConfig())
    run.save_model(networks[1])
    trials.save_short_trial(run.path, networks[0], "a")
    (run.path / "metrics.jsonl").write_text('{"step": 1, "epoch": 1}\n')
    batches: Any = None
    trained = Trained(run, data, batches, networks[1], 1.0, 0.0)
    options: dict[str, Any] = {"device": CPU, "workers": 0, "batch_size": 20, "world": ON_CPU.world}
    chosen, _ = trials.CandidateComparison(method, table).choose(trained, **options)
    names = [each.name for each in table.rows()]
    is_short = longer < 0.9
    expected = ["a (short trial)", "b (short trial)"]
    expected.insert(2 if is_short else 0, "a")
    assert names == expected
    answering = networks[0 if is_short else 1].state_dict()
    for found in (chosen.model, run.model()):
        assert all(torch.equal(weight, answering[name]) for name, weight in found.state_dict().items())
    assert (run.path / "short-trial").exists() == is_short
    rows = json.loads((run.path / "candidates.json").read_text())
    assert candidate_title(rows[1]) == "a network from scratch (short trial)"
    assert is_network(rows) != is_short


def wrong_answers(table: CandidateTable, wrong: list[int]) -> torch.Tensor:
    """Logits that are wrong for some images."""
    second = torch.where(table.truth == 1, 2.0, -2.0)
    second[wrong] *= -1
    return torch.stack([-second, second], dim=1)


@pytest.mark.parametrize("measured_on", ["validation", "cross-fitted"])
def test_what_is_ahead_but_cannot_answer_stays_in_the_table_and_says_why(
    measured_on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A longer training that is extended again has no network of the short trials any more; and of those that
    folds measured, none was kept. Its rows vanished, and no mean was made with the network that is there."""
    data: Any = open_data("digits", DataConfig())
    truth = torch.tensor([1, 0] * 10)
    table = CandidateTable(data, Problem("classification", 2), data.test, measured_on, truth)
    setting = NeighborsSetting(neighbors=1, task="classification", outputs=2)
    method = Method(name="k nearest neighbors", sees="pixels", setting=setting)
    descriptor = Part(name="knn", words="baselines.k nearest neighbors", method=method)
    table.add([descriptor], wrong_answers(table, list(range(14))))
    for name, wrong in (("a", 0), ("b", 18)):
        part = Part(name=name, words="candidates.scratch")
        table.add([part], wrong_answers(table, list(range(wrong))), speed=1.0)
    network = vt.create(
        "ViT-Ti/16", num_classes=2, image_size=16, width=16, depth=1, heads=1, mlp_dim=16, seed=1
    )
    run = RunDirectory.create(tmp_path / "run", RunConfig())
    run.save_model(network)
    if table.uses_validation:
        (run.path / "metrics.jsonl").write_text('{"step": 1, "epoch": 1}\n')
    monkeypatch.setattr(trials, "network_outputs", lambda *_, **__: wrong_answers(table, [18, 19]))
    monkeypatch.setattr(trials, "final_model", lambda *_: network)
    batches: Any = None
    trained = Trained(run, data, batches, network, 1.0, 0.0)
    options: dict[str, Any] = {"device": CPU, "workers": 0, "batch_size": 1, "world": ON_CPU.world}
    comparison = trials.CandidateComparison(trials.TrainingMethod("b", "scratch"), table)
    _, sentences = comparison.choose(trained, **options)
    rows = json.loads((run.path / "candidates.json").read_text())
    short = "a (short trial)" if table.uses_validation else "a"
    assert rows[0]["name"] == ("b" if table.uses_validation else "knn")
    assert rows[1]["name"] == short
    assert [each["name"] for each in rows if each["passed_over"]] == [short]
    assert any(each["name"] == "mean of b and knn" for each in rows) == table.uses_validation
    for language, words in (("en", "cannot answer: network not kept"), ("ko", "네트워크가 남아 있지 않아")):
        with speaking(language):
            assert words in candidate_title(rows[1])
            assert words not in candidate_title(rows[0])
    chosen, passed_over = sentences
    assert chosen.startswith("chosen as the model: ")
    assert passed_over.startswith("ahead, but cannot answer: a network from scratch")
    assert [each.name for each in table.rows()] == [each["name"] for each in rows]


def test_scores_of_numbers_and_of_labels() -> None:
    numbers = torch.tensor([1.0, 2.0, 3.0])
    regression = MEASURES["number"]
    assert regression.of(numbers[:, None], numbers) == 1
    assert regression.of(torch.full((3, 1), 2.0), numbers) == 0
    for targets, answers in (([1.0, 2.0, 4.0], [1.5, 2.0, 3.0]), ([0.1, 0.1, 0.1], [0.1, 0.2, 0.3])):
        evaluated, *_ = scores_of(np.array(targets), np.array(answers))
        compared = regression.of(torch.tensor(answers)[:, None], torch.tensor(targets))
        assert compared == pytest.approx(0.0 if math.isnan(evaluated) else evaluated)
    low, high = regression.interval(numbers[:, None] + 0.1, numbers)
    assert low <= high <= 1
    labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert MEASURES["sigmoid"].of(4 * labels - 2, labels) == 1


def test_what_is_asked_for_is_not_decided_by_the_data(tmp_path: Path) -> None:
    task = task_named("classification")
    assert TrainRequest(task, "photos", {}).is_open()
    assert TrainRequest(task, "photos", {"training": {"length": "3 minutes"}}).is_open()
    assert not TrainRequest(task, "photos", {"init": None}).is_open()
    assert not TrainRequest(task, "photos", {"model": {"depth": 2}}).is_open()
    assert not TrainRequest(task, "photos", {}, recipe="deit").is_open()
    assert not TrainRequest(task, "digits", {}).is_open()
    assert TrainRequest(task_named("regression"), "photos", {}).is_open()
    assert not TrainRequest(task_named("segmentation"), "photos", {}).is_open()


def test_images_are_mirrored_unless_they_point_somewhere(tmp_path: Path) -> None:
    stripes = open_data(str(draw(tmp_path / "stripes", 40)), DataConfig())
    found = try_mirroring(stripes)
    assert found is not None
    assert not is_better(found.plain, found.sideways)
    arrows = open_data(str(draw(tmp_path / "arrows", 40, arrows=True)), DataConfig())
    found = try_mirroring(arrows)
    assert found is not None
    assert is_better(found.plain, found.sideways)


@pytest.mark.parametrize(
    ("arrows", "gray", "flip", "vertical"),
    [(False, False, 0.5, 0.0), (True, False, 0.0, 0.0), (False, True, 0.5, 0.5)],
)
def test_augmentation_follows_the_data_and_is_said(
    arrows: bool, gray: bool, flip: float, vertical: float, tmp_path: Path
) -> None:
    data = draw(tmp_path / "data", 40, arrows=arrows, gray=gray)
    plan = task_named("classification").plan(str(data), {})
    config = plan.config
    assert config.augmentation.flip == (flip, vertical)
    assert (config.augmentation.color_jitter is None) == gray
    assert config.augmentation.random_resized_crop is None
    words = "images are not mirrored: on" if arrows else "mirroring does no significant harm: on"
    assert any(each.startswith(f"recipe: {words}") for each in plan.reasons)
    config = task_named("classification").plan(str(data), {"augmentation": {"flip": 0.25}}).config
    assert config.augmentation.flip == (0.25, 0.0), "as it was asked for"


def test_images_are_shown_whole(tmp_path: Path) -> None:
    """What tells the classes apart may be at the edge of a wide image, beyond the square in its middle."""
    rng = np.random.default_rng(0)
    for label in (0, 1):
        (tmp_path / "wide" / f"{label}").mkdir(parents=True)
        for number in range(12):
            pixels = rng.integers(0, 100, (64, 160, 3), dtype=np.uint8)
            pixels[:, :40] += np.uint8(150 * label)
            Image.fromarray(pixels).save(tmp_path / "wide" / f"{label}" / f"{number}.png")
    task, source = task_named("classification"), str(tmp_path / "wide")
    for init in (None, "vitreous:small"):
        plan = task.plan(source, {}, init=init)
        assert plan.config.preprocessing.resize == "squash"
        assert any(each.startswith("recipe: images are squashed") for each in plan.reasons)
    named = task.plan(source, {"model": {"name": "ViT-Ti/16"}}).config
    assert named.preprocessing.resize == "crop", "as its source has it"
    assert named.augmentation.random_resized_crop is not None
    dark, bright = (plan.config.prepared(Image.open(tmp_path / "wide" / label / "0.png")) for label in "01")
    assert (bright[..., :8] - dark[..., :8]).mean() > 0.5, "the edge is seen"


def test_labels_that_may_depend_on_it_are_not_changed(tmp_path: Path) -> None:
    """A number may be an angle, a place, a size or a color; so may one of several labels."""
    data = draw(tmp_path / "data", 12)
    names = [str(path.relative_to(data)) for path in sorted(data.rglob("*.png"))]
    tables = {
        "regression": "".join(f"{name},{number}\n" for number, name in enumerate(names)),
        "multilabel": "".join(
            f"{name},a|b\n" if number % 2 else f"{name},a\n" for number, name in enumerate(names)
        ),
    }
    for task, rows in tables.items():
        (data / "list.csv").write_text("path,label\n" + rows)
        plan = task_named(task).plan(str(data / "list.csv"), {})
        changed = plan.config.augmentation
        assert changed.affine is None
        assert changed.random_resized_crop is None
        assert changed.color_jitter is None
        assert not any(changed.flip)
        assert any("since this might change their labels" in each for each in plan.reasons)


def test_images_of_a_folder_are_shown_across_classes_right_and_wrong() -> None:
    """The first eight by name would all be of one class."""
    assert across_folders(["a", "a", "a", "b", "b", "c"]) == [0, 3, 5, 1, 4, 2]
    model = vt.create("ViT-Ti/16", num_classes=2, image_size=16, width=16, depth=1, heads=1, mlp_dim=16)
    model.labels = ["a", "b"]
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([1.0, 0.0]))  # everything is an a
    images = [Image.new("RGB", (16, 16))] * 5
    assert right_and_wrong(model, images, ["a", "a", "a", "b", "b"]) == [0, 3, 1, 4, 2]
    assert right_and_wrong(model, images, ["x", "a", "a", "b", "b"]) == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_a_list_of_one_folder_is_shown_across_its_classes(tmp_path: Path) -> None:
    """The command line hands such a list on, and the first images by name are all of one class."""
    data = draw(tmp_path / "photos", 3)
    model = vt.create("ViT-Ti/16", num_classes=2, image_size=16, width=16, depth=1, heads=1, mlp_dim=16)
    model.labels = sorted(each.name for each in data.iterdir())
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([3.0, 0.0]))
    vt.save(model, tmp_path / "m")
    shown = vt.inspect(tmp_path / "m", [str(data)], out=tmp_path / "out", attributions=0, progress=False)
    page = shown.report.read_text(encoding="utf-8")
    signs = re.findall(r"[✓✗] (\w+), predicted", page)[:8]  # of two images, each with four captions
    assert {signs.count(label) for label in model.labels} == {4}


def test_no_advice_names_what_was_just_compared(tmp_path: Path) -> None:
    """Whichever training is ahead: an encoder that lost is no news to who has seen it lose."""
    data = tmp_path / "photos"
    for label in ("0", "1"):
        (data / label).mkdir(parents=True)
        for number in range(6):
            pixels = np.random.default_rng(number).integers(0, 255, (128, 128, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(data / label / f"{number}.png")
    task, settings = task_named("classification"), {"training": {"length": "1 steps"}}
    plan = task.plan(str(data), settings)
    assert any("add --init vitreous:small" in reason for reason in plan.reasons)  # where nothing is compared
    options: dict[str, Any] = {"out": tmp_path / "run", "offline": True, "place": ON_CPU}
    trials.plan_by_trials(plan, settings, tell=lambda sentence: None, **options)
    kept = kept_trials(tmp_path / "run")
    assert kept is not None
    for winner in ("from scratch", "fine-tuned vitreous:small"):
        rows = [
            (parts, replace(trial, score=float(trial.name == winner))) for parts, trial in kept.candidates
        ]
        said = list[str]()
        ahead = replace(kept, candidates=tuple(rows))
        found = trials.plan_by_trials(plan, settings, tell=said.append, kept=ahead, **options)
        assert found.compared.training.name == winner
        assert not [sentence for sentence in (*found.reasons, *said) if "add --init" in sentence]


@pytest.mark.parametrize("format", ["timm", "huggingface"])
def test_what_train_makes_by_default_can_leave(format: str, tmp_path: Path) -> None:
    """Or the sentence names what can, and how to train a model that can."""
    model = vt.load("vitreous:small")
    with pytest.raises(vt.InputError, match=r"export RUN --out model.onnx.*train DATA --model ViT-Ti/16"):
        vt.save(model, tmp_path / "out", format=format)


def test_a_model_below_its_baseline_is_said_before_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever reads one line reads this one."""

    class Below:
        task, evaluation, seconds, waiting, train_count, parameters = "classification", None, 1.0, 0.0, 1, 1
        bad, report, extra, candidates, said_before = (), None, dict[str, Any](), (), ()
        run = type("Folder", (), {"path": Path("nowhere")})
        findings = tuple(
            below_baseline(
                Metric(0.5, "accuracy"), [{"name": "majority class", "accuracy": 0.6, "interval": (0, 1)}]
            )
        )

    print_result(Below())  # type: ignore[arg-type]
    first, *rest = capsys.readouterr().out.splitlines()
    assert "50.0%" in first
    assert "60.0%" in first
    assert any(line.startswith("trained in 1.0 s, 1 examples") for line in rest)
    Below.seconds = 0.0  # nothing was trained, and nothing is said of it
    print_result(Below())  # type: ignore[arg-type]
    assert "trained in" not in capsys.readouterr().out


@pytest.mark.slow
def test_trials_too_short_to_learn_anything_are_not_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three seconds hold no trial on five folds: what classical methods answer is the model."""
    run = vt.train(draw(tmp_path / "photos", 20), minutes=0.05, offline=True, out=tmp_path / "run")
    said = capsys.readouterr().err
    assert "nothing is trained: the time left is too short for trials" in said
    assert "from scratch:" not in said
    assert run.evaluation.accuracy > 0.5
    assert not (run.path / "checkpoints").exists(), "no network is built, whose features would take seconds"
    assert not (run.path / "stopped.json").exists()
    assert vt.predict(tmp_path / "run", tmp_path / "photos" / "1" / "0.png", progress=False)[0].label in "01"


@pytest.mark.parametrize("shortest", [1e6, pytest.param(0.0, marks=pytest.mark.slow)])
def test_features_of_large_images_take_the_time_that_no_training_follows_in(
    shortest: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether that is known at first, as trials would be too short, or after trials that decide nothing."""
    monkeypatch.setitem(INSTALLED_ENCODERS, "vitreous:photos", PHOTOS)
    monkeypatch.setattr(trials, "SHORTEST_TRIAL", shortest)
    monkeypatch.setattr(trials, "LONGEST_TRIAL", 0.5)
    monkeypatch.setattr(trials, "FROZEN_UNTIL", 0.0)  # there is no time for them before
    half_an_hour: dict[str, Any] = {"training": {"length": "30 minutes"}}
    training, table = compare(draw(tmp_path / "photos", 5), half_an_hour, print, tmp_path / "run")
    assert training.length == trials.NOTHING
    assert ("from scratch" in table.names) == (shortest == 0)
    assert "linear on vitreous:photos (224x224)" in table.names


@pytest.mark.slow
def test_nothing_more_is_tried_where_all_images_are_answered_correctly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(INSTALLED_ENCODERS, "vitreous:photos", PHOTOS)
    monkeypatch.setattr(trials, "FROZEN_UNTIL", 0.0)  # there is no time for large images before
    training, table = compare(draw(tmp_path / "photos", 80), {}, print, tmp_path / "run")
    assert table.is_solved
    assert training.length == trials.NOTHING
    assert "linear on vitreous:photos (128x128)" in table.names
    assert not any("224x224" in name for name in table.names)


def test_doctor_asks_no_image_that_the_answer_was_fitted_on(tmp_path: Path) -> None:
    """Methods without steps are fitted on the validation set at the end: they are better there than on the
    test set, which says nothing of the images."""
    sizes = {"image_size": 8, "patch_size": 4, "channels": 1, "width": 8, "depth": 1, "heads": 1}
    model = vt.ViT(vt.ViTConfig(**sizes, mlp_dim=8, num_classes=2))  # type: ignore[arg-type]
    torch.nn.init.constant_(model.head.bias[:1], 9.0)  # it answers "a"
    pixels = np.random.default_rng(0).integers(0, 255, (80, 8, 8), np.uint8)

    def labeled(label: int) -> ImageDataset:
        return ArrayImages(pixels, np.full(80, label), ("a", "b"), name="made")

    data = open_data("digits", DataConfig())
    data = data._replace(train=labeled(0), validation=labeled(0), test=labeled(1))
    run = RunDirectory.create(tmp_path / "run", RunConfig())
    for speed in (9.0, 0.0):
        (run.path / "candidates.json").write_text(json.dumps([{"name": "a", "speed": speed}]))
        kinds = [each.kind for each in doctor.answer_findings(run, model, data, 0.0)]
        assert ("other looks" in kinds) == bool(speed)


def test_frozen_features_alone_are_a_model_without_a_finding_about_its_course(tmp_path: Path) -> None:
    """Nothing is learned step by step, so nothing can have gone wrong there."""
    data = draw(tmp_path / "photos", 10)
    frozen = {"training.head": "linear", "training.length": "0 steps"}
    run = vt.train(data, init="vitreous:small", settings=frozen, out=tmp_path / "run", progress=False)
    assert not {each.kind for each in run.result.findings} & {"not finite", "course"}
    assert not {each.kind for each in vt.doctor(run).findings} & {"not finite", "course"}
    assert run.evaluation.accuracy == 1


EPOCHS: dict[str, Any] = {"training": {"length": "2 epochs"}}


def compare(
    data: Path, settings: dict[str, Any], tell: Any, out: Path
) -> tuple[trials.TrainingMethod, CandidateTable]:
    """What the trials decide, and by which table."""
    task = task_named("classification")
    plan = task.plan(str(data), settings)
    options: dict[str, Any] = {"out": out, "offline": True, "place": ON_CPU, "tell": tell}
    found = trials.plan_by_trials(plan, settings, **options).compared
    return found.training, found.table


@pytest.mark.parametrize(
    ("length", "sentence"),
    [
        ("0.2 minutes", "nothing is trained: with fewer than 100 validation images"),
        pytest.param("1 steps", "for the requested length", marks=pytest.mark.slow),
    ],
)
def test_no_network_is_trained_that_could_not_answer(
    length: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method without steps is ahead, and no validation images are left to compare a longer training by."""
    monkeypatch.setattr(trials, "SHORTEST_TRIAL", 0.0)  # as where a step takes no time
    task, settings = task_named("classification"), {"training": {"length": length}}
    data = task.plan(str(draw(tmp_path / "photos", 10)), settings)
    options: dict[str, Any] = {"out": tmp_path / "run", "offline": True, "place": ON_CPU}
    plan = trials.plan_by_trials(data, settings, tell=lambda _: None, **options)
    assert sentence in plan.reasons[-1]
    assert not any("the best candidate at the end" in each for each in plan.reasons)
    assert any("becomes the model" in each for each in plan.reasons[:-1])
    nothing = sentence.startswith("nothing")
    assert (plan.config.training.steps == 0) == nothing
    assert any(each.startswith("recipe:") for each in plan.reasons) != nothing


@pytest.mark.slow
def test_a_run_is_named_by_the_path_that_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw(tmp_path / "photos", 6)
    monkeypatch.chdir(tmp_path)
    task, settings = task_named("classification"), {"training": {"length": "1 steps"}}
    options: dict[str, Any] = {"out": Path("runs/short"), "offline": True, "place": ON_CPU}
    plan = trials.plan_by_trials(
        task.plan("photos", settings), settings, tell=lambda sentence: None, **options
    )
    assert plan.run is None
    assert plan.replaces == Path("runs/short")


def test_there_is_a_model_after_seconds_and_an_interrupt_keeps_it(tmp_path: Path) -> None:
    """The run directory has the best so far while others are tried; it can be finished as it is."""
    data, out, said = draw(tmp_path / "photos", 6), tmp_path / "run", list[str]()
    image = next((data / "1").iterdir())

    def tell(sentence: str) -> None:
        if sentence.startswith("fine-tuned"):  # Ctrl-C, after the first short trial
            (answer,) = vt.predict(out, [image])
            said.append(answer.label)
            raise KeyboardInterrupt
        if sentence.startswith("first model"):
            assert f"`vitreous predict {out} IMAGE` works from now on, and Ctrl-C keeps it" in sentence

    with pytest.raises(KeyboardInterrupt) as interrupt:
        compare(data, {"training": {"length": "1 steps"}}, tell, out)
    assert said == ["1"]
    (note,) = interrupt.value.__notes__
    assert f"vitreous predict {out} IMAGE" in note
    assert f"vitreous train --resume {out}" in note
    files = ["config.toml", "model", "split.csv", "trials.safetensors"]
    assert sorted(path.name for path in out.iterdir()) == files


class Stopped(BaseException):
    """As if the process were killed: nothing catches it, and nothing is written any more."""


def killed(data: Path, out: Path, at: str, **options: Any) -> None:
    """Begin a run, and kill it at the first step of its training, or when a sentence is said."""

    class Kill(Callback):
        def on_step_end(self, trainer: Any) -> None:
            if at == "a step" and trainer.learner.step and "trial" not in str(trainer.checkpointer.folder):
                raise Stopped

    class Heard(io.StringIO):
        def write(self, text: str) -> int:
            if text.startswith(f"vitreous: {at}") and (out / "model").exists():
                raise Stopped
            return super().write(text)

    with redirect_stderr(Heard()), pytest.raises(Stopped):
        vt.train(data, out=out, callbacks=[Kill()], **options)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return vt.load(run).state_dict()


@pytest.mark.slow
@pytest.mark.parametrize(("wins", "at"), [("an SVM", "a step"), ("a head", "fine-tuned")])
def test_a_run_that_was_killed_ends_as_one_that_was_not(wins: str, at: str, tmp_path: Path) -> None:
    """While its network learns, and while candidates are compared: the same candidates, the same model."""
    data = draw(tmp_path / "photos", 12, gray=wins == "an SVM")
    if wins == "an SVM":  # of small images, which no encoder suits
        for path in data.rglob("*.png"):
            Image.open(path).resize((28, 28)).save(path)
    options: dict[str, Any] = {"settings": {"training": {"length": "2 steps"}}, "offline": True}
    whole = vt.train(data, out=tmp_path / "whole", progress=False, **options)
    assert not (whole.path / "stopped.json").exists(), "the training has taken the place of the first model"
    assert "0 steps" not in (whole.path / "config.toml").read_text(encoding="utf-8")
    with pytest.raises(vt.InputError, match="choose another `out`"):
        vt.train(data, out=whole.path, progress=False, offline=True)
    killed(data, tmp_path / "run", at, **options)
    run = vt.Run(tmp_path / "run").resume(progress=False)
    rows, expected = ([each["name"] for each in each.result.extra["candidates"]] for each in (run, whole))
    assert rows == expected
    assert run.evaluation.metrics == whole.evaluation.metrics
    assert run.result.extra["baselines"][0]["accuracy"] == whole.result.extra["baselines"][0]["accuracy"]
    found, theirs = weights(run.path), weights(whole.path)
    assert found.keys() == theirs.keys()
    assert all(torch.equal(found[name], theirs[name]) for name in theirs)
    assert type(run.model).__name__ == type(whole.model).__name__
    if wins == "an SVM":
        longer_run_is_compared_again(run, data)


def longer_run_is_compared_again(run: vt.Run, data: Path) -> None:
    """Its network alone would be worse than what it had; of other images the answers say nothing."""
    longer = run.resume(steps=4, progress=False)
    assert [row["step"] for row in longer.metrics][-1] == 4
    assert type(longer.model).__name__ == "Ensemble"
    assert len(longer.result.extra["candidates"]) == len(run.result.extra["candidates"])
    next((data / "1").iterdir()).unlink()
    assert type(longer.resume(steps=6, progress=False).model).__name__ == "ViT"


def test_a_run_of_an_earlier_version_goes_on_without_its_candidates_and_says_so(tmp_path: Path) -> None:
    """It kept their table, but not their answers; or these cannot be read."""
    plan = task_named("classification").plan("synthetic:32@16", {})
    plan = replace(plan, run=RunDirectory.create(tmp_path / "run", plan.config))
    assert not has_compared(plan.made.path)
    part = {"name": "svm on vitreous:photos", "words": "candidates.svm", "columns": [40, 152]}
    tree = {"settings": {}, "options": {}, "seconds": 1.0, "decision": None, "content": ""}
    kept = json.dumps({**tree, "candidates": [{"parts": [part], "trial": {}}]})
    for name in ("candidates.json", "trials.safetensors", "removed.safetensors"):
        (plan.made.path / name).write_text("[]")
        if name.startswith("removed"):
            write_safetensors({}, plan.made.path / "trials.safetensors", {"trials": kept})
        assert has_compared(plan.made.path)
        resumed = trials.with_kept_trials(plan, ON_CPU)
        assert resumed.compared is None
        assert "compared by another version" in resumed.reasons[-1]


def test_images_are_the_same_by_whichever_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on opens the absolute path of what may have been given by another."""
    data = draw(tmp_path / "photos", 6)
    monkeypatch.chdir(tmp_path)
    contents = set[str]()
    for path in ("photos", str(data)):
        images = open_data(path, DataConfig())
        contents.add(CandidateTable.of(images, Problem("classification", 2), torch.device("cpu")).content)
    assert len(contents) == 1


def test_the_first_of_the_table_is_what_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Here a linear map of stripes that do not move, which nothing that is trained for two steps can beat:
    predict, evaluate, embed, load and export answer with it, and the report speaks of it."""
    data, out = draw(tmp_path / "photos", 12, gray=True), tmp_path / "run"
    for path in data.rglob("*.png"):
        Image.open(path).resize((28, 28)).save(path)
    run = vt.train(data, out=out, settings={"training": {"length": "2 steps"}}, offline=True, progress=False)
    rows = run.result.to_json()["candidates"]
    assert rows[0]["score"] == max(each["score"] for each in rows)
    assert json.loads((out / "candidates.json").read_text()) == rows
    report = (out / "report.html").read_text(encoding="utf-8")
    assert "Training accuracy (augmented" not in report, "that of a network which does not answer"
    assert f"The model is the best of {len(rows)} candidates: {run.result.title}." in report
    described = vt.describe(out)
    assert str(described).startswith("The model is a linear map on pixels.\n")
    assert "픽셀" in (korean := str(vt.describe(out, language="ko")).splitlines()[0])
    assert "answers" not in korean
    print_result(run.result)
    assert f"the model is the best of {len(rows)} candidates: {run.result.title}" in capsys.readouterr().out
    model = vt.load(out)
    assert type(model).__name__ == "Ensemble"
    assert vt.evaluate(out, progress=False).metrics == run.evaluation.metrics, "the same numbers"
    answers = vt.predict(out, [data / "0" / "3.png", data / "1" / "3.png"])
    assert [each.label for each in answers] == ["0", "1"]
    assert vt.embed(out, [data / "0" / "3.png"]).values.shape == (1, model.config.feature_width)
    exported = vt.export(out, out=tmp_path / "model.onnx", progress=False)
    assert exported.max_abs_difference < 1e-4
    assert [each.label for each in vt.predict(tmp_path / "model.onnx", [data / "1" / "3.png"])] == ["1"]
    with pytest.raises(vt.InputError, match="without a network to start from"):
        vt.train(data, init=out, out=tmp_path / "next", progress=False)
    with pytest.raises(vt.InputError, match=r"export RUN --out model\.onnx"):
        vt.save(model, tmp_path / "out.npz", format="google")
    page = vt.inspect(out, [data / "0" / "3.png"], out=tmp_path / "page", progress=False).report
    assert "neither attention nor filters" in page.read_text(encoding="utf-8")


def test_what_mirror_images_did_is_remembered_by_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another dataset with the same names and labels has its own answer."""
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    stripes = open_data(str(draw(tmp_path / "a" / "data", 40)), DataConfig())
    arrows = open_data(str(draw(tmp_path / "b" / "data", 40, arrows=True)), DataConfig())
    first, second = mirroring_of(stripes), mirroring_of(arrows)
    assert first is not None
    assert second is not None
    assert not is_better(first.plain, first.sideways)
    assert is_better(second.plain, second.sideways)
    for file in (tmp_path / "cache" / "mirrored").iterdir():  # the answers are those in the cache
        with np.load(file) as stored:
            changed = {name: ~stored[name] for name in stored.files}
        np.savez(file, **changed)
    for data, before in (("a", first), ("b", second)):
        again = mirroring_of(open_data(str(tmp_path / data / "data"), DataConfig()))
        assert again is not None
        assert all((mine == ~theirs).all() for mine, theirs in zip(again, before, strict=True))
    for file in (tmp_path / "cache" / "mirrored").iterdir():  # as after a power cut
        file.write_bytes(b"")
    for cache in ("cache", "file"):
        (tmp_path / "file").touch()  # where no folder can be made
        monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / cache))
        again = mirroring_of(stripes)
        assert again is not None
        assert (again.plain == first.plain).all()


def test_a_number_that_is_linear_in_the_pixels_is_found(tmp_path: Path) -> None:
    """By ridge regression, whose row is in the table, the report and the JSON; so is that of the mean."""
    rng = np.random.default_rng(0)
    rows = ["path,label"]
    for number in range(60):
        pixels = rng.integers(0, 200, (1, 1, 3)) + rng.integers(0, 50, (24, 36, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{pixels[..., 0].mean() - pixels[..., 2].mean():.5f}")
    (tmp_path / "list.csv").write_text("\n".join(rows))
    options: dict[str, Any] = {"minutes": 0.02, "offline": True, "progress": False}  # none is for a network
    run = vt.train(tmp_path / "list.csv", task="regression", out=tmp_path / "run", **options)
    found = run.result.to_json()
    assert found["candidates"][0]["name"] == "ridge on pixels"
    assert run.evaluation.metrics["r2"].value > 0.999
    assert {"ridge on pixels", "mean of the training numbers"} <= {
        each["name"] for each in found["baselines"]
    }
    assert vt.evaluate(run, progress=False).metrics == run.evaluation.metrics
    report = run.report.read_text(encoding="utf-8")
    assert "ridge regression on pixels" in report
    true = np.array(run.evaluation.targets)
    error = np.abs(true - true.mean()).mean()
    assert f"an R2 of 0 and a mean absolute error of {error:.4g}" in " ".join(report.split())
    assert "confidence intervals (bootstrap)" in " ".join(report.split())
    for graded in ("a dashed line", "Wilson"):
        assert graded not in report, "no number is right or wrong"
    (answer,) = vt.predict(run, [tmp_path / "3.png"])
    assert answer.value == pytest.approx(float(rows[4].split(",")[1]), abs=3)


@pytest.mark.parametrize(
    ("task", "seed", "name"),
    [
        ("classification", 1, "majority class"),
        pytest.param("multilabel", 6, "label frequencies", marks=pytest.mark.slow),
        pytest.param("regression", 1, "mean of the training numbers", marks=pytest.mark.slow),
    ],
)
def test_where_nothing_can_be_learned_the_answer_that_knows_no_image_is_the_model(
    task: str, seed: int, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of labels at random; it is a model as every other, and a sentence says what it is. Of the classes of
    small images, more methods are compared, of which one is ahead by chance."""
    rng, rows = np.random.default_rng(seed), ["path,label"]
    side = 40 if task == "classification" else 28
    for number in range(60):
        pixels = rng.integers(0, 255, (side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        value = rng.normal()
        label = {"classification": "ab"[int(value > 0)], "regression": str(value)}
        labels = "|".join(each for each in "abc" if rng.random() < 0.5) or "d"
        rows.append(f"{number}.png,{label.get(task, labels)}")
    (tmp_path / "list.csv").write_text("\n".join(rows))
    out, asked = tmp_path / "run", task if task == "regression" else None
    options: dict[str, Any] = {"offline": True, "progress": False, "task": asked, "minutes": 0.02}
    run = vt.train(tmp_path / "list.csv", out=out, **options)
    found = run.result.to_json()
    assert found["task"] == task
    assert found["candidates"][0]["name"] == name, [(r["name"], r["score"]) for r in found["candidates"]]
    print_result(run.result)
    assert "nothing was learned from the images" in capsys.readouterr().out.splitlines()[0]
    assert vt.evaluate(out, progress=False).metrics == run.evaluation.metrics
    answers = vt.predict(out, [tmp_path / "0.png", tmp_path / "1.png"], progress=False)
    told = {each.value if task == "regression" else each.probability for each in answers}
    assert len(told) == 1
    exported = vt.export(out, out=tmp_path / "model.onnx", progress=False)
    assert exported.max_abs_difference < 1e-6


def test_the_answer_that_knows_no_image_wins_only_where_nothing_is_better() -> None:
    """It is no part of a mean, and the score of a network is not estimated by its own."""
    table = table_of(network=[3.0, 3, 3, -1, -1, -3, -3, -3, 3, -3])
    setting = ConstantSetting(task="classification", outputs=2)
    part = Part(name="majority class", words="", method=Method(name="", sees="pixels", setting=setting))
    outputs = torch.tensor([[0.0, 0.1]]).expand(10, -1)
    table.add([part], outputs)
    assert [each.name for each in table.rows()] == ["network", "majority class"]
    assert add_means(table) == []
    assert table.most_like(outputs) is None


def stripes(rng: np.random.Generator, truth: int) -> np.ndarray:
    """Stripes of one of two directions, at any place: their edges tell, no pixel does."""
    rows, columns = np.mgrid[:28, :28]
    return ((rows if truth else columns) + rng.integers(8)) // 4 % 2 * 120


def sides(rng: np.random.Generator, truth: int) -> np.ndarray:
    """A bright square at the left or at the right, among noise: its place tells, no direction of edges."""
    pixels = np.zeros((28, 28))
    pixels[10:18, 2 + 16 * truth : 10 + 16 * truth] = 60
    return pixels + rng.integers(0, 100, (28, 28))


def several(rng: np.random.Generator, truth: int) -> np.ndarray:
    """A bright half at one side, or at both or none: no sum of pixels tells, but the nearest images do."""
    left = int(rng.integers(2))
    pixels = rng.integers(0, 60, (28, 28))
    pixels[:, :14] += 150 * left
    pixels[:, 14:] += 150 * (left ^ truth)
    return pixels


RUNGS = [
    ("classification", stripes, "SVM on HOG and color"),
    ("classification", sides, "ridge on pixels"),
    ("regression", stripes, "ridge on HOG and color"),
    ("regression", several, "k nearest neighbors"),
    ("multilabel", stripes, "linear on HOG and color"),
    ("multilabel", sides, "linear on pixels"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "drawn", "best"), RUNGS)
def test_no_run_ends_below_one_of_its_own_rungs(task: str, drawn: Any, best: str, tmp_path: Path) -> None:
    """Whichever rung is the best on images that it did not learn from answers, whatever is asked of them; on
    the test set, too, where the difference is as large as here."""
    rng, rows = np.random.default_rng(0), ["path,label"]
    for number in range(160):
        truth = int(rng.integers(2))
        pixels = drawn(rng, truth)
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"{number}.png")
        label = {"classification": str(truth), "regression": str(truth + rng.normal() / 50)}
        rows.append(f"{number}.png,{label.get(task, 'all|some' if truth else 'all|other')}")
    (tmp_path / "list.csv").write_text("\n".join(rows))
    asked = task if task == "regression" else None
    options: dict[str, Any] = {"offline": True, "progress": False, "task": asked, "minutes": 0.02}
    if drawn is several:  # a network is tried, too
        options |= {"minutes": None, "settings": {"training": {"length": "2 steps"}}}
    run = vt.train(tmp_path / "list.csv", out=tmp_path / "run", **options)
    found = run.result.to_json()
    assert found["task"] == task
    assert found["candidates"][0]["name"] == best, [(r["name"], r["score"]) for r in found["candidates"]]
    value = next(iter(run.evaluation.metrics.values())).value
    assert value >= max(each["accuracy"] for each in found["baselines"]) - 1e-9
    before, now = (
        {name: each.value for name, each in found.metrics.items()}
        for found in (run.evaluation, vt.evaluate(run, progress=False))
    )
    assert now == pytest.approx(before, rel=1e-5)  # other batches, which round in another order


@pytest.mark.slow
def test_the_mean_of_gradients_and_pixels_is_a_model_as_every_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four classes the direction of edges tells one half, and the side that is brighter the other. Their
    mean has its row with an interval in the report and the JSON; it answers, is loaded and exported."""
    every, linear_in_pixels = classical.methods_for, {"SVM on HOG and color", "ridge on pixels"}
    monkeypatch.setattr(
        classical, "methods_for", lambda *given: [row for row in every(*given) if row[0] in linear_in_pixels]
    )
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:28, :28]
    for number in range(160):
        direction, side = int(rng.integers(2)), int(rng.integers(2))
        phase = rng.integers(0, 4, (7, 7)).repeat(4, axis=0).repeat(4, axis=1)
        edges = ((rows if direction else columns) + phase) // 2 % 2 * 80
        brighter = 20 * (1 + (columns - 14) / 14 * (2 * side - 1))
        pixels = edges + brighter + rng.integers(0, 80, (28, 28))
        folder = tmp_path / "data" / f"{direction}{side}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    out, options = tmp_path / "run", {"minutes": 0.02, "offline": True, "progress": False}
    run = vt.train(tmp_path / "data", out=out, **options)
    candidates = run.result.to_json()["candidates"]
    scores = {each["name"]: each["score"] for each in candidates}
    both = "mean of SVM on HOG and color and ridge on pixels"
    assert candidates[0]["name"] in (both, "mean of ridge on pixels and SVM on HOG and color"), scores
    assert scores.keys() == {candidates[0]["name"], *linear_in_pixels}
    low, high = candidates[0]["interval"]
    assert low < candidates[0]["score"] < high
    assert candidates[0]["score"] > candidates[1]["score"] + 0.1
    assert run.result.title in run.report.read_text(encoding="utf-8")
    assert len(vt.load(out).config.members) == 2
    assert vt.evaluate(out, progress=False).accuracy == run.evaluation.accuracy
    exported = vt.export(out, out=tmp_path / "model.onnx", progress=False)
    assert exported.max_abs_difference < 1e-4
    images = [next((tmp_path / "data" / name).iterdir()) for name in ("00", "01", "10", "11")]
    of_run, of_file = (vt.predict(model, images, progress=False) for model in (out, tmp_path / "model.onnx"))
    assert [each.label for each in of_run] == [each.label for each in of_file]


@pytest.mark.slow
def test_labels_are_compared_too(tmp_path: Path) -> None:
    data = draw(tmp_path / "data", 24)
    rows = ["path,label"]
    for path in sorted(data.rglob("*.png")):
        Image.open(path).resize((28, 28)).save(path)
        pixels = np.asarray(Image.open(path))
        label = path.parent.name + ("|bright" if pixels.mean() > 124 else "")
        rows.append(f"{path.relative_to(data)},{label}")
    (data / "list.csv").write_text("\n".join(rows))
    options: dict[str, Any] = {
        "offline": True,
        "progress": False,
        "settings": {"training": {"length": "2 steps"}},
    }
    run = vt.train(data / "list.csv", out=tmp_path / "run", **options)
    found = run.result.to_json()
    assert found["task"] == "multilabel"
    assert found["candidates"][0]["measure"] == "mean_average_precision"
    assert run.evaluation.mean_average_precision > 0.9
    assert "label frequencies" in {each["name"] for each in found["baselines"]}
    assert type(run.model).__name__ == "Ensemble"
    chosen = vt.Predictor(run, threshold="best").use.options["threshold"]
    assert chosen.keys() == {"0", "1", "bright"}, "by answers to images that were not learned from"
    assert all(0 < each < 1 for each in chosen.values())


@pytest.mark.slow
def test_of_very_many_small_images_a_lighter_model_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a given time it sees four times as many; both are tried on a part of them, and the better one is
    trained on all."""
    data, said = draw(tmp_path / "photos", 40), list[str]()
    for path in data.rglob("*.png"):
        Image.open(path).resize((28, 28)).save(path)
    decided, _ = compare(data, EPOCHS, said.append, tmp_path / "few")
    assert decided.settings == {}, "of few, the network that sees more detail needs no trial"
    monkeypatch.setattr(trials, "MANY_SMALL", 30)  # these count as very many
    monkeypatch.setattr(trials, "MOST_TRIED", 24)  # a part of them
    monkeypatch.setattr("vitreous.tasks.candidates.FEWEST", 4)  # enough to decide by
    held_out: dict[str, Any] = {"data": {"validation_fraction": 0.2}, "training": {"length": "2 epochs"}}
    decided, table = compare(data, held_out, said.append, tmp_path / "many")
    tried = {each.trial.name: each.trial for each in table.candidates if len(each.parts) == 1}
    lighter, scratch = tried["from scratch with fewer, larger patches"], tried["from scratch"]
    better = lighter.merit > scratch.merit
    assert decided.settings.get("model") == (trials.LIGHTER if better else None)
