"""Token merging: tokens that are equal lose nothing, and what is merged counts as often as it stands for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import vitreous as vt
from vitreous.addons.optimize.token_merging import (
    can_merge_tokens,
    merge_tokens,
    merging_layers,
    with_merged_tokens,
)
from vitreous.errors import InputError

TINY: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 8,
    "width": 16,
    "depth": 3,
    "heads": 2,
    "mlp_dim": 24,
    "num_classes": 3,
}


def model(**more: Any) -> Any:
    return vt.ViT(vt.ViTConfig(**{**TINY, **more}), seed=1).eval()


def test_equal_tokens_merge_without_a_loss() -> None:
    """Without positions all patches of an even image are equal: merged or not, all agrees."""
    whole = model(position={"kind": "none"}, pooling="mean", class_token=False)
    torch.nn.init.normal_(whole.head.weight)
    images = torch.randn(2, 3, 1, 1).expand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(with_merged_tokens(whole, 3)(images), whole(images), atol=1e-5, rtol=1e-5)


def test_merging_by_hand() -> None:
    """Of four patches the first and the fourth have the same key, and the third is like neither."""
    keys = torch.tensor([[[0.0, 0], [1, 0], [0, 1], [-1, 0.1], [1, 0]]])  # after one prefix token
    z = torch.arange(10.0).reshape(1, 5, 2)
    merged, sizes = merge_tokens(z, torch.tensor([1.0, 3, 1, 1, 1])[None, :, None], keys, 1, 1)
    assert sizes[0, :, 0].tolist() == [1, 1, 1, 4]  # prefix, third, second, fourth with the first
    torch.testing.assert_close(merged[0, 0], z[0, 0])
    torch.testing.assert_close(merged[0, 3], (3 * z[0, 1] + z[0, 4]) / 4)


def test_layers_have_fewer_tokens_and_the_original_stays() -> None:
    whole = model(registers=2)
    small = with_merged_tokens(whole, 4)
    seen: list[int] = []
    for block in small.blocks[0].blocks:
        block.mlp.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[1]))
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        small(images)
        assert whole(images).shape == small(images).shape
    assert seen[:3] == [15, 11, 11]  # 16 patches and 3 tokens; the last layer merges none
    assert len(whole.blocks) == 3
    assert [merging_layers(depth) for depth in (2, 3, 12, 24)] == [[1], [1, 2], [3, 6, 9], [6, 12, 18]]
    with torch.no_grad():
        with_merged_tokens(whole, 100)(images)  # at most half of the patches at a time


def test_what_cannot_merge() -> None:
    relative = model(position={"kind": "relative"})
    assert not can_merge_tokens(relative)
    assert not can_merge_tokens(torch.nn.Linear(2, 2))
    assert not can_merge_tokens(model(depth=1))
    with pytest.raises(InputError, match="cannot be merged"):
        with_merged_tokens(relative, 2)
    with pytest.raises(InputError, match="cannot be merged"):
        with_merged_tokens(model(), 0)
