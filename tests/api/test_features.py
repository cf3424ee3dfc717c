"""`embed` and `probe`: any form of images and data, features equal to the model's own, typed results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import vitreous as vt
from vitreous.cli import run
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.model import build_model
from vitreous.models.vit import ViT


def test_images_in_every_form_have_the_features_of_the_model(
    model: ViT, pixels: NDArray[np.uint8], tmp_path: Path
) -> None:
    paths = [tmp_path / f"{index}.png" for index in range(3)]
    for path, image in zip(paths, pixels, strict=False):
        Image.fromarray(image).save(path)
    with torch.no_grad():
        expected = model.features(model.preprocessing([Image.fromarray(each) for each in pixels[:3]]))
    forms = [
        paths,
        [str(path) for path in paths],
        [Image.open(path) for path in paths],
        pixels[:3],
        list(pixels[:3]),
        torch.from_numpy(pixels[:3]).permute(0, 3, 1, 2),
    ]
    for images in forms:
        embeddings = vt.embed(model, images, progress=False)
        np.testing.assert_allclose(embeddings.values, expected.numpy(), atol=1e-5)
    assert vt.embed(model, pixels[0]).values.shape == (1, 16)
    first = np.ascontiguousarray(pixels[0].transpose(2, 0, 1))
    assert vt.embed(model, torch.from_numpy(first)).values.shape == (1, 16)
    assert vt.embed(model, first).values.shape == (3, 16)  # gray images: arrays have their channels last
    assert vt.embed(model, paths).paths == tuple(map(str, paths))


def test_missing_folders_of_features_are_made(model: ViT, pixels: NDArray[np.uint8], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(vt.InputError, match="file is a file, not a folder"):
        vt.embed(model, "not looked at", out=tmp_path / "file" / "a.npz")
    assert vt.embed(model, pixels[:2]).save(tmp_path / "new" / "deep" / "a.npz").is_file()


def test_features_are_written_whole_or_not_at_all(
    model: ViT, pixels: NDArray[np.uint8], tmp_path: Path, full_disk: Any
) -> None:
    embeddings = vt.embed(model, pixels[:2])
    with full_disk(100), pytest.raises(vt.InputError, match="File too large"):
        embeddings.save(tmp_path / "a.npz")
    assert [*tmp_path.iterdir()] == []
    assert embeddings.save(tmp_path / "a.npz").is_file()


def test_embeddings_are_a_result(model: ViT, pixels: NDArray[np.uint8], tmp_path: Path) -> None:
    embeddings = vt.embed(model, pixels[:2])
    assert embeddings.to_json()["width"] == 16
    assert [row["path"] for row in embeddings.table()] == ["image[0]", "image[1]"]
    assert "feature_15" in embeddings._repr_html_()
    stored = np.load(embeddings.save(tmp_path / "features.npz"))
    np.testing.assert_array_equal(stored["features"], embeddings.values)
    with pytest.raises(vt.InputError, match="already exists"):
        embeddings.save(tmp_path / "features.npz")
    with pytest.raises(vt.InputError, match=r"npz or \.parquet"):
        embeddings.save(tmp_path / "features.csv")


def test_the_command_writes_the_same(
    model: ViT, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vt.save(model, tmp_path / "model")
    (photos / "dark" / "torn.png").write_bytes(b"not an image")
    assert run(["embed", str(tmp_path / "model"), str(photos), "--out", "all.parquet"]) == 1, "one is torn"
    captured = capsys.readouterr()
    assert "25 images, 16 features" in captured.out
    assert "torn.png" in captured.err
    from pyarrow import parquet

    table = parquet.read_table("all.parquet")
    found = vt.embed(model, photos)
    np.testing.assert_allclose(np.array(table["features"].to_pylist()), found.values, atol=1e-5)
    torn = [Path(each).name for each in found.paths].index("torn.png")
    assert np.isnan(found.values).all(axis=1).nonzero()[0].tolist() == [torn]


@pytest.mark.parametrize("images", [[], [1, 2], "gone.png", np.full((4, 4, 3), 3.0)])
def test_what_is_not_an_image_is_an_input_error(model: ViT, images: object) -> None:
    with pytest.raises(vt.InputError):
        vt.embed(model, images)


def test_probe_takes_data_in_memory(model: ViT, pixels: NDArray[np.uint8], labels: list[str]) -> None:
    result = vt.probe(model, (pixels, labels), shots=[1], progress=False)
    assert 2 <= result.test_count <= 8
    assert result.table()[0]["probe"] == "linear, 1 of each class"


def test_a_data_frame(model: ViT, pixels: NDArray[np.uint8]) -> None:
    pytest.importorskip("pandas", reason="the package pandas is not installed")
    frame = vt.embed(model, pixels[:2]).to_dataframe()
    assert list(frame.columns) == ["path", *(f"feature_{column}" for column in range(16))]


def test_probe_takes_the_data_of_a_run(tmp_path: Path, model: ViT, photos: Path) -> None:
    from vitreous.training.config import RunConfig
    from vitreous.training.run import RunDirectory

    config = RunConfig(source=str(photos), model=model.config, preprocessing=model.preprocessing)
    made = RunDirectory.create(tmp_path / "run", config)
    made.save_model(model)
    assert vt.probe(made.path, shots=[1], progress=False).data == str(photos)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["segmentation", "regression"])
def test_a_run_without_classes_of_images_is_not_probed_on_its_own_data(tmp_path: Path, task: str) -> None:
    """The folders images/ and masks/ are not two classes."""
    from vitreous.tasks import task_named
    from vitreous.training.run import RunDirectory

    config = task_named(task).config(source=str(tmp_path))
    made = RunDirectory.create(tmp_path / "run", config)
    model = build_model(config.model, preprocessing=config.prepared)
    model.task = task
    made.save_model(model)
    with pytest.raises(vt.InputError, match=f"`task` {task}, .* name the data to probe it on"):
        vt.probe(made.path, progress=False)


def test_int8_of_a_pre_trained_encoder_is_calibrated_on_its_own_data(tmp_path: Path, photos: Path) -> None:
    from vitreous.tasks.pretraining.rules import MAERunConfig
    from vitreous.training.run import RunDirectory

    fields = {"width": 16, "depth": 1, "heads": 2, "mlp_dim": 16, "image_size": 16, "num_classes": None}
    model = build_model(ViTConfig(**fields))
    model.task = "mae"
    shown = {"model": model.config, "preprocessing": model.preprocessing}
    made = RunDirectory.create(tmp_path / "run", MAERunConfig(source=str(photos), **shown))
    made.save_model(model)
    with pytest.raises(vt.InputError, match="trained without a validation set"):
        vt.export(made.path, tmp_path / "encoder.onnx", precision="int8", progress=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_model_of_another_type_computes_in_it(
    dtype: torch.dtype, task: str, pixels: NDArray[np.uint8]
) -> None:
    size: Any = {"image_size": 16, "patch_size": 8, "width": 16, "depth": 1, "heads": 2, "mlp_dim": 16}
    model = vt.create("ViT-Ti/16", **size, num_classes=1 if task == "regression" else 2)
    model.task = task
    images = [Image.fromarray(each) for each in pixels[:3]]
    before = vt.embed(model, images, progress=False).values
    answers = [answer.to_json() for answer in vt.predict(model, images, progress=False)]
    own = model.to(dtype)
    np.testing.assert_allclose(vt.embed(own, images, progress=False).values, before, atol=0.1)
    assert [answer.to_json().keys() for answer in vt.predict(own, images, progress=False)] == [
        answer.keys() for answer in answers
    ]
    assert vt.describe(own).parameters == sum(each.numel() for each in own.parameters())
    assert np.isfinite(vt.attribute(own, images[0]).maps["relevance"]).all()
    with pytest.raises(InputError, match="is for float32 weights, and the model has"):
        vt.predict(own, images, precision="fp32", progress=False)
    assert all(each.dtype == dtype for each in own.parameters())


def test_a_residual_network_of_another_type_computes_in_it(pixels: NDArray[np.uint8]) -> None:
    model = vt.create("BiT-R50x1", layers=(1, 1, 1, 1), num_classes=2, image_size=32).half()
    assert vt.embed(model, list(pixels[:2]), progress=False).values.dtype == np.float32


def test_one_sentence_names_the_best_encoder_at_hand(
    pixels: NDArray[np.uint8], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever this machine has."""
    Image.fromarray(pixels[0]).save(tmp_path / "one.png")
    vt.embed("vitreous:best", tmp_path / "one.png", progress=False)
    first, *others = capsys.readouterr().err.splitlines()
    assert not [line for line in others if "encoder:" in line]
    name = first.removeprefix("vitreous: encoder: ").partition(" (")[0]
    embedded = vt.embed(name, tmp_path / "one.png", progress=False)
    capsys.readouterr()
    out = tmp_path / "one.npz"
    assert run(["embed", "vitreous:best", str(tmp_path / "one.png"), "--out", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["model"] == name
    assert printed.err.count(first) == 1
    np.testing.assert_allclose(np.load(out)["features"], embedded.values, atol=1e-5)
