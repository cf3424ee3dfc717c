"""Every row of `formats` is what CONTRIBUTING promises of one: recognized by content, and, where it is
written, converted in both directions by the calls that users have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import vitreous as vt
from typical_models import TYPICAL
from vitreous.checkpoints.formats import formats
from vitreous.checkpoints.saving import answers_for
from vitreous.extensions import FORMATS
from vitreous.models.bit import BiTConfig

IMAGES = list(FORMATS)
WRITTEN = [name for name in IMAGES if formats()[name].write and name != "vitreous"]
TINY: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 16,
    "num_classes": 3,
    "width": 16,
    "depth": 2,
    "heads": 2,
}
TINY |= {"mlp_dim": 32}
# Parameters that some codebases do not have, which are zero in the models that they can hold.
ZERO = {"aimv2": r"(attention|mlp)\..*bias$", "open-clip": r"head\.bias$"}


def model_for(name: str) -> Any:
    if name == "bit":
        model: Any = vt.create(BiTConfig(image_size=32, num_classes=3, layers=(1,), width_factor=0.5), seed=0)
    else:
        model = vt.create(vt.ViTConfig(**{**TINY, **TYPICAL.get(name, {})}), seed=0)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            zero = re.search(ZERO.get(name, "$^"), path) is not None
            parameter.copy_(0 * parameter if zero else parameter + 0.05 * torch.randn_like(parameter))
        if name == "dinov3":  # its keys have no bias
            for block in model.blocks:
                block.attention.qkv.bias.chunk(3)[1].zero_()
    return model.eval()


@pytest.mark.parametrize("name", IMAGES)
def test_a_format_is_recognized_by_its_content(name: str) -> None:
    format = formats()[name]
    assert format.keys or format.entries, f"{name}: `keys` or `entries` of its module in checkpoints/formats/"
    assert format.about
    assert format.name == name
    assert (format.write is not None) is FORMATS[name].written, (
        f"{name}: `written` in src/vitreous/extensions.py"
    )


@pytest.mark.parametrize("name", WRITTEN)
def test_a_format_is_converted_both_ways(name: str, tmp_path: Path, edit: Any) -> None:
    format, model = formats()[name], model_for(name)
    path = tmp_path / f"theirs{(format.suffixes or ('',))[0]}"
    with edit(f"`limits` or the rows of {name} in src/vitreous/checkpoints/formats/, or its typical model"):
        vt.save(model, path, format=name)
        answers = answers_for(model, format.unsaid_at(path))
        again = vt.load(path, **answers)
        assert again.origin is not None
        assert again.origin.format == name
    images = torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(again(images), model(images), atol=1e-5, rtol=1e-4)
    settings = {f"model.{field}": value for field, value in answers.items()}
    with edit("src/vitreous/checkpoints/saving.py"):
        converted = vt.convert(path, tmp_path / "ours", format="vitreous", settings=settings)
        assert converted.max_abs_difference <= 1e-5
    assert vt.describe(vt.load(tmp_path / "ours")).stages


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", ["vitreous", *WRITTEN])
def test_labels_of_other_outputs_are_not_written(name: str, count: int, tmp_path: Path) -> None:
    model = model_for(name)
    model.labels = ["red", "green", "blue", "black"][:count]
    folder = tmp_path / "saved"
    with pytest.raises(vt.InputError, match=f" outputs and {count} labels: set model.labels"):
        vt.save(model, folder / f"theirs{(formats()[name].suffixes or ('',))[0]}", format=name)
    assert not folder.exists()
