"""The published BiT: equal to timm's ResNetV2 reading the same file.

data/bit holds weights in the published layout (two stages, half width, a wide image) and the output of
timm 1.0.31, `ResNetV2(layers=[2, 1], channels=[128, 256], stem_chs=32, stem_type="fixed",
conv_layer=partial(StdConv2d, eps=1e-8))` behind timm's own npz reader. The arrays are in Fortran's order, as
NumPy writes transposed ones.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.checkpoints.formats.bit import BIG_VISION, TENSORFLOW, bit_rows, write_bit
from vitreous.checkpoints.tensors import write_npz
from vitreous.checkpoints.weights import stored_weights, write_weight_rows
from vitreous.errors import InputError

CASE = Path(__file__).parent / "data" / "bit"


@pytest.fixture
def images() -> torch.Tensor:
    return torch.from_numpy(np.load(CASE / "input.npy"))


def test_logits_are_timms(images: torch.Tensor) -> None:
    expected = np.load(CASE / "expected.npz")
    model = vt.load(CASE / "weights.npz")
    with torch.no_grad():
        assert np.abs(model(images).numpy() - expected["logits"]).max() < 2e-5
        assert np.abs(model.backbone(images[:1]).numpy() - expected["feature_map"]).max() < 1e-4


@pytest.mark.parametrize("names", [TENSORFLOW, BIG_VISION], ids=["tensorflow", "big_vision"])
def test_both_codes_names_are_read(names: object, images: torch.Tensor, tmp_path: Path) -> None:
    model = vt.load(CASE / "weights.npz")
    write_npz(write_weight_rows(bit_rows(names), stored_weights(model)), tmp_path / "again.npz")
    with torch.no_grad():
        torch.testing.assert_close(vt.load(tmp_path / "again.npz")(images), model(images), atol=1e-5, rtol=0)


def test_numbered_convolutions_of_tensorflow_are_read(tmp_path: Path) -> None:
    arrays = dict(np.load(CASE / "weights.npz"))
    name = "resnet/block1/unit01/a/proj/standardized_conv2d/kernel"
    arrays[name.replace("conv2d/", "conv2d_1/")] = arrays.pop(name)
    np.savez(tmp_path / "numbered.npz", **arrays)
    assert vt.load(tmp_path / "numbered.npz").config.layers == (2, 1)


def test_a_named_bit_has_the_published_number_of_weights() -> None:
    with torch.device("meta"):
        model = vt.create("BiT-R50x1")
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_549_352


def test_a_vit_is_no_bit(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="bit cannot hold a ViT, only a BiT: use google"):
        write_bit(vt.create("ViT-Ti/16", image_size=32, depth=1), tmp_path / "no.npz")
