"""Attention captured from outside: right, complete, and without a trace."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

import vitreous as vt
from vitreous.errors import InputError
from vitreous.layers.attention import CrossAttention

from .conftest import images_for, noisy

TINY: dict[str, Any] = {
    "image_size": (24, 16),
    "patch_size": (8, 4),
    "width": 32,
    "depth": 3,
    "heads": 4,
    "mlp_dim": 48,
    "num_classes": 5,
}
HYBRID = {
    "image_size": (32, 48),
    "patch_size": (16, 16),
    "stem": {"kind": "resnet", "layers": (1, 1), "width_factor": 0.5},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "post-norm": {"norm": "post"},
    "rotary": {"position": {"kind": "rotary-2d"}, "registers": 2},
    "rotary shared": {"position": {"kind": "rotary-2d", "shared": True}},
    "relative": {"position": {"kind": "relative"}},
    "learned in every layer": {"position": {"kind": "learned", "where": "every-layer"}},
    "registers, mean": {"registers": 3, "pooling": "mean", "class_token": False},
    "qk-norm, free head width": {"qk_norm": "head", "head_dim": 12, "qkv_bias": False},
    "distilled": {"pooling": "class+distillation"},
    "attention pooling": {"pooling": "attention"},
    "dropout": {"attention_dropout": 0.3, "dropout": 0.2, "drop_path": 0.4, "layer_scale": 0.1},
    "hybrid": HYBRID,
}


def model_of(**changes: Any) -> vt.ViT:
    return noisy(std=0.2, **{**TINY, **changes})


@pytest.fixture(params=VARIANTS, ids=list(VARIANTS))
def model(request: pytest.FixtureRequest) -> vt.ViT:
    return model_of(**VARIANTS[request.param])


@pytest.mark.slow
def test_a_capture_does_not_import_the_compiler() -> None:
    """Which takes seconds, of the first request for attention that a server answers."""
    code = (
        "import sys, torch, vitreous as vt\n"
        "from vitreous.inspection.relevance import relevance\n"
        "config = vt.ViTConfig(image_size=16, patch_size=8, width=8, depth=1, heads=2, num_classes=3)\n"
        "model, images = vt.ViT(config, seed=0).eval(), torch.rand(1, 3, 16, 16)\n"
        "with torch.no_grad(), vt.capture_attention(model) as attention:\n"
        "    model(images)\n"
        "assert len(attention.maps) == 1\n"
        "assert relevance(model, images).heads.shape == (1, 1, 2)\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_rows_sum_to_one_in_every_layer(model: vt.ViT) -> None:
    with vt.capture_attention(model) as attention:
        model(images_for(model))
    config = model.config
    assert [tuple(each.shape) for each in attention.maps] == [
        (2, config.heads, config.sequence_length, config.sequence_length)
    ] * 3
    for each in attention.maps:
        torch.testing.assert_close(each.sum(-1), torch.ones_like(each.sum(-1)))
        assert not each.requires_grad


def test_captured_map_times_value_is_the_fused_output(model: vt.ViT) -> None:
    seen: list[tuple[Tensor, Tensor]] = []
    hooks = [
        block.attention.register_forward_hook(lambda _, args, out: seen.append((args[0], out)))
        for block in model.blocks
    ]
    with vt.capture_attention(model) as attention, torch.no_grad():
        model(images_for(model))
    for hook in hooks:
        hook.remove()
    for block, (z, fused), weights in zip(model.blocks, seen, attention.maps, strict=True):
        with torch.no_grad():
            *_, value, _ = block.attention.project(z)
            by_hand = block.attention.out(rearrange(weights @ value, "B K T E -> B T (K E)"))
        assert (by_hand - fused).abs().max() < 1e-5


@pytest.mark.parametrize("training", [False, True])
def test_capture_changes_no_output(model: vt.ViT, training: bool) -> None:
    """To the bit; in training too, so it draws no random number."""
    model.train(training)
    images = images_for(model)
    torch.manual_seed(3)
    plain = model(images)
    torch.manual_seed(3)
    with vt.capture_attention(model):
        captured = model(images)
    assert torch.equal(plain, captured)
    assert captured.requires_grad


def hooks_of(model: nn.Module) -> int:
    """Hooks of the modules, and those that PyTorch calls for every module."""
    own = sum(len(each._forward_pre_hooks) + len(each._forward_hooks) for each in model.modules())
    return own + len(_global_forward_pre_hooks) + len(_global_forward_hooks)


def test_nothing_is_left_even_after_an_error() -> None:
    model = model_of()
    before = hooks_of(model)
    with vt.capture_attention(model):
        assert hooks_of(model) > before
    assert hooks_of(model) == before
    with pytest.raises(InputError, match="channels"), vt.capture_attention(model):
        model(torch.zeros(1, 4, 24, 16))
    assert hooks_of(model) == before
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def test_an_error_inside_is_forgotten_at_the_next_pass() -> None:
    model = model_of()
    with vt.capture_attention(model) as attention:
        with pytest.raises(InputError, match="channels"):
            model(torch.zeros(1, 4, 24, 16))
        model(images_for(model))
    assert attention.names == ["blocks.0.attention", "blocks.1.attention", "blocks.2.attention"]


def test_other_models_that_run_meanwhile_are_left_out() -> None:
    model, other = model_of(), model_of(heads=2)
    with vt.capture_attention(model) as attention:
        model(images_for(model))
        other(images_for(other))
    assert [each.shape[1] for each in attention.maps] == [4, 4, 4]


def test_a_module_that_layers_share_gives_a_map_for_each_layer() -> None:
    model = model_of()
    model.blocks = nn.ModuleList([model.blocks[0]] * 3)
    with vt.capture_attention(model) as attention:
        model(images_for(model))
        assert len(attention.maps) == 3
        model(images_for(model, batch=4))
    assert [each.shape[0] for each in attention.maps] == [4, 4, 4]
    assert not torch.equal(attention.maps[0], attention.maps[1])


def test_a_second_pass_replaces_the_first_even_when_that_was_cut_short() -> None:
    model = model_of()
    images = images_for(model)
    with vt.capture_attention(model) as attention:
        z = model.embed(images)
        model.blocks[0](z)
        model(images)
    assert len(attention.maps) == 3


def test_reduce_is_applied_to_each_layer_at_once() -> None:
    model = model_of()
    shapes: list[torch.Size] = []

    def class_row(weights: Tensor) -> Tensor:
        shapes.append(weights.shape)
        return weights[:, :, 0].mean(1)

    with vt.capture_attention(model, reduce=class_row) as attention:
        model(images_for(model))
    assert shapes == [torch.Size([2, 4, 13, 13])] * 3
    assert [tuple(each.shape) for each in attention.maps] == [(2, 13)] * 3


def test_a_wrapped_model_is_captured_too() -> None:
    model = model_of()
    wrapped = nn.Sequential(model, nn.Identity())
    with vt.capture_attention(wrapped) as attention:
        wrapped(images_for(model))
    assert len(attention.maps) == 3


def test_a_model_without_attention_is_a_clear_error() -> None:
    bit = vt.create("BiT-R50x1", num_classes=3, layers=(1,))
    with pytest.raises(InputError, match="BiT has no attention to capture"), vt.capture_attention(bit):
        pass


@pytest.mark.slow
def test_a_compiled_model_is_a_clear_error() -> None:
    """Its code was made without the hooks, so that nothing would be captured."""
    compiled = torch.compile(model_of(), backend="eager")
    with pytest.raises(InputError, match="compiled model"), vt.capture_attention(compiled):
        pass
    in_place = model_of()
    in_place.compile(backend="eager")
    with pytest.raises(InputError, match="compiled model"), vt.capture_attention(in_place):
        pass


def test_a_kind_that_a_model_has_not_is_a_clear_error() -> None:
    other = nn.TransformerEncoderLayer(8, 2)
    with (
        pytest.raises(InputError, match="has no CrossAttention"),
        vt.capture_attention(other, kind=CrossAttention),
    ):
        pass


def test_a_foreign_model_that_ran_without_attention_is_a_clear_error() -> None:
    convolution = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))
    with (
        pytest.raises(InputError, match="none of its operations is attention"),
        vt.capture_attention(convolution),
    ):
        convolution(torch.zeros(1, 3, 8, 8))
