"""A Vision Transformer on images in their own aspect ratio, as NaFlex models are used."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.checkpoints.resizing import check_interpolation, resize_table
from vitreous.errors import InputError
from vitreous.models.model import Runnable
from vitreous.models.preprocessing import NativePreprocessing, unpadded
from vitreous.models.vit import ViT
from vitreous.training.machine import weights_type

NativeImages = Float[Tensor, "B C H W"] | Sequence[Float[Tensor, "C H W"]]


class NativeAspect(nn.Module):
    """A ViT that takes each image at its own aspect ratio (NaFlex; NaViT, arXiv 2307.06304).

    The images of a batch are padded to the longest sequence. Padding is masked in the attention, and left
    out of the pooling, so that an image's outputs do not depend on the others.

    Example:
        >>> model = vt.load("runs/photos")  # or hf:google/siglip2-base-patch16-naflex
        >>> native = vt.NativeAspect(model, patches=64)
        >>> native(native.preprocessing(["photo.jpg", "photos/pears/0.jpg"])).shape
        torch.Size([2, 2])
        >>> vt.embed(native, "photos/", progress=False).values.shape
        (24, 32)

    Args:
        model: a ViT with learned positions at the stem.
        patches: maximum number of patches per image; by default, that of the model's own image size.
        interpolation: how learned positions are resampled for each image; by default as in the code that
            the weights come from.

    Raises:
        InputError: the model's positions are inside the layers, or its stem needs images of one size.
    """

    def __init__(self, model: Runnable, patches: int | None = None, interpolation: str | None = None) -> None:
        super().__init__()
        if not isinstance(model, ViT) or model.config.stem.kind != "patch":
            raise InputError("native aspect ratio needs a ViT whose patches are projected one by one")
        config = model.config
        if config.position.kind != "learned" or not config.position.at_stem or config.rotary is not None:
            raise InputError(
                f"native aspect ratio needs learned positions at the stem, not {config.position.kind}"
            )
        self.interpolation = interpolation or (model.origin and model.origin.interpolation) or "timm"
        check_interpolation(self.interpolation)
        self.model, self.config = model, config
        self.labels, self.task, self.temperature = model.labels, model.task, model.temperature
        self.preprocessing = NativePreprocessing(
            **model.preprocessing.model_dump(),
            patch_size=config.patch_size,
            patches=patches or prod(config.grid),
        )
        self.head = model.head

    def positions(self, grid: tuple[int, int]) -> Float[Tensor, "rows D"]:
        """Return the position table for a grid of patches."""
        position: Any = self.model.position
        table: Tensor = position.rows()
        if grid == self.config.grid:
            return table
        return resize_table(table, self.config.grid, grid, self.interpolation)

    def embed(self, images: NativeImages) -> tuple[Float[Tensor, "B T D"], list[int]]:
        """Return z_0 of images of any sizes, padded with zeros, and the number of tokens of each."""
        rows: list[Tensor] = []
        tables: dict[tuple[int, int], Tensor] = {}
        prefix, extra = self.config.num_prefix_tokens, self.config.num_class_tokens
        for image in unpadded(images) if isinstance(images, Tensor) else images:
            patches = self.model.stem(image[None].to(weights_type(self.model)))
            grid = image.shape[1] // self.config.patch_size[0], image.shape[2] // self.config.patch_size[1]
            if grid not in tables:
                tables[grid] = self.positions(grid)
            z, table = self.model.prepend_tokens(patches)[0], tables[grid]
            z = torch.cat([z[:extra] + table[:extra], z[extra:prefix], z[prefix:] + table[extra:]])
            rows.append(self.model.embedding_norm(z))
        return nn.utils.rnn.pad_sequence(rows, batch_first=True), [len(row) for row in rows]

    def tokens(self, images: NativeImages) -> list[Float[Tensor, "T D"]]:
        """Return the tokens of each image after the last layer and the final norm."""
        z, lengths = self.embed(images)
        mask = None
        if min(lengths) < z.shape[1]:
            count = torch.tensor(lengths, device=z.device)
            outside = torch.arange(z.shape[1], device=z.device) >= count[:, None]
            mask = torch.zeros(outside.shape, dtype=z.dtype, device=z.device)
            mask = mask.masked_fill(outside, -torch.inf)[:, None, None]
        for block in self.model.blocks:
            z = block(z, mask)
        z = self.model.norm(z)
        return [row[:length] for row, length in zip(z, lengths, strict=True)]

    def features(self, images: NativeImages) -> Float[Tensor, "B *features"]:
        """Return what the head sees of each image."""
        pooled = torch.cat([self.model.pool(tokens[None]) for tokens in self.tokens(images)])
        return self.model.representation(pooled)

    def forward(self, images: NativeImages) -> Float[Tensor, "B *classes"]:
        """Return class logits; the features where the model has no head.

        Args:
            images: as `preprocessing` gives them; or prepared images (C, H, W) of any whole patches.
        """
        return self.head(self.features(images))
