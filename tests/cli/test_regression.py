"""`vitreous train --task regression`, and what other commands do with such a run."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.data.dataset import ArrayImages, NumberTargets
from vitreous.data.image_samples import Batch
from vitreous.evaluation.outputs import AveragedViews
from vitreous.tasks import task_named
from vitreous.tasks.regression import (
    RegressionConfig,
    RegressionEvaluation,
    RegressionSettings,
    regression_loss,
    scores_of,
    unstandardize,
)
from vitreous.training.callbacks import score_of
from vitreous.training.machine import computing, with_cast_weights

pytestmark = pytest.mark.usefixtures("quick_figures")

CPU = torch.device("cpu")

SMALL = ("--set", "model.depth=1", "--set", "model.width=32", "--set", "model.heads=2", "--image-size", "32")

TRAIN = ("train", "gauges.csv", "--task", "regression")


@pytest.fixture(scope="module")
def manifest(workplace):
    """Images whose brightness is the number."""
    rng, rows = np.random.default_rng(0), ["path,label"]
    (workplace / "gauges").mkdir(exist_ok=True)  # a worker comes back to this module
    for number in range(80):
        value = float(rng.uniform(10, 90))
        pixels = (rng.integers(0, 20, (32, 32, 3)) + 2 * value).astype(np.uint8)
        Image.fromarray(pixels).save(workplace / "gauges" / f"{number}.png")
        rows.append(f"gauges/{number}.png,{value:.3f}")
    (workplace / "gauges.csv").write_text("\n".join(rows) + "\n")
    return workplace / "gauges.csv"


@pytest.fixture
def run(manifest, command, workplace):
    path = workplace / "runs" / "gauges"
    if not path.exists():
        options = ("--out", path, "--epochs", "5", "--set", "model.stem.kind=patch", "--json")
        done = command("train", manifest, "--task", "regression", *SMALL, *options)
        assert done.code == 0, done.err
        result = json.loads(done.out)
        assert result["task"] == "regression"
        assert {"r2", "mean_absolute_error", "rmse"} == set(result["metrics"])
        low, high = result["metrics"]["r2"]["interval"]
        assert low <= result["test_r2"] <= high
        assert 8 <= result["test_count"] <= 32
    return path


def test_the_model_predicts_in_the_unit_of_the_labels(run, command):
    told = json.loads(command("predict", run, "gauges/0.png", "gauges/1.png", "missing.png", "--json").out)
    assert [each["path"] for each in told["predictions"]] == ["gauges/0.png", "gauges/1.png", "missing.png"]
    *answers, missing = told["predictions"]
    assert all(0 < each["value"] < 100 for each in answers)
    assert missing["value"] is None
    assert missing["error"] == told["failed"][0]["reason"]
    assert [each["path"] for each in told["failed"]] == ["missing.png"]
    model = vt.load(run)
    assert model.task == "regression"
    number = model(model.preprocessing([Image.open("gauges/0.png")])).item()
    assert number == pytest.approx(told["predictions"][0]["value"], abs=1e-3)
    assert json.loads(command("predict", run / "model", "gauges/0.png", "--json").out)["predictions"] == [
        pytest.approx(told["predictions"][0])
    ]


def test_evaluate_repeats_what_training_measured(run, command):
    told = json.loads(command("evaluate", run, "--json").out)
    assert 8 <= told["test_count"] <= 32
    assert "R2" in (run / "README.md").read_text()
    assert "Predicted and true numbers" in (run / "report.html").read_text()
    assert "largest errors" in command("evaluate", run).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "gauges.csv"), "add --task regression"),
        (("train", "--task", "regression"), "needs DATA"),
        (
            ("train", "gauges.csv", "--task", "regression", "--set", "augmentation.mix.mixup=0.2"),
            "mix is for cl",
        ),
        (
            ("train", "gauges.csv", "--task", "regression", "--set", "training.loss=sigmoid"),
            "loss is for classes",
        ),
        (
            ("train", "gauges.csv", "--task", "regression", "--set", "regression.huber_delta=2"),
            "has no effect",
        ),
        (
            ("predict", "runs/gauges", "gauges/0.png", "--top", "3"),
            "--top does not apply to --task regression",
        ),
    ],
)
def test_bad_input_is_one_sentence(run, command, arguments, said):
    done = command(*arguments)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_scores_by_hand():
    targets, predictions = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0, 2.0])
    r2, error, rmse = scores_of(targets, predictions)
    assert (r2, error, rmse) == (pytest.approx(1 - 4 / 5), 0.5, 1.0)
    metrics = RegressionEvaluation(
        names="abcd", targets=targets, predictions=predictions, failed={}, seconds=0.0
    ).metrics
    low, high = metrics["mean_absolute_error"].interval
    assert 0 <= low < 0.5 < high <= 2


TOKENS = {"class": {}, "distillation": {"pooling": "class+distillation"}}


def numbers_model(token):
    """A model that gives standardized numbers."""
    model = vt.create("ViT-Ti/16", num_classes=1, image_size=32, depth=1, **TOKENS[token])
    rng = torch.Generator().manual_seed(0)
    for weight in model.head.parameters():
        torch.nn.init.normal_(weight, std=0.1, generator=rng)
    return model.eval()


@pytest.mark.parametrize("token", TOKENS)
def test_the_head_undoes_the_standardization(token):
    model = numbers_model(token)
    images = torch.randn(2, 3, 32, 32)
    before = model(images)
    unstandardize(model, RegressionSettings(center=50.0, scale=7.0))
    torch.testing.assert_close(model(images), 7 * before + 50)


def test_a_validation_of_equal_numbers_is_scored_by_the_error():
    images = np.random.default_rng(0).integers(0, 255, (6, 32, 32, 3), dtype=np.uint8)
    model, equal = numbers_model("class"), np.full(6, 0.1)
    equal_and_other = np.append(equal[:5], 0.3)
    config = RegressionConfig(regression=RegressionSettings(scale=2.0))
    scores = {}
    for name, targets in (("equal", equal), ("different", equal_and_other)):
        data = ArrayImages(images, np.arange(6), (), name="numbers")
        data.targets = NumberTargets(targets)
        scores[name] = task_named("regression").validation_scores(config, model, data)
    error = scores["equal"]["validation_mean_error"]
    assert score_of(scores["equal"]) == -error < 0
    assert score_of(scores["equal"], losses=False) is None  # nor is a loss, where none is asked for
    assert score_of(scores["different"]) == scores["different"]["validation_r2"]
    assert np.isnan(scores_of(equal, equal + 1)[0])  # though their mean is not 0.1 exactly


def evaluated(model, images):
    data = ArrayImages(images, np.arange(len(images)), (), name="years")
    with computing("bf16", CPU):
        return task_named("regression").evaluate(model, data).predictions.tolist()


def predicted(model, images):
    prepared = model.preprocessing([Image.fromarray(each) for each in images])
    with computing("bf16", CPU):
        answers = task_named("regression").answer_function(model, CPU)(["a.png"] * len(images), prepared)
    return [each.value for each in answers]


WAYS = {
    "evaluate": evaluated,
    "predict": predicted,
    "Predictor": lambda model, images: predicted(with_cast_weights(model), images),
    "--tta": lambda model, images: evaluated(AveragedViews(model, mirrored=False), images),
}


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("way", WAYS)
def test_bf16_does_not_round_the_unit_of_the_labels(way, token):
    model = numbers_model(token)
    unstandardize(model, RegressionSettings(center=1950.0, scale=20.0))
    model.task = "regression"
    images = np.random.default_rng(0).integers(0, 255, (8, 32, 32, 3), dtype=np.uint8)
    shown = model.preprocessing([Image.fromarray(each) for each in images])
    with torch.inference_mode():
        exact = AveragedViews(model, mirrored=False)(shown) if way == "--tta" else model(shown)
    found = WAYS[way](model, images)
    # Features in bf16 change a number by 0.3 here; bf16 itself has every eighth year alone.
    assert found == pytest.approx(exact.flatten().tolist(), abs=1)
    assert any(each % 8 for each in found)


def test_huber_is_less_than_the_square_for_large_errors():
    batch = Batch(torch.zeros(1, 1, 1, 1), torch.tensor([10.0]), torch.arange(1))
    answers_zero = torch.nn.Flatten()  # of an image that is 0

    def loss(kind):
        settings = RegressionSettings(loss=kind)
        return regression_loss(settings)(answers_zero, batch, torch.Generator())[0].item()

    assert (loss("mse"), loss("huber")) == (100.0, 9.5)
