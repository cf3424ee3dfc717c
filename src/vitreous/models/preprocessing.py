"""From a picture of any size and mode to the tensor that a model was made for. Travels with the weights."""

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
    """Resize, crop to the centre, scale to 0 ... 1, normalise.

    resize: "crop" scales the shorter side to size / crop_fraction and cuts the centre; "squash" scales both
    sides freely to size / crop_fraction, as Google's code does; "fit" scales the longer side and pads with
    the mean colour.
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
        """Where nothing is said, pictures that are not coloured come to -1 ... 1 as well."""
        if not isinstance(given, Mapping) or not isinstance(channels := given.get("channels"), int):
            return given
        return {"mean": HALF[:1] * channels, "std": HALF[:1] * channels, **given}

    @model_validator(mode="after")
    def _as_many(self) -> Preprocessing:
        if not len(self.mean) == len(self.std) == self.channels:
            raise ValueError(
                f"mean has {len(self.mean)} numbers and std {len(self.std)}, but a picture has "
                f"{self.channels} channels: give one of each for every channel"
            )
        return self

    def image(self, picture: Image.Image) -> Image.Image:
        """The picture upright, in grey or RGB, at exactly `size`."""
        picture = upright(picture, self.channels)
        height, width = self.size
        tall, wide = (round(side / self.crop_fraction) for side in self.size)
        resample = getattr(Image.Resampling, self.interpolation.upper())
        if self.resize == "squash":
            return centre_crop(picture.resize((wide, tall), resample), height, width)
        if self.resize == "fit":
            colour = tuple(round(255 * m) for m in self.mean)
            fill = colour if self.channels == 3 else colour[0]
            return ImageOps.pad(picture, (width, height), resample, color=fill)
        scale = max(tall / picture.height, wide / picture.width)
        # The longer side is cut off, not rounded, as torchvision and timm do it.
        resized = (
            max(math.floor(picture.width * scale + 1e-6), wide),
            max(math.floor(picture.height * scale + 1e-6), tall),
        )
        return centre_crop(picture.resize(resized, resample), height, width)

    def normalise(self, pixels: UInt8[Tensor, "*B C H W"]) -> Float[Tensor, "*B C H W"]:
        """Bytes to numbers: (pixel / 255 - mean) / std, channel by channel."""
        factor, shift = (each.to(pixels.device) for each in self.factor_and_shift())
        # The product reads the bytes, the sum is in place: a batch is long on its way through the memory.
        numbers = torch.empty(pixels.shape, device=pixels.device)
        return torch.mul(pixels, factor, out=numbers).add_(shift)

    def factor_and_shift(self) -> tuple[Float[Tensor, "C 1 1"], Float[Tensor, "C 1 1"]]:
        """Normalising as one product and one sum: pixel x factor + shift."""
        mean, std = (torch.tensor(each, dtype=torch.float64).view(-1, 1, 1) for each in (self.mean, self.std))
        return (1 / (255 * std)).float(), (-mean / std).float()

    def denormalise(self, images: Float[Tensor, "*B C H W"]) -> UInt8[Tensor, "*B C H W"]:
        """The inverse of `normalise`, for showing what the model sees."""
        mean = torch.tensor(self.mean, device=images.device).view(-1, 1, 1)
        std = torch.tensor(self.std, device=images.device).view(-1, 1, 1)
        return ((images * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)

    def __call__(self, pictures: Image.Image | Iterable[Image.Image]) -> Float[Tensor, "B C H W"]:
        """A batch from one picture or several, ready for the model."""
        if isinstance(pictures, Image.Image):
            pictures = [pictures]
        return self.normalise(torch.stack([to_tensor(self.image(picture)) for picture in pictures]))


def upright(picture: Image.Image, channels: int = 3) -> Image.Image:
    """Any Pillow picture as 8-bit RGB (or grey, for one channel), turned as its EXIF orientation says.

    16-bit grey is scaled to 8 bits (Pillow alone would clip it), floating-point grey from its own range;
    transparency is laid over white; palettes, CMYK and YCbCr are converted.
    """
    picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith("I") or picture.mode == "F":
        values = np.asarray(picture).astype(np.float64)
        low, high = (0, 65535) if picture.mode != "F" else (values.min(initial=0), values.max(initial=1))
        scaled = (values - low) * (255 / max(high - low, 1e-12))
        picture = Image.fromarray(scaled.round().clip(0, 255).astype(np.uint8))
    if picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info:
        rgba = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return picture.convert("L" if channels == 1 else "RGB")


def to_tensor(picture: Image.Image) -> UInt8[Tensor, "C H W"]:
    """The bytes of an 8-bit picture, channels first."""
    pixels = torch.from_numpy(np.array(picture, dtype=np.uint8))
    return pixels.unsqueeze(0) if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()


def centre_crop(picture: Image.Image, height: int, width: int) -> Image.Image:
    """The middle `height` x `width` pixels."""
    left, top = round((picture.width - width) / 2), round((picture.height - height) / 2)
    return picture.crop((left, top, left + width, top + height))
