"""Every image is judged exactly once, in the model's own classes."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from pydantic_core import to_json
from scipy.sparse import csr_array
from scipy.special import softmax

from vitreous.data.dataset import ArrayImages, LabelTargets
from vitreous.errors import InputError
from vitreous.evaluation.calibration import scale_head
from vitreous.evaluation.classification import evaluate_classification, label_evaluation
from vitreous.evaluation.outputs import compute_outputs
from vitreous.evaluation.scores import average_precision, calibration_of
from vitreous.models.vit import ViT

LABELS = ("dark", "middle", "bright")


@pytest.mark.parametrize("batch_size", [1, 4, 31, 64])
def test_every_image_once(images: ArrayImages, make_model: Callable[..., ViT], batch_size: int) -> None:
    model = make_model().train()
    seen = []
    evaluation = evaluate_classification(
        model, images, batch_size=batch_size, progress=lambda done, total: seen.append((done, total))
    )
    assert evaluation.indices.tolist() == list(range(31))
    assert seen[-1] == (31, 31)
    assert model.training, "the model's mode is given back"
    batch = model.preprocessing([images.image(i) for i in range(31)])
    with torch.no_grad():
        expected = model.eval()(batch).softmax(dim=-1).numpy()
    np.testing.assert_allclose(evaluation.probabilities, expected, atol=2e-6)
    assert evaluation.accuracy == (expected.argmax(axis=1) == images.targets.strata()).mean()
    assert evaluation.confusion.sum() == 31
    low, high = evaluation.interval
    assert low < evaluation.accuracy < high


def test_an_image_that_is_torn_is_named_and_left_out(
    images: ArrayImages, make_model: Callable[..., ViT]
) -> None:
    images.bad = (0, 7)  # type: ignore[attr-defined]
    evaluation = evaluate_classification(make_model(), images, batch_size=4)
    assert evaluation.count == 29
    assert dict(evaluation.failed) == {"made[0]": "torn", "made[7]": "torn"}
    assert evaluation.names[0] == "made[1]"
    assert evaluation.targets.tolist() == [i % 3 for i in range(31) if i not in (0, 7)]


def test_nothing_but_torn_images_is_an_error(images: ArrayImages, make_model: Callable[..., ViT]) -> None:
    images.bad = tuple(range(31))  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"none of the 31 images can be read: made\[0\]: torn"):
        evaluate_classification(make_model(), images)


def test_classes_are_matched_by_name_not_by_number(
    images: ArrayImages, make_model: Callable[..., ViT]
) -> None:
    model = make_model()
    straight = evaluate_classification(model, images)
    order = np.array([2, 0, 1])  # the data number their classes in another order
    other = ArrayImages(
        images.pixels, order[images.targets.strata()], ("middle", "bright", "dark"), name="other"
    )
    turned = evaluate_classification(model, other)
    assert turned.classes == straight.classes == ("dark", "middle", "bright")
    assert turned.targets.tolist() == straight.targets.tolist()
    assert turned.accuracy == straight.accuracy


def test_some_of_the_models_classes_are_enough(images: ArrayImages, make_model: Callable[..., ViT]) -> None:
    bright = np.flatnonzero(images.targets.strata() == 2)
    few = ArrayImages(images.pixels[bright], np.zeros(len(bright), np.int64), ("bright",), name="few")
    evaluation = evaluate_classification(make_model(), few)
    assert set(evaluation.targets) == {2}
    assert evaluation.confusion.shape == (3, 3)


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        (("dark", "middle", "light"), 3, "does not know 'bright'"),
        (None, 4, "3 classes, and the model has 4"),
        (None, None, "no head"),
    ],
)
def test_other_classes_are_an_error(
    images: ArrayImages,
    make_model: Callable[..., ViT],
    labels: tuple[str, ...] | None,
    classes: int | None,
    message: str,
) -> None:
    with pytest.raises(InputError, match=message):
        evaluate_classification(make_model(labels, classes), images)


def test_confident_mistakes_come_first(images: ArrayImages, make_model: Callable[..., ViT]) -> None:
    evaluation = evaluate_classification(make_model(), images)
    mistakes = evaluation.confident_mistakes(100)
    assert len(mistakes) == int((~evaluation.correct).sum()) > 3
    assert [m.probability for m in mistakes] == sorted((m.probability for m in mistakes), reverse=True)
    first = mistakes[0]
    assert first.actual == images.label(first.index) != first.predicted
    assert first.name == f"made[{first.index}]"


def test_json_has_the_contracts_keys(images: ArrayImages, make_model: Callable[..., ViT]) -> None:
    result = json.loads(to_json(evaluate_classification(make_model(), images).to_json(), inf_nan_mode="null"))
    assert {"test_accuracy", "test_accuracy_interval", "test_count", "seconds"} <= result.keys()
    assert {"per_class", "confusion", "calibration"} <= result.keys()
    assert "test_top5_accuracy" not in result, "of three classes the best five say nothing"
    assert {"task", "metrics", "count", "failed"} <= result.keys()
    accuracy = {"value": result["test_accuracy"], "interval": result["test_accuracy_interval"]}
    assert result["metrics"]["accuracy"] == accuracy
    assert len(result["calibration"]["bins"]) == 15
    assert sum(map(sum, result["confusion"])) == result["test_count"] == 31


def test_of_many_classes_no_image_keeps_all_probabilities(
    images: ArrayImages, make_model: Callable[..., ViT]
) -> None:
    """The same metrics as from all probabilities, with a temperature, in batches."""
    labels = (*LABELS, *(f"other {number}" for number in range(1198)))
    model = make_model(labels, len(labels)).eval()
    scale_head(model, 0.4)
    found = evaluate_classification(model, images, batch_size=4)
    assert found.probabilities is None
    with torch.no_grad():
        logits = model(model.preprocessing([images.image(row) for row in range(31)])).numpy()
    p, rows = softmax(logits, axis=1), np.arange(31)
    assert found.predictions.tolist() == p.argmax(axis=1).tolist()
    np.testing.assert_allclose(found.answers().loss, -np.log(p[rows, images.targets.strata()]), rtol=1e-4)
    np.testing.assert_allclose(found.confidence, p.max(axis=1), rtol=1e-4)
    first = np.argsort(-p, axis=1)[:, :5]
    assert found.top5_accuracy == (first == images.targets.strata()[:, None]).any(axis=1).mean()
    assert found.calibration.ece == pytest.approx(calibration_of(p.max(axis=1), found.correct).ece, rel=1e-4)
    before = softmax(logits * 0.4, axis=1).max(axis=1)
    assert found.uncalibrated_error == pytest.approx(calibration_of(before, found.correct).ece, rel=1e-4)
    some = found.subset([3, 1])
    assert some.predictions.tolist() == found.predictions[[3, 1]].tolist()
    outputs = compute_outputs(model, images, batch_size=4)
    again = label_evaluation(labels, images, outputs, model.temperature).to_json()
    assert json.dumps(again) == json.dumps({**found.to_json(), "seconds": outputs.seconds})


def test_several_labels_are_scored_by_average_precision(
    images: ArrayImages, make_model: Callable[..., ViT]
) -> None:
    from sklearn.metrics import average_precision_score

    several = np.eye(3, dtype=np.float32)[images.targets.strata()]
    several[::5] = 1
    images.targets = LabelTargets(csr_array(several), images.classes)
    evaluation = evaluate_classification(make_model(), images)
    expected = [average_precision_score(several[:, k], evaluation.probabilities[:, k]) for k in range(3)]
    assert evaluation.average_precision == pytest.approx(expected)
    assert evaluation.mean_average_precision == pytest.approx(np.mean(expected))
    interval = evaluation.metrics["mean_average_precision"].interval
    assert interval is not None
    assert interval.low < np.mean(expected) < interval.high
    assert evaluation.to_json()["per_class"][1]["support"] == several[:, 1].sum()


def test_of_many_labels_nothing_grows_with_images_times_classes(
    images: ArrayImages, make_model: Callable[..., ViT]
) -> None:
    """The same metrics as from all logits, rounded to levels, with a temperature, in batches."""
    labels = ("other", *LABELS, *(f"other {number}" for number in range(1198)))
    model = make_model(labels, len(labels)).eval()
    several = np.eye(3, dtype=np.float32)[images.targets.strata()]
    several[::5], several[3] = 1, 0
    images.targets = LabelTargets(csr_array(several), images.classes)
    scale_head(model, 0.4)
    found = evaluate_classification(model, images, batch_size=4)
    with torch.no_grad():
        logits = model(model.preprocessing([images.image(row) for row in range(31)])).numpy()
    known = np.zeros_like(logits)
    known[:, [labels.index(name) for name in images.classes]] = several
    rounded = np.round(logits * 16) / 16
    columns = zip(known.T, rounded.T, strict=True)
    np.testing.assert_allclose(found.average_precision, [average_precision(*each) for each in columns])
    for scale, error in ((1.0, found.calibration.ece), (0.4, found.uncalibrated_error)):
        p = 1 / (1 + np.exp(-rounded * scale))
        assert error == pytest.approx(calibration_of(p.ravel(), known.ravel()).ece, rel=1e-4)
    assert found.to_json()["per_class"][labels.index("dark")]["support"] == several[:, 0].sum()
    assert found.without_learning[1]["chance"] == pytest.approx(several.mean())
    assert found.probabilities is None
    assert found.targets.nnz == several.sum()
    assert found.answers() is found.scores() is None
    assert np.isnan(found.subset([3, 1]).mean_average_precision)
    again = evaluate_classification(model, images, batch_size=31)
    assert json.dumps({**again.to_json(), "seconds": 0}) == json.dumps({**found.to_json(), "seconds": 0})
