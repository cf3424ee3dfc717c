"""Rotary positions on a grid of patches (RoFormer, arXiv 2104.09864): each pair of channels of q and k is
rotated by an angle that grows with the patch's row or column, so that q k^T depends on offsets only.

Prefix tokens are not rotated (their angle is zero), unless registers have a grid of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.layers.attention import Heads
from vitreous.layers.embedding import Grid
from vitreous.layers.initialization import GoogleInit

PairLayout = Literal["interleaved", "halves"]
Coordinates = Literal["index", "centered", "centered-min", "centered-max"]


def turn_neighbors(x: Float[Tensor, "*B E"]) -> Float[Tensor, "*B E"]:
    """Turn by a quarter the pairs (0, 1), (2, 3) ...: (a, b) -> (-b, a)."""
    return torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)


def turn_halves(x: Float[Tensor, "*B E"]) -> Float[Tensor, "*B E"]:
    """Turn by a quarter the pairs (0, E/2), (1, E/2 + 1) ...: (a, b) -> (-b, a)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def to_neighbors(angles: Float[Tensor, "*B P"]) -> Float[Tensor, "*B E"]:
    """Return the angle of each pair (0, 1), (2, 3) ... for both of its channels."""
    return angles.repeat_interleave(2, dim=-1)


def to_halves(angles: Float[Tensor, "*B P"]) -> Float[Tensor, "*B E"]:
    """Return the angle of each pair (0, E/2), (1, E/2 + 1) ... for both of its channels."""
    return torch.cat([angles, angles], dim=-1)


# Which channels are a pair: the quarter turn of all pairs, and an angle for each pair given to its channels.
PAIRS: Mapping[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "interleaved": (turn_neighbors, to_neighbors),
    "halves": (turn_halves, to_halves),
}


def decreasing(temperature: float, count: int) -> Float[Tensor, "count"]:
    """Return 1, ... towards 1 / temperature: the frequencies of rotary positions."""
    omega: Tensor = temperature ** -(torch.arange(count, dtype=torch.float32) / count)
    return omega


def patch_coordinates(
    grid: Grid,
    *,
    coordinates: Coordinates = "index",
    axes: str,
    offset: float = 0.0,
    reference: Grid | None = None,
) -> Float[Tensor, "N 2"]:
    """Return the two coordinates of each patch in raster order.

    Args:
        coordinates: 0, 1, 2 ... ("index"), or the centers of the patches with the image from -1 to 1: each
            axis for itself, or both divided by the shorter or the longer side.
        axes: which coordinate is first, x (the column) or y (the row).
        offset: added to an index.
        reference: the grid that the indices are scaled to: that of pre-training (EVA-02, arXiv 2303.11331).
    """
    sides = {"centered": grid, "centered-min": (min(grid),) * 2, "centered-max": (max(grid),) * 2}
    lines = []
    for axis, count in enumerate(grid):
        index = torch.arange(count, dtype=torch.float32)
        if coordinates in sides:
            line = 2.0 * ((index + 0.5) / sides[coordinates][axis]) - 1.0
        else:
            line = index + offset
            line = line / count * reference[axis] if reference else line
        lines.append(line)
    y, x = torch.meshgrid(*lines, indexing="ij")
    return torch.stack([{"x": x, "y": y}[axis].flatten() for axis in axes], dim=-1)


class RotaryPositions2d(nn.Module):
    """Axial rotary positions: half of the pairs of a head rotate with one axis, half with the other.

    Args:
        temperature: pair i of n is rotated by coordinate * temperature^(-i/n); times 2 pi where the
            coordinates are centered (DINOv3, arXiv 2508.10104, section 3.2).
        periods: the coordinate's way to a full turn of each of the n pairs, instead of a temperature.
        pairs: which channels are a pair, as in `PAIRS`.
        registers, register_temperature: the last prefix tokens are rotated, too, as patches of a square of
            their own with this temperature (ViT-5, arXiv 2602.08071, section 3.4); None: they are not.
        where: the options of `patch_coordinates`.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        grid: Grid,
        head_dim: int,
        *,
        num_prefix_tokens: int,
        temperature: float = 100.0,
        periods: Sequence[float] | None = None,
        pairs: PairLayout = "interleaved",
        coordinates: Coordinates = "index",
        axes: str = "xy",
        offset: float = 0.0,
        reference: Grid | None = None,
        registers: int = 0,
        register_temperature: float | None = None,
    ) -> None:
        super().__init__()
        self.registers, self.register_temperature = registers, register_temperature
        self.grid, self.head_dim, self.num_prefix_tokens = grid, head_dim, num_prefix_tokens
        self.temperature, self.periods, self.coordinates = temperature, periods, coordinates
        self.axes, self.offset, self.reference = axes, offset, reference
        self.turn, self.spread = PAIRS[pairs]
        self.register_buffer("cos", None, persistent=False)
        self.register_buffer("sin", None, persistent=False)
        self.compute_buffers(torch.get_default_device())

    def compute_buffers(self, device: torch.device) -> None:
        with device:
            places = patch_coordinates(
                self.grid,
                coordinates=self.coordinates,
                axes=self.axes,
                offset=self.offset,
                reference=self.reference,
            )
            angles = (places[:, :, None] * self.frequencies()).flatten(1)  # (N, D_h / 2)
            prefix = torch.zeros(self.num_prefix_tokens, angles.shape[1])
            if self.register_temperature is not None:
                side = math.isqrt(self.registers)
                places = patch_coordinates((side, side), axes=self.axes)
                waves = decreasing(self.register_temperature, self.head_dim // 4)
                prefix[-self.registers :] = (places[:, :, None] * waves).flatten(1)
            angles = torch.cat([prefix, angles])
        angles = self.spread(angles)
        self.cos, self.sin = angles.cos(), angles.sin()

    def frequencies(self) -> Float[Tensor, "pairs"]:
        """Return the radians of each pair for one unit of a coordinate."""
        if self.periods is not None:
            return 2 * math.pi / torch.tensor(self.periods, dtype=torch.float32)
        omega = decreasing(self.temperature, self.head_dim // 4)
        return omega if self.coordinates == "index" else 2 * math.pi * omega

    def forward(self, query: Heads, key: Heads) -> tuple[Heads, Heads, None]:
        return self.rotate(query), self.rotate(key), None

    def rotate(self, x: Heads) -> Heads:
        return x * self.cos.to(x.dtype) + self.turn(x) * self.sin.to(x.dtype)


class ClassRotaryPositions2d(RotaryPositions2d):
    """Axial rotary positions with learned angles of the class token, the only prefix token (MLCD)."""

    def __init__(self, grid: Grid, head_dim: int, **options: Any) -> None:
        super().__init__(grid, head_dim, **options)
        self.class_angles = nn.Parameter(torch.zeros(head_dim // 2))

    def reset(self, init: GoogleInit) -> None:
        nn.init.zeros_(self.class_angles)

    def rotate(self, x: Heads) -> Heads:
        angles = self.spread(self.class_angles[None].float())
        cos, sin = torch.cat([angles.cos(), self.cos[1:]]), torch.cat([angles.sin(), self.sin[1:]])
        return x * cos.to(x.dtype) + self.turn(x) * sin.to(x.dtype)


class MixedRotaryPositions2d(nn.Module):
    """Rotary positions whose frequencies are learned, for both axes in each pair and for each head apart
    (RoPE-Mixed, arXiv 2403.13298, Eq. 14): pair i of head k is rotated by
    x f_x[k, i] + y f_y[k, i].

    Args:
        temperature: of the frequencies at initialization, where the directions of each head are drawn.
        where: `axes` and `offset` of `patch_coordinates`.
    """

    places: Tensor

    def __init__(
        self,
        grid: Grid,
        head_dim: int,
        *,
        heads: int,
        num_prefix_tokens: int,
        temperature: float = 10.0,
        pairs: PairLayout = "interleaved",
        axes: str = "xy",
        offset: float = 0.0,
    ) -> None:
        super().__init__()
        self.grid, self.num_prefix_tokens, self.temperature = grid, num_prefix_tokens, temperature
        self.axes, self.offset = axes, offset
        self.turn, self.spread = PAIRS[pairs]
        self.frequencies = nn.Parameter(torch.zeros(2, heads, head_dim // 2))
        self.register_buffer("places", None, persistent=False)
        self.compute_buffers(torch.get_default_device())

    def reset(self, init: GoogleInit) -> None:
        """Set both halves of the pairs at right angles, each head in a direction of its own."""
        _, heads, count = self.frequencies.shape
        direction = torch.zeros(heads, 1)
        init.draw(direction, nn.init.uniform_, b=2 * math.pi)
        sizes = self.temperature ** -(torch.arange(count // 2, dtype=torch.float32) / (count // 2))
        each = direction.expand(-1, count // 2)
        directions = torch.cat([each, each + math.pi / 2], dim=1)
        with torch.no_grad():
            self.frequencies.copy_(torch.stack([directions.cos(), directions.sin()]) * sizes.repeat(2))

    def compute_buffers(self, device: torch.device) -> None:
        with device:
            places = patch_coordinates(self.grid, axes=self.axes, offset=self.offset)
            self.places = torch.cat([torch.zeros(self.num_prefix_tokens, 2), places])

    def forward(self, query: Heads, key: Heads) -> tuple[Heads, Heads, None]:
        first, second = self.frequencies[:, :, None]  # (K, 1, D_h / 2)
        angles = self.places[:, :1] * first + self.places[:, 1:] * second  # (K, T, D_h / 2)
        angles = self.spread(angles)
        cos, sin = angles.cos().to(query.dtype), angles.sin().to(query.dtype)
        return query * cos + self.turn(query) * sin, key * cos + self.turn(key) * sin, None
