"""From an image of any size and mode to the tensor that a model was made for. Travels with the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image, ImageOps
from pydantic import Field, model_validator
from torch import Tensor

from vitreous.models.config import Config, Positive

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]

# Mean and standard deviation of each channel, of values in 0 ... 1.
HALF = (0.5, 0.5, 0.5)  # Google's ViT, AugReg, big_vision: values in -1 ... 1
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # DeiT, torchvision, DINOv2


class Preprocessing(Config):
    """Resize, crop to the center, scale to 0 ... 1, normalize.

    resize: "crop" scales the shorter side to size / crop_fraction and cuts the center; "squash" scales both
    sides freely to size / crop_fraction, as Google's code does; "fit" scales the longer side and pads with
    the mean color.
    """

    size: tuple[Positive, Positive] = Field(default=(224, 224), description="(H, W) that the model takes")
    channels: Literal[1, 3] | int = 3
    resize: Literal["crop", "squash", "fit"] = "crop"
    crop_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    interpolation: Interpolation = "bicubic"
    mean: tuple[float, ...] = HALF
    std: tuple[float, ...] = HALF

    @model_validator(mode="before")
    @classmethod
    def _one_for_each_channel(cls, given: Any) -> Any:
        """Where nothing is said, images that are not colored come to -1 ... 1 as well."""
        if not isinstance(given, Mapping) or not isinstance(channels := given.get("channels"), int):
            return given
        return {"mean": HALF[:1] * channels, "std": HALF[:1] * channels, **given}

    @model_validator(mode="after")
    def _as_many(self) -> Preprocessing:
        if not len(self.mean) == len(self.std) == self.channels:
            raise ValueError(
                f"mean has {len(self.mean)} numbers and std {len(self.std)}, but an image has "
                f"{self.channels} channels: give one of each for every channel"
            )
        return self

    def image(self, image: Image.Image) -> Image.Image:
        """The image upright, in gray or RGB, at exactly `size`."""
        image = upright(image, self.channels)
        height, width = self.size
        tall, wide = (round(side / self.crop_fraction) for side in self.size)
        resample = getattr(Image.Resampling, self.interpolation.upper())
        if self.resize == "squash":
            return center_crop(image.resize((wide, tall), resample), height, width)
        if self.resize == "fit":
            mean = tuple(round(255 * m) for m in self.mean)
            fill = mean if self.channels == 3 else mean[0]
            return ImageOps.pad(image, (width, height), resample, color=fill)
        scale = max(tall / image.height, wide / image.width)
        # The longer side is cut off, not rounded, as torchvision and timm do it.
        resized = (
            max(math.floor(image.width * scale + 1e-6), wide),
            max(math.floor(image.height * scale + 1e-6), tall),
        )
        return center_crop(image.resize(resized, resample), height, width)

    def normalize(self, pixels: UInt8[Tensor, "*B C H W"]) -> Float[Tensor, "*B C H W"]:
        """Bytes to numbers: (pixel / 255 - mean) / std, channel by channel."""
        factor, shift = (each.to(pixels.device) for each in self.factor_and_shift())
        # The product reads the bytes, the sum is in place: a batch is long on its way through the memory.
        numbers = torch.empty(pixels.shape, device=pixels.device)
        return torch.mul(pixels, factor, out=numbers).add_(shift)

    def factor_and_shift(self) -> tuple[Float[Tensor, "C 1 1"], Float[Tensor, "C 1 1"]]:
        """Normalizing as one product and one sum: pixel x factor + shift."""
        mean, std = (torch.tensor(each, dtype=torch.float64).view(-1, 1, 1) for each in (self.mean, self.std))
        return (1 / (255 * std)).float(), (-mean / std).float()

    def denormalize(self, images: Float[Tensor, "*B C H W"]) -> UInt8[Tensor, "*B C H W"]:
        """The inverse of `normalize`, for showing what the model sees."""
        mean = torch.tensor(self.mean, device=images.device).view(-1, 1, 1)
        std = torch.tensor(self.std, device=images.device).view(-1, 1, 1)
        return ((images * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)

    def __call__(self, images: Image.Image | Iterable[Image.Image]) -> Float[Tensor, "B C H W"]:
        """A batch from one image or several, ready for the model."""
        if isinstance(images, Image.Image):
            images = [images]
        return self.normalize(torch.stack([to_tensor(self.image(image)) for image in images]))


def upright(image: Image.Image, channels: int = 3) -> Image.Image:
    """Any Pillow image as 8-bit RGB (or gray, for one channel), turned as its EXIF orientation says.

    16-bit gray is scaled to 8 bits (Pillow alone would clip it), floating-point gray from its own range;
    transparency is laid over white; palettes, CMYK and YCbCr are converted.
    """
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image).astype(np.float64)
        low, high = (0, 65535) if image.mode != "F" else (values.min(initial=0), values.max(initial=1))
        scaled = (values - low) * (255 / max(high - low, 1e-12))
        image = Image.fromarray(scaled.round().clip(0, 255).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return image.convert("L" if channels == 1 else "RGB")


def to_tensor(image: Image.Image) -> UInt8[Tensor, "C H W"]:
    """The bytes of an 8-bit image, channels first."""
    pixels = torch.from_numpy(np.array(image, dtype=np.uint8))
    return pixels.unsqueeze(0) if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()


def center_crop(image: Image.Image, height: int, width: int) -> Image.Image:
    """The middle `height` x `width` pixels."""
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))
