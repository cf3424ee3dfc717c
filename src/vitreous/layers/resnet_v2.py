"""The ResNet of BiT (arXiv 1912.11370): version 2 of the residual unit, normalized before each convolution
(arXiv 1603.05027), with GroupNorm and weight standardization.

Unlike the hybrids' ResNet (`resnet.py`), it pads by half the kernel on every side, and its root has no
normalization. As in the code that made the published weights, the root's max-pooling pads with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.layers.resnet import StandardizedConvolution, described_resnet, resnet_stages


class CenteredConvolution(StandardizedConvolution):
    """A standardized convolution, (w - mean) / sqrt(variance + eps), padded alike on every side."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, eps: float) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, standardization="variance", eps=eps)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        return F.conv2d(x, self.standardized(), stride=self.stride, padding=self.kernel_size[0] // 2)


class PreActivationBottleneck(nn.Module):
    """GroupNorm, ReLU, convolution, three times (1x1, 3x3 with the stride, 1x1), around a residual. A
    projected shortcut starts from what is already normalized."""

    def __init__(
        self, inputs: int, outputs: int, *, stride: int, norm_eps: float, standardization_eps: float
    ) -> None:
        super().__init__()
        middle, eps = outputs // 4, standardization_eps
        self.norm1 = nn.GroupNorm(32, inputs, eps=norm_eps)
        self.conv1 = CenteredConvolution(inputs, middle, 1, eps=eps)
        self.norm2 = nn.GroupNorm(32, middle, eps=norm_eps)
        self.conv2 = CenteredConvolution(middle, middle, 3, stride=stride, eps=eps)
        self.norm3 = nn.GroupNorm(32, middle, eps=norm_eps)
        self.conv3 = CenteredConvolution(middle, outputs, 1, eps=eps)
        self.shortcut = (
            CenteredConvolution(inputs, outputs, 1, stride=stride, eps=eps)
            if stride != 1 or inputs != outputs
            else None
        )

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        y = F.relu(self.norm1(x))
        residual = x if self.shortcut is None else self.shortcut(y)
        y = self.conv1(y)
        y = self.conv2(F.relu(self.norm2(y)))
        y = self.conv3(F.relu(self.norm3(y)))
        return y + residual


class PreActivationResNet(nn.Module):
    """Root (7x7/2 convolution, 3x3/2 max-pooling), stages of units, then GroupNorm and ReLU.

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
        norm_eps: float = 1e-5,
        standardization_eps: float = 1e-10,
    ) -> None:
        super().__init__()
        self.root = CenteredConvolution(channels, root_width, 7, stride=2, eps=standardization_eps)
        self.stages = resnet_stages(
            lambda inputs, outputs, stride: PreActivationBottleneck(
                inputs, outputs, stride=stride, norm_eps=norm_eps, standardization_eps=standardization_eps
            ),
            inputs=root_width,
            layers=layers,
            widths=widths,
        )
        self.norm = nn.GroupNorm(32, widths[-1], eps=norm_eps)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        return F.relu(self.norm(self.stages(self.root_features(images))))

    def root_features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        return F.max_pool2d(F.pad(self.root(images), (1, 1, 1, 1)), kernel_size=3, stride=2)

    @property
    def described(self) -> dict[str, tuple[str, str]]:
        return {**described_resnet(self.stages), "norm": ("GroupNorm", "1912.11370")}
