"""Position embeddings: where a patch is in the image, in one of the ways of appendix D.4, or rotary.

`AddedPositions` are summed to the tokens, at the stem or in every layer. `RelativePositions` and
`RelativePositionBias` act inside the attention, on queries and keys; so do those of `layers/rotary.py`.

A table holds `extra` rows before the patches (the class token, and a distillation token). Register
tokens are between these and the patches and have no position (arXiv 2309.16588).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.layers.attention import Heads
from vitreous.layers.initialization import GoogleInit

Grid = tuple[int, int]  # (rows, columns) of patches


class AddedPositions(nn.Module):
    """Positions that are added to the tokens: z + E_pos (Eq. 1); `extra` and `registers` count tokens."""

    def __init__(self, grid: Grid, *, extra: int, registers: int = 0) -> None:
        super().__init__()
        self.grid, self.extra, self.registers = grid, extra, registers

    def rows(self) -> Float[Tensor, "rows D"]:
        """One row for each of the extra tokens, then one for each patch in raster order."""
        raise NotImplementedError

    def forward(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        rows = self.rows()
        if self.registers:
            zeros = rows.new_zeros(self.registers, rows.shape[1])
            rows = torch.cat([rows[: self.extra], zeros, rows[self.extra :]])
        return z + rows


class LearnedPositions(AddedPositions):
    """1-D learned: one free vector for each token in raster order (E_pos of Eq. 1)."""

    def __init__(self, grid: Grid, width: int, *, init_std: float = 0.02, **tokens: int) -> None:
        super().__init__(grid, **tokens)
        self.init_std = init_std
        self.table = nn.Parameter(torch.zeros(self.extra + grid[0] * grid[1], width))

    def reset(self, init: GoogleInit) -> None:
        init.table(self.table, self.init_std)

    def rows(self) -> Float[Tensor, "rows D"]:
        return self.table


class LearnedPositions2d(AddedPositions):
    """2-D learned: a vector of D/2 for the column and one for the row, concatenated (appendix D.4)."""

    def __init__(self, grid: Grid, width: int, *, init_std: float = 0.02, **tokens: int) -> None:
        super().__init__(grid, **tokens)
        self.init_std = init_std
        self.x = nn.Parameter(torch.zeros(grid[1], width // 2))
        self.y = nn.Parameter(torch.zeros(grid[0], width - width // 2))
        self.extra_table = nn.Parameter(torch.zeros(self.extra, width)) if self.extra else None

    def reset(self, init: GoogleInit) -> None:
        for table in self.parameters():
            init.table(table, self.init_std)

    def rows(self) -> Float[Tensor, "rows D"]:
        height, width = self.grid
        patches = torch.cat([self.x.repeat(height, 1), self.y.repeat_interleave(width, dim=0)], dim=-1)
        return patches if self.extra_table is None else torch.cat([self.extra_table, patches])


class SinCosPositions2d(AddedPositions):
    """Fixed 2-D sines and cosines, not trained: [sin x, cos x, sin y, cos y], each D/4 wide, as
    big_vision and vit-pytorch's SimpleViT compute them after MoCo v3 (arXiv 2104.02057; there, as in MAE, the
    frequencies stop one step short of 1/temperature). Extra tokens get zeros."""

    table: Tensor

    def __init__(self, grid: Grid, width: int, *, temperature: float = 1e4, **tokens: int) -> None:
        super().__init__(grid, **tokens)
        self.width, self.temperature = width, temperature
        self.register_buffer("table", None, persistent=False)
        self.compute_buffers(torch.get_default_device())

    def compute_buffers(self, device: torch.device) -> None:
        with device:
            patches = sincos_2d(self.grid, self.width, self.temperature)
            self.table = torch.cat([torch.zeros(self.extra, self.width), patches])

    def rows(self) -> Float[Tensor, "rows D"]:
        return self.table


def sincos_2d(grid: Grid, width: int, temperature: float) -> Float[Tensor, "N D"]:
    """The table of `SinCosPositions2d` for the patches alone; frequencies end at exactly 1/temperature."""
    quarter = width // 4
    omega = temperature ** -(torch.arange(quarter, dtype=torch.float32) / max(quarter - 1, 1))
    y, x = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    x_angle, y_angle = x.reshape(-1, 1) * omega, y.reshape(-1, 1) * omega
    return torch.cat([x_angle.sin(), x_angle.cos(), y_angle.sin(), y_angle.cos()], dim=-1)


class RelativePositions(nn.Module):
    """The paper's relative positions (appendix D.4): every offset, query position minus key position in the
    sequence, has an embedding; the original query meets it as a key, and the logits of this extra attention
    are added to those of the content before the softmax. Heads share the embeddings.

    The paper does not say how the class token takes part; here it has the sequence's first position.
    """

    offset: Tensor

    def __init__(self, sequence_length: int, head_dim: int, *, init_std: float = 0.02) -> None:
        super().__init__()
        self.sequence_length, self.init_std = sequence_length, init_std
        self.table = nn.Parameter(torch.zeros(2 * sequence_length - 1, head_dim))
        self.register_buffer("offset", None, persistent=False)
        self.compute_buffers(torch.get_default_device())

    def reset(self, init: GoogleInit) -> None:
        init.table(self.table, self.init_std)

    def compute_buffers(self, device: torch.device) -> None:
        position = torch.arange(self.sequence_length, device=device)
        self.offset = position[:, None] - position + self.sequence_length - 1  # (T, T), 0 ... 2T-2

    def forward(self, query: Heads, key: Heads) -> tuple[Heads, Heads, Float[Tensor, "B K T T"]]:
        every_offset = query @ self.table.T * query.shape[-1] ** -0.5  # (B, K, T, 2T-1)
        bias = every_offset.gather(-1, self.offset.expand(*query.shape[:2], -1, -1))
        return query, key, bias


class RelativePositionBias(nn.Module):
    """Biases of T5 and BEiT (arXiv 2106.08254): each head has a number for each offset on the grid, query
    minus key, that is added to the logits of the attention. Three more are for prefix tokens, which have no
    place on the grid: what they ask of patches, what patches ask of them, and what they ask of each other.
    """

    offset: Tensor

    def __init__(self, grid: Grid, heads: int, *, num_prefix_tokens: int, init_std: float = 0.02) -> None:
        super().__init__()
        self.grid, self.num_prefix_tokens, self.init_std = grid, num_prefix_tokens, init_std
        offsets = (2 * grid[0] - 1) * (2 * grid[1] - 1)
        self.table = nn.Parameter(torch.zeros(offsets + 3 * bool(num_prefix_tokens), heads))
        self.register_buffer("offset", None, persistent=False)
        self.compute_buffers(torch.get_default_device())

    def reset(self, init: GoogleInit) -> None:
        init.table(self.table, self.init_std)

    def compute_buffers(self, device: torch.device) -> None:
        (rows, columns), prefix = self.grid, self.num_prefix_tokens
        tokens, offsets = prefix + rows * columns, (2 * rows - 1) * (2 * columns - 1)
        with device:
            y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
            y, x = y.flatten(), x.flatten()
            vertical, horizontal = y[:, None] - y + rows - 1, x[:, None] - x + columns - 1
            offset = torch.full((tokens, tokens), offsets + 2)  # prefix tokens among themselves
            offset[:prefix, prefix:] = offsets
            offset[prefix:, :prefix] = offsets + 1
            offset[prefix:, prefix:] = vertical * (2 * columns - 1) + horizontal
        self.offset = offset  # (T, T): rows of the table

    def forward(self, query: Heads, key: Heads) -> tuple[Heads, Heads, Float[Tensor, "1 K T T"]]:
        return query, key, self.table[self.offset].permute(2, 0, 1)[None]
