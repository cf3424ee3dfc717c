"""Models of other libraries, as they are: their attention is that of the same weights in vitreous."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vitreous as vt
from vitreous.checkpoints.live import preprocessing_of
from vitreous.errors import InputError
from vitreous.inspection.live import LiveViT
from vitreous.inspection.measures import Survey, survey
from vitreous.inspection.model_figures import first_filters, position_rows
from vitreous.inspection.relevance import relevances
from vitreous.models.preprocessing import Preprocessing

from .foreign import WAYS, torchvision_like

CLOSE = 1e-5


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def own_maps(images: Tensor) -> list[Tensor]:
    """The maps of the same weights in vitreous."""
    model = vt.load(torchvision_like())
    with vt.capture_attention(model) as attention, torch.no_grad():
        model(images)
    return attention.maps


@pytest.mark.parametrize("grad", ["grad", "no grad", "inference"])
@pytest.mark.parametrize("way", WAYS)
def test_maps_of_every_layer_and_head_equal_those_of_vitreous(
    way: str, grad: str, images: Tensor, own_maps: list[Tensor]
) -> None:
    model = WAYS[way]()
    contexts = {"grad": torch.enable_grad, "no grad": torch.no_grad, "inference": torch.inference_mode}
    with contexts[grad]():
        plain = model(images)
        with vt.capture_attention(model) as attention:
            watched = model(images)
    assert torch.equal(plain, watched)
    assert watched.requires_grad == (grad == "grad")
    assert len(attention.maps) == 3
    for mine, theirs in zip(own_maps, attention.maps, strict=True):
        assert mine.shape == theirs.shape
        assert (mine - theirs).abs().max() < CLOSE
    for name in attention.names:
        assert isinstance(model.get_submodule(name), nn.Module)


def test_a_pooling_with_another_number_of_queries_is_asked_for_by_its_class(images: Tensor) -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = torchvision_like().encoder
            self.pooling = nn.MultiheadAttention(32, 2, batch_first=True)

        def forward(self, z: Tensor) -> Tensor:
            z = self.encoder(z)
            return self.pooling(z[:, :1], z, z, need_weights=False)[0]

    model, z = Pooled().eval(), torch.randn(2, 17, 32)
    with torch.no_grad(), vt.capture_attention(model) as attention:
        model(z)
    assert [each.shape[1:] for each in attention.maps] == [(4, 17, 17)] * 3
    with torch.no_grad(), vt.capture_attention(model, kind=nn.MultiheadAttention) as attention:
        model(z)
    assert [tuple(each.shape[1:]) for each in attention.maps][-1] == (2, 1, 17)


def test_half_precision_maps_are_computed_in_float32(images: Tensor) -> None:
    model = torchvision_like().bfloat16()
    with torch.no_grad(), vt.capture_attention(model) as attention:
        model(images.bfloat16())
    assert attention.maps[0].dtype == torch.float32
    sums = attention.maps[0].sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


PREPROCESSING = Preprocessing(size=(32, 32))


@pytest.fixture(scope="module")
def own(images: Tensor) -> tuple[vt.ViT, Survey]:
    """The same weights in vitreous, and all that is measured of them."""
    model = vt.load(torchvision_like())
    return model, survey(model, images, patch=(1, 2))


@pytest.mark.parametrize("way", ["nn.MultiheadAttention", "softmax", "nn.TransformerEncoderLayer"])
def test_measures_of_a_module_as_it_is_equal_those_of_vitreous(
    way: str, images: Tensor, own: tuple[vt.ViT, Survey]
) -> None:
    """Rollout, distance, entropy, logit lens, features for CKA, relevance, importance of heads."""
    model, expected = own
    module = WAYS[way]().train()
    before = {name: set(vars(each)) for name, each in module.named_modules()}
    live = LiveViT(module, PREPROCESSING)
    live.eval()
    measured = survey(live, images, patch=(1, 2))
    for name, value in vars(expected).items():
        pairs = [(value, getattr(measured, name))]
        if name == "lens":
            pairs = [(each, getattr(measured.lens, field)) for field, each in vars(value).items()]
        for mine, theirs in pairs:
            assert (mine.float() - theirs.float()).abs().max() < CLOSE, name
    for one, other in zip(relevances(model, images, 3), relevances(live, images, 3), strict=True):
        assert (one - other).abs().max() < CLOSE * one.abs().max().clamp_min(1)
    assert torch.equal(first_filters(live), first_filters(model))
    assert torch.equal(position_rows(live), position_rows(model))
    assert before == {name: set(vars(each)) for name, each in module.named_modules()}
    assert all(each.grad is None for each in module.parameters())


class Headless(nn.Module):
    """Any encoder after a stem, with a way to read its tokens."""

    def __init__(self, read: str, prefix: int) -> None:
        super().__init__()
        base = torchvision_like()
        self.conv_proj, self.layers, self.ln, self.head = (
            base.conv_proj,
            base.encoder.layers,
            base.encoder.ln,
            nn.Linear(64 if read == "class+mean" else 32, 5),
        )
        self.prefix = nn.Parameter(torch.randn(1, prefix, 32))
        self.read = read

    def forward(self, images: Tensor) -> Tensor:
        patches = self.conv_proj(images).flatten(2).transpose(1, 2)
        z = self.ln(self.layers(torch.cat([self.prefix.expand(len(images), -1, -1), patches], dim=1)))
        mean, first = z[:, self.prefix.shape[1] :].mean(1), z[:, :2]
        read = {
            "class": lambda: first[:, 0],
            "mean": lambda: mean,
            "mean-all": lambda: z.mean(1),
            "class+mean": lambda: torch.cat([first[:, 0], mean], dim=1),
            "class+distillation": lambda: first.mean(1),
        }
        return self.head(read[self.read]())


@pytest.mark.parametrize(
    ("read", "prefix"),
    [("class", 4), ("mean", 0), ("mean-all", 1), ("class+mean", 1), ("class+distillation", 2)],
)
def test_what_the_head_reads_is_found_by_the_gradient(read: str, prefix: int) -> None:
    live = LiveViT(Headless(read, prefix), PREPROCESSING)
    assert (live.config.pooling.kind, live.config.num_prefix_tokens) == (read, prefix)


@pytest.mark.slow
@pytest.mark.peers
def test_a_page_of_a_module_as_it_is(tmp_path: Path) -> None:
    """Its layers are its own, so that vitreous cannot read the weights; it is left in training mode."""
    module = WAYS["softmax"]().train()
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, (40, 40, 3), dtype=np.uint8) for _ in range(2)]
    found = vt.inspect(module, images, out=tmp_path / "i", attributions=1, language="en", progress=False)
    page = found.report.read_text(encoding="utf-8")
    assert module.training
    assert "Measured on the TorchvisionViT itself" in page
    assert "with randomized weights: " in page
    arrays = np.load(found.arrays)
    assert arrays["attribution_integrated_gradients"].shape == (1, 4, 4)
    assert [each["figure"] for each in found.summary["left_out"]] == [
        "Position-embedding similarity",  # of 4 x 4 positions
        "Layer similarity (CKA)",
        "Architecture",
    ]


def test_a_module_whose_layers_have_other_tokens_is_refused_with_what_remains() -> None:
    class Shrinking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.layers = nn.Conv2d(3, 32, 8, 8), torchvision_like().encoder.layers

        def forward(self, images: Tensor) -> Tensor:
            z = self.stem(images).flatten(2).transpose(1, 2)
            for layer in self.layers:
                z = layer(z)[:, ::2]
            return z.mean(1)

    with pytest.raises(InputError, match=r"same tokens in every layer .*capture_attention gives its maps"):
        vt.inspect(Shrinking(), np.zeros((32, 32, 3), np.uint8), preprocessing=PREPROCESSING)


@pytest.mark.parametrize(("mode", "resize"), [("center", "crop"), ("squash", "squash"), ("border", "fit")])
def test_the_crop_mode_of_timm_is_that_of_the_module(mode: str, resize: str) -> None:
    module = WAYS["softmax"]()
    module.pretrained_cfg = {"input_size": (3, 32, 32), "crop_mode": mode, "crop_pct": 0.9}
    assert preprocessing_of(module).resize == resize
    module.pretrained_cfg = {"input_size": (3, 32, 32)}
    assert preprocessing_of(module).resize == "crop"


def test_preprocessing_is_for_modules_that_have_none() -> None:
    with pytest.raises(InputError, match="preprocessing= is for modules of other libraries"):
        vt.inspect("ViT-Ti/16", preprocessing=PREPROCESSING)


@pytest.mark.slow
@pytest.mark.peers
def test_torchvisions_own_model_is_captured_and_inspected(
    images: Tensor, own_maps: list[Tensor], tmp_path: Path
) -> None:
    vision = pytest.importorskip("torchvision.models.vision_transformer", reason="torchvision")
    sizes = {"image_size": 32, "patch_size": 8, "num_classes": 5}
    model = vision.VisionTransformer(num_layers=3, num_heads=4, hidden_dim=32, mlp_dim=64, **sizes).eval()
    twin = torchvision_like()
    model.load_state_dict(twin.state_dict())
    for context in (torch.enable_grad, torch.inference_mode):
        with context(), vt.capture_attention(model) as attention:
            logits = model(images)
        assert (logits - twin(images)).abs().max() < CLOSE
        assert len(attention.maps) == 3
        for mine, theirs in zip(own_maps, attention.maps, strict=True):
            assert (mine - theirs).abs().max() < CLOSE
    pixels = np.random.default_rng(0).integers(0, 255, (2, 32, 32, 3), dtype=np.uint8)
    found = vt.inspect(model, pixels, out=tmp_path / "page", progress=False)
    same = vt.inspect(vt.load(twin), pixels, out=tmp_path / "twin", progress=False)
    with np.load(found.arrays) as of_torchvision, np.load(same.arrays) as of_vitreous:
        for name in ("relevance", "distance", "readout_attention", "lens_probabilities"):
            assert np.abs(of_torchvision[name] - of_vitreous[name]).max() < 1e-4, name
