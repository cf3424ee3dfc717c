"""Exported programs compute what the model computes, run by their own engines."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from torch import nn

import vitreous as vt
from vitreous.addons.segmentation.model import SegmenterConfig
from vitreous.checkpoints.saving import largest_difference
from vitreous.cli import run
from vitreous.data.image_list import ImageList
from vitreous.deployment import export as exporting
from vitreous.deployment.export import calibration_images, export
from vitreous.deployment.programs import open_image_model
from vitreous.errors import InputError
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.ensemble import (
    DescribedConfig,
    EnsembleConfig,
    KernelConfig,
    KernelRidgeConfig,
    LinearConfig,
    MemberConfig,
    NetworkConfig,
)
from vitreous.models.model import Model, build_model
from vitreous.models.preprocessing import Preprocessing

TINY: dict[str, Any] = {
    "image_size": 16,
    "patch_size": 8,
    "width": 16,
    "depth": 1,
    "heads": 2,
    "mlp_dim": 24,
    "num_classes": 3,
}
RESNET = {"kind": "resnet", "layers": (1,), "width_factor": 0.5}
CONFIGS = {
    "plain": vt.ViTConfig(**TINY),
    "no head, oblong": vt.ViTConfig(**{**TINY, "num_classes": None, "image_size": (16, 24)}),
    "hybrid, relative, registers, mean": vt.ViTConfig(
        **{
            **TINY,
            "image_size": 32,
            "patch_size": 16,
            "stem": RESNET,
            "position": {"kind": "relative"},
            "registers": 2,
            "pooling": "mean",
            "class_token": False,
        }
    ),
    "padded, distilled": vt.ViTConfig(
        **{
            **TINY,
            "image_size": (14, 20),
            "edge": "pad",
            "pooling": "class+distillation",
        }
    ),
    "BiT": BiTConfig(num_classes=3, image_size=(32, 32), layers=(1, 1), width_factor=0.5),
    "Segmenter": SegmenterConfig(**TINY, decoder_depth=1),
}


def model_of(kind: str) -> Model:
    torch.manual_seed(0)
    config = CONFIGS[kind]
    model = build_model(config, labels=("cat", "dog", "Vögel") if config.num_classes else None)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model.eval()


def some(*fast: str) -> list[Any]:
    """All kinds of models; those that are not named run with `make test-slow`: a program takes seconds."""
    return [pytest.param(kind, marks=() if kind in fast else pytest.mark.slow) for kind in CONFIGS]


@pytest.mark.parametrize("kind", some("plain", "no head, oblong", "padded, distilled", "BiT"))
def test_torch_programs(kind: str, tmp_path: Path) -> None:
    model = model_of(kind)
    written = export(model, tmp_path / "model.pt2")
    told = {"labels.json": "", "preprocessing.json": ""}
    program = torch.export.load(written.path, extra_files=told).module()
    images = torch.randn(4, model.config.channels, *model.config.image_size)
    torch.testing.assert_close(program(images)[0], model(images), atol=1e-5, rtol=1e-5)
    assert json.loads(told["labels.json"]) == (["cat", "dog", "Vögel"] if model.config.num_classes else None)
    assert json.loads(told["preprocessing.json"])["size"] == list(model.preprocessing.size)


@pytest.mark.slow
def test_torch_programs_in_int8(tmp_path: Path) -> None:
    """Weights and products are of int8, without images to calibrate on."""
    model = model_of("plain")
    written = export(model, tmp_path / "small.pt2", precision="int8")
    program = torch.export.load(written.path)
    stored = {name: each.dtype for name, each in program.state_dict.items()}
    assert sum(each == torch.int8 for each in stored.values()) == 5  # four in the layer, and the head
    for count in (1, 4):
        images = torch.randn(count, 3, 16, 16)
        with torch.no_grad():
            difference = (program.module()(images)[0] - model(images)).abs().max()
        assert 0 < difference < 0.03 * model(images).abs().max()
    assert 0 < written.max_abs_difference < 0.5
    with pytest.raises(InputError, match="int8 is for linear layers, but the model has none"):
        export(model_of("BiT"), tmp_path / "bit.pt2", precision="int8")
    with pytest.raises(
        InputError, match="`data` calibrates a lower precision, and has no effect on torch in int8"
    ):
        vt.export(model, tmp_path / "x.pt2", precision="int8", data="digits", progress=False)


def numbers_model() -> Model:
    """A regression whose numbers are far from zero."""
    model = build_model(vt.ViTConfig(**{**TINY, "num_classes": 1}), task="regression")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    nn.init.constant_(model.get_parameter("head.bias"), 1000.0)
    return model.eval()


@pytest.mark.slow
def test_the_head_of_a_regression_is_not_int8(tmp_path: Path) -> None:
    written = export(numbers_model(), tmp_path / "small.pt2", precision="int8")
    stored = torch.export.load(written.path).state_dict
    assert {name for name in stored if ".head." in name} == {"model.head.weight", "model.head.bias"}
    assert stored["model.head.weight"].dtype == torch.float32
    assert sum(each.dtype == torch.int8 for each in stored.values()) == 4


@pytest.mark.parametrize("name", ["x.pt2", "x-openvino"])
def test_the_command_replaces_nothing(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vt.save(model_of("plain"), tmp_path / "mine")
    taken = tmp_path / name / "model.xml" if name == "x-openvino" else tmp_path / name
    taken.parent.mkdir(exist_ok=True)
    taken.write_text("mine")
    assert run(["export", str(tmp_path / "mine"), "--out", str(tmp_path / name)]) == 2
    assert f"{name} already exists, and is not overwritten" in capsys.readouterr().err
    assert taken.read_text() == "mine"


@pytest.mark.parametrize("kind", some("plain"))
def test_onnx_programs(kind: str, tmp_path: Path) -> None:
    model = model_of(kind)
    written = export(model, tmp_path / "model.onnx")
    assert written.bytes == written.path.stat().st_size
    onnx.checker.check_model(written.path)
    session = onnxruntime.InferenceSession(written.path)
    for count in (1, 5):
        images = torch.randn(count, model.config.channels, *model.config.image_size)
        logits, *features = session.run(None, {"images": images.numpy()})
        np.testing.assert_allclose(logits, model(images).detach(), atol=1e-4)
        if kind != "Segmenter":
            np.testing.assert_allclose(features[0], model.features(images).detach(), atol=1e-4)
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["labels"]) == (["cat", "dog", "Vögel"] if model.config.num_classes else None)
    assert json.loads(about["task"]) == model.task
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]
    if kind == "Segmenter":
        with pytest.raises(InputError, match="exported Segmenter"):
            open_image_model(written.path)


class OtherwiseExported(torch.nn.Linear):
    """A layer that computes something else where it is exported."""

    change: float

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found = super().forward(inputs)
        return found + self.change if torch.compiler.is_exporting() else found


def otherwise_exported(change: float) -> Any:
    model = model_of("plain")
    model.head.__class__, model.head.change = OtherwiseExported, change
    return model


@pytest.mark.parametrize("suffix", [".onnx", ".pt2", ".safetensors"])
def test_labels_of_other_outputs_are_not_written(suffix: str, tmp_path: Path) -> None:
    model = vt.create("ViT-Ti/16", **TINY)
    model.labels = ("cat", "dog")
    with pytest.raises(InputError, match=r"3 outputs and 2 labels: set model.labels"):
        vt.export(model, out=tmp_path / f"model{suffix}", progress=False)
    assert not list(tmp_path.iterdir())


def test_a_program_that_computes_something_else_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"differs from the model by 1.0e-02 .* nothing is written"):
        export(otherwise_exported(1e-2), tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_program_that_gives_nan_is_not_written(tmp_path: Path, precision: str) -> None:
    with pytest.raises(InputError, match=r"differs from the model by inf .* nothing is written"):
        export(otherwise_exported(math.nan), tmp_path / "model.pt2", precision=precision)
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_its_engine_cannot_run_is_a_sentence() -> None:
    def fails(images: object) -> Any:
        raise RuntimeError("QLinearConv: input zero point\nmust be a scalar")

    outputs = exporting.ExportedOutputs(model_of("plain"))
    with pytest.raises(
        InputError, match=r"cannot be run, .* \(QLinearConv: input zero point must be a scalar\)"
    ):
        exporting.checked(outputs, fails)


def test_differences_of_numbers_that_are_not_finite() -> None:
    one = torch.tensor([1.0, float("nan"), float("inf")])
    assert largest_difference([one, one], [one, one]) == (0.0, 1.0)
    for place in range(3):
        other = one.clone()
        other[place] = 7.0 if place else float("nan")
        assert largest_difference([one, one], [one, other])[0] == float("inf")
        assert largest_difference([other, one], [one, one])[0] == float("inf")
    assert largest_difference([torch.tensor([3.0])], [torch.tensor([5.0])]) == (2.0, 3.0)


def test_a_model_stays_in_its_mode(tmp_path: Path) -> None:
    """Also a part that has another one: frozen layers, for example."""
    model = model_of("plain").train()
    model.head.eval()
    vt.export(model, tmp_path / "model.pt2", progress=False)
    vt.predict(model, [np.zeros((16, 16, 3), np.uint8)], progress=False)
    vt.predict(model, [np.zeros((16, 16, 3), np.uint8)], tta=True, progress=False)
    assert model.training
    assert not model.head.training
    vt.predict(model.eval(), [np.zeros((16, 16, 3), np.uint8)], tta=True, progress=False)
    assert not model.training


def test_what_cannot_be_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = model_of("plain")
    with pytest.raises(
        InputError, match=r"x.bin: its extension does not name a format: use .onnx \(onnx\) or"
    ):
        export(model, tmp_path / "x.bin")
    with pytest.raises(InputError, match=r"a file of format onnx ends in \.onnx"):
        export(model, tmp_path / "x.pt2", "onnx")
    with pytest.raises(InputError, match=r"unknown format 'onx'.*onnx"):
        export(model, tmp_path / "x.onnx", "onx")
    monkeypatch.setattr(exporting, "LARGEST_ONNX", 1000)  # bytes; the format has 2 GiB
    with pytest.raises(InputError, match="ONNX files hold at most 2"):
        export(model, tmp_path / "x.onnx")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        export(model, tmp_path / "file" / "x.pt2")
    assert run(["export", "ViT-Ti/16", "--out", str(tmp_path / "x.txt")]) == 2
    assert "its extension does not name a format" in capsys.readouterr().err


def test_nothing_but_an_exported_model_is_replaced(tmp_path: Path) -> None:
    model = model_of("plain")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_text("mine")
    (tmp_path / "x.pt2").mkdir()
    for path, format in (("photos/one.jpg", "onnx"), ("x.pt2", None)):
        with pytest.raises(InputError, match=r"exists, but is not an exported model|ends in"):
            export(model, tmp_path / path, format)
    assert (tmp_path / "photos" / "one.jpg").read_text() == "mine"
    again, holds = tmp_path / "again", frozenset({"graph", "weights"})  # of a format that is a folder
    for names in ([], ["graph", "weights"]):
        exporting.check_replaceable(again, "folders", holds)
        again.mkdir(exist_ok=True)
        for name in names:
            (again / name).write_text("")
    exporting.check_replaceable(again, "folders", holds)
    (again / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="again exists"):
        exporting.check_replaceable(again, "folders", holds)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vt.save(model_of("plain"), tmp_path / "mine")
    assert run(["export", str(tmp_path / "mine"), "--out", str(tmp_path / "mine.pt2"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["format"] == "torch"
    assert result["max_abs_difference"] < 1e-5
    assert result["bytes"] == (tmp_path / "mine.pt2").stat().st_size


def test_a_precision_is_calibrated_on_images_of_many_bands():
    bands = (0.5,) * 5
    config = ViTConfig(
        image_size=(32, 32), patch_size=(16, 16), width=24, depth=1, heads=2, mlp_dim=48, channels=5
    )
    preprocessing = Preprocessing(size=(32, 32), channels=5, mean=bands, std=bands)
    images = ImageList(list(np.zeros((3, 40, 40, 5), dtype=np.uint8)))
    found = calibration_images(build_model(config, preprocessing=preprocessing), images)
    assert [each.shape for each in found] == [(1, 5, 32, 32)] * 3


PAGES = Path(__file__).parents[2] / "docs"


def mean_with_a_network() -> Model:
    """What `train` hands over where the mean of a support vector machine, a network and what is fitted on the
    features of another one is best: images are prepared as for the network."""
    shape = {**TINY, "image_size": (32, 48), "pooling": "mean", "class_token": False}
    network = build_model(vt.ViTConfig(**shape))
    prepared = network.preprocessing.model_copy(update={"crop_fraction": 0.875, "interpolation": "bicubic"})
    machine = MemberConfig(features=DescribedConfig(), head=KernelConfig(gamma=2.0, vectors=(2, 0, 3)))
    seen = NetworkConfig(network=network.config.model_copy(update={"num_classes": None}))
    ridge = MemberConfig(features=seen, head=KernelRidgeConfig(gamma=0.1, examples=7))
    config = EnsembleConfig(
        image_size=(32, 48), num_classes=3, members=(machine, MemberConfig(features=seen), ridge)
    )
    model: Any = build_model(config, preprocessing=prepared)
    for part in (*model.seen.parameters(), *model.head.heads.parameters()):
        nn.init.normal_(part, std=0.2)
    nn.init.normal_(model.head.heads[0].vectors, std=0.02)
    nn.init.constant_(model.head.heads[0].sharpness, 1.0)
    return model.eval()


def test_a_model_of_a_release_candidate_opens(tmp_path: Path) -> None:
    """Its members had a range of their features, None where all are seen."""
    model = mean_with_a_network()
    vt.save(model, tmp_path / "new")
    stored = json.loads((tmp_path / "new" / "config.json").read_text())
    for member in stored["model"]["members"]:
        member["columns"] = None
    (tmp_path / "new" / "config.json").write_text(json.dumps(stored))
    images = torch.rand(2, 3, 32, 48, generator=torch.Generator().manual_seed(0))
    opened: Any = vt.load(tmp_path / "new")
    torch.testing.assert_close(opened(images), model(images))
    stored["model"]["members"][0]["columns"] = [40, 152]
    (tmp_path / "new" / "config.json").write_text(json.dumps(stored))
    with pytest.raises(vt.InputError, match="columns"):
        vt.load(tmp_path / "new")


@pytest.mark.parametrize(
    "kind",
    [
        *("squash", "crop", "ensemble"),
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("fit", "several labels", "network in a mean")
        ),
    ],
)
def test_the_program_of_the_page_answers_as_predict(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On photographs that are not square, whose edges a crop would lose."""
    model: Any
    if kind == "ensemble":
        linear = LinearConfig()
        member = MemberConfig(features=DescribedConfig(kind="thumbnail"), head=linear)
        config = EnsembleConfig(image_size=(64, 64), num_classes=3, members=(member,))
        model = build_model(config)
    elif kind == "network in a mean":
        model = mean_with_a_network()
    else:
        model = vt.create(
            "ViT-Ti/8", image_size=(32, 48), num_classes=3, width=24, depth=1, heads=2, mlp_dim=24
        )
        fraction = 0.875 if kind == "crop" else 1.0
        resize = "fit" if kind == "several labels" else kind
        model.task = "multilabel" if kind == "several labels" else model.task
        model.preprocessing = model.preprocessing.model_copy(
            update={"resize": resize, "crop_fraction": fraction, "interpolation": "bilinear"}
        )
    rng = torch.Generator().manual_seed(0)
    for layer in model.head.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.weight.data = 3 * torch.randn(layer.weight.shape, generator=rng)
    model.labels = ["a", "b", "c"]
    vt.export(model, out=tmp_path / "model.onnx", progress=False)
    pixels = np.random.default_rng(1).integers(0, 256, (90, 160, 3), dtype=np.uint8)
    pixels[:, :30] = (250, 10, 10)
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    (expected,) = vt.predict(model, [tmp_path / "wide.png"], top=3)
    for language in ("en", "ko"):
        page = (PAGES / language / "howto" / "export-onnx.md").read_text(encoding="utf-8")
        program = next(part for part in page.split("```python\n")[1:] if "about =" in part).split("```")[0]
        program = program.replace("photos.onnx", str(tmp_path / "model.onnx"))
        names: dict[str, Any] = {}
        exec(program.replace("photos/apples/0.jpg", str(tmp_path / "wide.png")), names)
        assert capsys.readouterr().out.startswith(expected.label)
        probabilities = names["probabilities"]
        if names["about"]["task"] == "multilabel":  # the page: a sigmoid in the place of the softmax
            probabilities = 1 / (1 + np.exp(-names["logits"]))
        found = dict(zip(names["about"]["labels"], probabilities.tolist(), strict=True))
        assert found == pytest.approx({each.label: each.probability for each in expected.top}, abs=1e-4)
