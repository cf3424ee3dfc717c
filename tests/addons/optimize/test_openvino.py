"""OpenVINO folders, and int8 of ONNX and OpenVINO."""

from __future__ import annotations

import json
import logging
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
from vitreous.addons.optimize.openvino import GRAPH, compiled_folder
from vitreous.addons.optimize.processor import processor_flags, saturates_int8
from vitreous.addons.optimize.quantization import exact_nodes, exact_operations
from vitreous.deployment.export import export
from vitreous.deployment.programs import open_exported, open_image_model
from vitreous.errors import InputError
from vitreous.models.ensemble import (
    DescribedConfig,
    EnsembleConfig,
    KernelConfig,
    LinearConfig,
    MemberConfig,
    NeighborsConfig,
)
from vitreous.models.model import Model, build_model

TINY: dict[str, Any] = {
    "image_size": 16,
    "patch_size": 8,
    "width": 16,
    "depth": 2,
    "heads": 2,
    "mlp_dim": 24,
    "num_classes": 3,
}


def plain() -> Model:
    torch.manual_seed(0)
    model = build_model(vt.ViTConfig(**TINY), labels=("cat", "dog", "Vögel"))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model.eval()


def numbers_model() -> Model:
    """A regression whose numbers are far from zero."""
    model = build_model(vt.ViTConfig(**{**TINY, "num_classes": 1}), task="regression")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    nn.init.constant_(model.get_parameter("head.bias"), 1000.0)
    return model.eval()


@pytest.mark.slow
def test_what_a_folder_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_text("mine")
    for path, words in (("photos", "exists, but is not an exported model"), ("photos/one.jpg", "ends in")):
        with pytest.raises(InputError, match=words):
            export(plain(), tmp_path / path, "openvino")
    assert (tmp_path / "photos" / "one.jpg").read_text() == "mine"
    with pytest.raises(InputError, match="openvino with preprocessing can be in fp32 or int8, not in bf16"):
        export(plain(), tmp_path / "x-openvino", with_preprocessing=True, precision="bf16")
    with pytest.raises(InputError, match=r"int8 needs (images to calibrate on|nncf)"):
        export(plain(), tmp_path / "x.onnx", precision="int8")
    assert [each.name for each in tmp_path.iterdir()] == ["photos"]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_model_without_a_head_is_a_folder(precision: str, tmp_path: Path) -> None:
    """Its logits and its features are one tensor."""
    pytest.importorskip("openvino")
    pytest.importorskip("nncf")
    model = build_model(vt.ViTConfig(**{**TINY, "num_classes": None})).eval()
    images = torch.randn(3, 3, 16, 16)
    written = export(model, tmp_path / "x-openvino", precision=precision, samples=[images.numpy()])
    with torch.no_grad():
        difference = (open_image_model(written.path).features(images) - model.features(images)).abs().max()
    # 7 bits, where 8 would overflow, round more; with 8 bits there the difference is 0.76.
    assert difference < {"fp32": 1e-4, "int8": 0.4 if saturates_int8(processor_flags()) else 0.3}[precision]


@pytest.mark.slow
def test_what_nncf_cannot_quantize_is_a_sentence(tmp_path: Path) -> None:
    """Images of another size than the model's, for instance."""
    pytest.importorskip("nncf")
    images = [np.zeros((1, 3, 20, 20), np.float32)]
    with pytest.raises(InputError, match=r"NNCF cannot write the model in int8: change `precision` \(.+\)"):
        export(plain(), tmp_path / "x.onnx", precision="int8", samples=images)
    assert list(tmp_path.iterdir()) == []


METHODS = pytest.mark.parametrize(
    ("kind", "head", "task"),
    [
        ("pixels", NeighborsConfig(neighbors=2, examples=5), "classification"),
        pytest.param(
            *("gradients", KernelConfig(gamma=2.0, vectors=(2, 0, 3)), "classification"),
            marks=pytest.mark.slow,
        ),
        ("thumbnail", LinearConfig(), "regression"),
    ],
)


def without_a_network(kind: Any, head: Any, task: str) -> Any:
    member = MemberConfig(features=DescribedConfig(kind=kind), head=head)
    outputs = 1 if task == "regression" else 3
    model: Any = build_model(EnsembleConfig(num_classes=outputs, members=(member,)), task=task)
    for part in model.head.heads.parameters():
        nn.init.normal_(part, std=0.2)
    return model


def samples_of_64() -> dict[str, Any]:
    return {"samples": [np.random.default_rng(0).random((1, 3, 64, 64), np.float32)]}


@METHODS
def test_methods_without_a_network_can_be_exported(kind: Any, head: Any, task: str, tmp_path: Path) -> None:
    """In fp32; in int8, a sentence says what can be had instead of an SVM or neighbors."""
    model = without_a_network(kind, head, task)
    assert export(model, tmp_path / "m.onnx").max_abs_difference < 1e-3
    if not isinstance(head, LinearConfig):
        sentence = r"cannot be in int8 in an ONNX file: use `precision` fp32, or `format` openvino"
        with pytest.raises(InputError, match=sentence):
            export(model, tmp_path / "small.onnx", precision="int8", **samples_of_64())


@pytest.mark.slow
@METHODS
def test_methods_without_a_network_in_int8(
    kind: Any, head: Any, task: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("nncf")
    model = without_a_network(kind, head, task)
    if isinstance(head, LinearConfig):
        written = export(model, tmp_path / "small.onnx", precision="int8", **samples_of_64())
        assert written.max_abs_difference < 0.1
    else:
        assert export(model, tmp_path / "small-openvino", precision="int8", **samples_of_64()).path.is_dir()
    logging.getLogger("vitreous").warning("heard after NNCF, too")
    assert "heard" in caplog.text


@pytest.mark.slow
def test_int8_of_a_model_in_memory_asks_for_images(tmp_path: Path) -> None:
    """Its representation was taken for the name of a folder."""
    pytest.importorskip("nncf")
    with pytest.raises(InputError, match=r"ViT is not a run directory, .*: name the data"):
        vt.export(plain(), tmp_path / "x.onnx", precision="int8", progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small.onnx", "small-openvino"])
def test_a_regression_in_memory_is_calibrated_on_images_with_numbers(name: str, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    pytest.importorskip("nncf")
    images = [np.full((16, 16, 3), 20 * number, np.uint8) for number in range(12)]
    data = images, [number + 0.5 for number in range(12)]
    how: dict[str, Any] = {"precision": "int8", "data": data, "progress": False}
    written = vt.export(numbers_model(), tmp_path / name, **how)
    assert 0 < written.max_abs_difference < 1
    if name.endswith(".onnx"):
        graph = onnx.load(written.path).graph
        makers = {output: node for node in graph.node for output in node.output}
        last = makers[graph.output[0].name]
        assert {each.name for each in graph.initializer} & set(last.input), "its weight is quantized"


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_openvino_folders(precision: str, tmp_path: Path) -> None:
    """Written, read back, and a MODEL; int8 of ONNX too."""
    pytest.importorskip("openvino")
    pytest.importorskip("nncf")
    model = plain()
    model.task = "classification"
    samples = [torch.randn(1, 3, 16, 16).numpy() for _ in range(8)]
    folder = tmp_path / "mine-openvino"
    written = export(model, folder, precision=precision, samples=samples)
    assert (written.format, written.precision) == ("openvino", precision)
    assert {each.name for each in folder.iterdir()} == {"model.xml", "model.bin", "about.json"}
    about = json.loads((folder / "about.json").read_text())
    assert about["labels"] == ["cat", "dog", "Vögel"]
    assert about["precision"] == precision
    program = open_image_model(folder)
    images = torch.randn(5, 3, 16, 16)
    tolerance = {"fp32": 1e-4, "bf16": 0.1, "int8": 0.4}[precision]
    with torch.no_grad():
        difference = (program(images) - model(images)).abs().max() / model(images).abs().max()
    assert difference < tolerance
    with torch.no_grad():  # once it is called often, in pieces of fixed sizes
        expected, features = program(images[:1]), program.features(images[:2])
        for count in (1, 2, 5, 8, 14, 17):
            some = images[:1].expand(count, -1, -1, -1)
            assert (program(some) - expected).abs().max() < tolerance * expected.abs().max() / 3
        assert (program.features(images[:2]) - features).abs().max() < tolerance * features.abs().max()
    if precision == "int8":
        small = export(model, tmp_path / "small.onnx", precision="int8", samples=samples)
        assert small.max_abs_difference > 0
        with torch.no_grad():
            found = open_image_model(small.path)(images)
            assert (found - model(images)).abs().max() / model(images).abs().max() < tolerance
    with pytest.raises(InputError, match=r"export needs weights, but .* is an exported"):
        vt.export(folder, tmp_path / "again.onnx", progress=False)


@pytest.mark.slow
def test_openvino_computes_the_weights_that_a_folder_has_now(tmp_path: Path) -> None:
    """Only model.bin is replaced, as `git pull` does: graphs of one architecture are equal to the byte."""
    pytest.importorskip("openvino")
    images = torch.randn(2, 3, 16, 16)
    model = plain()
    export(model, tmp_path / "first-openvino")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    export(model, tmp_path / "second-openvino")
    here, other = tmp_path / "first-openvino", tmp_path / "second-openvino"
    (here / "model.xml").write_bytes((other / "model.xml").read_bytes())  # but for the number of the export
    before, expected = (open_image_model(each)(images) for each in (here, other))
    (here / "model.bin").write_bytes((other / "model.bin").read_bytes())
    found = open_image_model(here)(images)
    torch.testing.assert_close(found, expected)
    assert (found - before).abs().max() > 0.01

    assert len([*compiled_folder(here / "model.xml").parent.iterdir()]) == 1  # that of before is gone


SIZES = (32, 32), (500, 375), (375, 500), (33, 97), (20, 24), (1200, 64), (640, 481)  # (W, H)


def photograph(size: tuple[int, int]) -> Image.Image:
    width, height = size
    coarse = np.random.default_rng(width).integers(0, 255, (height // 8 + 2, width // 8 + 2, 3))
    return Image.fromarray(coarse.astype(np.uint8)).resize(size, Image.Resampling.BICUBIC)


def pixels_model(spread: float = 0.3) -> vt.ViT:
    model = vt.ViT(
        vt.ViTConfig(**TINY | {"image_size": 32, "depth": 1, "mlp_dim": 16}),
        preprocessing=vt.Preprocessing(size=(32, 32), crop_fraction=0.9),
        labels=["ant", "bee", "cat"],
        task="classification",
        seed=1,
    )
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += spread * torch.randn_like(parameter)
    return model.eval()


@pytest.mark.slow
def test_a_program_that_takes_pixels_in_int8(tmp_path: Path) -> None:
    """The model is quantized, its preprocessing is exact: the answers are those of the model in int8 without
    preprocessing, given the same images prepared by the model in floating point, but where a number between
    two levels of int8 falls to the other one. (Weights that are spread as widely as elsewhere in this file
    magnify a level to 0.27.)"""
    pytest.importorskip("nncf")
    openvino = pytest.importorskip("openvino")
    model = pixels_model(spread=0.1)
    photographs = [photograph((40 + number, 50)) for number in range(8)]
    pixels = [np.array(each)[None] for each in photographs]
    prepared = [model.preprocessing([each]).numpy() for each in photographs]
    for name, samples in (("pixels", pixels), ("prepared", prepared)):
        how = {"with_preprocessing": name == "pixels", "precision": "int8", "samples": samples}
        for form in (".onnx", ".pt2", "-openvino"):
            export(model, tmp_path / f"{name}{form}", **how)

    def answers(name: str, given: np.ndarray) -> list[np.ndarray]:
        session = onnxruntime.InferenceSession(tmp_path / f"{name}.onnx")
        program = torch.export.load(tmp_path / f"{name}.pt2").module()
        inferred = open_exported(tmp_path / f"{name}-openvino")
        with torch.no_grad():
            of_program = program(torch.from_numpy(given))[0].numpy()
        first = session.run(None, {session.get_inputs()[0].name: given})[0]
        return [first, of_program, inferred.compute(given)[0]]

    for size in SIZES:
        image = photograph(size)
        images = model.preprocessing([image])
        exact = model(images).softmax(dim=-1).detach().numpy()
        expected = [
            torch.tensor(each).softmax(dim=-1).numpy() for each in answers("prepared", images.numpy())
        ]
        for found, same in zip(answers("pixels", np.array(image)[None]), expected, strict=True):
            np.testing.assert_allclose(found, same, rtol=0, atol=5e-3)
            assert 0 < np.abs(found - exact).max() < 0.1
    graph = onnx.load(tmp_path / "pixels.onnx").graph
    quantizing = {node.name for node in graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")}
    assert len(quantizing) > 10
    assert quantizing.isdisjoint(exact_nodes(graph, None, prepares=True))
    read = openvino.Core().read_model(tmp_path / "pixels-openvino" / GRAPH)
    operations = read.get_ordered_ops()
    quantizing = {each.get_friendly_name() for each in operations if each.get_type_name() == "FakeQuantize"}
    assert len(quantizing) > 5
    assert quantizing.isdisjoint(exact_operations(read, None, prepares=True))
    assert len(exact_operations(read, None, prepares=True)) > 20
