"""A program with its preprocessing inside resizes to the bit as Pillow does, for images of every size."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.deployment.export import FromPixels, export
from vitreous.deployment.programs import open_program
from vitreous.errors import InputError

DOCS = Path(__file__).parents[2] / "docs"
CDN = "https://cdn.jsdelivr.net/npm/onnxruntime-web@1/dist"
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


@pytest.mark.slow
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
    with pytest.raises(InputError, match="a file of format torch can be in fp32 or int8, not in bf16"):
        export(model, tmp_path / "x.pt2", precision="bf16")
    model.preprocessing = vt.Preprocessing(size=(32, 32), resize="fit")
    with pytest.raises(InputError, match="cannot express fit"):
        export(model, tmp_path / "x.onnx", with_preprocessing=True)
    model.preprocessing = vt.Preprocessing(size=(32, 32))
    model.task = "regression"
    with pytest.raises(InputError, match="the model has none: its task is regression, with 3 classes"):
        export(model, tmp_path / "x.onnx", with_preprocessing=True)
    headless = vt.create("ViT-Ti/16", image_size=32, depth=1, width=16, heads=2, num_classes=None)
    with pytest.raises(InputError, match=r"the model has none: its task is .*, with no classes"):
        export(headless, tmp_path / "x.onnx", with_preprocessing=True)
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
  const session = await ort.InferenceSession.create(fs.readFileSync("photos.onnx"));
  const answers = [];
  for (const { name, shape } of JSON.parse(fs.readFileSync("images.json"))) {
    const pixels = new ort.Tensor("uint8", new Uint8Array(fs.readFileSync(name)), shape);
    answers.push(Array.from((await session.run({ pixels })).probabilities.data));
  }
  console.log(JSON.stringify(answers));
})();
"""


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[float]]]:
    """A folder with onnxruntime-web, an exported model, and images of every size; the model's answers."""
    place, npm = tmp_path_factory.mktemp("web"), shutil.which("npm")
    if not (shutil.which("node") and npm):
        pytest.skip("Node is not installed")
    wanted = [npm, "install", "onnxruntime-web@1"]
    if subprocess.run(wanted, cwd=place, capture_output=True, check=False).returncode:
        pytest.skip("npm cannot install onnxruntime-web here")
    model = model_of("timm")
    export(model, place / "photos.onnx", with_preprocessing=True)
    expected = []
    for number, size in enumerate(SIZES):
        image = photograph(size)
        image.save(place / f"{number}.png")
        expected.append(model(model.preprocessing([image])).softmax(dim=-1)[0].tolist())
    (place / "about.json").write_text(json.dumps({"labels": model.labels}))
    return place, expected


@pytest.mark.slow
def test_onnxruntime_web_gives_the_same_answers(web: tuple[Path, list[list[float]]]) -> None:
    """Its WebAssembly, which browsers run, in Node: images of every size, equal to four digits."""
    place, expected = web
    listed = []
    for number, (wide, tall) in enumerate(SIZES):
        (place / f"{number}.raw").write_bytes(photograph((wide, tall)).tobytes())
        listed.append({"name": f"{number}.raw", "shape": [1, tall, wide, 3]})
    (place / "images.json").write_text(json.dumps(listed))
    (place / "run.js").write_text(JAVASCRIPT)
    done = subprocess.run(["node", "run.js"], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), expected, atol=5e-5)


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_documented_page_in_a_browser(
    web: tuple[Path, list[list[float]]], browser: Any, language: str
) -> None:
    """The page of the how-to answers as the model does, to the four digits that it shows."""
    place, expected = web
    text = (DOCS / language / "howto" / "export-javascript.md").read_text(encoding="utf-8")
    page = text.split("```html\n")[1].split("```")[0]
    assert CDN in page
    (place / "index.html").write_text(page.replace(CDN, "node_modules/onnxruntime-web/dist"))
    handler = partial(SimpleHTTPRequestHandler, directory=place)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        opened = browser.new_page()
        errors: list[str] = []
        opened.on("pageerror", lambda error: errors.append(str(error)))
        opened.goto(f"http://127.0.0.1:{server.server_port}/")
        for number, row in enumerate(expected):
            opened.evaluate("document.querySelector('#answer').textContent = ''")
            opened.set_input_files("#file", place / f"{number}.png")
            opened.wait_for_function("document.querySelector('#answer').textContent", timeout=120_000)
            label, share = opened.inner_text("#answer").split(": ")
            assert label == ("ant", "bee", "cat")[int(np.argmax(row))]
            assert float(share.removesuffix("%")) == pytest.approx(100 * max(row), abs=0.011)
        opened.close()
        server.shutdown()
    assert errors == []
