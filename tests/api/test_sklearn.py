"""ViTFeatures and ViTClassifier are estimators of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import vitreous as vt
from vitreous.models.vit import ViT
from vitreous.sklearn import ViTClassifier, ViTFeatures


def test_features_in_a_pipeline(model: ViT, pixels: NDArray[np.uint8], labels: list[str]) -> None:
    pipeline = make_pipeline(ViTFeatures(model), LogisticRegression())
    assert cross_val_score(pipeline, pixels, labels, cv=3).mean() > 0.9
    images = [Image.fromarray(image) for image in pixels]
    assert pipeline.fit(images, labels).score(images, labels) > 0.9
    np.testing.assert_allclose(pipeline[0].transform(images), vt.embed(model, pixels).values, atol=1e-5)


@pytest.mark.parametrize(
    "given",
    [
        list,
        np.array,
        pd.Series,
        lambda paths: np.array(paths)[:, None],
        lambda paths: pd.Series(paths, dtype="string"),
        lambda paths: pd.DataFrame({"path": paths, "age": range(len(paths))}),
        lambda paths: pd.DataFrame({"photo": paths}),
    ],
)
def test_paths_come_as_tables_have_them(model: ViT, photos: Path, given: Callable[[list[str]], Any]) -> None:
    paths = [str(path) for path in sorted(photos.rglob("*.png"))[:2]]
    rows = [paths[1], paths[0], paths[1]]
    features = ViTFeatures(model).fit(given(rows)).transform(given(rows))
    np.testing.assert_allclose(features, vt.embed(model, rows).values, atol=1e-5)


def test_rows_of_a_table_are_images() -> None:
    table, _ = load_digits(return_X_y=True)
    model = vt.create(
        "ViT-Ti/16", image_size=8, patch_size=4, channels=1, width=8, depth=1, heads=2, mlp_dim=8
    )
    features = ViTFeatures(model, image_shape=(8, 8)).fit_transform(table[:10])
    expected = vt.embed(model, (table[:10] / 16).reshape(-1, 8, 8)).values
    np.testing.assert_allclose(features, expected, atol=1e-5)
    with pytest.raises(vt.InputError, match="image_shape"):
        ViTFeatures(model, image_shape=(7, 8)).fit(table[:10])
    with pytest.raises(vt.InputError, match="a table of numbers"):
        ViTFeatures(model, image_shape=(8, 8)).fit(table[:10]).transform(np.zeros((2, 8, 8)))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("ViT-Ti/16", {"pooling": "class+mean"}),
        ("ViT-Ti/16", {"pooling": "class+distillation"}),
        ("ViT-Ti/16", {"representation_size": 24}),
        ("BiT-R50x1", {"layers": (1,), "width_factor": 0.5}),
    ],
)
def test_there_are_as_many_names_as_features(
    name: str, fields: dict[str, Any], pixels: NDArray[np.uint8]
) -> None:
    model = vt.create(name, image_size=32, num_classes=None, **fields)
    features = ViTFeatures(model).fit(pixels[:3])
    assert features.transform(pixels[:3]).shape == (3, len(features.get_feature_names_out()))


def test_a_torn_image_is_an_input_error(model: ViT, photos: Path) -> None:
    (photos / "torn.png").write_bytes(b"not an image")
    with pytest.raises(vt.InputError, match=r"torn\.png"):
        ViTFeatures(model).fit_transform([*photos.glob("*/*.png"), photos / "torn.png"])


@pytest.mark.slow
def test_features_pass_the_checks_of_scikit_learn(model: ViT, tmp_path: Path) -> None:
    vt.save(model, tmp_path / "model")
    checked = {"check_do_not_raise_errors_in_init_or_set_params": "the tests check types when they run"}
    results = check_estimator(
        ViTFeatures(str(tmp_path / "model")), on_skip=None, expected_failed_checks=checked
    )
    assert len(results) > 30
    assert {result["status"] for result in results} <= {"passed", "skipped", "xfail"}


TINY = {
    "model": {"width": 16, "depth": 1, "heads": 2, "mlp_dim": 16},
}


def test_a_classifier_learns(pixels: NDArray[np.uint8], labels: list[str]) -> None:
    classifier = ViTClassifier(image_size=16, epochs=20, settings={"model": TINY["model"]}, batch_size=8)
    classifier.fit(pixels, labels)
    assert list(classifier.classes_) == ["bright", "dark"]
    assert classifier.score(pixels, labels) > 0.8
    probabilities = classifier.predict_proba(pixels)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    with pytest.raises(ValueError, match="two classes"):
        classifier.fit(pixels, ["dark"] * len(pixels))


def test_a_classifier_that_is_not_fitted_says_so(pixels: NDArray[np.uint8]) -> None:
    for method in ("predict", "predict_proba"):
        with pytest.raises(NotFittedError):
            getattr(ViTClassifier(), method)(pixels)


@pytest.mark.slow
def test_a_classifier_passes_the_checks_of_scikit_learn() -> None:
    """But for those that ask for an accuracy on a table that is not of images, or that pickle a whole run."""
    settings = {"model": TINY["model"], "training": {"batch_size": 4, "length": "2 steps"}}
    unlike_images = "the rows are not images, and two steps of training are too few"
    results = check_estimator(
        ViTClassifier(image_size=16, settings=settings),
        on_skip=None,
        on_fail=None,
        expected_failed_checks={
            "check_classifiers_train": unlike_images,
            "check_classifiers_classes": unlike_images,
            "check_classifiers_one_label": "one class is refused",
            "check_classifiers_one_label_sample_weights": "one class is refused",
        },
    )
    failed = {each["check_name"]: each["exception"] for each in results if each["status"] == "failed"}
    assert not failed, failed
