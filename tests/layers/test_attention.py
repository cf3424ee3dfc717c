"""Attention against its formula, against finite differences, and against itself with other parts."""

import math

import pytest
import torch

from vitreous.layers.attention import Attention, CrossAttention, KeyValues, UnitLength
from vitreous.layers.embedding import RelativePositions
from vitreous.layers.initialization import GoogleInit
from vitreous.layers.rotary import RotaryPositions2d
from vitreous.rng import torch_generator


def by_hand(attention: Attention, z: torch.Tensor) -> torch.Tensor:
    """Eq. 5-8 of the paper, one head at a time, with no fused kernel."""
    inner = attention.qkv.out_features // 3
    head_dim = inner // attention.heads
    q, k, v = attention.qkv(z).split(inner, dim=-1)
    heads = []
    for head in range(attention.heads):
        own = slice(head * head_dim, (head + 1) * head_dim)
        logits = q[..., own] @ k[..., own].transpose(-1, -2) / math.sqrt(head_dim)
        heads.append(logits.softmax(-1) @ v[..., own])
    return attention.out(torch.cat(heads, dim=-1))


@pytest.mark.parametrize(("width", "heads", "head_dim"), [(12, 3, 4), (10, 2, 7), (8, 1, 8)])
def test_attention_is_the_papers_formula(width: int, heads: int, head_dim: int) -> None:
    attention = Attention(width, heads=heads, head_dim=head_dim)
    z = torch.randn(2, 5, width)
    torch.testing.assert_close(attention(z), by_hand(attention, z), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("inner", [None, "rotary", "relative"])
def test_gradients_agree_with_finite_differences(inner: str | None) -> None:
    position = {
        None: lambda: None,
        "rotary": lambda: RotaryPositions2d((2, 2), 4, num_prefix_tokens=1),
        "relative": lambda: RelativePositions(5, 4),
    }[inner]()
    attention = Attention(6, heads=2, head_dim=4, position=position).double()
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    z = torch.randn(1, 5, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(attention, (z,))
    weights = dict(attention.named_parameters())

    def of_weights(*values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(attention, dict(zip(weights, values, strict=True)), (z.detach(),))

    assert torch.autograd.gradcheck(of_weights, tuple(weights.values()))


def test_maps_are_the_weights_of_the_output() -> None:
    attention = Attention(12, heads=3, head_dim=4, norm=torch.nn.LayerNorm)
    z = torch.randn(2, 5, 12)
    maps = attention.attention_weights(z)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 3, 5))
    value = attention.project(z)[2]
    output = attention.out((maps @ value).transpose(1, 2).flatten(2))
    torch.testing.assert_close(output, attention(z), atol=1e-6, rtol=1e-5)


def test_a_mask_forbids() -> None:
    attention = Attention(8, heads=2, head_dim=4)
    causal = torch.full((5, 5), -torch.inf).triu(1)[None, None]
    z = torch.randn(1, 5, 8)
    assert attention.attention_weights(z, causal).triu(1).abs().max() == 0
    later = z.clone()
    later[:, 3:] += 1
    torch.testing.assert_close(attention(z, causal)[:, :3], attention(later, causal)[:, :3])


def test_a_mask_forbids_beside_a_bias_too() -> None:
    """What is forbidden stays so whatever the positions add, and what they add counts for the others."""
    attention = Attention(8, heads=2, head_dim=4, position=RelativePositions(5, 4))
    torch.nn.init.normal_(attention.position.table)
    causal = torch.full((5, 5), -torch.inf).triu(1)[None, None]
    z = torch.randn(1, 5, 8)
    free, masked = attention.attention_weights(z), attention.attention_weights(z, causal)
    expected = free.tril() / free.tril().sum(-1, keepdim=True)
    torch.testing.assert_close(masked, expected)
    assert attention(z, causal).isfinite().all()


def test_cross_attention_takes_keys_and_values_from_the_context() -> None:
    attention = CrossAttention(8, context_width=6, heads=2, head_dim=4)
    z, context = torch.randn(2, 3, 8), torch.randn(2, 5, 6)
    assert attention(z, context).shape == (2, 3, 8)
    one = context[:, :1].expand(-1, 5, -1)  # every key alike: the weights do not matter
    torch.testing.assert_close(attention(z, one), attention(z, context[:, :1]), atol=1e-6, rtol=1e-5)
    assert attention.attention_weights(z, context).shape == (2, 2, 3, 5)


def test_a_step_with_cached_keys_and_values_is_that_of_the_whole_sequence() -> None:
    attention = Attention(8, heads=2, head_dim=4)
    z = torch.randn(3, 5, 8)
    causal = torch.full((5, 5), -torch.inf).triu(1)[None, None]
    past, steps, maps = KeyValues(), [], []
    for token in z.split(1, dim=1):
        maps.append(attention.attention_weights(token, past=past))
        steps.append(attention(token, past=past))
        assert len(past) == len(steps)
    torch.testing.assert_close(torch.cat(steps, dim=1), attention(z, causal), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(maps[-1], attention.attention_weights(z)[:, :, -1:], atol=1e-6, rtol=1e-5)


def test_cached_keys_and_values_follow_the_beams() -> None:
    attention, chosen = Attention(8, heads=2, head_dim=4), torch.tensor([2, 0, 2])
    first, token = torch.randn(3, 2, 8), torch.randn(3, 1, 8)
    past, of_the_chosen = KeyValues(), KeyValues()
    past.reorder(chosen)  # nothing is cached yet
    attention(first, past=past)
    past.reorder(chosen)
    attention(first[chosen], past=of_the_chosen)
    torch.testing.assert_close(attention(token, past=past), attention(token, past=of_the_chosen))


def test_a_context_is_projected_once() -> None:
    attention = CrossAttention(8, context_width=6, heads=2, head_dim=4)
    z, context, past = torch.randn(2, 3, 8), torch.randn(2, 5, 6), KeyValues()
    for _ in range(2):
        torch.testing.assert_close(attention(z, context, past=past), attention(z, context))
    assert len(past) == 5


def test_vectors_of_unit_length_begin_as_rms_norm() -> None:
    norm, x = UnitLength(2, 16), torch.randn(3, 2, 5, 16)
    norm.reset(GoogleInit(torch_generator(0, "weights")))
    torch.testing.assert_close(norm(x), torch.nn.functional.rms_norm(x, (16,)))


def test_each_matrix_of_a_packed_weight_is_drawn_by_its_own_size() -> None:
    """Glorot's limit is sqrt(6 / (rows + columns)) of each of q, k and v, not of all rows together."""
    own, other = (
        Attention(64, heads=4, head_dim=16),
        CrossAttention(64, context_width=64, heads=4, head_dim=16),
    )
    for attention, weight in ((own, own.qkv.weight), (other, other.key_value.weight)):
        attention.reset(GoogleInit(torch_generator(0, "weights")))
        for part in weight.split(64):
            assert part.abs().max().item() == pytest.approx(math.sqrt(6 / 128), rel=0.01)
