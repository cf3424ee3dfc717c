"""Drawings of architectures: well-formed, with the shapes that are measured, in both languages and themes."""

from __future__ import annotations

import base64
import re
import runpy
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import vitreous as vt
from vitreous.addons.text.config import TransformerConfig

EXAMPLE = {
    "image_size": 32,
    "width": 3,
    "depth": 2,
    "heads": 3,
    "head_dim": 4,
    "mlp_dim": 4,
    "num_classes": 10,
}
SETTINGS = {f"model.{name}": value for name, value in EXAMPLE.items()}


def texts(svg: str) -> str:
    """All words of a figure, which must be well-formed and refer to nothing outside."""
    root = ET.fromstring(svg)
    assert root.tag.endswith("svg")
    assert not re.search(r"(?:href|src|url)\s*[=(]", svg)
    found = ["".join(each.itertext()) for each in root.iter() if each.tag.endswith("}text")]
    assert not [each for each in found if "{" in each or "undefined" in each]
    return "\n".join(found)


def places(svg: str) -> list[float]:
    """The left and right ends of what is drawn, words by an estimate."""
    root, found = ET.fromstring(svg), []
    for each in root.iter():
        tag = each.tag.split("}")[1]
        if tag == "rect":
            found += [float(each.get("x", 0)), float(each.get("x", 0)) + float(each.get("width", 0))]
        elif tag == "text":
            written = "".join(each.itertext())
            wide = sum(13 if ord(letter) > 0x1100 else 7 for letter in written)
            x, anchor = float(each.get("x", 0)), each.get("text-anchor")
            left = x - {"start": 0, "middle": wide / 2, "end": wide}[str(anchor)]
            found += [left, left + wide]
    return found


def test_the_example_has_the_matrices_of_the_lessons() -> None:
    words = texts(vt.draw("ViT-Ti/16", "matrices", settings=SETTINGS, language="en").svg)
    for shape in ("4 × 768", "4 × 3", "5 × 3", "3 heads of 5 × 4", "3 heads of 5 × 5", "5 × 12"):
        assert shape in words.split("\n"), shape


@pytest.mark.parametrize("part", ["model", "matrices", "block", "head"])
@pytest.mark.parametrize("language", ["en", "ko"])
def test_every_shape_of_a_drawing_is_one_that_describe_measures(part: str, language: str) -> None:
    svg = vt.draw("ViT-Ti/16", part, settings=SETTINGS, language=language).svg
    described = vt.describe("ViT-Ti/16", settings=SETTINGS)
    measured = {
        " × ".join(map(str, each.shape[1:] if each.heads else each.shape)) for each in described.stages
    }
    measured |= {"16 × 16", "32 × 32 × 3"}  # of a patch, and of the image as the paper writes it
    found = set(re.findall(r"\d+(?: × \d+)+", texts(svg)))
    assert found - {"2 × "} <= measured, found - measured
    assert min(places(svg)) >= 0
    assert max(places(svg)) <= 480


CONFIGS: dict[str, Any] = {
    "mean of the patches": ("ViT-Ti/16", {"model.pooling": "mean", "model.class_token": False}),
    "registers, no positions": ("ViT-Ti/16", {"model.registers": 4, "model.position": {"kind": "none"}}),
    "no head": ("ViT-Ti/16", {"model.num_classes": None}),
    "a hybrid": ("R50+ViT-B/16", None),
    "a ResNet": ("BiT-R50x1", None),
    "post-norm": ("ViT-Ti/16", {"model.norm": "post"}),
}


def test_each_head_has_a_pattern_of_its_own() -> None:
    weights = re.findall(
        r'class="weight" opacity="([^"]*)"', vt.draw("ViT-Ti/16", "matrices", settings=SETTINGS).svg
    )
    each = len(weights) // 3
    heads = [weights[start : start + each] for start in range(0, 3 * each, each)]
    assert heads[0] != heads[1] != heads[2] != heads[0]


@pytest.mark.parametrize("name", CONFIGS)
def test_any_configuration_is_drawn(name: str) -> None:
    model, settings = CONFIGS[name]
    svg = vt.draw(model, settings=settings).svg
    assert texts(svg)
    assert max(places(svg)) <= 480


def test_the_encoder_decoder_of_2017() -> None:
    config = TransformerConfig.base()
    words = texts(vt.draw(config, language="en").svg)
    for each in ("Encoder: 6 × this layer", "Causal self-attention", "8 heads of 64", "512 → 2048 → 512"):
        assert each in words
    assert "인과적 셀프 어텐션" in texts(vt.draw(config, language="ko").svg)


def test_themes_files_and_bad_input(tmp_path: Path) -> None:
    light, dark, auto = (vt.draw("ViT-Ti/16", theme=theme).svg for theme in ("light", "dark", "auto"))
    assert light != dark
    assert "prefers-color-scheme" in auto
    assert "prefers-color-scheme" not in light + dark
    drawing = vt.draw("ViT-Ti/16", out=tmp_path / "deep" / "vit.svg")
    assert drawing.path
    assert drawing.path.read_text("utf-8") == drawing.svg
    shown = drawing._repr_html_()
    assert base64.b64decode(shown.split("base64,")[1].rstrip('">')).decode() == drawing.svg
    assert shown.startswith('<img alt="')
    with pytest.raises(vt.InputError, match="did you mean 'block'"):
        vt.draw("ViT-Ti/16", "blok")
    with pytest.raises(vt.InputError, match="theme 'drak'"):
        vt.draw("ViT-Ti/16", theme="drak")


@pytest.mark.slow
def test_the_files_of_the_documentation_are_what_is_drawn_today() -> None:
    docs = Path(__file__).parents[2] / "docs"
    for name, svg in runpy.run_path(str(docs / "make_drawings.py"))["drawn"]():
        assert (docs / "figures" / name).read_text("utf-8") == svg, "run python docs/make_drawings.py"
