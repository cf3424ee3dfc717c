"""What a classifier is trained from where nothing is asked for."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.api.inspection import across_folders, right_and_wrong
from vitreous.checkpoints import hub_encoders
from vitreous.cli.training import print_result
from vitreous.data.config import DataConfig
from vitreous.data.sources import open_data
from vitreous.evaluation.classical import SVM, try_mirroring
from vitreous.evaluation.scores import Interval
from vitreous.models.settings import merged
from vitreous.results import duration
from vitreous.tasks import ladder, task_named
from vitreous.tasks.classification import fit_linear
from vitreous.tasks.course import below_baseline
from vitreous.tasks.ladder import (
    Rung,
    ahead_of_models,
    best_trial,
    better_classical,
    merit,
)
from vitreous.tasks.training_run import start_run, train_run
from vitreous.tasks.trial import is_open

pytestmark = pytest.mark.usefixtures("quick_figures")
CPU = torch.device("cpu")


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
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The hub's cache with a small DINOv2 as it is published; the name of it."""
    commit = "0" * 40
    repository = tmp_path / "hub" / "models--facebook--dinov2-small"
    model = vt.create(
        "ViT-S/14", num_classes=None, image_size=56, width=32, depth=2, heads=2, mlp_dim=64, layer_scale=1.0
    )
    vt.save(model, repository / "snapshots" / commit, format="huggingface")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return "hf:facebook/dinov2-small"


def test_an_encoder_of_the_hubs_cache_carries_a_training(
    hub: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found, announced, frozen, fine-tuned; the model that is kept loads and predicts as any other."""
    data = draw(tmp_path / "photos", 20)
    run = vt.train(data, out=tmp_path / "run", settings={"training": {"length": "2 epochs"}}, offline=True)
    told = capsys.readouterr().err
    assert f"encoder: {hub} (" in told
    assert "MB, in the Hugging Face cache" in told
    rungs = run.result.to_json()["rungs"]
    assert [each["measured_on"] for each in rungs] == ["cross-fitted"] * len(rungs)
    names = [each["name"] for each in rungs]
    assert names[:3] == ["SVM on HOG and color", "majority class", f"frozen features of {hub}"]
    assert f"fine-tuned {hub}, a short trial" in names
    assert all(each["interval"][0] <= each["accuracy"] <= each["interval"][1] for each in rungs)
    assert "frozen features of hf:facebook/dinov2-small" in run.report.read_text(encoding="utf-8")
    opened = vt.load(tmp_path / "run")
    image = Image.open(next((data / "1").iterdir()))
    (answer,) = vt.predict(tmp_path / "run", [image])
    with torch.inference_mode():
        logits = opened(opened.preprocessing([image]))
    assert opened.labels[int(logits.argmax())] == answer.label
    assert json.loads((tmp_path / "run" / "ladder.json").read_text()) == rungs


def test_a_large_encoder_is_tried_with_lora_too(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is kept of it is an ordinary model."""
    monkeypatch.setattr(ladder, "SMALL_ENCODER", 0)
    data = draw(tmp_path / "photos", 20)
    epochs = {"training": {"length": "1 epochs"}}
    run = vt.train(data, out=tmp_path / "run", settings=epochs, offline=True, progress=False)
    names = [each["name"] for each in run.result.to_json()["rungs"]]
    assert f"LoRA of {hub}, a short trial" in names
    settings = merged(ladder.LORA, epochs)
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
    assert [each.name for each in hub_encoders.cached_encoders()] == [hub]


def test_nobody_asks_the_hub_who_is_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    asked = []

    def refuse(*_: Any, **given: Any) -> None:
        asked.append(given["timeout"])
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuse)
    assert hub_encoders.reachable_encoder() is None
    assert asked == [hub_encoders.PATIENCE]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert hub_encoders.reachable_encoder() is None
    assert len(asked) == 1


def test_a_head_fitted_on_frozen_features_is_the_regression_itself() -> None:
    """Its standardization is folded in; a class without images is never answered."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    targets = rng.integers(3, size=120) + 1
    values = (rng.normal(size=(120, 5)) + 2 * np.eye(5)[targets]).astype(np.float32) * [1, 10, 3, 5, 0.1] + 7
    weight, bias = fit_linear(values, targets, 4)
    logits = values @ weight.T + bias
    assert (logits.argmax(axis=1) != 0).all()
    assert (logits.argmax(axis=1) == targets).mean() > 0.8
    scaled = (values - values.mean(axis=0)) / (values.std(axis=0) + 1e-6)
    best = max(
        (LogisticRegression(C=1 / (penalty * 120), max_iter=200).fit(scaled, targets) for penalty in (1e-2,)),
        key=lambda each: each.score(scaled, targets),
    )
    assert (best.predict(scaled) == logits.argmax(axis=1)).mean() > 0.95
    weight, bias = fit_linear(values[:, :2], targets % 2, 2)
    assert weight.shape == (2, 2)
    np.testing.assert_allclose(weight[0], -weight[1], rtol=1e-5)


def rung(accuracy: float, loss: float | None) -> Rung:
    return Rung("x", accuracy, Interval(0, 1), 10, "validation", loss)


def test_the_seconds_of_a_rung_can_be_read() -> None:
    """1.21 s were 1.21e+03 ms."""
    found = Rung("x", 0.5, Interval(0, 1), 10, "validation", seconds=1.21).sentence()
    assert found.endswith("of 10 validation images, in 1.21 s")
    assert [duration(each) for each in (0.5, 1, 90, 150)] == ["500 ms", "1 s", "90 s", "2.5 minutes"]


def test_the_loss_breaks_a_tie() -> None:
    assert merit(rung(0.209, 2.4)) > merit(rung(0.209, 2.6))
    assert merit(rung(0.3, math.inf)) > merit(rung(0.2, 0.1))


def test_what_few_images_cannot_distinguish_the_loss_decides() -> None:
    """Two of 152 images are chance; a fifth of them is none."""

    def trial(accuracy: float, loss: float) -> Rung:
        return Rung("x", accuracy, Interval(0, 1), 152, "validation", loss)

    tuned, scratch = trial(0.783, 0.484), trial(0.796, 0.527)
    assert best_trial([tuned, scratch]) == tuned
    assert best_trial([scratch, tuned]) == tuned
    assert best_trial([trial(0.583, 2.0), trial(0.375, 1.0)]).accuracy == 0.583
    assert best_trial([trial(0.0, math.inf)]).accuracy == 0.0


def test_what_is_asked_for_is_not_decided_by_the_data(tmp_path: Path) -> None:
    task = task_named("classification")
    assert is_open(task, "photos", {}, None, None)
    assert is_open(task, "photos", {"training": {"length": "3 minutes"}}, None, None)
    assert not is_open(task, "photos", {"init": None}, None, None)
    assert not is_open(task, "photos", {"model": {"depth": 2}}, None, None)
    assert not is_open(task, "photos", {}, "deit", None)
    assert not is_open(task, "digits", {}, None, None)
    assert not is_open(task_named("regression"), "photos", {}, None, None)


def test_images_are_mirrored_unless_they_point_somewhere(tmp_path: Path) -> None:
    stripes = open_data(str(draw(tmp_path / "stripes", 40)), DataConfig())
    found = try_mirroring(stripes)
    assert found is not None
    assert not found.harms(found.sideways, found.plain)
    arrows = open_data(str(draw(tmp_path / "arrows", 40, arrows=True)), DataConfig())
    found = try_mirroring(arrows)
    assert found is not None
    assert found.harms(found.sideways, found.plain)


@pytest.mark.parametrize(
    ("arrows", "gray", "flip", "vertical"),
    [(False, False, 0.5, 0.0), (True, False, 0.0, 0.0), (False, True, 0.5, 0.5)],
)
def test_augmentation_follows_the_data_and_is_said(
    arrows: bool, gray: bool, flip: float, vertical: float, tmp_path: Path
) -> None:
    data = draw(tmp_path / "data", 40, arrows=arrows, gray=gray)
    config, reasons, _, _ = task_named("classification").plan(str(data), {})
    assert config.augmentation.flip == (flip, vertical)
    assert (config.augmentation.color_jitter is None) == gray
    assert config.augmentation.random_resized_crop is None
    words = "images are not mirrored: on" if arrows else "mirroring does no harm beyond chance: on"
    assert any(each.startswith(words) for each in reasons)
    config, reasons, _, _ = task_named("classification").plan(str(data), {"augmentation": {"flip": 0.25}})
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
        config, reasons, _, _ = task.plan(source, {}, init=init)
        assert config.preprocessing.resize == "squash"
        assert any(each.startswith("images are squashed") for each in reasons)
    named, reasons, _, _ = task.plan(source, {"model": {"name": "ViT-Ti/16"}})
    assert named.preprocessing.resize == "crop", "as its source has it"
    assert named.augmentation.random_resized_crop is not None
    frozen = {"training.head": "linear", "training.length": "0 steps"}
    run = vt.train(source, init="vitreous:small", settings=frozen, out=tmp_path / "run", progress=False)
    assert run.evaluation.accuracy == 1


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
        config, reasons, _, _ = task_named(task).plan(str(data / "list.csv"), {})
        changed = config.augmentation
        assert changed.affine is None
        assert changed.random_resized_crop is None
        assert changed.color_jitter is None
        assert not any(changed.flip)
        assert any("as the labels may depend on it" in each for each in reasons)


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


@pytest.mark.parametrize("format", ["timm", "huggingface"])
def test_what_train_makes_by_default_can_leave(format: str, tmp_path: Path) -> None:
    """Or the sentence names what can, and how to train a model that can."""
    model = vt.load("vitreous:small")
    with pytest.raises(vt.InputError, match=r"export RUN --out model.onnx.*train DATA --model ViT-Ti/16"):
        vt.save(model, tmp_path / "out", format=format)


def test_a_classical_method_that_is_ahead_is_named_before_the_training() -> None:
    classical = Rung("SVM on HOG and color", 0.7, Interval(0.6, 0.8), 100, "cross-fitted")
    rungs = [classical, rung(0.5, 1.0)]
    found = better_classical(rungs)
    assert found == classical
    said = ahead_of_models(found, taught=True)
    assert said.startswith(
        "so far SVM on HOG and color is ahead with 70.0 %; the model also learns from its answers"
    )
    assert better_classical([classical, rung(0.7, 1.0)]) is None
    assert better_classical([rung(0.5, 1.0)]) is None


def test_a_model_below_its_baseline_is_said_before_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever reads one line reads this one."""

    class Below:
        task, evaluation, seconds, waiting, train_count, parameters = "classification", None, 1.0, 0.0, 1, 1
        bad, report, more = (), None, dict[str, Any]()
        run = type("Folder", (), {"path": Path("nowhere")})
        findings = tuple(
            below_baseline(0.5, [{"name": "majority class", "accuracy": 0.6, "interval": (0, 1)}])
        )

    print_result(Below())  # type: ignore[arg-type]
    first = capsys.readouterr().out.splitlines()[0]
    assert "50.0 %" in first
    assert "60.0 %" in first


def test_frozen_features_alone_are_a_model_without_a_finding_about_its_course(tmp_path: Path) -> None:
    """Nothing is learned step by step, so nothing can have gone wrong there."""
    data = draw(tmp_path / "photos", 10)
    frozen = {"training.head": "linear", "training.length": "0 steps"}
    run = vt.train(data, init="vitreous:small", settings=frozen, out=tmp_path / "run", progress=False)
    assert not {each.kind for each in run.result.findings} & {"not finite", "course"}
    assert not {each.kind for each in vt.doctor(run).findings} & {"not finite", "course"}
    assert run.evaluation.accuracy == 1


def test_few_images_learn_from_the_svm_that_is_ahead() -> None:
    """Frozen features are not the end where a classical method is better than they are; many images it does
    not teach."""

    def tried(accuracy: float, name: str = "x", loss: float | None = 1.0) -> Rung:
        return Rung(name, accuracy, Interval(0, 1), 40, "cross-fitted", loss)

    def decided(images: int) -> ladder.Chosen:
        ways = [ladder.Way("tuned", "tuned", "hub", {"training": {"head": {"kind": "linear"}}})]
        svm, frozen, trials = tried(0.6, SVM, None), tried(0.5), [tried(0.4)]
        return ladder.decide(ways, trials, [svm, frozen, *trials], frozen, images)

    few = decided(60)
    assert few.settings["training"]["distillation"]["teacher"] == "classical:svm"
    assert (few.length, few.taught) == (None, True)
    many = decided(ladder.TAUGHT_AT_MOST + 1)
    assert (many.length, many.taught) == ("0 steps", False)
    assert many.ahead is not None
    assert "distillation" not in many.settings["training"]


EPOCHS: dict[str, Any] = {"training": {"length": "2 epochs"}}


def test_there_is_a_model_after_seconds_and_an_interrupt_keeps_it(tmp_path: Path) -> None:
    """The run directory has frozen features with a linear classifier while better ways are looked for; it can
    be finished as it is, and a training that goes on takes their place."""
    data, out, said = draw(tmp_path / "photos", 10), tmp_path / "run", list[str]()
    image = next((data / "1").iterdir())

    def tell(sentence: str) -> None:
        if sentence.startswith("fine-tuned"):  # Ctrl-C, after the first short trial
            (answer,) = vt.predict(out, [image])
            said.append(answer.label)
            raise KeyboardInterrupt
        if sentence.startswith("first model"):
            assert f"`vitreous predict {out} IMAGE` works from now on, and Ctrl-C keeps it" in sentence

    task = task_named("classification")
    with pytest.raises(KeyboardInterrupt) as interrupt:
        ladder.climb(task, str(data), EPOCHS, device=CPU, tell=tell, offline=True, out=out)
    assert said == ["1"]
    (note,) = interrupt.value.__notes__
    assert f"vitreous predict {out} IMAGE" in note
    assert f"vitreous train --resume {out}" in note
    assert sorted(path.name for path in out.iterdir()) == ["config.toml", "model", "split.csv"]
    run = vt.Run(out).resume(progress=False)
    assert run.evaluation.accuracy == 1
    assert run.report.exists()


def test_the_training_takes_the_place_of_the_first_model(tmp_path: Path) -> None:
    data, out = draw(tmp_path / "photos", 10), tmp_path / "run"
    task = task_named("classification")
    climbed = ladder.climb(
        task, str(data), EPOCHS, device=CPU, tell=lambda sentence: None, offline=True, out=out
    )
    assert climbed.out == out
    started = start_run(
        task, climbed.data, EPOCHS, init=climbed.init, over=out, device=CPU, base=climbed.settings
    )
    assert (out / "stopped.json").exists()
    train_run(started, device=CPU)
    assert not (out / "stopped.json").exists()
    assert vt.Run(out).metrics[-1]["step"] > 0
    assert "0 steps" not in (out / "config.toml").read_text(encoding="utf-8")
    with pytest.raises(vt.InputError, match="choose another --out"):
        vt.train(data, out=out, offline=True, progress=False)


def test_of_very_many_small_images_a_lighter_model_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a given time it sees four times as many; both are tried on a part of them, and the better one is
    trained on all."""
    data, said = draw(tmp_path / "photos", 40), []
    for path in data.rglob("*.png"):
        Image.open(path).resize((28, 28)).save(path)
    options: dict[str, Any] = {"device": CPU, "offline": True}
    climbed = ladder.climb(task_named("classification"), str(data), {}, tell=said.append, **options)
    assert climbed.settings == {}, "of few, the model that sees more detail needs no trial"
    monkeypatch.setattr(ladder, "MANY_SMALL", 30)
    monkeypatch.setattr(ladder, "MOST_TRIED", 24)
    monkeypatch.setattr(ladder, "FEWEST", 4)
    held_out: dict[str, Any] = {"data": {"validation_fraction": 0.2}, "training": {"length": "2 epochs"}}
    climbed = ladder.climb(task_named("classification"), str(data), held_out, tell=said.append, **options)
    scratch, lighter = climbed.rungs[-2:]
    assert "larger patches" in lighter.name
    assert "larger patches" not in scratch.name
    best = ladder.best_trial([scratch, lighter])
    assert climbed.settings.get("model") == (ladder.LIGHTER if best is lighter else None)
    assert best.title() in climbed.note
    assert len(climbed.data.train) > 30
