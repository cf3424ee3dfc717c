"""Engines are measured; the fastest within the budget is kept beside the weights, and needs no PyTorch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.addons.optimize import measuring
from vitreous.addons.optimize.choice import CHOICE, substitute
from vitreous.addons.optimize.command import print_optimization
from vitreous.addons.optimize.engines import BackendConfig, compiled, in_bf16
from vitreous.addons.optimize.measuring import Measurement
from vitreous.addons.optimize.processor import saturates_int8
from vitreous.cli import run
from vitreous.data.image_list import image_list
from vitreous.errors import InputError
from vitreous.evaluation import outputs
from vitreous.evaluation.calibration import scale_head
from vitreous.languages import speaking
from vitreous.training.machine import WIDE

COLORS = {"ant": (200, 60, 50), "bee": (60, 190, 70), "cat": (50, 60, 200)}


def colored(label: str, seed: int, size: tuple[int, int] = (20, 24)) -> Image.Image:
    noise = np.random.default_rng(seed).integers(-40, 40, (*size, 3))
    return Image.fromarray((np.array(COLORS[label]) + noise).clip(0, 255).astype(np.uint8))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in a folder, and photos/ of its classes."""
    place = tmp_path_factory.mktemp("optimizing")
    for label in COLORS:
        (place / "photos" / label).mkdir(parents=True)
        for number in range(12):
            colored(label, number).save(place / "photos" / label / f"{number}.png")
    config = vt.ViTConfig(image_size=16, patch_size=4, width=16, depth=2, heads=2, mlp_dim=16, num_classes=3)
    model = vt.ViT(config, labels=list(COLORS), task="classification", seed=1)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    vt.save(model.eval(), place / "model")
    return place


def row_of(candidate: BackendConfig, times: float) -> Measurement:
    return Measurement(str(candidate), *candidate, 1.0, 1.0, 10.0, times, 1.0, 0, True)


def choose(folder: Path, candidate: BackendConfig, file: Path | None = None) -> Path | None:
    """A choice beside the weights, as if it had been measured to be three times as fast."""
    rows = [row_of(BackendConfig("eager", "fp32"), 1.0), row_of(candidate, 3.0)]
    return measuring.write_choice(folder, file, rows[1], candidate, rows)


@pytest.mark.slow
def test_memory_is_that_of_the_candidate(place: Path) -> None:
    for candidate in (BackendConfig("eager", "fp32"), BackendConfig("eager", "bf16", 2)):
        assert measuring.peak_memory_of(place / "model", None, candidate, 2) > 2**26
    assert measuring.peak_memory_of(place / "nothing", None, BackendConfig("eager", "fp32"), 2) == 0


@pytest.mark.slow
def test_the_fastest_within_the_budget_is_kept(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copytree(place / "model", tmp_path / "model")
    words = ["--budget", "0.3%", "--engines", "onnx", "--json"]
    assert run(["optimize", str(model), str(place / "photos"), *words]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in found["rows"]}
    assert {"eager fp32", "onnx fp32"} <= rows.keys()
    within = [row for row in rows.values() if row["within_budget"]]
    assert found["chosen"] == max(within, key=lambda row: row["times"])["name"]
    assert rows["onnx fp32"]["metric"] == rows["eager fp32"]["metric"]
    assert rows["onnx fp32"]["agreement"] == 1
    chosen = substitute(model)
    assert chosen is not None
    assert found["chosen"] in chosen.sentence


@pytest.mark.slow
def test_a_chosen_file_answers_without_pytorch(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Path(shutil.copytree(place / "model", tmp_path / "model"))
    vt.export(model, tmp_path / "program.onnx", progress=False)
    choose(model, BackendConfig("onnx", "fp32"), tmp_path / "program.onnx")
    chosen = substitute(model)
    assert chosen is not None
    assert chosen.file == model / "optimized.onnx"
    image = str(place / "photos" / "ant" / "0.png")
    code = (
        "import sys, json, vitreous as vt\n"
        f"found = vt.predict({str(model)!r}, {[image]!r})\n"
        "assert 'torch' not in sys.modules\n"
        "from vitreous.cli import run\n"
        f"assert run(['predict', {str(model)!r}, {image!r}]) == 0\n"
        "assert 'torch' not in sys.modules\n"
        "print(json.dumps([found[0].to_json()]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    assert "onnx fp32: 3.00 times PyTorch's fp32" in done.stderr
    (plain,) = vt.predict(model, image, precision="fp32", progress=False)
    for answer in answers:
        assert answer["label"] == plain.label
        assert answer["probability"] == pytest.approx(plain.probability, abs=1e-5)
    evaluated = [
        vt.evaluate(model, place / "photos", precision=each, progress=False) for each in ("auto", "fp32")
    ]
    assert evaluated[0].accuracy == evaluated[1].accuracy
    assert "onnx fp32" in capsys.readouterr().err  # said by the first of the two
    vt.predict(model, place / "photos", out=tmp_path / "answers", progress=False)
    assert "onnx fp32" in capsys.readouterr().err  # so do the answers to any number of images
    with monkeypatch.context() as elsewhere:  # a machine without the engine
        elsewhere.setitem(sys.modules, "onnxruntime", None)
        with pytest.warns(UserWarning, match="asks for onnxruntime, which is not installed"):
            (other,) = vt.predict(model, image, progress=False)
        assert [each.label for each in other.top] == [each.label for each in plain.top]
        found, known = ([each.probability for each in answer.top] for answer in (other, plain))
        assert found == pytest.approx(known, abs=1e-6)
    copied = shutil.copytree(model, tmp_path / "copied", copy_function=shutil.copyfile)
    assert substitute(copied) is not None  # by the digest of the weights, whose time is another
    calibrated = vt.load(model)
    scale_head(calibrated, 2.0)
    vt.save(calibrated, tmp_path / "calibrated")
    shutil.copyfile(tmp_path / "calibrated" / "model.safetensors", Path(copied) / "model.safetensors")
    assert substitute(copied) is None  # another head alone is another model


def test_a_choice_that_pytorch_computes(place: Path) -> None:
    assert choose(place / "model", BackendConfig("eager", "bf16")) is None
    answers = [
        vt.predict(place / "model", place / "photos" / "ant", precision=each, progress=False)[0].probability
        for each in ("auto", "bf16", "fp32")
    ]
    assert answers[0] == pytest.approx(answers[1], abs=2e-3)
    assert answers[0] != answers[2]
    (place / "model" / CHOICE).unlink()


def test_bf16_is_that_of_the_device_that_the_model_has_gone_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is opened on the CPU, then moved to a GPU."""
    devices = []

    def autocast(device: str, dtype: torch.dtype) -> Any:
        devices.append((device, dtype))
        return nullcontext()

    monkeypatch.setattr(torch, "autocast", autocast)
    for device in ("cpu", "meta"):
        assert in_bf16(lambda images: images + 1)(torch.zeros(1, device=device)).device.type == device
    assert devices == [("cpu", torch.bfloat16), ("meta", torch.bfloat16)]


@pytest.mark.parametrize(("language", "words"), [("en", "4 tokens merged"), ("ko", "토큰 4개 병합")])
def test_candidates_are_named_in_the_language_of_the_user(
    language: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By their parts; JSON has one name in every language."""
    merging = row_of(BackendConfig("onnx", "int8", 4), 2.0)
    rows = (row_of(BackendConfig("eager", "fp32"), 1.0), replace(merging, name="another name"))
    found = measuring.Optimization("m", "photos", "test set", 36, 0.003, 8, rows, "another name", None)
    monkeypatch.setenv("LC_ALL", "ko_KR.UTF-8" if language == "ko" else "C.UTF-8")
    with speaking(None):
        print_optimization(found)
    printed = capsys.readouterr().out
    assert printed.count(words) == 2  # in the table, and as what is kept
    assert "another name" not in printed
    assert found.to_json()["chosen"] == "another name"


def test_what_cannot_be_optimized(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, photos = str(place / "model"), str(place / "photos")
    for words, sentence in (
        (["ViT-Ti/16", photos], "neither a run nor a model folder"),
        ([model, photos, "--budget", "much"], "is not a share: write 0.3% or 0.003"),
        ([model, photos, "--engines", "onxx"], "unknown engine 'onxx': did you mean 'onnx'?"),
        ([model], "not a run directory"),
    ):
        assert run(["optimize", *words]) == 2
        assert sentence in capsys.readouterr().err


def test_engines_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("onnx", "onnxscript", "onnxruntime", "nncf"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert measuring.engines_here(torch.device("cpu")) == ["eager", "onnx"]
    assert measuring.engines_here(torch.device("cuda")) == ["eager", "compiled"]
    with pytest.raises(InputError, match=r"needs openvino: pip install 'vitreous\[cpu\]'"):
        measuring.engines_here(torch.device("cpu"), ["openvino"])
    model = vt.create("ViT-Ti/16", image_size=64, depth=2)

    def candidates(*engines: str, flags: Collection[str] = ("amx_bf16",)) -> list[str]:
        return [str(each) for each in measuring.engine_candidates(model, engines, torch.device("cpu"), flags)]

    ways = candidates("eager", "onnx")
    assert ways[:3] == ["eager bf16", "onnx fp32", "onnx int8"]
    assert ways[3:] == ["onnx int8, 8 tokens merged at a time"]
    ways = candidates("eager", "openvino")
    assert ways[4:] == [f"openvino {each}, 8 tokens merged at a time" for each in ("bf16", "int8")]
    assert not [each for each in candidates("eager", "openvino", flags=()) if "bf16" in each]


@pytest.mark.parametrize(
    ("flags", "saturates"),
    [({"avx2"}, True), ({"avx2", "avx_vnni"}, False), ({"avx2", "avx512_vnni"}, False), ({"asimd"}, False)],
)
def test_where_products_of_8_bits_saturate(flags: set[str], saturates: bool) -> None:
    assert saturates_int8(flags) == saturates


def test_a_lower_precision_must_agree(
    place: Path, tmp_path: Path, products: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    products.take(bf16=0.5)
    monkeypatch.setattr(outputs, "WORTH", 30)  # images; there are 36
    sizes = {"image_size": 16, "patch_size": 4, "width": WIDE, "depth": 1, "heads": 2, "mlp_dim": 16}
    model, cpu = vt.create("ViT-Ti/16", num_classes=3, **sizes), torch.device("cpu")
    torch.nn.init.normal_(model.head.weight)
    model.labels, model.task = list(COLORS), "classification"
    images = image_list(str(place / "photos"))
    said: list[str] = []

    def chosen(images: Any, wanted: str = "auto") -> str:
        return outputs.automatic_precision(model, images, wanted, cpu, folder=tmp_path, say=said.append)

    assert (chosen(images, "fp32"), chosen(images, "bf16"), chosen(None)) == ("fp32", "bf16", "fp32")
    assert chosen(image_list(str(place / "photos" / "ant"))) == "fp32"  # too few to compare on
    assert said == []
    assert chosen(images) == "bf16"
    assert said == ["computing in bf16: bf16 gives the same answer as fp32 for 36 of 36 calibration images"]
    assert chosen(None) == "bf16"  # as it is stored with the weights
    stored = json.loads((tmp_path / outputs.AGREED).read_text())
    (tmp_path / outputs.AGREED).write_text(json.dumps({**stored, "agreed": 35}))
    assert chosen(images) == "fp32"
    with torch.no_grad():
        model.head.bias += 1
    (tmp_path / outputs.AGREED).write_text(json.dumps({**stored, "agreed": 35}))
    assert chosen(images) == "bf16"  # other weights are compared again
    model.task = "counting"  # whose answer is not the largest of its outputs
    assert chosen(images) == "fp32"
    model.task = "classification"
    fresh = tmp_path / "fresh"
    vt.save(model, fresh)
    vt.embed(fresh, place / "photos", out=tmp_path / "vectors", progress=False)
    assert json.loads((fresh / outputs.AGREED).read_text())["images"] == 36
    headless = vt.create("ViT-Ti/16", image_size=16, width=16, depth=1, heads=2, num_classes=None)
    assert outputs.count_agreeing(headless, images, cpu, 0) == (
        36,
        36,
    )  # features have the same direction
    shift = torch.nn.Linear(16, 16)  # what all images have in common leaves bf16 no digits for the rest
    torch.nn.init.constant_(shift.bias, 1000.0)
    headless.norm = torch.nn.Sequential(headless.norm, shift)
    agreed, count = outputs.count_agreeing(headless, images, cpu, 0)
    assert agreed < count / 2


def test_compiled_is_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler is told to freeze; it is not run here."""
    from torch._inductor import config

    frozen: list[bool] = []

    def compile(forward: Any, **options: Any) -> Any:
        def answer(images: torch.Tensor) -> torch.Tensor:
            frozen.append(config.freezing)
            return forward(images)

        return answer

    monkeypatch.setattr(torch, "compile", compile)
    model = vt.create("ViT-Ti/16", image_size=32, depth=1).eval()
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        model.head.weight.normal_(std=0.1)
        expected = model(images)
        torch.testing.assert_close(compiled(model)(images), expected)
        assert frozen == [True]
        fp32, bf16 = (
            measuring.prepared_module(model, BackendConfig("compiled", p)) for p in ("fp32", "bf16")
        )
        torch.testing.assert_close(model(images), expected, rtol=0, atol=0)
        assert frozen == [True]  # by the model, which is measured beside the compiled one
        model.head.weight.zero_()  # whose weights the first shares, and the second has copied
        assert not torch.equal(fp32(images), expected)
        assert torch.equal(fp32(images), model(images))
        torch.testing.assert_close(bf16(images).float(), expected, rtol=0.1, atol=0.1)
    assert not config.freezing


@pytest.mark.slow
def test_every_candidate_of_a_cpu(place: Path) -> None:
    """OpenVINO, int8 and merged tokens give the answers of PyTorch on images that are easy to tell apart."""
    pytest.importorskip("openvino")
    pytest.importorskip("nncf")
    found = vt.optimize(place / "model", place / "photos", budget=0.5, progress=False)
    names = [each.name for each in found.rows]
    assert {"onnx int8", "openvino fp32", "openvino int8"} <= set(names)
    assert any("merged" in name for name in names)
    exact = {row.name: row.agreement for row in found.rows if row.name.endswith("fp32")}
    assert set(exact.values()) == {1.0}
    assert all(row.memory > 2**25 and row.times > 0 for row in found.rows)
    assert found.chosen in names
    assert substitute(place / "model") is not None
