"""The cost of four layers, counted and measured."""

import math

import pytest
import torch

from vitreous.addons.studies.complexity import LAYERS, NEIGHBORS, LayerTrial, counted_operations, exponent
from vitreous.addons.studies.laboratory import Laboratory


def test_the_exponent_of_a_power_law():
    values = (1, 2, 4, 8, 16)
    assert exponent(values, [3 * v**1.7 for v in values]) == pytest.approx(1.7)
    # What a call costs in any case is seen in the small values, which do not count.
    assert exponent(values, [100.0, 100.0, 16.0, 64.0, 256.0]) == pytest.approx(2)


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_keeps_the_shape_and_counts_as_its_formula(name):
    make, _, (n, d) = LAYERS[name]
    assert make(8)(torch.randn(1, 5, 8)).shape == (1, 5, 8)
    base, longer, wider = (
        counted_operations(make(width), length, width) for length, width in ((64, 8), (128, 8), (64, 16))
    )
    assert math.log2(longer / base) == pytest.approx(n)
    assert math.log2(wider / base) == pytest.approx(d)


def test_restricted_attention_is_attention_with_a_band():
    z, half = torch.randn(1, 90, 8), NEIGHBORS // 2
    places = torch.arange(90)
    band = (places[:, None] - places).abs() <= half
    wanted = torch.nn.functional.scaled_dot_product_attention(z, z, z, band)
    torch.testing.assert_close(LAYERS["restricted self-attention"][0](8)(z), wanted)


def test_a_trial_measures_growth_and_leaves_the_threads_alone(tmp_path):
    trial = LayerTrial("convolution", (8, 16, 32), (4, 8, 16), held_length=8, held_width=4, repeats=1)
    threads = torch.get_num_threads()
    laboratory = Laboratory(cache=tmp_path, device=torch.device("cpu"))
    values = laboratory.run(trial, 0)[1].values
    assert torch.get_num_threads() == threads
    assert values["operations-off"] == 0
    assert values["time-d-off"] == values["time-d"] - 2
    assert values["long"] == 1000 * values["seconds at n = 32, d = 4"] > 0
