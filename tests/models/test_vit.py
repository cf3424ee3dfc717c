"""The assembled model: its equations, its numbers, and every configuration that validates."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vitreous as vt
from vitreous.errors import InputError
from vitreous.layers.block import StochasticDepth
from vitreous.models.bit import BiTConfig
from vitreous.models.catalog import list_models, parameters_of_names
from vitreous.models.config import ViTConfig
from vitreous.models.model import build_model
from vitreous.models.names import config_of, create
from vitreous.models.vit import ViT

# facts of Table 1 and of the published checkpoints: parameters with a 1000-class head at 224 pixels
PARAMETERS = {
    "ViT-Ti/16": 5_717_416,
    "ViT-S/16": 22_050_664,
    "ViT-B/16": 86_567_656,
    "ViT-B/32": 88_224_232,
    "ViT-L/16": 304_326_632,
    "ViT-H/14": 632_045_800,
    "R50+ViT-B/16": 98_659_112,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_counts(name: str) -> None:
    with torch.device("meta"):
        model = create(name)
    assert parameter_count(model) == PARAMETERS[name]


@pytest.mark.parametrize("name", list_models())
def test_the_list_of_names_has_their_parameters(name: str) -> None:
    """They are stored, so that they can be listed without PyTorch. Layers of an encoder have the same size,
    which two models of different depth tell."""
    config = config_of(name)
    with torch.device("meta"):
        if isinstance(config, BiTConfig):
            counted = parameter_count(build_model(config))
        else:
            one, two = (parameter_count(create(name, depth=depth)) for depth in (1, 2))
            counted = one + (config.depth - 1) * (two - one)
    assert parameters_of_names()[name] == counted


def parameter_count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_patterns_of_names() -> None:
    found = list_models()
    assert set(PARAMETERS) <= set(found)
    assert list_models("R50+*") == [name for name in found if name.startswith("R50+")]
    assert list_models("nothing*") == []


def test_forward_is_equations_1_to_4() -> None:
    model = create("ViT-Ti/16", image_size=32, depth=2, num_classes=5).eval()
    torch.nn.init.normal_(model.prefix)
    torch.nn.init.normal_(model.head.weight)
    images = torch.randn(2, 3, 32, 32)
    z = torch.cat([model.prefix.expand(2, 1, -1), model.stem(images)], dim=1) + model.position.table
    for block in model.blocks:
        z = block.attention(block.attention_norm(z)) + z
        z = block.mlp(block.mlp_norm(z)) + z
    torch.testing.assert_close(model(images), model.head(model.norm(z)[:, 0]), atol=1e-5, rtol=1e-5)


stems = st.sampled_from(
    [
        {"kind": "patch"},
        {"kind": "patch", "form": "linear", "norm_before": True, "norm_after": True},
        {"kind": "patch", "bias": False},
        {"kind": "convolution", "widths": (4, 8), "strides": (2, 2)},
        {"kind": "resnet", "layers": (1,), "widths": (128,), "width_factor": 0.5},
    ]
)
rotary = st.sampled_from(
    [
        {"pairs": "halves", "axes": "yx", "coordinates": "centered"},
        {"periods": (3.0,), "offset": 1.0, "reference": (4, 4)},
        {"kind": "mixed"},
    ]
)
added = {
    "kind": st.sampled_from(["learned", "learned-2d", "sincos-2d"]),
    "where": st.sampled_from(["stem", "every-layer", "every-layer-shared"]),
    "rotary": st.none() | rotary,
}
relative = {"kind": st.sampled_from(["relative", "relative-bias"]), "shared": st.booleans()}
turned = {"kind": st.just("rotary-2d"), "shared": st.booleans(), "rotary": rotary}
positions = st.one_of(st.just({"kind": "none"}), *map(st.fixed_dictionaries, (added, relative, turned)))


@st.composite
def configurations(draw: st.DrawFn) -> ViTConfig:
    """Small Vision Transformers over every variant of the configuration."""
    pooling = draw(
        st.sampled_from(
            ["class", "mean", "mean-all", "attention", "attention-all", "class+mean", "class+distillation"]
        )
    )
    distilled = pooling == "class+distillation"
    position = draw(positions)
    sized = {"heads": st.sampled_from([None, 4]), "mlp_dim": st.sampled_from([None, 12])}
    return ViTConfig(
        image_size=draw(st.sampled_from([(8, 8), (8, 12), (7, 9)])),
        edge="pad",
        patch_size=(4, 4),
        channels=draw(st.sampled_from([1, 3])),
        num_classes=draw(st.sampled_from([None, 3])),
        width=16,
        depth=draw(st.integers(1, 2)),
        heads=draw(st.sampled_from([1, 2])),
        head_dim=4 if position.get("rotary") else draw(st.sampled_from([None, 4])),
        mlp_dim=8,
        stem=draw(stems),
        position=position,
        class_token=pooling.startswith("class") or draw(st.booleans()),
        registers=draw(st.integers(0, 2)),
        pooling={
            "kind": pooling,
            **(draw(st.fixed_dictionaries(sized)) if pooling.startswith("attention") else {}),
        },
        norm=draw(st.sampled_from(["pre", "post", "post-branch"])),
        extra_norms=draw(st.lists(st.sampled_from(["tokens", "attention", "mlp"]))),
        final_norm="tokens" if distilled else draw(st.sampled_from(["tokens", "pooled", "none"])),
        qkv_bias=draw(st.booleans()),
        qk_norm=draw(st.sampled_from(["none", "head", "layer", "unit"])),
        mlp=draw(st.sampled_from(["gelu", "gelu_tanh", "quick_gelu", "relu", "silu", "swiglu"])),
        layer_scale=draw(st.sampled_from([None, 0.1])),
        representation_size=None if distilled else draw(st.sampled_from([None, 6])),
        dropout=draw(st.sampled_from([0.0, 0.1])),
        attention_dropout=draw(st.sampled_from([0.0, 0.1])),
        drop_path=draw(st.sampled_from([0.0, 0.1])),
    )


@given(config=configurations())
@settings(max_examples=60, deadline=None)
def test_every_configuration_runs_and_every_weight_can_learn(config: ViTConfig) -> None:
    model = ViT(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    images = torch.randn(3, config.channels, *config.image_size)
    output = model(images)
    assert output.shape[0] == 3
    assert model.tokens(images).shape == (3, config.sequence_length, config.width)
    (output * torch.randn_like(output)).sum().backward()
    idle = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert idle == set()


@given(config=configurations())
@settings(max_examples=30, deadline=None)
def test_a_configuration_survives_json(config: ViTConfig) -> None:
    assert ViTConfig.model_validate_json(config.model_dump_json()) == config


@given(config=configurations())
@settings(max_examples=30, deadline=None)
def test_capture_changes_nothing_and_rows_sum_to_one(config: ViTConfig) -> None:
    model = ViT(config).eval()
    images = torch.randn(2, config.channels, *config.image_size)
    before = model(images)
    with vt.capture_attention(model) as attention:
        during = model(images)
    assert torch.equal(before, during)
    assert len(attention.maps) == config.depth
    for each in attention.maps:
        assert each.shape == (2, config.heads, config.sequence_length, config.sequence_length)
        torch.testing.assert_close(each.sum(-1), torch.ones(each.shape[:-1]), atol=1e-5, rtol=1e-5)


def test_shared_positions_are_one_table() -> None:
    def count(where: str) -> int:
        model = create(
            "ViT-Ti/16",
            image_size=32,
            depth=3,
            position={"kind": "learned", "where": where},
            num_classes=None,
        )
        return sum(parameter.numel() for parameter in model.parameters())

    table = 5 * 192
    assert count("every-layer-shared") == count("stem")
    assert count("every-layer") == count("stem") + 2 * table


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("ViT-B/16", {"image_size": 222}, "222 is not a multiple of patch size 16: use 224, or edge='pad'"),
        ("ViT-B/16", {"widht": 3}, "did you mean 'width'?"),
        ("ViT-B/16", {"width": 100}, "width 100 is not a multiple of 12 heads"),
        ("ViT-B/16", {"depth": 0}, "model.depth"),
        ("ViT-B/16", {"class_token": False}, "needs class_token=True"),
        ("vit-b16", {}, "did you mean 'ViT-B/16'?"),
        ("ViT-X/16", {}, "unknown size 'X'"),
        ("BiT-R51x1", {}, "did you mean 'R50'?"),
        ("R50+ViT-B/8", {}, "not a multiple of the stem's stride"),
        ("R50+ViT-B/16", {"stem": {"kind": "resnet", "width_factor": 0.25}}, "not a multiple of 0.5"),
        ("BiT-R50x1", {"width_factor": 0.3}, "not a multiple of 0.5"),
        ("BiT-R50x1", {"layers": ()}, "model.layers: Tuple should have at least 1 item"),
    ],
)
def test_wrong_names_and_values_say_what_to_do(name: str, overrides: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?").replace("(", r"\(")):
        create(name, **overrides)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(InputError, match="the seed is -1"):
        create("ViT-Ti/16", seed=-1)


def test_images_of_another_size_or_color_are_refused() -> None:
    model = create("ViT-Ti/16", image_size=32, depth=1)
    with pytest.raises(InputError, match="48x32, but the model takes 32x32"):
        model(torch.zeros(1, 3, 48, 32))
    with pytest.raises(InputError, match="1 channels, but the model takes 3"):
        model(torch.zeros(1, 1, 32, 32))


def test_a_fresh_head_is_zero_and_q_k_v_are_drawn_apart() -> None:
    model = create("ViT-Ti/16", image_size=32, depth=1)
    assert model.head.weight.abs().max() == 0
    bound = (6 / (192 + 192)) ** 0.5  # Xavier-uniform of each, not of the packed matrix
    spread = model.blocks[0].attention.qkv.weight.abs().max().item()
    assert 0.95 * bound < spread <= bound


@pytest.mark.parametrize(
    ("drop_path", "expected"), [(0.4, [0.2, 0.4]), ((0.4, 0.4), [0.4, 0.4, 0.4]), ((0.2, 0.0), [0.2, 0.1])]
)
def test_stochastic_depth_is_linear_in_the_layer(drop_path: Any, expected: list[float]) -> None:
    """In both branches of a layer; one that drops nothing has no module for it."""
    model = vt.create("ViT-Ti/8", image_size=16, depth=3, drop_path=drop_path)
    found = [each.rate for each in model.modules() if isinstance(each, StochasticDepth)]
    assert found == pytest.approx([each for each in expected for _ in range(2)])
