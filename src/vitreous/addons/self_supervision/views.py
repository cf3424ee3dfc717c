"""Views of an image, as DINO has them (arXiv 2104.14294, section 3.1): two large crops and several small
ones, each with the color changes of BYOL (2006.07733), cut from the decoded original and resized by
Pillow's bicubic filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image, ImageFilter, ImageOps
from torch import Tensor

from vitreous.data.config import ColorJitterConfig, RandomResizedCropConfig
from vitreous.data.dataset import ImageDataset, Indices
from vitreous.data.image_augmentation import jitter
from vitreous.data.loading import BatchRows, Sample
from vitreous.data.transforms import random_crop
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config, Probability, setting
from vitreous.models.preprocessing import Preprocessing, to_tensor

ScaleRange = tuple[float, float]
CropSize = tuple[int, int]  # (H, W)

BLUR = (0.1, 2.0)  # least and most standard deviation, in pixels of any view, where large ones have 224
SOLARIZE = 128  # values from here on are inverted


class PairConfig(Config):
    """Two large views of each image. Defaults are the authors' for ImageNet."""

    large_scale: ScaleRange = setting(
        (0.4, 1.0), "range of the area of a large crop, as a share of the image's area"
    )
    flip: Probability = setting(0.5, "probability of mirroring horizontally")
    color: float = setting(0.8, "probability of changing the colors", ge=0, le=1)
    brightness: Probability = setting(0.4, "range of the random factor: 1 ± this value")
    contrast: Probability = setting(0.4, "range of the random factor: 1 ± this value")
    saturation: Probability = setting(0.2, "range of the random factor: 1 ± this value")
    hue: Probability = setting(0.1, "range of the random shift of the hue, as a share of a full turn", le=0.5)
    gray: Probability = setting(0.2, "probability of converting to gray")
    blur: float = setting(
        0.5,
        "probability of blurring a small crop; twice this for the first large crop, a fifth of it for the "
        "second",
        ge=0,
        le=1,
    )
    solarize: Probability = setting(0.2, "probability of solarizing, only for the second large crop")
    invert: Probability = setting(0.0, "probability of inverting the colors")

    @property
    def jitter(self) -> ColorJitterConfig:
        names = ("brightness", "contrast", "saturation", "hue")
        return ColorJitterConfig(**{name: getattr(self, name) for name in names})


class ViewsConfig(PairConfig):
    """Two large views and several small views of each image."""

    small_scale: ScaleRange = setting(
        (0.05, 0.4), "range of the area of a small crop, as a share of the image's area"
    )
    small_count: int = setting(8, "number of small crops of each image, which only the student sees", ge=0)
    small_size: int | None = setting(
        None, "size of a small crop in pixels; None: 3/7 of the model's image size", gt=0
    )


class Views(NamedTuple):
    """The views of a batch: bytes from the loader; normalized, float32, from the prefetcher.

    images: the two large views of each image (B, 2, C, H, W).
    small: the small ones (B, S, C, h, w); S may be 0.
    """

    images: UInt8[Tensor, "B 2 C H W"] | Float[Tensor, "B 2 C H W"]
    small: UInt8[Tensor, "B S C h w"] | Float[Tensor, "B S C h w"]


class MultiCrop:
    """The views of images for a model of the size `large`."""

    def __init__(self, config: PairConfig, large: CropSize, small: CropSize) -> None:
        self.config, self.large_size, self.small_size = config, large, small

    def cut(self, image: Image.Image, rng: np.random.Generator) -> Views:
        """Return the views of one image, without the dimension B. As in the authors' code the first large
        view is always blurred, the second rarely, and some of the second ones are solarized."""
        config = self.config
        always, rarely = min(2 * config.blur, 1.0), config.blur / 5
        large = [
            self.view(image, config.large_scale, self.large_size, always, 0.0, rng),
            self.view(image, config.large_scale, self.large_size, rarely, config.solarize, rng),
        ]
        small: list[UInt8[Tensor, "C H W"]] = []
        if isinstance(config, ViewsConfig):
            small = [
                self.view(image, config.small_scale, self.small_size, config.blur, 0.0, rng)
                for _ in range(config.small_count)
            ]
        none = torch.empty(0, len(large[0]), *self.small_size, dtype=torch.uint8)
        return Views(torch.stack(large), torch.stack(small) if small else none)

    def view(
        self,
        image: Image.Image,
        scale: ScaleRange,
        size: CropSize,
        blur: float,
        solarize: float,
        rng: np.random.Generator,
    ) -> UInt8[Tensor, "C H W"]:
        """Return one view. Crop, mirror, colors, gray, negative, blur, solarize: the authors' order
        but for the negatives, which they do not have."""
        config = self.config
        box = RandomResizedCropConfig(scale=scale)
        top, left, height, width = random_crop((image.height, image.width), box, rng)
        part = (left, top, left + width, top + height)
        view = image.resize((size[1], size[0]), Image.Resampling.BICUBIC, part)
        if rng.random() < config.flip:
            view = ImageOps.mirror(view)
        if rng.random() < config.color:
            view = jitter(view, config.jitter, rng)
        if rng.random() < config.gray:
            view = ImageOps.grayscale(view).convert(view.mode)
        if config.invert and rng.random() < config.invert:
            view = ImageOps.invert(view)
        if rng.random() < blur:
            view = view.filter(ImageFilter.GaussianBlur(rng.uniform(*BLUR) * self.large_size[0] / 224))
        if rng.random() < solarize:
            view = ImageOps.solarize(view, SOLARIZE)
        return to_tensor(view)

    def __call__(
        self, images: Float[Tensor, "B C H W"], preprocessing: Preprocessing, generator: torch.Generator
    ) -> Views:
        """Return the normalized views of images as the model sees them, for evaluation and figures."""
        rng = np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))
        pixels = preprocessing.denormalize(images).permute(0, 2, 3, 1).cpu().numpy()
        cut = [
            self.cut(Image.fromarray(each[:, :, 0] if each.shape[2] == 1 else each), rng) for each in pixels
        ]
        factor, shift = preprocessing.factor_and_shift()
        large, small = (torch.stack(each) * factor + shift for each in zip(*cut, strict=True))
        return Views(large.to(images.device), small.to(images.device))


class ViewReader:
    """Reads each image of a dataset as its views."""

    needs_rng, in_memory = True, False

    def __init__(self, images: ImageDataset, channels: int, crops: MultiCrop) -> None:
        self.images, self.channels, self.crops = images, channels, crops

    def read(self, index: int, rng: np.random.Generator | None) -> Sample:
        """Return the views of one image. Raises BadImage."""
        assert rng is not None
        encoded = self.images.opened(index, self.channels)
        return Sample.of(self.crops.cut(encoded.upright(), rng), encoded)

    def collate(self, samples: Sequence[Sample], indices: Indices, rows: BatchRows) -> Views:
        views = [sample.value for sample in samples]
        return Views(*(torch.stack(each) for each in zip(*views, strict=True)))


def multi_crop(model: Any, config: PairConfig) -> MultiCrop:
    """Return the views that `config` asks for, at the sizes that suit the configuration of a model: small
    crops in whole patches, 3/7 of the large ones as in the paper (96 of 224)."""
    height, width = small = model.image_size
    if isinstance(config, ViewsConfig) and config.small_count:
        p, q = model.patch_size if isinstance(model, ViTConfig) else (1, 1)
        small = max(round(height * 3 / 7 / p), 1) * p, max(round(width * 3 / 7 / q), 1) * q
        if config.small_size is not None:
            small = config.small_size, config.small_size
    return MultiCrop(config, model.image_size, small)
