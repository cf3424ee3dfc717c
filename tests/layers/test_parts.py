"""Stems, positions, pooling, branches: each against what it says it is."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitreous.layers.block import MLP, GatedMLP, LayerScale, QuickGELU, StochasticDepth
from vitreous.layers.embedding import (
    LearnedPositions,
    LearnedPositions2d,
    LinearPatchStem,
    PatchStem,
    RelativePositionBias,
    RelativePositions,
    SinCosPositions2d,
    from_patches,
    to_multiple,
    to_patches,
)
from vitreous.layers.initialization import GoogleInit
from vitreous.layers.pooling import AttentionPooling, ClassAndMeanPooling, MaxPooling, MeanPooling
from vitreous.layers.rotary import MixedRotaryPositions2d, RotaryPositions2d
from vitreous.models.config import ViTConfig
from vitreous.models.model import build_model

sizes = st.integers(1, 4)


@given(batch=sizes, channels=sizes, rows=sizes, columns=sizes, p=sizes, q=sizes)
@settings(max_examples=30, deadline=None)
def test_patches_round_trip(batch: int, channels: int, rows: int, columns: int, p: int, q: int) -> None:
    images = torch.randn(batch, channels, rows * p, columns * q)
    patches = to_patches(images, (p, q))
    assert patches.shape == (batch, rows * columns, p * q * channels)
    assert torch.equal(from_patches(patches, (rows, columns), (p, q)), images)


def test_a_flat_patch_is_row_column_channel() -> None:
    images = torch.arange(2 * 4 * 4).reshape(1, 2, 4, 4)
    first = images[0, :, :2, :2]  # the upper left patch
    expected = [first[c, row, column] for row in range(2) for column in range(2) for c in range(2)]
    assert to_patches(images.float(), (2, 2))[0, 0].tolist() == [float(value) for value in expected]


def test_linear_and_convolution_stems_are_one_function() -> None:
    convolution = PatchStem(3, (4, 2), 5)
    identity = torch.nn.Identity()
    linear = LinearPatchStem(3, (4, 2), 5, norm_before=identity, norm_after=identity)
    with torch.no_grad():
        linear.projection.weight.copy_(convolution.projection.weight.permute(0, 2, 3, 1).flatten(1))
        linear.projection.bias.copy_(convolution.projection.bias)
    images = torch.randn(2, 3, 8, 6)
    torch.testing.assert_close(linear(images), convolution(images), atol=1e-6, rtol=1e-5)


def test_padding_is_at_the_right_and_the_bottom() -> None:
    images = torch.ones(1, 1, 3, 5)
    padded = to_multiple(images, (2, 4), pad=True)
    assert padded.shape == (1, 1, 4, 8)
    assert padded[..., :3, :5].sum() == padded.sum() == 15


def test_registers_get_no_position() -> None:
    position = LearnedPositions((2, 2), 3, extra=1, registers=2)
    torch.nn.init.ones_(position.table)
    added = position(torch.zeros(1, 7, 3))[0, :, 0]
    assert added.tolist() == [1, 0, 0, 1, 1, 1, 1]


def test_learned_2d_is_column_then_row() -> None:
    position = LearnedPositions2d((2, 3), 4, extra=1)
    torch.nn.init.normal_(position.x)
    torch.nn.init.normal_(position.y)
    rows = position.rows()
    assert torch.equal(rows[1 + 1 * 3 + 2], torch.cat([position.x[2], position.y[1]]))
    assert rows[0].abs().sum() == 0


def test_sincos_of_one_patch_by_hand() -> None:
    rows = SinCosPositions2d((3, 4), 8, extra=0).rows()
    x, y = 3, 2
    expected = [
        *(math.sin(x * w) for w in (1, 1e-4)),
        *(math.cos(x * w) for w in (1, 1e-4)),
        *(math.sin(y * w) for w in (1, 1e-4)),
        *(math.cos(y * w) for w in (1, 1e-4)),
    ]
    torch.testing.assert_close(rows[y * 4 + x], torch.tensor(expected))


def test_rotary_logits_depend_on_offsets_alone() -> None:
    rotary = RotaryPositions2d((4, 5), 8, num_prefix_tokens=1)
    same = torch.randn(1, 1, 1, 8)
    q, k, _ = rotary(same.expand(1, 1, 21, 8), torch.randn(1, 1, 1, 8).expand(1, 1, 21, 8))
    logits = (q @ k.transpose(-1, -2))[0, 0, 1:, 1:].reshape(4, 5, 4, 5)
    torch.testing.assert_close(logits[0, 0, 1, 2], logits[2, 1, 3, 3])
    torch.testing.assert_close(logits[3, 4, 0, 1], logits[3, 3, 0, 0])
    torch.testing.assert_close(q[:, :, :1], same)  # the prefix does not turn


@pytest.mark.parametrize(
    ("options", "place"),
    [  # the two coordinates of the patch in row 2, column 1 of a grid of 3 x 5
        ({"axes": "yx"}, (2.0, 1.0)),
        ({"offset": 1.0}, (2.0, 3.0)),
        ({"offset": 1.0, "reference": (6, 10)}, (4.0, 6.0)),
        ({"coordinates": "centered", "axes": "yx"}, (2 / 3, -0.4)),
        ({"coordinates": "centered-max", "axes": "yx"}, (0.0, -0.4)),
        ({"coordinates": "centered-min"}, (0.0, 2 / 3)),
    ],
)
@pytest.mark.parametrize("pairs", ["interleaved", "halves"])
def test_rotary_angles(options: dict[str, Any], place: tuple[float, float], pairs: Any) -> None:
    """Of one patch, as complex numbers that are multiplied by exp(i angle)."""
    rotary = RotaryPositions2d((3, 5), 8, num_prefix_tokens=2, temperature=50.0, pairs=pairs, **options)
    turn = 2 * math.pi if "coordinates" in options else 1.0
    angles = torch.tensor([where * turn * 50.0 ** -(i / 2) for where in place for i in range(2)])
    x = torch.randn(1, 1, 17, 8)
    first, second = (x[..., 0::2], x[..., 1::2]) if pairs == "interleaved" else x.chunk(2, dim=-1)
    expected = torch.complex(first, second)[0, 0, 2 + 11] * torch.exp(1j * angles)
    rotated = rotary.rotate(x)
    first, second = (
        (rotated[..., 0::2], rotated[..., 1::2]) if pairs == "interleaved" else rotated.chunk(2, dim=-1)
    )
    torch.testing.assert_close(torch.complex(first, second)[0, 0, 2 + 11], expected)


def test_periods_are_full_turns() -> None:
    rotary = RotaryPositions2d((1, 9), 4, num_prefix_tokens=0, periods=(4.0,))
    torch.testing.assert_close(rotary.cos[8], rotary.cos[4])
    torch.testing.assert_close(rotary.cos[2, 0], torch.tensor(-1.0))


def test_mixed_rotary_positions_turn_each_head_by_both_axes() -> None:
    rotary = MixedRotaryPositions2d((3, 5), 8, heads=2, num_prefix_tokens=1)
    rotary.reset(GoogleInit(torch.Generator().manual_seed(0)))
    torch.testing.assert_close(rotary.frequencies.norm(dim=0)[0], torch.tensor([1, 10**-0.5, 1, 10**-0.5]))
    x = torch.randn(1, 2, 16, 8)
    query, key, _ = rotary(x, x)
    angles = 1 * rotary.frequencies[0] + 2 * rotary.frequencies[1]  # column 1, row 2
    pairs = torch.view_as_complex(x[0, :, 12].reshape(2, 4, 2)) * torch.exp(1j * angles)
    torch.testing.assert_close(query[0, :, 12], torch.view_as_real(pairs).flatten(1))
    torch.testing.assert_close(query, key)
    torch.testing.assert_close(query[:, :, 0], x[:, :, 0])


def test_relative_bias_by_hand() -> None:
    relative = RelativePositions(4, 6)
    torch.nn.init.normal_(relative.table)
    query = torch.randn(2, 3, 4, 6)
    bias = relative(query, query)[2]
    for i, j in [(0, 0), (0, 3), (3, 0), (2, 1)]:
        expected = query[:, :, i] @ relative.table[i - j + 3] / math.sqrt(6)
        torch.testing.assert_close(bias[:, :, i, j], expected)


def test_the_table_of_relative_biases_is_beits() -> None:
    """Row by row of offsets, query minus key, from the most negative; then three of the class token."""
    rows, columns = 2, 3
    relative = RelativePositionBias((rows, columns), 2, num_prefix_tokens=1)
    torch.nn.init.normal_(relative.table)
    query = torch.randn(1, 2, 1 + rows * columns, 4)
    bias = relative(query, query)[2][0]
    for i in range(rows * columns):
        for j in range(rows * columns):
            down, right = i // columns - j // columns, i % columns - j % columns
            place = (down + rows - 1) * (2 * columns - 1) + right + columns - 1
            torch.testing.assert_close(bias[:, 1 + i, 1 + j], relative.table[place])
    offsets = (2 * rows - 1) * (2 * columns - 1)
    torch.testing.assert_close(bias[:, 0, 1], relative.table[offsets])
    torch.testing.assert_close(bias[:, 1, 0], relative.table[offsets + 1])
    torch.testing.assert_close(bias[:, 0, 0], relative.table[offsets + 2])


def test_maximum_and_its_average_with_the_mean() -> None:
    z = torch.randn(2, 6, 3)
    torch.testing.assert_close(MaxPooling(2, mean=False)(z), z[:, 2:].max(1).values)
    torch.testing.assert_close(MaxPooling(2, mean=True)(z), z[:, 2:].max(1).values / 2 + z[:, 2:].mean(1) / 2)


@pytest.mark.parametrize("kind", ["parallel", "post", "post-branch"])
def test_blocks_of_other_orders_by_hand(kind: str) -> None:
    config = ViTConfig(image_size=8, patch_size=4, width=8, depth=1, heads=2, mlp_dim=16, norm=kind)
    block = build_model(config).blocks[0].eval()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter)
    z, msa, mlp = torch.randn(2, 5, 8), block.attention, block.mlp
    first, second = block.attention_norm, block.mlp_norm
    if kind == "parallel":
        expected = z + msa(first(z)) + mlp(second(z))
    elif kind == "post":
        middle = first(z + msa(z))
        expected = second(middle + mlp(middle))
    else:
        middle = z + first(msa(z))
        expected = middle + second(mlp(middle))
    torch.testing.assert_close(block(z), expected)


def test_quick_gelu_is_openais() -> None:
    x = torch.tensor([-2.0, 0.5, 3.0])
    torch.testing.assert_close(QuickGELU()(x), x / (1 + torch.exp(-1.702 * x)))


def test_pooling_leaves_the_prefix_out() -> None:
    z = torch.randn(2, 6, 3)
    torch.testing.assert_close(MeanPooling(skip=2)(z), z[:, 2:].mean(1))
    pooled = ClassAndMeanPooling(skip=2)(z)
    torch.testing.assert_close(pooled, torch.cat([z[:, 0], z[:, 2:].mean(1)], -1))


def test_attention_pooling_does_not_mind_the_order_of_tokens() -> None:
    pool = AttentionPooling(8, heads=2, mlp=MLP(8, 16), norm=torch.nn.LayerNorm(8), skip=1)
    torch.nn.init.normal_(pool.probe)
    z = torch.randn(2, 6, 8)
    shuffled = torch.cat([torch.randn(2, 1, 8), z[:, 1:][:, torch.randperm(5)]], dim=1)
    torch.testing.assert_close(pool(z), pool(shuffled), atol=1e-6, rtol=1e-5)


def test_swiglu_by_hand() -> None:
    mlp = GatedMLP(4, 6)
    z = torch.randn(2, 3, 4)
    gate, expanded = mlp.gate_expand(z)[..., :6], mlp.gate_expand(z)[..., 6:]
    torch.testing.assert_close(mlp(z), mlp.contract(gate * gate.sigmoid() * expanded))


def test_layer_scale_scales_channels() -> None:
    scale = LayerScale(3, 0.5)
    assert torch.equal(scale(torch.ones(1, 2, 3)), torch.full((1, 2, 3), 0.5))


def test_stochastic_depth_drops_whole_images_and_keeps_the_mean() -> None:
    drop = StochasticDepth(0.25)
    z = torch.ones(4000, 2, 3)
    dropped = drop(z)
    per_image = dropped.flatten(1)
    assert per_image.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert (per_image.amax(1) == per_image.amin(1)).all()
    assert dropped.mean() == pytest.approx(1, abs=0.05)
    assert torch.equal(drop.eval()(z), z)
