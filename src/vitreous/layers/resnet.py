"""ResNets with GroupNorm and weight standardization, in the two orders of their units.

`PostActivationResNet` is the first half of the paper's hybrids (section 3.1), and big_vision's BiT:
normalization and ReLU after each convolution, ReLU after the sum, padding "SAME" in TensorFlow's sense (the
odd pixel at the bottom and the right). `PreActivationResNet` is the published BiT (arXiv 1912.11370):
normalization and ReLU before each convolution (arXiv 1603.05027), padding by half the kernel on every side.
Both have the stride on the 3x3 convolution of a stage's first unit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.layers.initialization import GoogleInit


def pad_same(x: Float[Tensor, "B C H W"], kernel: int, stride: int, value: float = 0.0) -> Tensor:
    """Pad both sides so that a convolution of them gives ceil(size / stride) cells."""
    padding: list[int] = []
    for size in (x.shape[-1], x.shape[-2]):
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        padding += [total // 2, total - total // 2]
    return F.pad(x, padding, value=value) if any(padding) else x


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
        stride: int = 1,
        standardization: Literal["std", "variance"],
        eps: float,
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, bias=False)
        self.standardization, self.eps = standardization, eps
        self.is_standardized = False  # whether the weight is the standardized kernel itself

    def reset(self, init: GoogleInit) -> None:
        init.standardized(self.weight)

    def standardized(self) -> Float[Tensor, "out in h w"]:
        if self.is_standardized:
            return self.weight
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True, correction=0)
        if self.standardization == "std":
            return (self.weight - mean) / (variance.sqrt() + self.eps)
        return (self.weight - mean) * torch.rsqrt(variance + self.eps)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        padded = pad_same(x, self.kernel_size[0], self.stride[0])
        return F.conv2d(padded, self.standardized(), stride=self.stride)


class CenteredConvolution(StandardizedConvolution):
    """The same, padded by half the kernel on every side."""

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        return F.conv2d(x, self.standardized(), stride=self.stride, padding=self.kernel_size[0] // 2)


def with_standardized_kernels(model: nn.Module) -> nn.Module:
    """Return a copy for inference whose kernels are standardized once, not at every call; the model itself
    where it has none of these."""
    if not any(isinstance(each, StandardizedConvolution) for each in model.modules()):
        return model
    copied = copy.deepcopy(model)
    for module in copied.modules():
        if isinstance(module, StandardizedConvolution):
            module.weight = nn.Parameter(module.standardized().detach())
            module.is_standardized = True
    return copied


Convolution = Callable[..., StandardizedConvolution]  # takes (inputs, outputs, kernel, stride=1)
Norm = Callable[[int], nn.GroupNorm]


class PostActivationBottleneck(nn.Module):
    """1x1, 3x3 (with the stride), 1x1 convolutions around a residual, each with GroupNorm after it."""

    def __init__(
        self, inputs: int, outputs: int, *, stride: int, convolution: Convolution, norm: Norm
    ) -> None:
        super().__init__()
        middle = outputs // 4
        self.conv1, self.norm1 = convolution(inputs, middle, 1), norm(middle)
        self.conv2, self.norm2 = convolution(middle, middle, 3, stride=stride), norm(middle)
        self.conv3, self.norm3 = convolution(middle, outputs, 1), norm(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(convolution(inputs, outputs, 1, stride=stride), norm(outputs))

    def reset(self, init: GoogleInit) -> None:
        """Begin each unit as its shortcut: vit_jax models_resnet.py, big_vision bit.py (scale_init of gn3)
        and timm (zero_init_last)."""
        nn.init.zeros_(self.norm3.weight)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


class PreActivationBottleneck(nn.Module):
    """GroupNorm, ReLU, convolution, three times (1x1, 3x3 with the stride, 1x1), around a residual. A
    projected shortcut starts from what is already normalized."""

    def __init__(
        self, inputs: int, outputs: int, *, stride: int, convolution: Convolution, norm: Norm
    ) -> None:
        super().__init__()
        middle = outputs // 4
        self.norm1, self.conv1 = norm(inputs), convolution(inputs, middle, 1)
        self.norm2, self.conv2 = norm(middle), convolution(middle, middle, 3, stride=stride)
        self.norm3, self.conv3 = norm(middle), convolution(middle, outputs, 1)
        projected = stride != 1 or inputs != outputs
        self.shortcut = convolution(inputs, outputs, 1, stride=stride) if projected else None

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        y = F.relu(self.norm1(x))
        residual = x if self.shortcut is None else self.shortcut(y)
        y = self.conv1(y)
        y = self.conv2(F.relu(self.norm2(y)))
        y = self.conv3(F.relu(self.norm3(y)))
        return y + residual


class ResNet(nn.Module):
    """A root (7x7/2 convolution, 3x3/2 max-pooling) and stages of bottleneck units; each stage but the first
    halves the feature map in its first unit.

    Args:
        layers: units in each stage, (3, 4, 6, 3) for ResNet-50.
        widths: output channels of each stage.
        norm_eps: of every GroupNorm.
        standardization, standardization_eps: of every kernel.
    """

    unit: ClassVar[Callable[..., nn.Module]]
    convolution: ClassVar[type[StandardizedConvolution]]

    def __init__(
        self,
        channels: int,
        *,
        layers: Sequence[int],
        widths: Sequence[int],
        root_width: int,
        norm_eps: float,
        standardization: Literal["std", "variance"],
        standardization_eps: float,
    ) -> None:
        super().__init__()
        convolution = partial(self.convolution, standardization=standardization, eps=standardization_eps)
        unit = partial(self.unit, convolution=convolution, norm=partial(nn.GroupNorm, 32, eps=norm_eps))
        self.root = convolution(channels, root_width, 7, stride=2)
        self.stages = nn.Sequential()
        inputs = root_width
        for count, width in zip(layers, widths, strict=True):
            first = unit(inputs, width, stride=2 if len(self.stages) else 1)
            self.stages.append(
                nn.Sequential(first, *(unit(width, width, stride=1) for _ in range(count - 1)))
            )
            inputs = width

    def root_features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        raise NotImplementedError

    def first_filters(self) -> Float[Tensor, "D C P Q"]:
        """Return the kernels of the first convolution, as they are applied."""
        return self.root.standardized()

    @property
    def described(self) -> dict[str, tuple[str, str]]:
        steps = {"root_features": ("ResNet root", "1912.11370")}
        for number, stage in enumerate(self.stages):
            assert isinstance(stage, nn.Sequential)
            units = f"{len(stage)} unit{'s' if len(stage) > 1 else ''}"
            steps[f"stages.{number}"] = (f"ResNet stage {number + 1}, {units}", "1912.11370")
        return steps


class PostActivationResNet(ResNet):
    """The ResNet of the hybrids, with GroupNorm and ReLU in the root."""

    unit = PostActivationBottleneck
    convolution = StandardizedConvolution

    def __init__(self, channels: int, *, root_width: int, norm_eps: float, **options: Any) -> None:
        super().__init__(channels, root_width=root_width, norm_eps=norm_eps, **options)
        self.root_norm = nn.GroupNorm(32, root_width, eps=norm_eps)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        return self.stages(self.root_features(images))

    def root_features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        x = F.relu(self.root_norm(self.root(images)))
        return F.max_pool2d(pad_same(x, 3, 2, value=-torch.inf), 3, stride=2)


class PreActivationResNet(ResNet):
    """The ResNet of BiT: no normalization in the root; GroupNorm and ReLU after the last stage. As in the
    code that made the published weights, the root's max-pooling pads with zeros."""

    unit = PreActivationBottleneck
    convolution = CenteredConvolution

    def __init__(self, channels: int, *, widths: Sequence[int], norm_eps: float, **options: Any) -> None:
        super().__init__(channels, widths=widths, norm_eps=norm_eps, **options)
        self.norm = nn.GroupNorm(32, widths[-1], eps=norm_eps)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        return F.relu(self.norm(self.stages(self.root_features(images))))

    def root_features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B out h w"]:
        return F.max_pool2d(F.pad(self.root(images), (1, 1, 1, 1)), kernel_size=3, stride=2)

    @property
    def described(self) -> dict[str, tuple[str, str]]:
        return {**super().described, "norm": ("GroupNorm", "1912.11370")}


class ResNetStem(nn.Module):
    """The hybrid's x_p E: a ResNet's feature map split into patches of cells, each projected (section 3.1).

    Args:
        backbone: the ResNet.
        channels: of its feature map.
        patch: (rows, columns) of cells.
    """

    described: ClassVar = {"project": ("projection", "x_p E, Eq. 1")}

    def __init__(self, backbone: ResNet, channels: int, width: int, *, patch: tuple[int, int]) -> None:
        super().__init__()
        self.backbone = backbone
        self.projection = nn.Conv2d(channels, width, kernel_size=patch, stride=patch)

    def first_filters(self) -> Float[Tensor, "D C P Q"]:
        return self.backbone.first_filters()

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        return self.project(self.backbone(images))

    def project(self, cells: Float[Tensor, "B C h w"]) -> Float[Tensor, "B N D"]:
        """Return patches of cells in raster order as tokens."""
        return self.projection(cells).flatten(2).transpose(1, 2)
