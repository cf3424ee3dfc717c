"""What MODEL may be, and what is known of it before the first question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous as vt
from vitreous.addons.segmentation.model import Segmenter, SegmenterConfig
from vitreous.addons.serving.limits import ServerLimits
from vitreous.addons.serving.models import Classifier, Question, Regressor, ServedModel, parse_parameters
from vitreous.addons.serving.run import load_served
from vitreous.checkpoints.saving import save
from vitreous.errors import InputError

from .conftest import CPU, HOW, image, make_vit


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save(make_vit(), tmp_path / "tiny")
    return tmp_path / "tiny"


def loaded(spec: Path | str, precision: str = "fp32") -> Any:
    return load_served(str(spec), device="cpu", precision=precision, limits=ServerLimits(), language=None)


def asked(served: ServedModel, endpoint: str) -> Any:
    """What one image is answered."""
    pixels, _ = served.prepare(image(), "x")
    found = next(each for each in served.endpoints if each.name == endpoint)
    (answer,) = found.answer([Question("x", pixels, parse_parameters({}, found.parameters))])
    return answer


def test_a_name_is_served_but_said_to_be_fresh() -> None:
    about = loaded("ViT-Ti/16").about
    assert (about["trained"], about["name"], about["task"]) == (False, "ViT-Ti/16", "classification")


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    config = SegmenterConfig(
        image_size=16, patch_size=4, width=16, depth=1, heads=2, mlp_dim=16, num_classes=4
    )
    save(Segmenter(config, labels=["ground", "ant", "bee", "cat"]), tmp_path / "masks")
    with pytest.raises(InputError, match="cannot be served: use vitreous predict on files"):
        loaded(tmp_path / "masks")


@pytest.mark.parametrize("ending", [pytest.param(".onnx", marks=pytest.mark.slow), ".pt2"])
def test_an_exported_file_is_served(checkpoint: Path, tmp_path: Path, ending: str) -> None:
    vt.export(checkpoint, tmp_path / f"program{ending}", progress=False)
    found = loaded(tmp_path / f"program{ending}", "auto")
    assert [each.name for each in found.model.endpoints] == ["predict", "embed"]
    assert (found.model.labels, found.about["trained"]) == (["ant", "bee", "cat"], True)
    plain = asked(loaded(checkpoint).model, "predict")
    answer = asked(found.model, "predict")
    assert answer["label"] == plain["label"]
    assert answer["probability"] == pytest.approx(plain["probability"], abs=1e-5)
    with pytest.raises(InputError, match="in the precision it was exported in"):
        loaded(tmp_path / f"program{ending}", "bf16")


def test_bf16_is_near_fp32(checkpoint: Path) -> None:
    full, half = (
        torch.tensor(asked(loaded(checkpoint, precision).model, "embed")["features"])
        for precision in ("fp32", "bf16")
    )
    error = ((half - full).norm() / full.norm()).item()
    assert 0 < error < 0.05


def test_weights_in_bf16_are_cast_once_and_answer_alike() -> None:
    served = Classifier(make_vit(), CPU, **HOW | {"precision": "bf16"})
    images = served.model.preprocessing.normalize(served.prepare(image(), "x")[0][None])
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        expected = served.model(images).float().softmax(dim=-1)
    assert served.answering.head.weight.dtype == torch.bfloat16
    assert {each.dtype for each in served.model.parameters()} == {torch.float32}  # attention looks at these
    by_label = {each["label"]: each["probability"] for each in asked(served, "predict")["top"]}
    assert [by_label[label] for label in ("ant", "bee", "cat")] == pytest.approx(expected[0].tolist())


def test_bf16_does_not_round_the_unit_of_a_number() -> None:
    model = make_vit(classes=1)
    model.task = "regression"
    with torch.no_grad():
        model.head.weight *= 20
        model.head.bias += 1950
    served = Regressor(model, CPU, **HOW | {"precision": "bf16"})
    pixels = np.asarray(Image.fromarray(np.full((16, 16, 3), 90, np.uint8)))
    with torch.inference_mode():
        exact = model(model.preprocessing([Image.fromarray(pixels)])).item()
    question = Question("x", torch.tensor(pixels).permute(2, 0, 1), None)
    (answer,) = served.predict([question])
    assert isinstance(answer, dict)
    assert answer["value"] == pytest.approx(exact, abs=3)  # bf16 itself has every eighth year alone
    assert answer["value"] % 8
