"""Features once and by content; neighbors, shots and the linear probe against slow or exact versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from vitreous.data.config import DataConfig
from vitreous.data.dataset import EVERY, ArrayImages, LabelTargets, RowSelection
from vitreous.data.sources import open_data
from vitreous.errors import InputError
from vitreous.evaluation.features import Features, cached_features, content_key, extract
from vitreous.evaluation.probes import (
    fewshot,
    knn_hits,
    linear_hits,
    probe,
    summary,
)
from vitreous.models.vit import ViT


@pytest.fixture
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))


def clusters(count: int, classes: int = 4, spread: float = 1.0, seed: int = 0) -> Features:
    """Points around one center for each class."""
    generator = np.random.default_rng(seed)
    centers = np.random.default_rng(99).normal(size=(classes, 12))
    targets = np.arange(count) % classes
    values = centers[targets] + spread * generator.normal(size=(count, 12))
    return Features(values.astype(np.float32), targets.astype(np.int64))


@pytest.mark.usefixtures("_own_cache")
def test_features_that_another_process_removes_from_the_cache_are_computed(
    images: ArrayImages, make_model: Callable[..., ViT], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    model = make_model()
    first = cached_features(model, images)
    for cached in (tmp_path / "features").iterdir():
        cached.unlink()
    np.testing.assert_array_equal(cached_features(model, images).values, first.values)


@pytest.mark.usefixtures("_own_cache")
def test_features_need_no_cache_that_can_be_written(
    images: ArrayImages, make_model: Callable[..., ViT], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "file"))
    assert len(cached_features(make_model(), images).values) == len(images)


def test_features_are_what_the_head_sees(images: ArrayImages, make_model: Callable[..., ViT]) -> None:
    model = make_model()
    found = extract(model, images, batch_size=4)
    batch = model.preprocessing([images.image(index) for index in range(len(images))])
    with torch.no_grad():
        expected = model.eval().features(batch)
    np.testing.assert_allclose(found.values, expected.numpy(), atol=2e-6)
    assert found.targets.tolist() == images.targets.strata().tolist()


@pytest.mark.usefixtures("_own_cache")
def test_features_are_extracted_once(images: ArrayImages, make_model: Callable[..., ViT]) -> None:
    model = make_model()
    first = cached_features(model, images)
    model.stem.register_forward_pre_hook(lambda *_: pytest.fail("extracted twice"))
    second = cached_features(model, images)
    np.testing.assert_array_equal(first.values, second.values)
    np.testing.assert_array_equal(first.targets, second.targets)


@pytest.mark.usefixtures("_own_cache")
def test_images_are_compared_in_full_precision_whatever_that_of_the_features(
    images: ArrayImages, make_model: Callable[..., ViT]
) -> None:
    class Watched(ArrayImages):
        def together(self, rows: RowSelection = EVERY) -> NDArray[np.int64]:
            assert not torch.is_autocast_enabled("cpu")
            return super().together(rows)

    watched = Watched(images.pixels, images.targets.strata(), images.classes, name="images")
    assert len(cached_features(make_model(), watched, precision="bf16").values) == len(images)


@pytest.mark.usefixtures("_own_cache")
def test_a_damaged_cache_is_made_again(
    images: ArrayImages, make_model: Callable[..., ViT], tmp_path: Path
) -> None:
    model = make_model()
    first = cached_features(model, images)
    (file,) = (tmp_path / "cache" / "features").iterdir()
    file.write_bytes(file.read_bytes()[:40])
    np.testing.assert_array_equal(cached_features(model, images).values, first.values)


def test_the_key_follows_weights_preprocessing_and_images(
    images: ArrayImages, make_model: Callable[..., ViT]
) -> None:
    model = make_model()
    keys = [content_key(model, images)]
    with torch.no_grad():
        model.prefix[0, 0] += 1e-3
    keys.append(content_key(model, images))
    model.preprocessing = model.preprocessing.model_copy(update={"interpolation": "bilinear"})
    keys.append(content_key(model, images))
    images.pixels[3, 0, 0] ^= 1
    keys.append(content_key(model, images))
    assert len(set(keys)) == 4
    assert content_key(model, images) == keys[-1]


def test_neighbors_vote_as_in_dino() -> None:
    train, test = clusters(60, spread=1.6), clusters(40, spread=1.6, seed=1)
    bank = train.values / np.linalg.norm(train.values, axis=1, keepdims=True)
    right = 0
    for query, target in zip(test.values, test.targets, strict=True):
        similarity = bank @ (query / np.linalg.norm(query))
        votes = np.zeros(4)
        for nearest in np.argsort(-similarity)[:20]:
            votes[train.targets[nearest]] += np.exp(similarity[nearest] / 0.07)
        right += votes.argmax() == target
    assert knn_hits(train, test, classes=4) == right
    assert 10 < right < 40


def test_more_neighbors_than_images_are_all_of_them() -> None:
    train, test = clusters(8, spread=0.1), clusters(8, spread=0.1, seed=1)
    assert knn_hits(train, test, classes=4) == 8


def test_probes_find_what_is_there() -> None:
    train, test = clusters(200, spread=0.3), clusters(80, spread=0.3, seed=1)
    assert linear_hits(train, test) == 80
    results = fewshot(train, test, classes=4)
    assert list(results) == [1, 5, 10, 25]
    assert results[25].mean == 1


def test_a_single_class_to_fit_is_the_answer() -> None:
    train, test = Features(np.eye(3, dtype=np.float32), np.zeros(3, dtype=np.int64)), clusters(8, spread=0.1)
    assert linear_hits(train, test) == 2


@pytest.mark.parametrize("counts", [(2, 1), (4, 1), (1, 1), (30, 2)])
def test_few_images_leave_no_class_out_of_the_fitting(counts: tuple[int, int]) -> None:
    targets = np.repeat([0, 1], counts)
    train = Features(np.eye(2, dtype=np.float32)[targets], targets)
    assert linear_hits(train, train) == len(targets)


def test_shots_that_a_class_has_not_are_left_out() -> None:
    train = clusters(32)
    assert list(fewshot(train, train, classes=4)) == [1, 5]
    with pytest.raises(InputError, match="8 training images"):
        fewshot(train, train, classes=4, shots=(25,))


def test_interval_over_draws_is_students() -> None:
    from scipy.stats import t

    mean, (low, high) = summary([0.5, 0.6, 0.7])
    assert mean == pytest.approx(0.6)
    half = t.ppf(0.975, 2) * 0.1 / 3**0.5
    assert (low, high) == pytest.approx((0.6 - half, 0.6 + half))
    assert summary([0.4]).interval == (0, 1), "one draw says nothing about the others"


@pytest.mark.usefixtures("_own_cache")
def test_a_whole_probe(make_model: Callable[..., ViT]) -> None:
    splits = open_data("digits", DataConfig())
    train, test = splits.train.subset(np.arange(300)), splits.test.subset(np.arange(100))
    splits = splits._replace(train=train, test=test)
    result = probe(make_model(), splits, shots=(1, 5), draws=2)
    found = result.to_json()
    assert found["fewshot"].keys() == {"1", "5"}
    assert found["fewshot"]["5"].keys() == {"mean", "interval"}
    assert found["test_count"] == 100
    assert 0.2 < found["knn"] <= 1
    assert 0.2 < found["linear"] <= 1
    again = probe(make_model(seed=1), splits, shots=(1,), draws=1)
    assert again.knn != result.knn, "other weights, other features"


def test_several_labels_cannot_be_probed(images: ArrayImages, make_model: Callable[..., ViT]) -> None:
    several = csr_array(np.eye(3, dtype=np.float32)[images.targets.strata()])
    images.targets = LabelTargets(several, images.classes)
    with pytest.raises(InputError, match="several labels"):
        extract(make_model(), images)
