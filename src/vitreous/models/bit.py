"""BiT (Big Transfer, arXiv 1912.11370): the ResNet that the ViT paper compares itself with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor, nn

from vitreous.layers.embedding import in_type_of
from vitreous.layers.initialization import GoogleInit, fresh_weights
from vitreous.layers.resnet import PostActivationResNet, PreActivationResNet, ResNet
from vitreous.models.config import Origin
from vitreous.models.config_parts import Positive, ResNetConfig, Sides, setting
from vitreous.models.parts import build_resnet
from vitreous.models.preprocessing import Preprocessing, check_channels, layer_numbers


class BiTConfig(ResNetConfig):
    """A ResNet with a head.

    The defaults are those of the published BiT: units of version 2 ("pre-activation"). big_vision's
    re-implementation, like the hybrids, has version 1 ("post-activation"), GroupNorm's eps 1e-6, and divides
    kernels by std + 1e-5.

    Example:
        >>> config = vt.BiTConfig(layers=(1, 1), num_classes=10, image_size=(64, 64))
        >>> vt.create(config)(torch.randn(1, 3, 64, 64)).shape
        torch.Size([1, 10])
    """

    image_size: Sides = setting((224, 224), "image size (H, W) in pixels; any size works")
    channels: Positive = setting(3, "number of channels of the image")
    num_classes: Positive | None = setting(
        1000, "number of classes; None: the model has no head and returns features"
    )
    layers: tuple[Positive, ...] = setting(
        (3, 4, 6, 3), "number of bottleneck units in each stage", min_length=1
    )
    order: Literal["pre-activation", "post-activation"] = setting(
        "pre-activation", "whether GroupNorm and ReLU come before each convolution (v2) or after it"
    )
    standardization: Literal["std", "variance"] = setting(
        "variance", "whether weights are divided by std + eps or by sqrt(variance + eps)"
    )
    standardization_eps: float = setting(1e-10, "constant added to the standard deviation or to the variance")
    norm_eps: float = setting(1e-5, "constant added to the variance in each GroupNorm")

    @model_validator(mode="after")
    def _published(self) -> BiTConfig:
        if self.order == "pre-activation" and self.standardization != "variance":
            raise ValueError("the pre-activation ResNet standardizes kernels by their variance")
        return self

    @property
    def feature_width(self) -> int:
        """Channels of `BiT.features`."""
        return self.output_widths[-1]

    if TYPE_CHECKING:  # a type checker does not know that one number is a square

        def __init__(self, *, image_size: int | tuple[int, int] = ..., **fields: object) -> None: ...

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) of the cells of the last feature map."""
        return -(-self.image_size[0] // self.stride), -(-self.image_size[1] // self.stride)


class BiT(nn.Module):
    """A BiT ResNet: root, stages, mean over the image and a linear head, with the same methods as `ViT`.

    Example:
        >>> model = vt.create("BiT-R50x1", layers=(1, 1, 1, 1), num_classes=10, image_size=64)
        >>> model.features(torch.randn(1, 3, 64, 64)).shape
        torch.Size([1, 2048])

    Args:
        config: the whole description of the function that the model computes.
        preprocessing, labels, task, temperature, origin: as the attributes of a `ViT`.
        seed: random seed of the weights.
    """

    described: ClassVar = {"features": ("mean of the cells", ""), "head": ("head", "")}

    def __init__(
        self,
        config: BiTConfig,
        *,
        preprocessing: Preprocessing | None = None,
        labels: Sequence[str] | None = None,
        task: str | None = None,
        temperature: float = 1.0,
        origin: Origin | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.config = config
        self.preprocessing = preprocessing or Preprocessing(size=config.image_size, channels=config.channels)
        self.labels = None if labels is None else list(labels)
        self.task = task
        self.temperature, self.origin = temperature, origin
        classes = config.num_classes
        with fresh_weights(self, seed):
            version: type[ResNet] = (
                PreActivationResNet if config.order == "pre-activation" else PostActivationResNet
            )
            self.backbone = build_resnet(version, config.channels, config)
            self.head = nn.Identity() if classes is None else nn.Linear(config.output_widths[-1], classes)

    def reset(self, init: GoogleInit) -> None:
        init.head(self.head)

    def tokens(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N D"]:
        """Return the cells of the last feature map in raster order."""
        check_channels(images, self.config.channels)
        return self.backbone(in_type_of(self, images)).flatten(2).transpose(1, 2)

    def intermediates(
        self, images: Float[Tensor, "B C H W"], layers: Sequence[int] | None = None
    ) -> list[Float[Tensor, "B D h w"]]:
        """Return the feature maps after some stages of the ResNet.

        Args:
            layers: numbers of stages, from 1 to `len(config.layers)`, or from the end: -1 is the last. All by
                default.

        Raises:
            InputError: a stage that does not exist, or images of another shape.
        """
        numbers = layer_numbers(layers, len(self.config.layers), first=1)
        check_channels(images, self.config.channels)
        cells, after = self.backbone.root_features(in_type_of(self, images)), []
        for stage in self.backbone.stages:
            cells = stage(cells)
            after.append(cells)
        return [after[number - 1] for number in numbers]

    def features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D"]:
        return self.tokens(images).mean(dim=1)

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B classes"]:
        return self.head(self.features(images))
