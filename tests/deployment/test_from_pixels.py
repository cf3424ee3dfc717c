"""A program with its preprocessing inside resizes to the bit as Pillow does, for images of every size."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.deployment.engines import open_program
from vitreous.deployment.exporting import export
from vitreous.deployment.from_pixels import FromPixels
from vitreous.errors import InputError

SIZES = (32, 32), (500, 375), (375, 500), (33, 97), (20, 24), (1200, 64), (640, 481)  # (W, H)
WAYS: dict[str, dict[str, Any]] = {
    "timm": {"crop_fraction": 0.9},
    "transformers": {"crop_fraction": 0.875, "interpolation": "bilinear", "crop_start": "floored"},
    "Google": {"resize": "squash"},
}


def photograph(size: tuple[int, int]) -> Image.Image:
    width, height = size
    coarse = np.random.default_rng(width).integers(0, 255, (height // 8 + 2, width // 8 + 2, 3))
    return Image.fromarray(coarse.astype(np.uint8)).resize(size, Image.Resampling.BICUBIC)


def model_of(way: str) -> vt.ViT:
    config = {"image_size": 32, "patch_size": 8, "width": 16, "depth": 1, "heads": 2, "mlp_dim": 16}
    model = vt.ViT(
        vt.ViTConfig(**config, num_classes=3),  # type: ignore[arg-type]
        preprocessing=vt.Preprocessing(size=(32, 32), **WAYS[way]),
        labels=["ant", "bee", "cat"],
        task="classification",
        seed=1,
    )
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


@pytest.mark.parametrize("way", WAYS)
def test_images_are_prepared_as_pillow_does(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(way)
    seen: list[torch.Tensor] = []
    whole = FromPixels(model)
    model.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    with torch.no_grad():
        for size in SIZES:
            image = photograph(size)
            (found,) = whole(torch.from_numpy(np.array(image))[None])
            expected = model.preprocessing([image])
            assert (seen.pop() - expected).abs().max() < 1e-5, size  # a level of a byte is 8e-3
            torch.testing.assert_close(found, model(expected).softmax(dim=-1))
            seen.clear()


def test_a_program_that_takes_pixels(tmp_path: Path) -> None:
    model = model_of("timm")
    written = export(model, tmp_path / "pixels.onnx", with_preprocessing=True)
    assert written.opset == 18
    session = onnxruntime.InferenceSession(written.path)
    assert [session.get_inputs()[0].shape, session.get_outputs()[0].name] == [
        ["batch", "height", "width", 3],
        "probabilities",
    ]
    for size in SIZES:
        image = photograph(size)
        (found,) = session.run(None, {"pixels": np.array(image)[None]})
        expected = model(model.preprocessing([image])).softmax(dim=-1).detach().numpy()
        np.testing.assert_allclose(found, expected, atol=5e-5)
    image.save(tmp_path / "image.png")
    answer = vt.predict(written.path, tmp_path / "image.png", progress=False)[0]
    assert answer.probability == pytest.approx(float(expected.max()), abs=1e-4)
    with pytest.raises(InputError, match="takes pixels and gives probabilities"):
        open_program(written.path)


def test_what_pixels_cannot_be(tmp_path: Path) -> None:
    model = model_of("timm")
    with pytest.raises(InputError, match="onnx with preprocessing computes in fp32, not in int8"):
        export(model, tmp_path / "x.onnx", with_preprocessing=True, precision="int8")
    with pytest.raises(InputError, match="format torch computes in fp32, not in int8"):
        export(model, tmp_path / "x.pt2", precision="int8")
    model.preprocessing = vt.Preprocessing(size=(32, 32), resize="fit")
    with pytest.raises(InputError, match="cannot express fit"):
        export(model, tmp_path / "x.onnx", with_preprocessing=True)
    with pytest.raises(InputError, match=r"int8 needs (images to calibrate on|nncf)"):
        export(model, tmp_path / "x.onnx", precision="int8")
    assert list(tmp_path.iterdir()) == []


def test_weights_for_javascript(tmp_path: Path) -> None:
    model = model_of("Google")
    written = export(model, tmp_path / "mine.safetensors")
    data = written.path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    about = {name: json.loads(text) for name, text in header["__metadata__"].items() if name != "format"}
    assert about["labels"] == ["ant", "bee", "cat"]
    assert about["preprocessing"]["resize"] == "squash"
    assert {"task", "license", "model", "kind"} <= about.keys()
    assert header["head.weight"]["dtype"] == "F32"
    assert written.format == "safetensors"


JAVASCRIPT = """
const fs = require("fs"), ort = require("onnxruntime-web");
ort.env.wasm.numThreads = 1;
(async () => {
  const session = await ort.InferenceSession.create(fs.readFileSync("pixels.onnx"));
  const answers = [];
  for (const { name, shape } of JSON.parse(fs.readFileSync("images.json"))) {
    const pixels = new ort.Tensor("uint8", new Uint8Array(fs.readFileSync(name)), shape);
    answers.push(Array.from((await session.run({ pixels })).probabilities.data));
  }
  console.log(JSON.stringify(answers));
})();
"""


@pytest.mark.slow
def test_onnxruntime_web_gives_the_same_answers(tmp_path: Path) -> None:
    """Its WebAssembly, which browsers run, in Node: images of every size, equal to four digits."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not (node and npm):
        pytest.skip("Node is not installed")
    got = subprocess.run(
        [npm, "install", "onnxruntime-web@1"], cwd=tmp_path, capture_output=True, check=False
    )
    if got.returncode:
        pytest.skip("npm cannot install onnxruntime-web here")
    model = model_of("timm")
    export(model, tmp_path / "pixels.onnx", with_preprocessing=True)
    listed, expected = [], []
    for number, size in enumerate(SIZES):
        image = photograph(size)
        (tmp_path / f"{number}.raw").write_bytes(np.array(image).tobytes())
        listed.append({"name": f"{number}.raw", "shape": [1, size[1], size[0], 3]})
        expected.append(model(model.preprocessing([image])).softmax(dim=-1)[0].tolist())
    (tmp_path / "images.json").write_text(json.dumps(listed))
    (tmp_path / "run.js").write_text(JAVASCRIPT)
    done = subprocess.run([node, "run.js"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), expected, atol=5e-5)
