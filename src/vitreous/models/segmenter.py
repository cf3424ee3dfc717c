"""Images to images: a Vision Transformer whose patch tokens become a map of each class (Segmenter,
Strudel et al., arXiv 2105.05633).

z      = patches of LN(z_L)                          (B, N, D) section 3.1
masks  = head(z)                                     (B, classes, h, w) section 3.2
logits = masks, bilinearly at the image's size     (B, classes, H, W)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from pydantic import Field, model_validator
from torch import Tensor, nn

from vitreous.layers.segmentation import LinearMasks, MaskTransformer
from vitreous.models import parts
from vitreous.models.config import Positive, ViTConfig
from vitreous.models.initialization import initialize
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT

MOST_CLASSES = 255  # a mask's byte counts 0 ... 254; 255 is left out


class SegmenterConfig(ViTConfig):
    """A Vision Transformer, and what makes maps of its patches."""

    num_classes: Positive = Field(default=150, le=MOST_CLASSES, description="maps [K]; ADE20K's by default")
    pooling: Literal["class", "mean", "mean-all", "attention", "class+mean", "class+distillation"] = "mean"
    decoder: Literal["linear", "mask-transformer"] = "mask-transformer"
    decoder_depth: Positive = Field(default=2, description="layers of the mask Transformer [M]")
    cells: Positive = Field(
        default=1,
        description="each patch gives cells x cells logits of a class: 1 in the paper, up to the patch size",
    )

    @model_validator(mode="after")
    def _maps(self) -> SegmenterConfig:
        if self.cells > min(self.patch_size):
            raise ValueError(
                f"cells is {self.cells}, but a patch has {min(self.patch_size)} pixels a side: lower it"
            )
        for name, reason in (("pooling", "attention"), ("final_norm", "pooled")):
            if getattr(self, name) == reason:
                raise ValueError(f"{name} {reason!r} learns nothing here, since no token is pooled")
        if self.representation_size is not None:
            raise ValueError("representation_size has no effect, since no token is pooled: set it to none")
        return self


class Segmenter(ViT):
    """A ViT that gives each pixel a class. Of its tokens only the patches are decoded; class token and
    registers, where there are some, take part in the attention.

    Attributes:
        config, preprocessing, labels, task: as of a ViT; images are squashed, so that every pixel is seen.
    """

    config: SegmenterConfig

    def __init__(
        self,
        config: SegmenterConfig,
        *,
        preprocessing: Preprocessing | None = None,
        labels: Sequence[str] | None = None,
        task: str | None = "segmentation",
    ) -> None:
        whole = Preprocessing(size=config.image_size, channels=config.channels, resize="squash")
        super().__init__(config, preprocessing=preprocessing or whole, labels=labels, task=task)
        self.head = head(config)
        initialize(self.head)

    def masks(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B classes h w"]:
        """Class logits of each patch, or of each cell of a patch."""
        return self.head(self.tokens(images)[:, self.config.num_prefix_tokens :])

    def upsample(self, masks: Float[Tensor, "B classes h w"]) -> Float[Tensor, "B classes H W"]:
        """The same at the image's size, what was padded cut off."""
        (height, width), (rows, columns) = self.config.image_size, self.config.grid
        whole = rows * self.config.patch_size[0], columns * self.config.patch_size[1]
        if masks.shape[2:] != whole:
            masks = F.interpolate(masks, size=whole, mode="bilinear", align_corners=False)
        return masks[:, :, :height, :width]

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B classes H W"]:
        """Class logits of each pixel."""
        return self.upsample(self.masks(images))

    def encoder(self) -> ViT:
        """The Vision Transformer inside, without a head. The weights are shared."""
        fields = {name: getattr(self.config, name) for name in ViTConfig.model_fields}
        vit = ViT(ViTConfig(**fields | {"num_classes": None}), preprocessing=self.preprocessing)
        vit.prefix = self.prefix
        for name, module in self.named_children():
            if name != "head":
                setattr(vit, name, module)
        return vit.train(self.training)


def head(config: SegmenterConfig) -> nn.Module:
    """The decoder that the configuration names."""
    if config.decoder == "linear":
        return LinearMasks(config.width, config.num_classes, grid=config.grid, cells=config.cells)
    return MaskTransformer(
        config.width,
        config.num_classes,
        grid=config.grid,
        cells=config.cells,
        blocks=[parts.block(config, 0.0, None) for _ in range(config.decoder_depth)],
        norm=parts.norm(config),
    )


def likeliest(logits: Float[Tensor, "classes h w"], size: tuple[int, int]) -> UInt8[Tensor, "H W"]:
    """The likeliest class of each pixel of an image of `size`, to which the logits are resized bilinearly.

    Class by class: all maps of many classes at a photograph's size would be gigabytes.
    """
    if tuple(logits.shape[1:]) == size:
        return logits.argmax(dim=0).to(torch.uint8)
    best, found = None, torch.zeros(size, dtype=torch.uint8, device=logits.device)
    for number, each in enumerate(logits):
        here = F.interpolate(each[None, None], size=size, mode="bilinear", align_corners=False)[0, 0]
        if best is None:
            best = here
            continue
        found[here > best] = number
        best = torch.maximum(best, here)
    return found
