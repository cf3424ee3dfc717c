"""From pixels to the tokens of Eq. 1: stems, which are x_p E in its several forms, and position embeddings,
which say where a patch is in the image, in one of the ways of appendix D.4.

`AddedPositions` are summed to the tokens, at the stem or in every layer. `RelativePositions` and
`RelativePositionBias` act inside the attention, on queries and keys; so do those of `layers/rotary.py`.

A table holds `extra` rows before the patches (the class token, and a distillation token). Register
tokens are between these and the patches and have no position (arXiv 2309.16588).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.errors import InputError
from vitreous.layers.attention import Heads
from vitreous.layers.initialization import GoogleInit


class PatchStem(nn.Module):
    """Cut the image into N patches of P x P pixels and project each to D channels: x_p E (Eq. 1).

    The projection's weight is (D, C, P, P), so that the same numbers serve as a matrix on flat patches and as
    a convolution with stride P; the convolution is the faster of the two.

    Args:
        bias: whether the projection has one (CLIP's has none).
    """

    described_as = ("projection", "x_p E, Eq. 1")

    def __init__(self, channels: int, patch: tuple[int, int], width: int, *, bias: bool = True) -> None:
        super().__init__()
        self.patch = patch
        self.projection = nn.Conv2d(channels, width, kernel_size=patch, stride=patch, bias=bias)

    def first_filters(self) -> Float[Tensor, "D C P Q"]:
        return self.projection.weight

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        return self.projection(images).flatten(2).transpose(1, 2)  # (B, D, h, w) -> (B, h w, D)


class LinearPatchStem(nn.Module):
    """The same projection as a matrix on flat patches, as Eq. 1 has it, with an optional LayerNorm before
    (on the C P^2 numbers of a patch) and after (on the D channels), as in vit-pytorch.

    A flat patch is in the order (row, column, channel), as in the paper's reference code.
    """

    described: ClassVar = {
        "flat": ("patches, flat", "x_p"),
        "norm_before": ("LayerNorm before projection", ""),
        "projection": ("projection", "x_p E, Eq. 1"),
        "norm_after": ("LayerNorm after projection", ""),
    }

    def __init__(
        self,
        channels: int,
        patch: tuple[int, int],
        width: int,
        *,
        norm_before: nn.Module,
        norm_after: nn.Module,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.patch = patch
        self.norm_before = norm_before
        self.projection = nn.Linear(channels * patch[0] * patch[1], width, bias=bias)
        self.norm_after = norm_after

    def first_filters(self) -> Float[Tensor, "D C P Q"]:
        p, q = self.patch
        return rearrange(self.projection.weight, "D (p q C) -> D C p q", p=p, q=q)

    def flat(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N patch_dim"]:
        """Return x_p of the paper's section 3.1."""
        return to_patches(images, self.patch)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        patches = self.flat(images)
        return self.norm_after(self.projection(self.norm_before(patches)))


def to_patches(images: Float[Tensor, "B C H W"], patch: tuple[int, int]) -> Float[Tensor, "B N patch_dim"]:
    """Return flat patches in raster order, each (row, column, channel): x -> x_p of the paper's section
    3.1."""
    (batch, channels, height, width), (p, q) = images.shape, patch
    cells = images.reshape(batch, channels, height // p, p, width // q, q)
    return cells.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def from_patches(
    patches: Float[Tensor, "B N patch_dim"], grid: tuple[int, int], patch: tuple[int, int]
) -> Float[Tensor, "B C H W"]:
    """Return the inverse of `to_patches`."""
    cells = patches.reshape(patches.shape[0], *grid, *patch, -1)
    return cells.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


class ConvolutionStem(nn.Module):
    """Early convolutions (Xiao et al., arXiv 2106.14881): 3x3 convolutions with normalization
    and ReLU instead of one large patch, then a 1x1 projection. The product of the strides is the patch size.

    GroupNorm replaces the paper's BatchNorm: it needs no running statistics, so that batch size, averaged
    weights and evaluation mode change nothing.

    Args:
        widths: channels after each convolution.
        strides: of each convolution.
        norm: "layer" takes all channels of an image as one group; "instance" each channel by itself
            (arXiv 1607.08022), which takes away an image's own brightness, contrast and color.
    """

    def __init__(
        self,
        channels: int,
        width: int,
        *,
        widths: Sequence[int],
        strides: Sequence[int],
        norm: Literal["layer", "instance"],
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for wide, stride in zip(widths, strides, strict=True):
            layers += [
                nn.Conv2d(channels, wide, kernel_size=3, stride=stride, padding=1, bias=False),
                nn.GroupNorm(1 if norm == "layer" else wide, wide),
                nn.ReLU(),
            ]
            channels = wide
        self.convolutions = nn.Sequential(*layers)
        self.projection = nn.Conv2d(channels, width, kernel_size=1)

    def first_filters(self) -> Float[Tensor, "D C P Q"]:
        return next(self.convolutions.parameters())

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        return self.project(self.convolutions(images))

    def project(self, cells: Float[Tensor, "B C h w"]) -> Float[Tensor, "B N D"]:
        """Return cells in raster order as tokens."""
        return self.projection(cells).flatten(2).transpose(1, 2)

    @property
    def described(self) -> dict[str, tuple[str, str]]:
        ends = range(2, len(self.convolutions), 3)  # each convolution has a norm and a ReLU
        convolutions = {f"convolutions.{end}": (f"convolution {end // 3 + 1}", "2106.14881") for end in ends}
        return {**convolutions, "project": ("projection", "x_p E, Eq. 1")}


def in_type_of(module: nn.Module, images: Tensor) -> Tensor:
    """Return images in the type of a model's weights, such as half. Raises InputError: they are not prepared,
    or there are none."""
    if not images.is_floating_point():
        raise InputError(
            f"the model takes floating-point numbers, not {images.dtype}: model.preprocessing returns them"
        )
    if not torch.compiler.is_compiling() and not images.shape[0]:
        raise InputError("the batch is empty: pass at least one image")
    return images.to(next(module.parameters()).dtype)


def to_multiple(
    images: Float[Tensor, "B C H W"], patch: tuple[int, int], *, pad: bool
) -> Float[Tensor, "B C H2 W2"]:
    """Add zeros at the right and the bottom until both sides are multiples of the patch; or cut pixels
    off."""
    height, width = images.shape[-2:]
    if pad:
        return F.pad(images, (0, -width % patch[1], 0, -height % patch[0]))
    return images[..., : height - height % patch[0], : width - width % patch[1]]


Grid = tuple[int, int]  # (rows, columns) of patches


class AddedPositions(nn.Module):
    """Positions that are added to the tokens: z + E_pos (Eq. 1); `extra` and `registers` count tokens."""

    def __init__(self, grid: Grid, *, extra: int, registers: int = 0) -> None:
        super().__init__()
        self.grid, self.extra, self.registers = grid, extra, registers

    def rows(self) -> Float[Tensor, "rows D"]:
        """Return one row for each of the extra tokens, then one for each patch in raster order."""
        raise NotImplementedError

    def forward(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        rows = self.rows()
        if self.registers:
            zeros = rows.new_zeros(self.registers, rows.shape[1])
            rows = torch.cat([rows[: self.extra], zeros, rows[self.extra :]])
        return z + rows


class LearnedPositions(AddedPositions):
    """1-D learned: one free vector for each token in raster order (E_pos of Eq. 1)."""

    frozen_rows = 0  # at the beginning of the table, which a training leaves as they are

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
    """Return the table of `SinCosPositions2d` for the patches alone; frequencies end at exactly
    1/temperature."""
    quarter = width // 4
    return waves(grid, temperature ** -(torch.arange(quarter, dtype=torch.float32) / max(quarter - 1, 1)))


def sincos_of_mae(grid: Grid, width: int) -> Float[Tensor, "N D"]:
    """Return the positions of MAE and AIMv2, whose frequencies 10000^(-4i/D) stop short of 1/10000."""
    quarter = width // 4
    return waves(grid, 10_000.0 ** -(torch.arange(quarter, dtype=torch.float64) / quarter)).float()


def waves(grid: Grid, omega: Float[Tensor, "quarter"]) -> Float[Tensor, "N D"]:
    """Return [sin x, cos x, sin y, cos y] of every patch, at the frequencies omega."""
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
