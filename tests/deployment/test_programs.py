"""An exported file is a MODEL: it predicts, evaluates, embeds and is computed by its own engine."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.cli import run
from vitreous.deployment.programs import open_exported
from vitreous.deployment.torchless import probabilities
from vitreous.errors import InputError
from vitreous.evaluation.calibration import scale_head

ENDINGS = (".onnx", ".pt2")


def tiny(**more: Any) -> Any:
    config = {"image_size": 16, "patch_size": 8, "width": 16, "depth": 1, "heads": 2, "mlp_dim": 16}
    model = vt.ViT(
        vt.ViTConfig(**{**config, "num_classes": 3, **more}),  # type: ignore[arg-type]
        preprocessing=vt.Preprocessing(size=(16, 16)),
        labels=["ant", "bee", "cat"],
        task="classification",
        seed=1,
    )
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same model as a folder and as programs, and images of its classes."""
    place = tmp_path_factory.mktemp("engines")
    model = tiny()
    found = {"": place / "model"}
    vt.save(model, found[""])
    for ending in ENDINGS:
        found[ending] = place / f"model{ending}"
        vt.export(model, found[ending], progress=False)
    generator = np.random.default_rng(0)
    for label in ("ant", "bee", "cat"):
        (place / "photos" / label).mkdir(parents=True)
        for number in range(3):
            pixels = generator.integers(0, 255, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / "photos" / label / f"{number}.png")
    return {**found, "photos": place / "photos"}


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_answers_as_its_model(files: dict[str, Path], ending: str) -> None:
    photos = str(files["photos"] / "*" / "*.png")
    expected = vt.predict(files[""], photos, top=3, progress=False)
    found = vt.predict(files[ending], photos, top=3, progress=False)
    assert [each.label for each in found] == [each.label for each in expected]
    assert [each.probability for each in found] == pytest.approx(
        [each.probability for each in expected], abs=1e-4
    )
    ours, theirs = (vt.evaluate(files[key], files["photos"], progress=False) for key in ("", ending))
    assert theirs.accuracy == ours.accuracy
    features = [vt.embed(files[key], photos, progress=False).values for key in ("", ending)]
    np.testing.assert_allclose(features[1], features[0], atol=1e-3)


@pytest.mark.parametrize("ending", [".onnx", pytest.param(".pt2", marks=pytest.mark.slow)])
def test_images_of_a_generator_are_read_once(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    photos = sorted(files["photos"].glob("*/*.png"))
    for many in (400, 5):
        monkeypatch.setattr("vitreous.deployment.torchless.MANY", many)  # fewer, or more
        found = vt.predict(files[ending], iter([*photos, Path("nowhere.png")]), progress=False)
        assert [each.path for each in found] == [*map(str, photos), "nowhere.png"]
        assert list(found.failed) == ["nowhere.png"]


def test_urls_without_torch(files: dict[str, Path]) -> None:
    photo = next(files["photos"].glob("*/*.png"))
    found = vt.predict(files[".onnx"], [photo.as_uri(), "file:///nowhere.png"], progress=False)
    assert found[0].probability == vt.predict(files[".onnx"], photo, progress=False)[0].probability
    assert list(found.failed) == ["file:///nowhere.png"]


def test_an_exported_file_answers_without_importing_torch(files: dict[str, Path]) -> None:
    photo = next(files["photos"].glob("*/*.png"))
    code = (
        "import sys\n"
        "from vitreous.cli import run\n"
        f"assert run(['predict', {str(files['.onnx'])!r}, {str(photo)!r}]) == 0\n"
        "assert not {'torch', 'matplotlib', 'sklearn'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_a_program_with_preprocessing_answers_any_number_of_images(
    files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    vt.export(files[""], tmp_path / "pixels.onnx", with_preprocessing=True, progress=False)
    program, photos = str(tmp_path / "pixels.onnx"), str(files["photos"])
    monkeypatch.setattr("vitreous.deployment.torchless.MANY", 5)  # nine are many
    assert len(vt.predict(program, photos, precision="fp32", progress=False)) == 9
    assert run(["predict", program, photos, "--threshold", "0.5"]) == 2
    assert "--threshold, --out and commands other than" in capsys.readouterr().err


def test_probabilities_of_large_logits_do_not_overflow(files: dict[str, Path]) -> None:
    opened = open_exported(files[".onnx"])
    logits = np.array([[-200.0, 0.0, 200.0]], dtype=np.float32)
    metadata = {**opened.metadata, "task": "multilabel"}
    with warnings.catch_warnings(action="error"):
        found = probabilities(
            opened._replace(metadata=metadata, compute=lambda *_: [logits]),
            [np.zeros((3, 16, 16), np.float32)],
        )
    np.testing.assert_allclose(found, [[0.0, 0.5, 1.0]], atol=1e-7)


@pytest.mark.parametrize("size", [0, -1])
def test_batches_have_an_image(files: dict[str, Path], size: int) -> None:
    photo = next(files["photos"].glob("*/*.png"))
    calls: list[Callable[..., Any]] = [
        partial(vt.predict, files[".onnx"], photo, progress=False),
        partial(vt.predict, files[""], photo, progress=False),
        partial(vt.embed, files[""], photo, progress=False),
        partial(vt.evaluate, files[""], files["photos"], progress=False),
        partial(vt.calibrate, files[""], files["photos"], progress=False),
        partial(vt.translate, files[""], "word"),
        partial(vt.describe, "ViT-Ti/16"),
    ]
    for call in calls:
        with pytest.raises(InputError, match=f"`batch_size` is {size}: pass at least 1"):
            call(batch_size=size)


@pytest.mark.parametrize("command", ["predict", "embed"])
def test_an_empty_path_is_not_all_images_below(
    files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    monkeypatch.chdir(files["photos"])
    for ending, out in (("", "features.npz"), (".onnx", "features.npz"), ("", "folder")):
        more = ["--out", str(tmp_path / out)] if command == "embed" or out == "folder" else []
        assert run([command, str(files[ending]), "", *more]) == 2
        assert "is a variable not set?" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def kinds_and_endings() -> list[Any]:
    """Every kind with every engine; those of ONNX Runtime run in `make test`."""
    return [
        pytest.param(
            kind, ending, marks=() if ending == ".onnx" and kind != "regression" else pytest.mark.slow
        )
        for kind in ("calibrated", "multilabel", "regression")
        for ending in (*ENDINGS, "-openvino")
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "ending"), kinds_and_endings())
def test_numbers_are_those_of_the_model(
    files: dict[str, Path], tmp_path: Path, kind: str, ending: str
) -> None:
    """Probabilities with a temperature, of several labels for an image, and numbers: by the engine alone, by
    the engine in the place of a model (with a threshold; in an evaluation), and by the model."""
    if ending == "-openvino":
        pytest.importorskip("openvino")
    model = tiny(num_classes=1) if kind == "regression" else tiny()
    if kind == "regression":
        model.task, model.labels = "regression", None
    elif kind == "multilabel":
        model.task = "multilabel"
    else:
        scale_head(model, 2.5)
    vt.save(model, tmp_path / "model")
    vt.export(tmp_path / "model", tmp_path / f"exported{ending}", progress=False)
    images = str(files["photos"] / "*" / "*.png")
    for threshold in (None, 0.4) if kind == "multilabel" else (None,):
        expected, found = (
            vt.predict(path, images, threshold=threshold, progress=False)
            for path in (tmp_path / "model", tmp_path / f"exported{ending}")
        )
        assert len(found) == len(expected) == 9
        for ours, theirs in zip(expected, found, strict=True):
            if kind == "regression":
                assert theirs.value == pytest.approx(ours.value, abs=1e-4)
                continue
            assert {each.label: each.probability for each in theirs.top} == pytest.approx(
                {each.label: each.probability for each in ours.top}, abs=1e-5
            )
            assert theirs.labels == ours.labels
    if kind == "calibrated":
        evaluated = [
            vt.evaluate(path, files["photos"], progress=False)
            for path in (tmp_path / "model", tmp_path / f"exported{ending}")
        ]
        errors = [each.calibration.ece for each in evaluated]
        assert errors[1] == pytest.approx(errors[0], abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["predict", "{onnx}", "{image}", "--precision", "bf16"],
            "runs in the precision it was exported in",
        ),
        (["predict", "{onnx}", "{image}", "--image-size", "32"], "whose image_size is fixed"),
        (["describe", "{pt2}"], "describe needs weights"),
        (["inspect", "{pt2}"], "inspect needs weights"),
        (["convert", "{onnx}", "elsewhere"], "convert needs weights"),
        (["export", "{onnx}", "--out", "again.pt2"], "export needs weights"),
        (["predict", "{torn}", "{image}"], "is not a program that can be run"),
        (["predict", "{foreign}", "{image}"], "does not describe its model"),
    ],
)
def test_what_a_program_cannot_do(
    files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    import onnx

    monkeypatch.chdir(tmp_path)
    (tmp_path / "torn.onnx").write_bytes(files[".onnx"].read_bytes()[:500])
    foreign = onnx.load(files[".onnx"])
    del foreign.metadata_props[:]
    onnx.save(foreign, tmp_path / "foreign.onnx")
    names = {
        "onnx": files[".onnx"],
        "pt2": files[".pt2"],
        "torn": "torn.onnx",
        "foreign": "foreign.onnx",
        "image": next(files["photos"].glob("*/*.png")),
    }
    assert run([each.format(**names) for each in arguments]) == 2
    assert words in capsys.readouterr().err


def test_the_command_line_takes_a_program(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    image = str(next(files["photos"].glob("*/*.png")))
    assert run(["predict", str(files[".onnx"]), image, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictions"][0]["label"] in ("ant", "bee", "cat")
