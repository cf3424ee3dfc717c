"""What users call on a model: preprocessing, intermediates, and sentences for wrong shapes and options."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import vitreous as vt
from vitreous.checkpoints.loading import open_checkpoint
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig
from vitreous.models.model import build_model
from vitreous.models.names import config_of, create
from vitreous.models.preprocessing import check_channels

SMALL: dict[str, Any] = {
    "image_size": (16, 24), "patch_size": 8, "width": 12, "depth": 3, "heads": 3, "mlp_dim": 20,
    "num_classes": 5,
}  # fmt: skip


@pytest.fixture
def model() -> vt.ViT:
    found = build_model(ViTConfig(**SMALL)).eval()
    assert isinstance(found, vt.ViT)
    return found


def test_one_image_is_a_sample_and_several_are_a_batch(model: vt.ViT, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)
    image = Image.fromarray(array)
    image.save(tmp_path / "image.png")
    tensor = torch.from_numpy(array)
    expected = model.preprocessing(image)
    assert expected.shape == (3, 16, 24)
    same: list[Any] = [
        tmp_path / "image.png",
        str(tmp_path / "image.png"),
        array,
        tensor,
        tensor.permute(2, 0, 1),
        array / 255,
        tensor.permute(2, 0, 1) / 255,
    ]
    for each in same:
        assert torch.equal(model.preprocessing(each), expected)
    batch = model.preprocessing(same)
    assert torch.equal(batch, expected.expand(len(same), -1, -1, -1))
    assert torch.equal(model.preprocessing(np.stack([array, array])), batch[:2])
    assert torch.equal(model.preprocessing(torch.stack([tensor.permute(2, 0, 1)])), batch[:1])
    assert torch.equal(model.preprocessing([image]), batch[:1])
    gray = model.preprocessing(array[..., 0])
    assert torch.equal(gray, model.preprocessing(array[..., :1]))


def test_preprocessing_is_float32_whatever_the_default(model: vt.ViT) -> None:
    image, before = Image.new("RGB", (40, 30), "teal"), torch.get_default_dtype()
    expected = model.preprocessing(image)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(model.preprocessing(image), expected)
        assert vt.predict(model, image, progress=False)
    finally:
        torch.set_default_dtype(before)


def test_a_configuration_is_created_as_a_name_is() -> None:
    config = vt.create("ViT-Ti/16", image_size=32, depth=1, num_classes=2).config
    again = vt.create(config, seed=3, num_classes=5)
    assert again.config == config.model_copy(update={"num_classes": 5})
    named = vt.create("ViT-Ti/16", image_size=32, depth=1, num_classes=5, seed=3)
    assert torch.equal(again.stem.projection.weight, named.stem.projection.weight)
    with pytest.raises(InputError, match="depht"):
        vt.create(config, depht=2)


def test_preprocessing_is_the_transform_of_a_dataset(model: vt.ViT) -> None:
    class Images(Dataset[Any]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return model.preprocessing(Image.new("RGB", (30, 20), (index, 0, 0))), index

    images, labels = next(iter(DataLoader(Images(), batch_size=4)))
    assert model(images).shape == (4, 5)
    assert labels.tolist() == [0, 1, 2, 3]


@pytest.fixture
def as_users_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checks of shapes and types, which tests turn on."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        ([], "there are no images"),
        (
            np.full((8, 8, 3), 2.0),
            "a floating-point image must have values in 0 ... 1, but this one has 2 ... 2",
        ),
        (np.full((8, 8), np.nan), "its pixels are not all numbers"),
        (np.zeros((8, 8, 5), np.uint8), "an image has 5 bands, and the model takes 3"),
        (torch.zeros(7, dtype=torch.uint8), r"an image of shape \(7,\) is not"),
        (torch.zeros(8, 8, 3, device="meta"), "a tensor on the meta device has no pixels"),
        (torch.zeros(8, 8).to_sparse(), "a tensor of layout torch.sparse_coo has no pixels"),
        ("nowhere.png", "there is no image nowhere.png"),
        ([3], "an object of type int is not an image"),
        (None, "an object of type NoneType is not an image"),
    ],
)
def test_what_is_not_an_image_is_one_sentence(
    model: vt.ViT, images: Any, sentence: str, as_users_run: None
) -> None:
    with pytest.raises(InputError, match=sentence):
        model.preprocessing(images)


def test_a_file_that_is_not_an_image(model: vt.ViT, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(InputError, match=r"cannot read the image .*text.png"):
        model.preprocessing(tmp_path / "text.png")


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ((3, 16, 24), r"a batch of shape \(B, 3, H, W\), not \(3, 16, 24\).*images\[None\]"),
        ((2, 1, 3, 16, 24), r"a batch of shape \(B, 3, H, W\), not \(2, 1, 3, 16, 24\)"),
        ((2, 1, 16, 24), "the images have 1 channels, but the model takes 3"),
        ((2, 3, 32, 24), "the images are 32x24, but the model takes 16x24"),
    ],
)
def test_wrong_shapes_are_one_sentence(
    model: vt.ViT, shape: tuple[int, ...], sentence: str, as_users_run: None
) -> None:
    with pytest.raises(InputError, match=sentence):
        model(torch.zeros(shape))
    if "channels" in sentence or "batch" in sentence:
        with pytest.raises(InputError, match=sentence):
            create("BiT-R50x1", image_size=32, layers=(1,))(torch.zeros(shape))


def test_intermediates_are_the_layers(model: vt.ViT) -> None:
    images = torch.randn(2, 3, 16, 24)
    with torch.no_grad():
        z = model.embed(images)
        first, last = model.intermediates(images, layers=[1, -1])
        torch.testing.assert_close(first, model.blocks[0](z))
        torch.testing.assert_close(last, model.encode(z))
        assert torch.equal(model.intermediates(images, [0])[0], z)
        assert len(model.intermediates(images)) == 3
        assert model.intermediates(images, []) == []
        (maps,) = model.intermediates(images, [3], maps=True, norm=True)
        assert maps.shape == (2, 12, 2, 3)
        torch.testing.assert_close(maps[:, :, 1, 2], model.tokens(images)[:, -1])
    for layer in (4, -4 - 1):
        with pytest.raises(InputError, match=f"there is no layer {layer}: the model has 0 to 3"):
            model.intermediates(images, [layer])


def test_intermediates_of_other_models() -> None:
    images = torch.randn(1, 3, 32, 32)
    bit = create("BiT-R50x1", image_size=32, layers=(1, 1), num_classes=None).eval()
    segmenter = create("Seg-Ti/16", image_size=32, depth=2).eval()
    with torch.no_grad():
        first, second = bit.intermediates(images)
        assert (first.shape, second.shape) == ((1, 256, 8, 8), (1, 512, 4, 4))
        torch.testing.assert_close(
            segmenter.intermediates(images, [2], norm=True)[0], segmenter.tokens(images)
        )
    assert bit.config.grid == (4, 4)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"stem": {"kind": "patch", "form": "convolution", "norm_before": True}}, "set form to linear"),
        (
            {"position": {"kind": "learned", "temperature": 100.0}},
            "model.position.temperature has no effect with model.position.kind=learned",
        ),
        (
            {"stem": {"kind": "patches"}},
            "model.stem: unknown kind 'patches': choose from 'patch', 'convolution'",
        ),
    ],
)
def test_options_without_effect_are_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        config_of("ViT-Ti/16", **fields)


def test_a_part_of_a_named_stem_can_be_changed_alone() -> None:
    assert config_of("ViT-Ti/16", stem={"norm_before": True}).stem.form == "linear"
    hybrid = config_of("R50+ViT-B/16", stem={"norm_eps": 1e-5}).stem
    assert (hybrid.kind, hybrid.norm_eps, hybrid.layers) == ("resnet", 1e-5, (3, 4, 9))
    with pytest.raises(ValueError, match=r"set model\.stem\.kind"):
        ViTConfig(**SMALL, stem={"bias": False})


def test_options_that_were_ignored_work() -> None:
    pooled = build_model(ViTConfig(**SMALL, pooling="attention", attention_dropout=0.3))
    assert pooled.pool.attention.dropout == 0.3


def test_one_number_is_a_square() -> None:
    assert vt.ViTConfig(image_size=224).image_size == (224, 224)
    assert vt.BiTConfig(image_size=64).image_size == (64, 64)
    assert vt.Preprocessing(size=64).size == (64, 64)
    assert create("BiT-R50x1", image_size=64, layers=(1,)).config.image_size == (64, 64)


def test_what_is_no_model_no_checkpoint_and_no_tensor_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"a model is created from a name .* or a configuration, not 5"):
        undressed(config_of)(5)
    with pytest.raises(InputError, match="a checkpoint is a path, a name, a state dict or a module, not int"):
        undressed(open_checkpoint)(5)
    with pytest.raises(InputError, match=r"takes a tensor, not ndarray: model\.preprocessing"):
        check_channels(np.zeros((1, 3, 8, 8)), 3)


def undressed(function: Any) -> Any:
    """The function without the checks of its annotations, which only tests have."""
    return inspect.unwrap(function)


@pytest.mark.parametrize("channels", [2, 4])
def test_an_image_has_one_channel_or_three(channels: int) -> None:
    preprocessing = vt.Preprocessing(size=(8, 8), channels=channels)
    for image in (Image.new("RGB", (9, 9)), Image.new("RGBA", (9, 9)), np.zeros((9, 9), np.uint8)):
        with pytest.raises(InputError, match=f"the model takes {channels}"):
            preprocessing(image)
