"""EfficientNet-Lite: a network of inverted residuals for small processors, whose feature maps can be the
tokens of a Vision Transformer, as those of a ResNet are in the hybrids of section 3.1.

An inverted residual (MobileNetV2, arXiv 1801.04381) widens its input, filters each channel by itself and
narrows it again. EfficientNet (arXiv 1905.11946) says how many there are and how wide; its Lite form has
neither squeeze-and-excitation nor SiLU. BatchNorm is folded into each convolution, so that small batches
change nothing. Padding is "SAME" in TensorFlow's sense: at stride 2 the odd pixel is at the bottom and the
right, which `padding=1` would not give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.layers.initialization import GoogleInit
from vitreous.layers.resnet import pad_same

ROOT_WIDTH = 32  # channels of the first convolution


class SameConvolution(nn.Conv2d):
    """A convolution with SAME padding."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int, groups: int = 1) -> None:
        # At stride 1 both sides get the same, which the convolution does itself and faster.
        padding = kernel // 2 if stride == 1 else 0
        super().__init__(inputs, outputs, kernel, stride=stride, padding=padding, groups=groups)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        stride = self.stride[0]
        return super().forward(x if stride == 1 else pad_same(x, self.kernel_size[0], stride))


class BlockShape(NamedTuple):
    """Of an inverted residual: the side of its kernel, its stride, how many times wider it is inside, and its
    output channels."""

    kernel: int
    stride: int
    expansion: int
    channels: int


class InvertedResidual(nn.Module):
    """1x1 to more channels, k x k on each by itself (with the stride), 1x1 to the output channels; the input
    is added where it has the same shape. ReLU6 after the first two, nothing after the last."""

    def __init__(self, inputs: int, shape: BlockShape) -> None:
        super().__init__()
        hidden, outputs = inputs * shape.expansion, shape.channels
        self.expand = nn.Conv2d(inputs, hidden, 1) if shape.expansion > 1 else None
        self.depthwise = SameConvolution(hidden, hidden, shape.kernel, stride=shape.stride, groups=hidden)
        self.contract = nn.Conv2d(hidden, outputs, 1)
        self.adds_input = shape.stride == 1 and inputs == outputs

    def reset(self, init: GoogleInit) -> None:
        """Begin each unit that adds its input as the identity, as a ResNet's; in the others make good what
        ReLU takes from the variance of two inputs (He et al., 1502.01852), as no normalization does."""
        self.depthwise.weight.mul_(2**0.5)
        self.contract.weight.mul_(0.0 if self.adds_input else 2**0.5)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        y = x if self.expand is None else F.relu6(self.expand(x))
        y = self.contract(F.relu6(self.depthwise(y)))
        return x + y if self.adds_input else y


class EfficientNetLite(nn.Module):
    """A 3x3 convolution with stride 2, inverted residuals, and where it is wanted a last 1x1 convolution.

    Args:
        blocks: the shapes of the inverted residuals.
        last_width: channels of the last convolution; None: there is none.
    """

    def __init__(self, channels: int, *, blocks: Sequence[BlockShape], last_width: int | None) -> None:
        super().__init__()
        self.root = SameConvolution(channels, ROOT_WIDTH, 3, stride=2)
        widths = [ROOT_WIDTH, *(shape.channels for shape in blocks)]
        self.units = nn.ModuleList(
            InvertedResidual(inputs, shape) for inputs, shape in zip(widths[:-1], blocks, strict=True)
        )
        self.last = None if last_width is None else nn.Conv2d(widths[-1], last_width, 1)

    def root_features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        # With the channels of a pixel side by side, convolutions of one channel each take a third less time.
        return F.relu6(self.root(images.contiguous(memory_format=torch.channels_last)))

    def forward(self, images: Float[Tensor, "B C H W"]) -> list[Tensor]:
        """Return the feature map (B, C, h, w) after each unit, and that of the last convolution where there
        is one."""
        x = self.root_features(images)
        maps: list[Tensor] = []
        for unit in self.units:
            x = unit(x)
            maps.append(x)
        if self.last is not None:
            maps.append(F.relu6(self.last(x)))
        return maps

    @property
    def described(self) -> dict[str, tuple[str, str]]:
        steps = {"root_features": ("convolution, ReLU6", "1905.11946")}
        for number in range(len(self.units)):
            steps[f"units.{number}"] = (f"inverted residual {number + 1}", "1801.04381")
        return steps


class EfficientNetLiteStem(nn.Module):
    """The hybrid's x_p E: cells of an EfficientNet-Lite's feature maps, each projected (section 3.1).

    Args:
        taken: numbers of the maps whose channels are joined; maps of twice the resolution of the last one are
            first halved, by the mean of 2 x 2 cells.
        channels: of all of them together.
        patch: (rows, columns) of cells; None: there is no projection, and a cell is a token.
    """

    def __init__(
        self,
        backbone: EfficientNetLite,
        channels: int,
        width: int,
        *,
        taken: Sequence[int],
        patch: tuple[int, int] | None,
    ) -> None:
        super().__init__()
        self.backbone, self.taken = backbone, tuple(taken)
        self.projection = (
            nn.Identity() if patch is None else nn.Conv2d(channels, width, kernel_size=patch, stride=patch)
        )

    @property
    def described(self) -> dict[str, tuple[str, str]]:
        if isinstance(self.projection, nn.Identity):
            return {"project": ("cells as tokens", "x_p, 3.1")}
        return {"project": ("projection", "x_p E, Eq. 1")}

    def first_filters(self) -> Float[Tensor, "D C P Q"]:
        return self.backbone.root.weight

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        return self.project(self.cells(images))

    def cells(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B features h w"]:
        """Return the joined feature maps."""
        every = self.backbone(images)
        maps = [every[number] for number in self.taken]
        side = maps[-1].shape[-2:]
        joined = [each if each.shape[-2:] == side else halved(each) for each in maps]
        return torch.cat(joined, dim=1) if len(joined) > 1 else joined[0]

    def project(self, cells: Float[Tensor, "B features h w"]) -> Float[Tensor, "B N D"]:
        """Return patches of cells in raster order as tokens."""
        return self.projection(cells).flatten(2).transpose(1, 2)


def halved(cells: Float[Tensor, "B C h w"]) -> Float[Tensor, "B C h2 w2"]:
    """Return the mean of each 2 x 2 cells, at an odd edge of those that there are."""
    return F.avg_pool2d(cells, 2, ceil_mode=True, count_include_pad=False)
