"""The cost of three layers, measured."""

import json

import pytest
import torch

from vitreous.studies.complexity import LAYERS, Range, exponent, measure, time_layers


def test_the_exponent_of_a_power_law():
    values = (1, 2, 4, 8, 16)
    assert exponent(values, [3 * v**1.7 for v in values]) == pytest.approx(1.7)
    # What a call costs in any case is seen in the small values, which do not count.
    assert exponent(values, [100.0, 100.0, 16.0, 64.0, 256.0]) == pytest.approx(2)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_every_layer_keeps_the_shape(layer):
    assert layer.make(8)(torch.randn(1, 5, 8)).shape == (1, 5, 8)


def test_tables_and_plots_are_written(tmp_path):
    values = Range((8, 16, 32), (4, 8, 16), held_length=8, held_width=4, repeats=1)
    threads = torch.get_num_threads()
    files = time_layers(tmp_path / "complexity", values).files
    assert torch.get_num_threads() == threads
    assert {path.suffix for path in files} == {".md", ".json", ".svg", ".png"}
    told = json.loads((tmp_path / "complexity" / "results.json").read_text())
    assert [each["layer"] for each in told["layers"]] == [each.name for each in LAYERS]
    assert told["layers"][0]["formula"] == {"n": 2, "d": 1}
    assert all(seconds > 0 for each in told["layers"] for seconds in each["seconds_over_n"])


@pytest.mark.slow
def test_attention_grows_with_the_square_of_the_length_and_the_others_do_not():
    attention, restricted, recurrent, convolution = (
        each.exponents for each in measure(Range((512, 1024, 2048), (64, 128, 256), 256, 128, repeats=5))
    )
    assert attention[0] == pytest.approx(2, abs=0.35)
    assert restricted[0] == pytest.approx(1, abs=0.35)
    assert recurrent[0] == pytest.approx(1, abs=0.35)
    assert convolution[0] == pytest.approx(1, abs=0.35)
    assert convolution[1] > attention[1] + 0.4
