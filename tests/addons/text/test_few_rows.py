"""Linear layers of few rows, with the weight as the left factor."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitreous.addons.text import beam_search as module
from vitreous.addons.text.beam_search import few_rows, transposed_linear


@pytest.mark.parametrize("shape", [(1, 6), (2, 1, 6), (4, 6), (1, 3, 6), (6,)])
@pytest.mark.parametrize("bias", [True, False])
def test_it_is_the_linear_layer(shape: tuple[int, ...], bias: bool) -> None:
    layer = nn.Linear(6, 9, bias=bias)
    x = torch.randn(shape)
    turned = transposed_linear(x, layer.weight, layer.bias)
    assert turned.is_contiguous()
    torch.testing.assert_close(turned, layer(x))
    slanted = torch.randn(shape[::-1]).permute(*reversed(range(len(shape))))
    torch.testing.assert_close(transposed_linear(slanted, layer.weight, layer.bias), layer(slanted))


def test_it_takes_part_for_few_rows_of_float32_only(monkeypatch: pytest.MonkeyPatch) -> None:
    turned = []
    monkeypatch.setattr(
        module, "transposed_linear", lambda x, *rest: turned.append(len(x)) or F.linear(x, *rest)
    )
    layer = nn.Linear(6, 9)
    for rows in (1, 4, 5):
        with few_rows(rows, torch.zeros(0)):
            layer(torch.randn(rows, 6))
            layer(torch.randn(50, 6))  # the context's keys, in the first step
    with few_rows(1, torch.zeros(0, dtype=torch.bfloat16)):
        layer.bfloat16()(torch.randn(1, 6).bfloat16())
    layer.float()(torch.randn(1, 6))
    assert turned == [1, 4]
