"""Images to images: a Vision Transformer whose patch tokens become a map of each class (Segmenter,
Strudel et al., arXiv 2105.05633).

z      = patches of LN(z_L)                          (B, N, D) section 3.1
masks  = head(z)                                     (B, classes, h, w) section 3.2
logits = masks, bilinearly at the image's size     (B, classes, H, W)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from pydantic import model_validator
from torch import Tensor, nn

from vitreous.addons.segmentation.decoders import LinearMasks, MaskTransformer
from vitreous.layers.initialization import fresh_weights
from vitreous.models import parts
from vitreous.models.config import Origin, ViTConfig
from vitreous.models.config_parts import Pooling, Positive, TokenPoolingConfig, setting
from vitreous.models.model import WithEncoder
from vitreous.models.names import sizes, unknown_name
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import Images, ViT

MOST_CLASSES = 255  # a mask's byte counts 0 ... 254; 255 is left out


class SegmenterConfig(ViTConfig):
    """The configuration of a Vision Transformer and of the decoder for its patches.

    Example:
        >>> config = vt.SegmenterConfig(image_size=(64, 64), num_classes=5)
        >>> config.num_classes, config.image_size
        (5, (64, 64))
    """

    num_classes: Positive = setting(
        150, "number of classes [K], each with a map; by default that of ADE20K", le=MOST_CLASSES
    )
    pooling: Pooling = setting(
        TokenPoolingConfig(kind="mean"),
        "what the features are computed from (the maps are always computed from the patches)",
    )
    decoder: Literal["linear", "mask-transformer"] = setting(
        "mask-transformer", "a linear layer applied to each patch, or class tokens with attention (Segmenter)"
    )
    decoder_depth: Positive = setting(2, "number of layers of the mask Transformer [M]")
    cells: Positive = setting(
        1, "each patch gives cells x cells logits for each class: 1 in the paper, and at most the patch size"
    )

    @model_validator(mode="after")
    def _maps(self) -> SegmenterConfig:
        if self.cells > (side := min(self.patch_size)):
            raise ValueError(f"cells is {self.cells}, but a patch has {side} pixels on each side: lower it")
        if self.pooling.kind in ("attention", "attention-all"):
            raise ValueError(f"pooling {self.pooling.kind!r} learns nothing here, since no token is pooled")
        if self.final_norm == "pooled":
            raise ValueError("final_norm 'pooled' learns nothing here, since no token is pooled")
        if self.edge == "drop":
            raise ValueError("edge='drop' would leave pixels without a class: set edge='pad' instead")
        if self.representation_size is not None:
            raise ValueError("representation_size has no effect, since no token is pooled: set it to none")
        return self

    @property
    def encoder(self) -> ViTConfig:
        """The configuration of the Vision Transformer inside, which has no head."""
        fields = {name: getattr(self, name) for name in ViTConfig.model_fields}
        return ViTConfig(**fields | {"num_classes": None})


def named(name: str) -> dict[str, object]:
    """Return the fields that a name stands for: Seg-B/16, and Seg-B-Mask/16 with a mask Transformer
    (2105.05633, Table 3). The class token takes part in the attention, as in the authors' code. Raises
    InputError: there is no such model."""
    if not (match := re.fullmatch(r"Seg-([A-Za-z]+?)(-Mask)?/(\d+)", name)):
        raise unknown_name(name)
    size, mask, side = match.groups()
    return {
        "stem": {"kind": "patch"},
        "decoder": "mask-transformer" if mask else "linear",
        **sizes(size, name),
        "patch_size": (int(side), int(side)),
    }


class Segmenter(WithEncoder):
    """A ViT with a decoder for its patch tokens, which predicts a class for each pixel. The class token and
    the registers are used only in attention.

    Example:
        >>> config = vt.SegmenterConfig(image_size=(32, 32), depth=2, num_classes=5)
        >>> model = vt.Segmenter(config)
        >>> model(torch.randn(1, 3, 32, 32)).shape  # a class for each pixel
        torch.Size([1, 5, 32, 32])

    Attributes:
        config, preprocessing, labels, task, temperature: as of a ViT; images are squashed, not cropped.
        encoder: the ViT, without a head.
        head: the decoder.

    Args:
        origin: where loaded weights come from.
        seed: random seed of the weights.
    """

    def __init__(
        self,
        config: SegmenterConfig,
        *,
        preprocessing: Preprocessing | None = None,
        labels: Sequence[str] | None = None,
        task: str | None = "segmentation",
        temperature: float = 1.0,
        origin: Origin | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.config = config
        whole = Preprocessing(size=config.image_size, channels=config.channels, resize="squash")
        self.preprocessing = preprocessing or whole
        self.labels = None if labels is None else list(labels)
        self.task = task
        self.temperature, self.origin = temperature, origin
        with fresh_weights(self, seed):
            self.encoder = ViT(config.encoder, preprocessing=self.preprocessing)
            grid, cells, classes = config.grid, config.cells, config.num_classes
            self.head: nn.Module
            if config.decoder == "linear":
                self.head = LinearMasks(config.width, classes, grid=grid, cells=cells)
            else:
                blocks = [parts.build_block(config, 0.0, None) for _ in range(config.decoder_depth)]
                norm = parts.build_norm(config)
                self.head = MaskTransformer(
                    config.width, classes, grid=grid, cells=cells, blocks=blocks, norm=norm
                )

    @property
    def described(self) -> dict[str, tuple[str, str]]:
        steps = {}
        if self.config.num_prefix_tokens:
            steps["patches"] = ("patches alone", "2105.05633, 3.1")
        if tuple(side * self.config.cells for side in self.config.grid) != self.config.image_size:
            steps["upsample"] = ("maps at the image's size", "2105.05633, 3.2")
        return steps

    def masks(self, images: Images) -> Float[Tensor, "B classes h w"]:
        """Return class logits of each patch, or of each cell of a patch."""
        return self.head(self.patches(self.tokens(images)))

    def patches(self, z: Float[Tensor, "B T D"]) -> Float[Tensor, "B N D"]:
        """Return the tokens without the prefix."""
        return z[:, self.config.num_prefix_tokens :]

    def upsample(self, masks: Float[Tensor, "B classes h w"]) -> Float[Tensor, "B classes H W"]:
        """Resize to the image's size and remove the padding."""
        (height, width), (rows, columns) = self.config.image_size, self.config.grid
        whole = rows * self.config.patch_size[0], columns * self.config.patch_size[1]
        if masks.shape[2:] != whole:
            masks = F.interpolate(masks, size=whole, mode="bilinear", align_corners=False)
        return masks[:, :, :height, :width]

    def forward(self, images: Images) -> Float[Tensor, "B classes H W"]:
        """Return class logits of each pixel."""
        return self.upsample(self.masks(images))


def argmax_at_size(logits: Float[Tensor, "classes h w"], size: tuple[int, int]) -> UInt8[Tensor, "H W"]:
    """Return the most probable class of each pixel of an image of `size`.

    The logits are resized bilinearly, class by class: all maps of many classes at the size of a photograph
    would be gigabytes.
    """
    if tuple(logits.shape[1:]) == size:
        return logits.argmax(dim=0).to(torch.uint8)
    best = logits.new_full(size, -torch.inf)
    found = torch.zeros(size, dtype=torch.uint8, device=logits.device)
    for number, each in enumerate(logits):
        here = F.interpolate(each[None, None], size=size, mode="bilinear", align_corners=False)[0, 0]
        found[here > best] = number
        best = torch.maximum(best, here)
    return found
