"""The diagram of a model's stages, and the distribution of their weights."""

from __future__ import annotations

import re

import pytest
import torch

import vitreous as vt
from vitreous.inspection.architecture import BINS, architecture_figure, histograms, outline
from vitreous.models.description import describe, on_meta
from vitreous.models.names import config_of


@pytest.mark.slow
def test_every_parameter_belongs_to_one_stage() -> None:
    for name in ("ViT-Ti/16", "R26+ViT-B/32", "BiT-R50x1"):
        config = config_of(name, num_classes=3, image_size=64)
        listed = [each for stage in describe(config).stages for each in stage.weights]
        assert sorted(listed) == sorted(name for name, _ in on_meta(config).named_parameters())


def test_a_histogram_counts_every_weight() -> None:
    torch.manual_seed(0)
    weights = {"bias": torch.zeros(10), "weight": torch.cat([torch.randn(5000), torch.tensor([100.0])])}
    whole, parts = histograms(weights)
    assert whole is not None
    both = torch.cat(list(weights.values()))
    assert (whole.least, whole.most) == (both.min().item(), 100.0)
    assert abs(whole.mean - both.mean().item()) < 1e-5
    assert abs(whole.std - both.std(correction=0).item()) < 1e-4
    assert [(each.name, each.shape, each.low) for each in parts] == [
        ("bias", "10", whole.low),
        ("weight", "5001", whole.low),
    ]
    heights = [1 - float(y) for y in re.findall(r"\d+,([\d.e-]+)", parts[0].outline)]
    assert max(heights) == 1
    assert sum(height > 0 for height in heights) == 2, "all of the bias is in one bin, drawn as a step"
    assert histograms({}) == (None, [])
    constant, _ = histograms({"one": torch.ones(3)})
    assert constant is not None
    assert constant.std == 0
    assert outline(torch.tensor([1.0, 0.0])).startswith("0,1 0,0 1,0 1,1 2,1")
    assert len(constant.outline.split()) == 2 * BINS + 2


def test_the_diagram_has_each_stage_once_and_layers_as_a_group() -> None:
    model = vt.create("ViT-Ti/16", num_classes=3, image_size=32, depth=2)
    html = architecture_figure(model).html
    assert html.count("2 layers, each:") == 1
    for stage in describe(model).stages:
        assert stage.name in html
    assert html.count('role="img"') == html.count("<svg")
    names = set(re.findall(r'scope="row"><code>(.*?)</code>', html))
    assert names == {name for name, _ in model.named_parameters()}
    assert re.search(r'aria-label="weights of head.weight: mean 0, standard deviation 0', html)
