"""DINO's views of an image (arXiv 2104.14294, section 3.1): two large crops and several small ones, each
with the color changes of BYOL (2006.07733). Whole batches at once, on the device where the images are."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config, Probability
from vitreous.models.names import Model

Share = tuple[float, float]

# Luma and two axes of color (NTSC); rotating the latter changes the hue, scaling them the saturation.
TO_YIQ = ((0.299, 0.587, 0.114), (0.596, -0.274, -0.322), (0.211, -0.523, 0.312))


class ViewsConfig(Config):
    """Defaults are the authors' for ImageNet."""

    large_scale: Share = Field(default=(0.4, 1.0), description="area of a large crop, of the image's")
    small_scale: Share = Field(default=(0.05, 0.4), description="area of a small crop")
    small_count: int = Field(default=8, ge=0, description="small crops of each image, for the student alone")
    small_size: int | None = Field(default=None, gt=0, description="pixels; None: 3/7 of the model's")
    flip: Probability = Field(default=0.5, description="probability of mirroring left and right")
    color: float = Field(default=0.8, ge=0, le=1, description="probability of a change of colors")
    brightness: Probability = Field(default=0.4, description="factor 1 ± this")
    contrast: Probability = Field(default=0.4, description="factor 1 ± this")
    saturation: Probability = Field(default=0.2, description="factor 1 ± this")
    hue: Probability = Field(default=0.1, description="of a full turn")
    gray: Probability = Field(default=0.2, description="probability of a gray image")
    blur: float = Field(default=0.5, ge=0, le=1, description="probability")
    solarize: Probability = Field(default=0.2, description="probability, second large crop only")


class MultiCrop:
    """Views for `model`: normalized images in, normalized views out."""

    def __init__(self, model: Model, config: ViewsConfig) -> None:
        self.config = config
        self.large_size = model.config.image_size
        self.small_size = small_size(model, config)
        self.preprocessing = model.preprocessing

    def __call__(
        self, images: Float[Tensor, "B C H W"], generator: torch.Generator
    ) -> tuple[list[Float[Tensor, "B C H W"]], list[Float[Tensor, "B C h w"]]]:
        """The two large views and the small ones.

        As in the authors' code the first large view is always blurred, the second rarely, and some of the
        second ones are solarized.
        """
        config, like = self.config, self.preprocessing
        mean, std = (images.new_tensor(each).view(-1, 1, 1) for each in (like.mean, like.std))
        pixels = images * std + mean  # 0 ... 1

        def view(scale: Share, size: tuple[int, int], blur: float, solarize: float) -> Tensor:
            crop = random_crop(pixels, scale, size, flip=config.flip, generator=generator)
            crop = change_colors(crop, config, generator)
            crop = blurred(crop, bernoulli(crop, blur, generator), generator)
            crop = torch.where(bernoulli(crop, solarize, generator) & (crop > 0.5), 1 - crop, crop)
            return (crop - mean) / std

        always, rarely = min(2 * config.blur, 1.0), config.blur / 5
        large = [
            view(config.large_scale, self.large_size, always, 0.0),
            view(config.large_scale, self.large_size, rarely, config.solarize),
        ]
        small = [
            view(config.small_scale, self.small_size, config.blur, 0.0) for _ in range(config.small_count)
        ]
        return large, small


def small_size(model: Model, config: ViewsConfig) -> tuple[int, int]:
    """(H, W) of the small crops: 3/7 of the large ones as in the paper (96 of 224), in whole patches; that of
    the large ones where no small crops are wanted."""
    if not config.small_count:
        return model.config.image_size
    if config.small_size is not None:
        return config.small_size, config.small_size
    height, width = model.config.image_size
    p, q = model.config.patch_size if isinstance(model.config, ViTConfig) else (1, 1)
    return max(round(height * 3 / 7 / p), 1) * p, max(round(width * 3 / 7 / q), 1) * q


def uniform(like: Tensor, low: float, high: float, generator: torch.Generator) -> Float[Tensor, "B 1 1 1"]:
    """Return one random number for each image of the batch."""
    return (low + (high - low) * torch.rand(len(like), 1, 1, 1, generator=generator)).to(like.device)


def bernoulli(like: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Return True with this probability for each image."""
    return uniform(like, 0.0, 1.0, generator) < probability


def random_crop(
    pixels: Float[Tensor, "B C H W"],
    scale: Share,
    size: tuple[int, int],
    *,
    flip: float,
    generator: torch.Generator,
) -> Float[Tensor, "B C h w"]:
    """A rectangle of random area (`scale`), shape (3:4 to 4:3) and place of each image, at `size` pixels,
    mirrored with probability `flip`. Bilinear; few crops are larger than `size`, so nothing smooths first."""
    area = uniform(pixels, *scale, generator).flatten()
    ratio = uniform(pixels, math.log(3 / 4), math.log(4 / 3), generator).flatten().exp()
    wide, tall = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    x = uniform(pixels, -1.0, 1.0, generator).flatten() * (1 - wide)  # centers, in -1 ... 1
    y = uniform(pixels, -1.0, 1.0, generator).flatten() * (1 - tall)
    mirror = 1 - 2 * bernoulli(pixels, flip, generator).flatten().float()
    zero = torch.zeros_like(x)
    theta = torch.stack([wide * mirror, zero, x, zero, tall, y], dim=-1).view(-1, 2, 3)
    grid = F.affine_grid(theta, [*pixels.shape[:2], *size], align_corners=False)
    return F.grid_sample(pixels, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def change_colors(
    pixels: Float[Tensor, "B C H W"], config: ViewsConfig, generator: torch.Generator
) -> Float[Tensor, "B C H W"]:
    """Brightness, contrast, saturation and hue, each by a random amount; some images become gray."""
    changed = pixels * uniform(pixels, 1 - config.brightness, 1 + config.brightness, generator)
    mean = changed.mean(dim=(1, 2, 3), keepdim=True)
    changed = mean + (changed - mean) * uniform(pixels, 1 - config.contrast, 1 + config.contrast, generator)
    where = bernoulli(pixels, config.color, generator)
    saturation = uniform(pixels, 1 - config.saturation, 1 + config.saturation, generator)
    hue = 2 * math.pi * uniform(pixels, -config.hue, config.hue, generator)
    gray = bernoulli(pixels, config.gray, generator)
    if pixels.shape[1] != 3:
        return torch.where(where, changed, pixels).clamp(0, 1)
    saturation, hue = torch.where(where, saturation, 1.0), torch.where(where, hue, 0.0)
    saturation = torch.where(gray, 0.0, saturation)
    rotated = rotate_colors(torch.where(where, changed, pixels), saturation, hue)
    return rotated.clamp(0, 1)


def rotate_colors(
    pixels: Float[Tensor, "B 3 H W"], saturation: Float[Tensor, "B 1 1 1"], hue: Float[Tensor, "B 1 1 1"]
) -> Float[Tensor, "B 3 H W"]:
    """Return the chroma scaled by `saturation` and rotated by `hue` radians; the luma stays."""
    to_yiq = pixels.new_tensor(TO_YIQ)
    y, i, q = torch.einsum("rc,bchw->rbhw", to_yiq, pixels).unsqueeze(2)
    cos, sin = saturation * hue.cos(), saturation * hue.sin()
    rotated = torch.cat([y, cos * i - sin * q, sin * i + cos * q], dim=1)
    return torch.einsum("cr,brhw->bchw", torch.linalg.inv(to_yiq), rotated)


def blurred(
    pixels: Float[Tensor, "B C H W"], where: Tensor, generator: torch.Generator
) -> Float[Tensor, "B C H W"]:
    """A Gaussian of 0.1 to 2 pixels where the image is 224 pixels high, as in BYOL, and in proportion."""
    height = pixels.shape[-2]
    sigma = uniform(pixels, 0.1, 2.0, generator).flatten() * height / 224
    radius = math.ceil(4 * height / 224)  # two of the widest
    at = torch.arange(-radius, radius + 1, device=pixels.device)
    kernel = torch.exp(-0.5 * (at / sigma.unsqueeze(1)) ** 2)
    kernel = (kernel / kernel.sum(dim=1, keepdim=True)).repeat_interleave(pixels.shape[1], dim=0)[:, None]
    flat = rearrange(pixels, "B C H W -> 1 (B C) H W")
    flat = F.pad(flat, (radius,) * 4, mode="replicate")
    flat = F.conv2d(flat, kernel.unsqueeze(-2), groups=flat.shape[1])
    flat = F.conv2d(flat, kernel.unsqueeze(-1), groups=flat.shape[1])
    return torch.where(where, rearrange(flat, "1 (B C) H W -> B C H W", B=len(pixels)), pixels)
