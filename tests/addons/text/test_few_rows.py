"""Linear layers of few rows, with the weight as the left factor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

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


class Linears(TorchFunctionMode):
    """Remembers the rows of the linear layers that PyTorch computes."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            self.rows.append(len(args[0]))
        return func(*args, **(kwargs or {}))


def test_it_takes_part_for_few_rows_of_float32_only() -> None:
    layer = nn.Linear(6, 9)
    with Linears() as left:
        for rows in (1, 4, 5):
            with few_rows(rows, torch.zeros(0)):
                layer(torch.randn(rows, 6))
                layer(torch.randn(50, 6))  # the context's keys, in the first step
        with few_rows(1, torch.zeros(0, dtype=torch.bfloat16)):
            layer.bfloat16()(torch.randn(1, 6).bfloat16())
        layer.float()(torch.randn(1, 6))
    assert left.rows == [50, 50, 5, 50, 1, 1]
