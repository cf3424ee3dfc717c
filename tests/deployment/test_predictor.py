"""Files are classified as in training; what cannot be decoded is named and does not stop the others."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.data.image_list import image_list
from vitreous.deployment.classifier import ClassPredictor
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT


def make_model(classes: int | None = 3, labels: tuple[str, ...] | None = ("a", "b", "c")) -> ViT:
    config = ViTConfig(image_size=16, patch_size=8, width=8, depth=1, heads=2, mlp_dim=8, num_classes=classes)
    preprocessing = Preprocessing(size=(16, 16), crop_fraction=0.8, interpolation="bilinear")
    model = ViT(config, preprocessing=preprocessing, labels=labels)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images of several kinds, a torn one, and files that are none."""
    generator = np.random.default_rng(0)
    noise = Image.fromarray(generator.integers(0, 255, (40, 30, 3), dtype=np.uint8))
    (tmp_path / "inner").mkdir()
    noise.save(tmp_path / "one.png")
    noise.convert("L").save(tmp_path / "two.jpg")
    noise.rotate(90, expand=True).save(tmp_path / "inner" / "three.webp")
    torn = (tmp_path / "one.png").read_bytes()[:200]
    (tmp_path / "torn.png").write_bytes(torn)
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden.png").write_bytes(torn)
    return tmp_path


def test_predictions_are_what_the_models_own_preprocessing_gives(folder: Path) -> None:
    model = make_model().eval()
    paths = [folder / "one.png", folder / "inner" / "three.webp"]
    predictions = vt.predict(model, paths, top=3, batch_size=1, device="cpu")
    assert not predictions.failed
    with torch.no_grad():
        images = model.preprocessing([Image.open(path) for path in paths])
        expected = model(images).softmax(dim=-1)
    for path, prediction, row in zip(paths, predictions, expected, strict=True):
        assert prediction.path == str(path)
        assert prediction.label == "abc"[int(row.argmax())]
        # The loader resizes with torch, the preprocessing with Pillow: within 1 of 255.
        found = {choice.label: choice.probability for choice in prediction.top}
        np.testing.assert_allclose([found[label] for label in "abc"], row.numpy(), atol=5e-3)
        assert prediction.probability == max(found.values())


def test_a_torn_file_is_a_failure_and_the_others_are_classified(folder: Path) -> None:
    predictions = vt.predict(make_model(), folder, batch_size=2, device="cpu")
    assert [Path(each.path).name for each in predictions] == ["three.webp", "one.png", "torn.png", "two.jpg"]
    ((path, reason),) = predictions.failed.items()
    assert Path(path).name == "torn.png"
    assert "truncated" in reason
    torn = predictions[2]
    assert (torn.path, torn.error, torn.label, torn.top) == (path, reason, None, ())


def test_no_more_labels_than_there_are() -> None:
    predictor = ClassPredictor(make_model(classes=2, labels=None), top=5)
    (prediction,) = predictor(["a.png"], torch.zeros(1, 3, 16, 16))
    assert {choice.label for choice in prediction.top} == {"0", "1"}


def test_a_model_without_a_head_cannot_classify() -> None:
    with pytest.raises(InputError, match="no head"):
        ClassPredictor(make_model(classes=None, labels=None))


def test_folders_and_globs_mean_each_image_once_and_say_so(folder: Path) -> None:
    wanted = [folder / "two.jpg", folder / "*.png", folder / "**" / "*.webp", folder]
    with pytest.warns(UserWarning, match="4 images match several of the folders and globs"):
        found = image_list(wanted)
    assert [Path(str(each)).name for each in found.images] == ["two.jpg", "one.png", "torn.png", "three.webp"]
    assert not found.missing


def test_a_file_is_in_a_list_as_often_as_it_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    wanted = ["one.png", Path("one.png"), str(folder / "one.png"), "two.jpg", "./one.png"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert image_list(wanted).images == [str(each) for each in wanted]


def test_folders_are_found_through_links_each_once(folder: Path, tmp_path: Path) -> None:
    """As training reads them: without endless loops, and without the system's folders."""
    photos = tmp_path / "photos"
    (photos / "@eaDir").mkdir(parents=True)
    (photos / "@eaDir" / "thumb.jpg").write_bytes(b"")
    links = {"a": folder / "inner", "b": folder / "inner", "self": photos, "up": tmp_path, "knot": "knot"}
    for name, target in links.items():
        (photos / name).symlink_to(target)
    assert image_list(photos).images == [str(photos / "a" / "three.webp")]


def test_what_is_not_there_is_named(folder: Path) -> None:
    gone = str(folder / "gone.png")
    found = image_list([folder / "one.png", gone, None])
    assert [found.name(row) for row in range(3)] == [str(folder / "one.png"), gone, "row 3"]
    assert found.missing == {1: "no such file or folder", 2: "there is no path"}
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match=r"no image found.*gone.png.*folder without images"):
        image_list([gone, folder / "empty"])


def test_classes_that_are_asked_one_by_one_need_not_sum_to_one() -> None:
    model, images = make_model().eval(), torch.rand(2, 3, 16, 16)
    model.task = "multilabel"
    (first, _) = ClassPredictor(model)(["a.png", "b.png"], images)
    with torch.no_grad():
        expected = model(images)[0].sigmoid().sort(descending=True).values
    torch.testing.assert_close(torch.tensor([choice.probability for choice in first.top]), expected)


def test_the_number_of_labels_is_checked() -> None:
    model = vt.create("ViT-Ti/16", num_classes=3, image_size=32, depth=1)
    model.labels = ["cat", "dog"]
    with pytest.raises(InputError, match="3 outputs and 2 labels"):
        ClassPredictor(model)
