"""Products of a weight with a few rows: what the step of a decoder with a cache consists of on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.overrides import TorchFunctionMode

FEW = 4  # rows; from six on, BLAS takes as long either way round


def few_rows(rows: int, like: Tensor) -> AbstractContextManager[Any]:
    """`TurnedLinear` where it is faster: for few rows, on a CPU, in float32 as `like`."""
    few = rows <= FEW and like.device.type == "cpu" and like.dtype == torch.float32
    return TurnedLinear() if few else nullcontext()


class TurnedLinear(TorchFunctionMode):
    """While it is on, a linear layer of few rows is computed as (W x^T)^T.

    Such a product takes as long as reading W. BLAS reads it at half the speed that the memory has when W is
    the right factor, transposed, and nearly at full speed when it is the left one and there are two columns
    or more: 100 MB of weights took 4.9 ms instead of 6.5 for one row (as a pair), 4.9 instead of 9 for two
    and 7 instead of 9 for four on a core of Zen 4; on two cores 4.2 instead of 9.4 for four.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is F.linear and not kwargs and args[0].numel() <= FEW * args[0].shape[-1]:
            return turned_linear(*args)
        return func(*args, **(kwargs or {}))


def turned_linear(
    x: Float[Tensor, "*B I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None = None
) -> Float[Tensor, "*B O"]:
    """x W^T + b, with W as the left factor."""
    rows = x.reshape(-1, x.shape[-1]).contiguous()  # BLAS is slow with columns that lie one in the other
    columns = (rows if len(rows) > 1 else torch.cat([rows, rows])).t()
    product = weight @ columns if bias is None else torch.addmm(bias[:, None], weight, columns)
    return product.t()[: len(rows)].reshape(*x.shape[:-1], len(weight)).contiguous()
