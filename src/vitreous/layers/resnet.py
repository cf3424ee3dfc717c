"""ResNet with GroupNorm and weight standardization: the first half of the paper's hybrids (section 3.1), and
big_vision's BiT. The published BiT is in `resnet_v2.py`.

As in Google's code: ResNet-v1 order (normalization and ReLU after each convolution, ReLU after the sum),
the stride on the 3x3 convolution of a stage's first unit, padding "SAME" in TensorFlow's sense (the odd pixel
at the bottom and the right).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.layers.initialization import GoogleInit

Standardization = Literal["std", "variance"]


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """(before, after) so that the output has ceil(size / stride) cells."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def pad_same(x: Float[Tensor, "B C H W"], kernel: int, stride: int, value: float = 0.0) -> Tensor:
    top, bottom = same_padding(x.shape[-2], kernel, stride)
    left, right = same_padding(x.shape[-1], kernel, stride)
    return F.pad(x, (left, right, top, bottom), value=value) if top + bottom + left + right else x


class StandardizedConvolution(nn.Conv2d):
    """A convolution whose kernel is standardized over (input channel, row, column) at every call
    (weight standardization, arXiv 1903.10520), with SAME padding and no bias.

    Args:
        standardization: divide by std + eps ("std", Google) or by sqrt(variance + eps) ("variance", timm).
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int,
        standardization: Standardization,
        eps: float,
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, bias=False)
        self.standardization, self.eps = standardization, eps

    def reset(self, init: GoogleInit) -> None:
        init.draw(self.weight, nn.init.kaiming_normal_, nonlinearity="relu")

    def standardized(self) -> Float[Tensor, "out in h w"]:
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True, correction=0)
        if self.standardization == "std":
            return (self.weight - mean) / (variance.sqrt() + self.eps)
        return (self.weight - mean) * torch.rsqrt(variance + self.eps)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        padded = pad_same(x, self.kernel_size[0], self.stride[0])
        return F.conv2d(padded, self.standardized(), stride=self.stride)


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride), 1x1 convolutions around a residual, each with GroupNorm."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        stride: int,
        norm_eps: float,
        standardization: Standardization,
        eps: float,
    ) -> None:
        super().__init__()
        middle = outputs // 4

        def convolution(c_in: int, c_out: int, kernel: int, stride: int = 1) -> StandardizedConvolution:
            return StandardizedConvolution(
                c_in, c_out, kernel, stride=stride, standardization=standardization, eps=eps
            )

        self.conv1, self.norm1 = convolution(inputs, middle, 1), nn.GroupNorm(32, middle, eps=norm_eps)
        self.conv2, self.norm2 = (
            convolution(middle, middle, 3, stride),
            nn.GroupNorm(32, middle, eps=norm_eps),
        )
        self.conv3, self.norm3 = convolution(middle, outputs, 1), nn.GroupNorm(32, outputs, eps=norm_eps)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                convolution(inputs, outputs, 1, stride), nn.GroupNorm(32, outputs, eps=norm_eps)
            )

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """Root (7x7/2 convolution, GroupNorm, ReLU, 3x3/2 max-pooling) and stages of bottleneck units.

    Args:
        layers: units in each stage, (3, 4, 6, 3) for ResNet-50.
        widths: output channels of each stage.
    """

    def __init__(
        self,
        channels: int,
        *,
        layers: Sequence[int],
        widths: Sequence[int],
        root_width: int,
        norm_eps: float = 1e-6,
        standardization: Standardization = "std",
        standardization_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.root = StandardizedConvolution(
            channels, root_width, 7, stride=2, standardization=standardization, eps=standardization_eps
        )
        self.root_norm = nn.GroupNorm(32, root_width, eps=norm_eps)
        self.stages = resnet_stages(
            lambda inputs, outputs, stride: Bottleneck(
                inputs,
                outputs,
                stride=stride,
                norm_eps=norm_eps,
                standardization=standardization,
                eps=standardization_eps,
            ),
            inputs=root_width,
            layers=layers,
            widths=widths,
        )

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        return self.stages(self.root_features(images))

    def root_features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        x = F.relu(self.root_norm(self.root(images)))
        return F.max_pool2d(pad_same(x, 3, 2, value=-torch.inf), 3, stride=2)

    @property
    def described(self) -> dict[str, tuple[str, str]]:
        return described_resnet(self.stages)


def resnet_stages(
    unit: Callable[[int, int, int], nn.Module], *, inputs: int, layers: Sequence[int], widths: Sequence[int]
) -> nn.Sequential:
    """Build stages of units; each stage but the first halves the feature map in its first unit.

    Args:
        unit: makes a unit of its input channels, output channels and stride.
    """
    stages: list[nn.Module] = []
    for count, width in zip(layers, widths, strict=True):
        first = unit(inputs, width, 2 if stages else 1)
        stages.append(nn.Sequential(first, *(unit(width, width, 1) for _ in range(count - 1))))
        inputs = width
    return nn.Sequential(*stages)


def described_resnet(stages: nn.Sequential) -> dict[str, tuple[str, str]]:
    """The steps of a ResNet: its root, and each of its stages."""
    steps = {"root_features": ("ResNet root", "1912.11370")}
    for number, stage in enumerate(stages):
        assert isinstance(stage, nn.Sequential)
        units = f"{len(stage)} unit{'s' if len(stage) > 1 else ''}"
        steps[f"stages.{number}"] = (f"ResNet stage {number + 1}, {units}", "1912.11370")
    return steps


class ResNetStem(nn.Module):
    """The hybrid's x_p E: a ResNet's feature map cut into patches of cells, each projected (section 3.1)."""

    described: ClassVar = {"project": ("projection", "x_p E, Eq. 1")}

    def __init__(
        self,
        channels: int,
        width: int,
        *,
        patch: tuple[int, int],
        layers: Sequence[int],
        widths: Sequence[int],
        root_width: int,
        norm_eps: float,
        standardization: Standardization,
        standardization_eps: float,
    ) -> None:
        super().__init__()
        self.backbone = ResNet(
            channels,
            layers=layers,
            widths=widths,
            root_width=root_width,
            norm_eps=norm_eps,
            standardization=standardization,
            standardization_eps=standardization_eps,
        )
        self.projection = nn.Conv2d([root_width, *widths][-1], width, kernel_size=patch, stride=patch)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        return self.project(self.backbone(images))

    def project(self, cells: Float[Tensor, "B C h w"]) -> Float[Tensor, "B N D"]:
        """Patches of cells in raster order as tokens."""
        return rearrange(self.projection(cells), "B D h w -> B (h w) D")
