"""Every format, any configuration: what a format holds comes back the same, what it cannot hold is named and
nothing is left behind."""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vitreous as vt
from vitreous.checkpoints.format import checkpoint_formats
from vitreous.checkpoints.saving import TOLERANCE, answers_for
from vitreous.models.bit import BiT, BiTConfig
from vitreous.models.config import ViTConfig

FIELDS: dict[str, list[Any]] = {
    "image_size": [(16, 16), (24, 16)],
    "patch_size": [(8, 8), (8, 4)],
    "channels": [3, 3, 1],
    "num_classes": [None, 3, 3],
    "head_dim": [None, None, 4],
    "position": [
        {"kind": kind} for kind in ("learned", "learned", "sincos-2d", "learned-2d", "none", "rotary-2d")
    ],
    "registers": [0, 0, 2],
    "extra_norms": [(), (), ("tokens",)],
    "norm_eps": [1e-6, 1e-5, 1e-12],
    "final_norm": ["tokens", "tokens", "pooled", "none"],
    "qkv_bias": [True, False],
    "qk_norm": ["none", "none", "head"],
    "mlp": ["gelu", "gelu_tanh", "quick_gelu", "swiglu"],
    "layer_scale": [None, 0.1],
    "representation_size": [None, None, 8],
    "stem": [
        {"kind": "patch"},
        {"kind": "patch", "bias": False},
        {"kind": "patch", "form": "linear", "norm_before": True, "norm_after": True},
    ],
}
POOLINGS: list[dict[str, Any]] = [
    {"pooling": "class"},
    {"pooling": "mean"},
    {"pooling": "mean-all"},
    {"pooling": "class+mean"},
    {"pooling": "mean", "class_token": False},
    {"pooling": "attention", "class_token": False},
    {
        "pooling": "class+distillation",
        "final_norm": "tokens",
        "representation_size": None,
    },
]
# What a format is made for: half of its examples are such models, the other half anything at all.
ORDINARY: dict[str, Any] = {
    "channels": 3,
    "head_dim": None,
    "registers": 0,
    "extra_norms": (),
    "qk_norm": "none",
    "norm_eps": 1e-6,
    "mlp": "gelu",
    "final_norm": "tokens",
    "representation_size": None,
    "num_classes": 3,
    "position": {"kind": "learned"},
    "stem": {"kind": "patch"},
    "pooling": "class",
    "class_token": True,
}
WRITTEN = [name for name, format in checkpoint_formats().items() if format.write]
SIZES = {"width": 16, "depth": 2, "heads": 2, "mlp_dim": 32}


def typical_of(format: str) -> dict[str, Any]:
    typical = checkpoint_formats()[format].typical
    return ORDINARY | {name: value for name, value in typical.items() if name in ViTConfig.model_fields}


@st.composite
def fields_of_a_model(draw: Any) -> tuple[dict[str, Any], bool]:
    """Fields drawn freely, and whether the typical ones of the format shall stand over them."""
    fields = {name: draw(st.sampled_from(values)) for name, values in FIELDS.items()}
    return fields | draw(st.sampled_from(POOLINGS)), draw(st.booleans())


def configuration(fields: dict[str, Any]) -> ViTConfig | None:
    try:
        return ViTConfig.checked(SIZES, fields)
    except vt.InputError:  # fields that do not stand together
        return None


@pytest.mark.parametrize("format", WRITTEN)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(drawn=fields_of_a_model())
@torch.no_grad()
def test_any_model_through_any_format(format: str, drawn: tuple[dict[str, Any], bool]) -> None:
    fields, typical = drawn
    config = configuration(fields | typical_of(format) if typical else fields)
    if config is None:
        return
    model = vt.ViT(config).eval()
    for parameter in model.parameters():
        parameter.copy_(0.3 * torch.randn(parameter.shape) + (parameter == 1))
    if config.pooling.kind == "mean" and config.position.kind == "sincos-2d":  # SimpleViT has no bias there
        for block in model.blocks:
            block.attention.out.bias.zero_()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model{(checkpoint_formats()[format].suffixes or ('',))[0]}"
        try:
            difference = vt.save(model, path, format=format)
        except vt.InputError as error:
            refusal = str(error)
            assert not list(Path(folder).iterdir()), "nothing may be left behind"
        else:
            refusal = ""
        if refusal:
            refused = re.search(r"cannot hold|has no architecture|holds a BiT", refusal)
            assert refused, f"{refusal} -> edit `limits` or `unsaid` of the Format of {format}"
            return
        again = vt.load(path, **answers_for(model, checkpoint_formats()[format].unsaid_at(path)))
        assert again.config.num_classes == config.num_classes
        images = torch.randn(2, config.channels, *config.image_size)
        expected = model(images)
        assert difference <= TOLERANCE * max(
            1, expected.abs().max().item(), model.tokens(images).abs().max().item()
        )
        torch.testing.assert_close(again(images), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("order", ["post-activation", "pre-activation"])
@torch.no_grad()
def test_bit(order: str, tmp_path: Path) -> None:
    rest = (
        {}
        if order == "pre-activation"
        else {"standardization": "std", "standardization_eps": 1e-5, "norm_eps": 1e-6}
    )
    config = BiTConfig(
        image_size=(32, 32), num_classes=4, layers=(1, 2), width_factor=0.5, order=order, **rest
    )
    model = BiT(config).eval()
    for parameter in model.parameters():
        parameter.copy_(0.3 * torch.randn(parameter.shape))
    for format in ("google", "bit"):
        right = (format == "google") == (order == "post-activation")
        if right:
            assert vt.save(model, tmp_path / f"{format}.npz", format=format) < 1e-4
            assert vt.load(tmp_path / f"{format}.npz").config.layers == (1, 2)
        else:
            with pytest.raises(vt.InputError, match="cannot hold order"):
                vt.save(model, tmp_path / f"{format}.npz", format=format)
            assert not (tmp_path / f"{format}.npz").exists()
    with pytest.raises(vt.InputError, match="cannot hold"):
        vt.save(model, tmp_path / "timm", format="timm")


@pytest.mark.parametrize("format", ["torchvision", "frankzvit", "vit-pytorch", "dinov2"])
def test_a_format_of_one_family_says_so(tiny: Any, tmp_path: Path, format: str) -> None:
    bit = BiT(BiTConfig(image_size=(32, 32), num_classes=4, layers=(1,), width_factor=0.5)).eval()
    with pytest.raises(vt.InputError, match=f"^{format} cannot hold a BiT, only a ViT$"):
        vt.save(bit, tmp_path / "bit.pth", format=format)
    if format != "dinov2":
        with pytest.raises(vt.InputError, match=f"^{format} cannot hold a model without a head: its class"):
            vt.save(tiny(num_classes=None), tmp_path / "headless.pth", format=format)


def test_what_is_dropped_is_named(tiny: Any, tmp_path: Path) -> None:
    model = tiny(representation_size=24, norm_eps=1e-6)
    with pytest.raises(
        vt.InputError, match=r"timm cannot hold representation_size=24.*`drop` representation_size"
    ):
        vt.save(model, tmp_path / "m", format="timm")
    assert not list(tmp_path.iterdir())
    vt.save(model, tmp_path / "m", format="timm", drop=["representation_size"])
    again = vt.load(tmp_path / "m")
    assert again.config.num_classes is None
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(again(images), model.pool(model.tokens(images)))


def test_what_can_be_dropped_is_named_as_it_must_be_written(tiny: Any, tmp_path: Path) -> None:
    model = tiny(representation_size=24)
    with pytest.raises(vt.InputError, match=r"`drop` representation_size"):
        vt.save(model, tmp_path / "m", format="huggingface")
    vt.save(model, tmp_path / "m", format="huggingface", drop=["representation_size"])
    assert vt.load(tmp_path / "m").config.num_classes is None


def test_an_approximation_must_be_agreed_to(tiny: Any, tmp_path: Path) -> None:
    """Hugging Face's ViT has LayerNorm eps 1e-12, timm 1e-6: other logits, if only a little."""
    model = tiny(norm_eps=1e-12)
    with pytest.raises(vt.InputError, match="norm_eps=1e-12, only 1e-06"):
        vt.save(model, tmp_path / "m", format="timm")
    vt.save(model, tmp_path / "m", format="timm", drop=["norm_eps"])
    assert vt.load(tmp_path / "m").config.norm_eps == 1e-6


def test_unknown_names(tiny: Any, tmp_path: Path) -> None:
    model = tiny()
    with pytest.raises(vt.InputError, match="did you mean 'torchvision'"):
        vt.save(model, tmp_path / "m.pth", format="torchvison")
    with pytest.raises(vt.InputError, match="cannot drop 'depth'"):
        vt.save(model, tmp_path / "m", format="timm", drop=["depth"])
    with pytest.raises(vt.InputError, match=r"ends in \.pth"):
        vt.save(model, tmp_path / "m.npz", format="torchvision")


def test_a_difference_leaves_nothing_behind(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer with a mistake is found out before its file has a name."""

    right = checkpoint_formats()["torchvision"]

    def wrong(model: Any, path: Path) -> None:
        with torch.no_grad():
            model.head.bias.add_(0.1)
            right.write(model, path)
            model.head.bias.sub_(0.1)

    monkeypatch.setitem(checkpoint_formats(), "torchvision", dataclasses.replace(right, write=wrong))
    with pytest.raises(vt.InputError, match=r"differs by 1\.0e-01"):
        vt.save(tiny(), tmp_path / "m.pth", format="torchvision")
    assert not list(tmp_path.iterdir())


def test_preprocessing_and_labels_come_along(tiny: Any, tmp_path: Path) -> None:
    model = tiny()
    model.labels = ["a", "b", "c", "d", "e"]
    looks = [
        {"resize": "squash", "interpolation": "bilinear"},
        {"resize": "crop", "crop_fraction": 0.8},
        {"resize": "squash", "crop_fraction": 0.8},
    ]
    for number, look in enumerate(looks):
        mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
        model.preprocessing = vt.Preprocessing(size=(32, 32), mean=mean, std=std, **look)
        for format in ("vitreous", "timm", "huggingface"):
            path = tmp_path / f"{format}{number}"
            vt.save(model, path, format=format)
            again = vt.load(path)
            start = "floored" if format == "huggingface" and "crop_fraction" in look else "rounded"
            assert again.preprocessing == model.preprocessing.model_copy(update={"crop_start": start}), format
            assert again.labels == model.labels, format


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ("classification", "single_label_classification"),
        ("multilabel", "multi_label_classification"),
        ("regression", "regression"),
    ],
)
def test_the_task_comes_along(tiny: Any, tmp_path: Path, task: str, problem: str) -> None:
    model = tiny()
    model.task = task
    vt.save(model, tmp_path / "own")
    vt.save(model, tmp_path / "theirs", format="huggingface")
    assert json.loads((tmp_path / "own" / "config.json").read_text())["task"] == task
    assert json.loads((tmp_path / "theirs" / "config.json").read_text())["problem_type"] == problem
    for folder in ("own", "theirs"):
        assert vt.load(tmp_path / folder).task == task
        assert vt.resize(vt.load(tmp_path / folder), 32).task == task
        assert vt.load(tmp_path / folder, num_classes=5).task == task
        assert vt.load(tmp_path / folder, num_classes=None).task is None


def test_a_pretrained_encoder_with_a_new_head_classifies(tiny: Any, tmp_path: Path) -> None:
    encoder = tiny(num_classes=None)
    encoder.task = "mae"
    vt.save(encoder, tmp_path / "encoder")
    assert vt.load(tmp_path / "encoder").task == "mae"
    assert vt.load(tmp_path / "encoder", num_classes=3).task == "classification"


@pytest.mark.parametrize(
    ("folder", "key", "message"),
    [
        ("own", "task", "config.json: task must be a name"),
        ("theirs", "problem_type", "unknown problem_type 3"),
    ],
)
def test_a_task_that_is_not_a_name_is_refused(
    tiny: Any, tmp_path: Path, folder: str, key: str, message: str
) -> None:
    vt.save(tiny(), tmp_path / folder, format={"own": "vitreous", "theirs": "huggingface"}[folder])
    config = tmp_path / folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {key: 3}))
    with pytest.raises(vt.InputError, match=message):
        vt.load(tmp_path / folder)


def test_saving_over_a_model_must_be_asked_for(tiny: Any, tmp_path: Path) -> None:
    one, other = tiny(), tiny()
    vt.save(one, tmp_path / "m")
    with pytest.raises(vt.InputError, match="choose another path, or pass overwrite=True"):
        vt.save(other, tmp_path / "m")
    assert torch.equal(vt.load(tmp_path / "m").head.weight, one.head.weight)
    vt.save(other, tmp_path / "m", overwrite=True)
    assert torch.equal(vt.load(tmp_path / "m").head.weight, other.head.weight)
    names = sorted(path.name for path in (tmp_path / "m").iterdir())
    assert names == ["README.md", "config.json", "model.safetensors"]


def test_layers_that_share_their_positions(tmp_path: Path) -> None:
    """Shared weights are stored once and are shared again."""
    position = {"kind": "learned", "where": "every-layer-shared"}
    model = vt.create("ViT-Ti/16", image_size=32, depth=3, num_classes=2, position=position).eval()
    vt.save(model, tmp_path / "m")
    again = vt.load(tmp_path / "m")
    assert again.blocks[0].position is again.blocks[2].position
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(again.tokens(images), model.tokens(images))
