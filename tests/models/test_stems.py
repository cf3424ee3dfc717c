"""Every kind of stem in every place that shows, draws, exports or refuses a model: a new kind that is missing
in one of them fails here."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import vitreous as vt
from vitreous.addons.learn_page.page import reason_against
from vitreous.inspection.model_figures import first_filters, model_summary
from vitreous.languages import speaking
from vitreous.models.config_parts import Stem

# The kind's own smallest settings; those of patches are the defaults.
SMALLEST: dict[str, dict[str, Any]] = {
    "patch": {"stem": {"kind": "patch"}},
    "convolution": {"stem": {"kind": "convolution", "widths": (8, 8), "strides": (4, 4)}},
    "resnet": {"stem": {"kind": "resnet", "layers": (1,), "width_factor": 0.5}},
    "efficientnet-lite": {"stem": {"kind": "efficientnet-lite", "blocks": 6}},
}
KINDS = [each.model_fields["kind"].default for each in get_args(get_args(Stem)[0])]


def model_of(kind: str, **changes: Any) -> vt.ViT:
    fields = {"image_size": 32, "patch_size": 16, "num_classes": 3, "width": 16, "depth": 1, "heads": 2}
    model = vt.create(vt.ViTConfig(**{**fields, "mlp_dim": 32, **SMALLEST[kind], **changes}))
    assert isinstance(model, vt.ViT)
    model.labels = ["a", "b", "c"]
    return model


def test_every_kind_is_tried_here() -> None:
    assert set(KINDS) == set(SMALLEST)


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stem_is_described_and_drawn(kind: str, language: str) -> None:
    model = model_of(kind)
    with speaking(language):
        assert model_summary(model)
        for part in ("model", "matrices"):
            assert "<svg" in vt.draw(model, part=part).svg
    filters = first_filters(model)
    assert filters is not None
    assert filters.shape[1] == 3
    assert any("1905.11946" in each.equation or each.parameters for each in vt.describe(model).stages)


@pytest.mark.parametrize("kind", KINDS)
def test_the_learn_page_runs_it_or_says_why_not(kind: str) -> None:
    assert (reason_against(model_of(kind)) is None) == (kind in ("patch", "convolution"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_stem_is_saved_and_inspected(kind: str, tmp_path: Path) -> None:
    model, images = model_of(kind).eval(), torch.randn(2, 3, 32, 32)
    torch.nn.init.normal_(model.head.weight)
    vt.save(model, tmp_path / "saved")
    with torch.inference_mode():
        assert torch.equal(vt.load(tmp_path / "saved")(images), model(images))
        with vt.capture_attention(model) as attention:
            model(images)
    torch.testing.assert_close(attention.maps[0].sum(dim=-1), torch.ones(2, 2, 5))


@pytest.mark.slow
@pytest.mark.parametrize("side", [64, 97])
def test_a_hybrid_of_several_maps_is_exported(side: int, tmp_path: Path) -> None:
    """Where a side is odd, the halved maps of cells have an edge of half cells."""
    stem = {"kind": "efficientnet-lite", "blocks": 16, "maps": "several", "projection": False}
    changes: dict[str, Any] = {"image_size": side, "patch_size": 32, "width": 1984, "edge": "drop"}
    model = model_of("patch", stem=stem, **changes)
    written = vt.export(model, out=tmp_path / "m.onnx", progress=False)
    assert written.max_abs_difference <= 1e-4
    int8 = vt.export(model, out=tmp_path / "m.pt2", precision="int8", progress=False)
    assert int8.path.is_file()


def test_a_stem_that_does_not_fit_is_refused() -> None:
    lite = {"kind": "efficientnet-lite"}
    with pytest.raises(vt.InputError, match="EfficientNet's stride 16"):
        vt.create("ViT-Ti/8", stem=lite)
    with pytest.raises(vt.InputError, match="set width to 112, not 192"):
        vt.create("ViT-Ti/16", stem=lite | {"projection": False})
    with pytest.raises(vt.InputError, match="set patch_size to 16"):
        vt.create("ViT-Ti/32", stem=lite | {"projection": False}, width=112, heads=2)
    with pytest.raises(vt.InputError, match="needs all 16 blocks"):
        vt.create("ViT-Ti/32", stem=lite | {"maps": "several"})
    with pytest.raises(vt.InputError, match="unknown EfficientNet-Lite 'EfficientLite4'"):
        vt.create("EfficientLite4+ViT-Ti/16")
    names = vt.list_models("EfficientLite0*")
    assert [vt.create(name, num_classes=2).config.stem.blocks for name in names] == [11, 11, 16]
