"""From pixels to patch tokens: x_p E of Eq. 1, in its several forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


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

    def flat(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N patch_dim"]:
        """x_p of the paper's section 3.1."""
        return to_patches(images, self.patch)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        patches = self.flat(images)
        return self.norm_after(self.projection(self.norm_before(patches)))


def to_patches(images: Float[Tensor, "B C H W"], patch: tuple[int, int]) -> Float[Tensor, "B N patch_dim"]:
    """Flat patches in raster order, each (row, column, channel): x -> x_p of the paper's section 3.1."""
    (batch, channels, height, width), (p, q) = images.shape, patch
    cells = images.reshape(batch, channels, height // p, p, width // q, q)
    return cells.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def from_patches(
    patches: Float[Tensor, "B N patch_dim"], grid: tuple[int, int], patch: tuple[int, int]
) -> Float[Tensor, "B C H W"]:
    """The inverse of `to_patches`."""
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
        norm: Literal["layer", "instance"] = "layer",
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

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        return self.project(self.convolutions(images))

    def project(self, cells: Float[Tensor, "B C h w"]) -> Float[Tensor, "B N D"]:
        """Cells in raster order as tokens."""
        return self.projection(cells).flatten(2).transpose(1, 2)

    @property
    def described(self) -> dict[str, tuple[str, str]]:
        ends = range(2, len(self.convolutions), 3)  # each convolution has a norm and a ReLU
        convolutions = {f"convolutions.{end}": (f"convolution {end // 3 + 1}", "2106.14881") for end in ends}
        return {**convolutions, "project": ("projection", "x_p E, Eq. 1")}


def to_multiple(
    images: Float[Tensor, "B C H W"], patch: tuple[int, int], *, pad: bool
) -> Float[Tensor, "B C H2 W2"]:
    """Zeros at the right and the bottom until both sides are multiples of the patch; or pixels less."""
    height, width = images.shape[-2:]
    if pad:
        return F.pad(images, (0, -width % patch[1], 0, -height % patch[0]))
    return images[..., : height - height % patch[0], : width - width % patch[1]]
