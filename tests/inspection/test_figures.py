"""The paper's instruments against cases that can be worked out by hand."""

from __future__ import annotations

import gc
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

import vitreous as vt
from vitreous.errors import InputError
from vitreous.inspection.measures import (
    attention_distance,
    attention_pooling,
    cka_matrix,
    feature_colors,
    flow,
    head_entropy,
    hsic,
    layer_tokens,
    logit_lens,
    patch_distances,
    readout_attention,
    readout_of,
    readout_weights,
    rollout,
    to_grid,
    unusual_norms,
)
from vitreous.inspection.model_figures import (
    first_filters,
    position_rows,
    position_similarity,
    positions_figure,
    principal_filters,
)
from vitreous.inspection.page import Exhibit, LeftOut
from vitreous.inspection.relevance import relevance
from vitreous.layers.attention import attention_map

from .conftest import images_for, noisy

TINY: dict[str, Any] = {
    "image_size": (24, 16),
    "patch_size": (8, 4),
    "width": 16,
    "depth": 2,
    "heads": 2,
    "mlp_dim": 24,
    "num_classes": 5,
}


def model_of(**changes: Any) -> vt.ViT:
    return noisy(std=0.3, **{**TINY, **changes})


# --- rollout -----------------------------------------------------------------------------------------------


def test_rollout_of_two_layers_by_hand() -> None:
    first = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]])  # everybody looks at token 0
    second = torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]])  # everybody looks at token 1
    # flows: [[1, 0], [.5, .5]] and [[.5, .5], [0, 1]]; second @ first:
    expected = torch.tensor([[[0.75, 0.25], [0.5, 0.5]]])
    torch.testing.assert_close(rollout([flow(first), flow(second)]), expected)


def test_rollout_averages_heads_and_keeps_rows_summing_to_one() -> None:
    maps = [torch.rand(2, 3, 5, 5).softmax(-1) for _ in range(4)]
    total = rollout([flow(each) for each in maps])
    torch.testing.assert_close(total.sum(-1), torch.ones(2, 5))
    uniform = torch.full((1, 2, 2, 2), 0.5)
    torch.testing.assert_close(flow(uniform)[0], torch.tensor([[0.75, 0.25], [0.25, 0.75]]))


# --- distance ----------------------------------------------------------------------------------------------


def test_a_head_that_looks_at_itself_looks_zero_pixels_far() -> None:
    maps = torch.eye(7)[None, None]  # a class token and 2 x 3 patches
    assert attention_distance(maps, grid=(2, 3), patch=(16, 16)).item() == 0


def test_a_head_that_looks_at_the_right_neighbor() -> None:
    """1 x 3 patches of 8 x 4 pixels; every patch looks one to the right, the last at the first: 4, 4, 8."""
    maps = torch.zeros(1, 1, 3, 3)
    maps[0, 0, [0, 1, 2], [1, 2, 0]] = 1
    assert attention_distance(maps, grid=(1, 3), patch=(8, 4)).item() == pytest.approx(16 / 3)


def test_attention_on_prefix_tokens_has_no_distance() -> None:
    """Three quarters on the class token, a quarter on the patch below: 10 pixels, as if it were all there."""
    maps = torch.zeros(1, 1, 3, 3)
    maps[0, 0, :, 0] = 0.75
    maps[0, 0, 1, 2] = maps[0, 0, 2, 1] = 0.25
    maps[0, 0, 0, 1] = 0.25
    assert attention_distance(maps, grid=(2, 1), patch=(10, 3)).item() == pytest.approx(10)


def test_distances_between_patches_that_are_not_square() -> None:
    distances = patch_distances((2, 2), (3, 4))
    torch.testing.assert_close(distances[0], torch.tensor([0.0, 4.0, 3.0, 5.0]))
    torch.testing.assert_close(distances, distances.T)


# --- positions ---------------------------------------------------------------------------------------------


def test_similarity_of_positions_is_their_cosine() -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0], [-1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    with torch.autocast("cpu", torch.bfloat16):  # in which a study measures a model that answers in bf16
        similarity = position_similarity(rows, (2, 3))
    assert (similarity.shape, similarity.dtype) == ((2, 3, 2, 3), torch.float32)
    assert similarity[0, 0, 1, 0].item() == pytest.approx(-1)
    assert similarity[0, 1, 0, 2].item() == pytest.approx(math.sqrt(0.5))
    assert similarity[1, 1, 0, 1].item() == pytest.approx(1)


@pytest.mark.parametrize("kind", ["learned", "learned-2d", "sincos-2d"])
@pytest.mark.parametrize("where", ["stem", "every-layer", "every-layer-shared"])
def test_rows_are_those_of_the_patches_alone(kind: str, where: str) -> None:
    model = model_of(position={"kind": kind, "where": where}, registers=2)
    rows = position_rows(model)
    assert rows.shape == (12, 16)
    module = model.position if where == "stem" else model.blocks[0].position
    added = module(torch.zeros(1, model.config.sequence_length, 16))[0, model.config.num_prefix_tokens :]
    torch.testing.assert_close(rows, added)


@pytest.mark.parametrize(
    ("kind", "why"), [("none", "no position embeddings"), ("rotary-2d", "inside the attention")]
)
def test_why_there_is_no_position_similarity(kind: str, why: str) -> None:
    model = model_of(position={"kind": kind})
    assert position_rows(model) is None
    left_out = positions_figure(model)
    assert isinstance(left_out, LeftOut)
    assert why in left_out.reason


def test_the_caption_says_how_many_positions_are_shown() -> None:
    shown = positions_figure(model_of(image_size=(40, 80), patch_size=(2, 4)))
    assert isinstance(shown, Exhibit)
    assert "Along each side, one patch in 2 is shown." in shown.caption


# --- filters -----------------------------------------------------------------------------------------------


def test_components_find_the_directions_that_filters_were_made_of() -> None:
    generator = torch.Generator().manual_seed(0)
    edge = torch.tensor([[1.0, -1.0], [1.0, -1.0]]).expand(3, 2, 2) / math.sqrt(12)
    blob = torch.tensor([[1.0, 1.0], [1.0, 1.0]]).expand(3, 2, 2) / math.sqrt(12)
    strengths = torch.randn(4000, 2, generator=generator) * torch.tensor([3.0, 1.0])
    weight = strengths[:, 0, None, None, None] * edge + strengths[:, 1, None, None, None] * blob
    filters, explained = principal_filters(weight, 4)
    assert abs((filters[0] * edge).sum().item()) == pytest.approx(1, abs=2e-2)
    assert abs((filters[1] * blob).sum().item()) == pytest.approx(1, abs=2e-2)
    assert explained[:2].sum().item() == pytest.approx(1, abs=1e-5)
    assert explained[0].item() == pytest.approx(0.9, abs=0.03)


def test_both_forms_of_the_patch_stem_have_the_same_filters() -> None:
    convolution, linear = model_of(), model_of(stem={"kind": "patch", "form": "linear"})
    weight = convolution.stem.projection.weight
    with torch.no_grad():
        linear.stem.projection.weight.copy_(rearrange(weight, "D C p q -> D (p q C)"))
    torch.testing.assert_close(first_filters(linear), weight.detach())


def test_every_kind_of_stem_has_filters() -> None:
    early = model_of(
        image_size=16, patch_size=4, stem={"kind": "convolution", "widths": (8, 8), "strides": (2, 2)}
    )
    assert first_filters(early).shape == (8, 3, 3, 3)
    hybrid = model_of(
        image_size=32, patch_size=16, stem={"kind": "resnet", "layers": (1, 1), "width_factor": 0.5}
    )
    assert first_filters(hybrid).shape[1:] == (3, 7, 7)
    assert first_filters(vt.create("BiT-R50x1", num_classes=2, layers=(1,))).shape == (64, 3, 7, 7)


# --- readout -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pooling": "mean", "registers": 2},
        {"pooling": "mean-all"},
        {"pooling": "class+distillation"},
        {"pooling": "attention", "class_token": False},
    ],
)
def test_readout_weights_are_what_the_pooling_does(changes: dict[str, Any]) -> None:
    model = model_of(**changes)
    weights = readout_weights(model.config)
    assert weights.sum().item() == pytest.approx(1)
    z = torch.randn(1, model.config.sequence_length, 16)
    if model.config.pooling.kind in ("class", "mean", "mean-all"):
        torch.testing.assert_close((weights @ z), model.pool(z))


def test_attention_pooling_reads_with_its_own_map() -> None:
    """With values of one channel's tokens and no MLP, what is pooled is what the map weighs."""
    model = model_of(pooling="attention", class_token=False, registers=1, final_norm="pooled")
    images = images_for(model)
    weights = readout_of(model, images)
    assert not torch.allclose(weights, readout_weights(model.config).expand(2, -1), atol=1e-3)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(2))
    assert not weights[:, 0].any(), "the probe does not see registers"
    z, pool = model.tokens(images).detach(), model.pool.pool
    query = pool.attention.query(pool.probe).view(2, 8)
    key = pool.attention.key_value(z[:, 1:])[..., :16].view(2, 12, 2, 8)
    by_hand = torch.einsum("ke,bske->bks", query, key).div(8**0.5).softmax(dim=-1).mean(dim=1)
    torch.testing.assert_close(weights[:, 1:], by_hand.detach())


def test_readout_attention_is_the_row_of_the_class_token() -> None:
    maps = torch.rand(2, 3, 13, 13).softmax(-1)
    config = vt.ViTConfig(**TINY)
    rows = readout_attention(maps, readout_weights(config))
    torch.testing.assert_close(rows, maps[:, :, 0])
    assert to_grid(rows, config).shape == (2, 3, 3, 4)
    torch.testing.assert_close(to_grid(rows, config)[0, 0, 1, 0], maps[0, 0, 0, 1 + 4])


# --- entropy, features -------------------------------------------------------------------------------------


def test_entropy_is_one_for_uniform_and_zero_for_a_single_token() -> None:
    maps = torch.stack([torch.full((4, 4), 0.25), torch.eye(4)])[None]
    torch.testing.assert_close(head_entropy(maps), torch.tensor([[1.0, 0.0]]))
    half = torch.zeros(1, 1, 4, 4)
    half[..., :2] = 0.5
    assert head_entropy(half).item() == pytest.approx(0.5)  # log 2 / log 4


def test_colors_follow_the_first_principal_component() -> None:
    patches = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0)) * 0.01
    patches[:, :3, 4] += 5  # in both images the first three patches are of a kind
    colors = feature_colors(patches)
    assert colors.shape == (2, 6, 3)
    assert (colors[:, :3, 0] > 0.9).all()
    assert (colors[:, 3:, 0] < 0.1).all()


def test_colors_of_features_that_are_wider_than_there_are_patches() -> None:
    """They are computed in another way; features of zeros change no component."""
    patches = torch.randn(2, 6, 5)
    wider = torch.nn.functional.pad(patches, (0, 20))
    torch.testing.assert_close(feature_colors(wider), feature_colors(patches), atol=1e-4, rtol=0)
    assert feature_colors(torch.randn(1, 2, 9)).shape == (1, 2, 3)


def test_fewer_channels_than_colors() -> None:
    assert feature_colors(torch.randn(1, 5, 2)).shape == (1, 5, 3)


def test_tokens_that_stand_out() -> None:
    norms = torch.tensor([10.0, 11, 9, 10, 10, 12, 95])
    assert unusual_norms(norms).tolist() == [False] * 6 + [True]
    assert not unusual_norms(torch.linspace(8, 14, 50)).any()


# --- lens --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{}, {"final_norm": "pooled", "pooling": "mean"}, {"representation_size": 7}]
)
def test_the_last_layer_reads_as_the_model_does(changes: dict[str, Any]) -> None:
    model = model_of(**changes)
    images = images_for(model)
    layers = list(layer_tokens(model, images))
    assert len(layers) == model.config.depth + 1
    torch.testing.assert_close(logit_lens(model, layers[-1]), model(images).softmax(-1))


# --- CKA ---------------------------------------------------------------------------------------------------


def linear_cka(first: torch.Tensor, second: torch.Tensor) -> float:
    return float(cka_matrix([first], [second])[0, 0])


def test_cka_is_one_for_a_rotation_and_a_scale() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 6, generator=generator)
    rotation, _ = torch.linalg.qr(torch.randn(6, 6, generator=generator))
    assert linear_cka(x, 3 * x @ rotation + 2) == pytest.approx(1, abs=1e-5)


def test_cka_of_independent_features_is_about_zero_however_wide() -> None:
    """The plain estimate would be near 1 for 300 channels and 60 images."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 300, generator=generator), torch.randn(60, 300, generator=generator)
    assert abs(linear_cka(x, y)) < 0.1


def test_the_criterion_by_hand() -> None:
    """Song et al., Eq. 5, written out with loops over distinct indices: sums over i != j != q != r."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(5, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    a, b = a + a.T, b + b.T
    n = range(5)
    pairs = [(i, j) for i in n for j in n if i != j]
    triples = [(i, j, q) for i, j in pairs for q in n if q not in (i, j)]
    fours = [(i, j, q, r) for i, j, q in triples for r in n if r not in (i, j, q)]
    expected = (
        sum(a[i, j] * b[i, j] for i, j in pairs) / len(pairs)
        + sum(a[i, j] * b[q, r] for i, j, q, r in fours) / len(fours)
        - 2 * sum(a[i, j] * b[i, q] for i, j, q in triples) / len(triples)
    )
    assert hsic(a[None], b[None]).item() == pytest.approx(expected.item())


def test_cka_between_models_of_other_depth_in_minibatches() -> None:
    generator = torch.Generator().manual_seed(0)
    layers = [torch.randn(50, width, generator=generator) for width in (4, 8, 16)]
    alignment = cka_matrix(layers, layers[:2], batch=20)
    assert alignment.shape == (3, 2)
    torch.testing.assert_close(alignment.diagonal(), torch.ones(2))
    with pytest.raises(InputError, match="at least 4 images"):
        linear_cka(layers[0][:3], layers[1][:3])


# --- relevance ---------------------------------------------------------------------------------------------


def relevance_by_autograd(model: vt.ViT, images: Tensor, classes: Tensor) -> Tensor:
    """Eq. 5 and 6 as they stand: every map kept in the graph, R as a full matrix."""
    maps: list[Tensor] = []

    def openly(layer: Any, args: tuple[Tensor, ...], _: Tensor) -> Tensor:
        query, key, value, bias = layer.project(args[0])
        weights = attention_map(query, key, bias)
        weights.retain_grad()
        maps.append(weights)
        return layer.out(rearrange(weights @ value, "B K T E -> B T (K E)"))

    hooks = [block.attention.register_forward_hook(openly) for block in model.blocks]
    pool = attention_pooling(model)
    if pool is not None:
        hooks.append(pool.attention.register_forward_hook(openly_pooled(maps)))
    model(images).gather(1, classes[:, None]).sum().backward()
    for hook in hooks:
        hook.remove()
    asked = maps.pop() if pool is not None else None
    identity = torch.eye(model.config.sequence_length)
    total = identity.expand(len(images), -1, -1)
    for weights in maps:
        total = total + (weights.grad * weights).clamp_min(0).mean(1).detach() @ total
    if asked is not None:
        probe = F.pad(
            (asked.grad * asked).clamp_min(0).mean(1)[:, 0].detach(), (model.config.num_prefix_tokens, 0)
        )
        return to_grid(torch.einsum("bt,bts->bs", probe, total), model.config)
    start = readout_weights(model.config)
    return to_grid(torch.einsum("t,bts->bs", start, total) - start, model.config)


def openly_pooled(maps: list[Tensor]) -> Any:
    """A hook that computes the pooling's attention again, with its map in the graph."""

    def again(attention: Any, args: tuple[Tensor, ...], _: Tensor) -> Tensor:
        key, value = attention.project_context(args[1])
        weights = attention_map(attention.project_query(args[0]), key, None)
        weights.retain_grad()
        maps.append(weights)
        return attention.out(rearrange(weights @ value, "B K T E -> B T (K E)"))

    return again


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pooling": "attention", "class_token": False, "registers": 1},
        {"pooling": "mean", "class_token": False, "registers": 2},
        {"position": {"kind": "rotary-2d"}, "norm": "post"},
        {"position": {"kind": "relative"}},
    ],
)
def test_relevance_equals_the_equations_as_they_stand(changes: dict[str, Any]) -> None:
    model = model_of(**changes)
    images, classes = images_for(model), torch.tensor([3, 1])
    evidence = relevance(model, images, classes)
    assert all(parameter.grad is None for parameter in model.parameters())
    torch.testing.assert_close(evidence.patches, relevance_by_autograd(model, images, classes))
    assert (evidence.patches > 0).any()


def test_what_a_head_matters_is_the_slope_when_it_is_faded_out() -> None:
    """In float64: the difference quotient of float32 logits has a few correct bits."""
    model = model_of().double()
    images, classes = images_for(model, 1).double(), torch.tensor([2])
    heads = relevance(model, images, classes).heads
    assert heads.shape == (1, 2, 2)
    layer, epsilon = model.blocks[1].attention, 1e-5
    with torch.no_grad():
        before = model(images)[0, 2]
        layer.out.weight[:, 8:] *= 1 - epsilon  # the second head's columns
        after = model(images)[0, 2]
    assert heads[0, 1, 1].item() == pytest.approx(abs(before - after).item() / epsilon, rel=1e-4)


def test_relevance_is_of_the_likeliest_class_unless_one_is_chosen() -> None:
    model = model_of()
    images = images_for(model)
    likeliest = model(images).argmax(-1)
    torch.testing.assert_close(relevance(model, images).patches, relevance(model, images, likeliest).patches)
    with pytest.raises(InputError, match="no classes"):
        relevance(model_of(num_classes=None), images)


def test_relevance_works_where_gradients_are_switched_off() -> None:
    model = model_of().requires_grad_(False)
    with torch.no_grad():
        assert (relevance(model, images_for(model)).patches > 0).any()


def test_relevance_leaves_nothing_behind() -> None:
    model = vt.create("ViT-Ti/16", num_classes=3, image_size=32, depth=2)
    images = torch.randn(1, 3, 32, 32)
    gc.collect()
    gc.disable()  # whatever would be found by it then stays
    try:
        counts = []
        for _ in range(2):
            relevance(model, images)
            counts.append(sum(type(each) is torch.Tensor for each in gc.get_objects()))
    finally:
        gc.enable()
    assert counts[1] == counts[0]
