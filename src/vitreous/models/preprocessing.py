"""From an image of any size and mode to the tensor that a model was made for. Travels with the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from jaxtyping import Float, Real, UInt8
from PIL import Image, ImageOps
from pydantic import BeforeValidator, Field, model_validator

from vitreous.errors import InputError, LazyModule
from vitreous.models.config_parts import Config, Positive, Sides, setting
from vitreous.models.stored import BadImage, ImageLike, Stored, is_image, stored, upright

if TYPE_CHECKING:
    import torch
else:  # exported models answer without it
    torch = LazyModule("torch")


Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]

MOST_RESIZED = 1 << 26  # pixels
# Mean and standard deviation of each channel, of values in 0 ... 1.
HALF = (0.5, 0.5, 0.5)  # Google's ViT, AugReg, big_vision: values in -1 ... 1
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # DeiT, torchvision, DINOv2


class ImagePreparation(Config):
    """Resize, crop to the center, scale to 0 ... 1, normalize.

    resize: "crop" scales the shorter side to size / crop_fraction and cuts the center; "squash" scales both
    sides freely to size / crop_fraction, as Google's code does; "fit" scales the longer side and pads with
    the mean color. The crop begins at half of what is cut off: "rounded" to even as in torchvision and timm,
    or "floored" as in transformers.
    """

    resize: Literal["crop", "squash", "fit"] = setting(
        "crop",
        "how images are resized: by the shorter side, followed by a center crop; by squashing them "
        "to the size; or by the longer side, with padding",
    )
    crop_fraction: Annotated[float, Field(gt=0, le=1)] = setting(
        1.0, "share of the resized image's side that the center crop keeps"
    )
    crop_start: Literal["rounded", "floored"] = setting(
        "rounded",
        "how the offset of the crop (half of what is cut off) is rounded: to even (torchvision, "
        "timm), or down",
    )
    interpolation: Interpolation = setting("bicubic", "filter used for resizing")
    mean: tuple[float, ...] = setting(
        HALF, "mean that is subtracted from each channel, for values between 0 and 1"
    )
    std: tuple[Annotated[float, Field(gt=0)], ...] = setting(
        HALF, "standard deviation by which each channel is divided after the mean is subtracted"
    )
    value_range: tuple[tuple[float, float], ...] | None = setting(
        None,
        "the smallest and the largest stored value, which become 0 and 1: one pair, or one for each "
        "channel; for images with more than 8 bits, they are measured; None: the limits of the type",
    )

    def of_size(self, size: tuple[int, int], channels: int) -> Preprocessing:
        """Return the preprocessing of a model that takes images (H, W) of so many channels."""
        return Preprocessing(size=size, channels=channels, **self.model_dump())


class Preprocessing(ImagePreparation):
    """How images are prepared for one model: `ImagePreparation` with the model's image size and channels.

    Example:
        >>> preprocessing = vt.Preprocessing(size=(32, 32), resize="squash", mean=(0.5,) * 3, std=(0.5,) * 3)
        >>> preprocessing(["photo.jpg", "photos/pears/0.jpg"]).shape
        torch.Size([2, 3, 32, 32])
    """

    size: Sides = setting((224, 224), "image size (H, W) that the model takes")
    channels: Positive = setting(3, "number of channels: 3 for color, 1 for gray")

    @model_validator(mode="before")
    @classmethod
    def _one_for_each_channel(cls, given: object) -> object:
        """Normalize images of any number of channels to -1 ... 1 by default."""
        if not isinstance(given, Mapping) or not isinstance(channels := given.get("channels"), int):
            return given
        return {"mean": HALF[:1] * channels, "std": HALF[:1] * channels, **given}

    @model_validator(mode="after")
    def _one_number_per_channel(self) -> Preprocessing:
        check_normalization(self, self.channels)
        return self

    def image(self, image: ImageLike) -> Image.Image:
        """Return the image upright, in gray or RGB, at exactly `size`."""
        return self.resized(upright(image, self.channels, self.value_range), self.mean)

    def resized(self, image: Image.Image, mean: Sequence[float]) -> Image.Image:
        """Return an upright image, in gray or RGB, at exactly `size`. mean: the color of what is padded."""
        height, width = self.size
        resample = getattr(Image.Resampling, self.interpolation.upper())
        if self.resize == "fit":
            fill = tuple(round(255 * m) for m in mean)
            return ImageOps.pad(image, (width, height), resample, color=fill if len(fill) == 3 else fill[0])
        tall, wide = self.rescaled((image.height, image.width))
        top, left = self.corner((tall, wide))
        if tall * wide > MOST_RESIZED:  # of a very long image only what is seen
            x, y = image.width / wide, image.height / tall
            box = (left * x, top * y, (left + width) * x, (top + height) * y)
            return image.resize((width, height), resample, box)
        return image.resize((wide, tall), resample).crop((left, top, left + width, top + height))

    def pixels(self, image: Stored) -> UInt8[torch.Tensor, "C H W"]:
        """Return an image that `stored` has opened for these channels and this range at exactly `size`, as
        bytes. Raises BadImage: its pixels cannot be read."""
        return torch.from_numpy(self.array(image)).permute(2, 0, 1).contiguous()

    def array(self, image: Stored) -> UInt8[np.ndarray, "H W C"]:
        """Return the same in NumPy, channels last. Raises BadImage."""
        planes = image.planes()
        means = [self.mean] if len(planes) == 1 else [(mean,) for mean in self.mean]
        shown = [self.resized(plane, mean) for plane, mean in zip(planes, means, strict=True)]
        return np.concatenate([np.atleast_3d(np.array(each, dtype=np.uint8)) for each in shown], axis=2)

    def opened(self, image: ImageLike, name: str = "") -> Stored:
        """Return any image as this preprocessing takes it. Raises BadImage, InputError."""
        return stored(image, name, self.channels, self.value_range)

    def of_one(self, image: ImageLike) -> UInt8[torch.Tensor, "C H W"]:
        """Return any image at the model's size, as bytes. Raises InputError."""
        try:
            return self.pixels(self.opened(image))
        except BadImage as bad:
            which = f"the image {bad.name}" if bad.name else "an image"
            raise InputError(f"cannot read {which}: {bad.reason}") from None

    def batch(self, images: Sequence[torch.Tensor]) -> Real[torch.Tensor, "B C H W"]:
        """Return images (C, H, W) as one batch."""
        return torch.stack(list(images))

    @property
    def enlarged(self) -> tuple[int, int]:
        """(H, W) before the crop: size / crop_fraction, rounded down as in timm."""
        height, width = (math.floor(side / self.crop_fraction + 1e-6) for side in self.size)
        return height, width

    def rescaled(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the (H, W) to which an image of `size` is resized, before its center is cropped."""
        tall, wide = self.enlarged
        if self.resize == "squash":
            return tall, wide
        scale = max(tall / size[0], wide / size[1])
        if tall != wide:  # rounded to the nearest, as in timm's ResizeKeepRatio
            return max(round(size[0] * scale), tall), max(round(size[1] * scale), wide)
        # The longer side is rounded down, as in torchvision and timm.
        return max(math.floor(size[0] * scale + 1e-6), tall), max(math.floor(size[1] * scale + 1e-6), wide)

    def corner(self, rescaled: tuple[int, int]) -> tuple[int, int]:
        """Return the (row, column) where the center crop of a resized image begins."""
        (tall, wide), (height, width) = rescaled, self.size
        if self.crop_start == "floored":
            return (tall - height) // 2, (wide - width) // 2
        return round((tall - height) / 2), round((wide - width) / 2)

    def normalize(self, pixels: Real[torch.Tensor, "*B C H W"]) -> Float[torch.Tensor, "*B C H W"]:
        """Compute (pixel / 255 - mean) / std, channel by channel, of bytes or of numbers from 0 to 255; NaN
        where there is no pixel stays."""
        return normalize(pixels, *(each.to(pixels.device) for each in self.factor_and_shift()))

    def factor_and_shift(self) -> tuple[Float[torch.Tensor, "C 1 1"], Float[torch.Tensor, "C 1 1"]]:
        """Return normalization as one product and one sum: pixel x factor + shift."""
        mean, std = (torch.tensor(each, dtype=torch.float64).view(-1, 1, 1) for each in (self.mean, self.std))
        return (1 / (255 * std)).float(), (-mean / std).float()

    def denormalize(self, images: Float[torch.Tensor, "*B C H W"]) -> UInt8[torch.Tensor, "*B C H W"]:
        """Invert `normalize`, to show what the model sees."""
        mean = torch.tensor(self.mean, device=images.device).view(-1, 1, 1)
        std = torch.tensor(self.std, device=images.device).view(-1, 1, 1)
        return ((images * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)

    def __call__(
        self, images: ImageLike | Iterable[ImageLike]
    ) -> Float[torch.Tensor, "C H W"] | Float[torch.Tensor, "B C H W"]:
        """Turn one image into (C, H, W), or several into (B, C, H, W), ready for the model.

        As the `transform` of a torch dataset it gives samples that a loader puts into batches:

            ImageFolder("images/", transform=model.preprocessing)

        Args:
            images: a PIL image, a path, an array (H, W, C) or (H, W), or a tensor (C, H, W), (H, W, C) or
                (H, W): of bytes, or of floating-point numbers in 0 ... 1. Several are a list of these, or an
                array or tensor with one more dimension.

        Raises:
            InputError: no image, a file that cannot be read, numbers that are not an image, or a model of
                neither one channel nor three.
        """
        given: Any = list(images) if getattr(images, "ndim", 0) == 4 else images  # type: ignore[arg-type]
        if is_image(given) or not isinstance(given, Iterable):
            return self.normalize(self.of_one(given))
        pixels = [self.of_one(image) for image in given]
        if not pixels:
            raise InputError("there are no images: preprocessing takes one image, or a list of at least one")
        return self.normalize(self.batch(pixels))


def normalize(
    pixels: Real[torch.Tensor, "*B C H W"],
    factor: Float[torch.Tensor, "C 1 1"],
    shift: Float[torch.Tensor, "C 1 1"],
) -> Float[torch.Tensor, "*B C H W"]:
    """Return pixels x factor + shift, of `Preprocessing.factor_and_shift`, on the device of the pixels."""
    numbers = torch.empty(pixels.shape, device=pixels.device, dtype=torch.float32)
    if pixels.device.type == "cpu" and pixels.ndim == 4:
        # One by one, the images stay in the cache of a core.
        for image, out in zip(pixels, numbers, strict=True):
            out.copy_(image).mul_(factor).add_(shift)
        return numbers
    return torch.mul(pixels, factor, out=numbers).add_(shift)


def of_any_size(look: object) -> object:
    """Return a model's preprocessing without its size and its channels, which follow the model."""
    if isinstance(look, Preprocessing):
        return ImagePreparation(**look.model_dump(include={*ImagePreparation.model_fields}))
    return look


Preparation = Annotated[ImagePreparation, BeforeValidator(of_any_size)]


def check_normalization(look: ImagePreparation, channels: int) -> None:
    """Raise ValueError where the numbers of a normalization are not those of so many channels."""
    if look.value_range is not None and (
        len(look.value_range) not in (1, channels) or any(a >= b for a, b in look.value_range)
    ):
        raise ValueError(f"value_range needs one pair (low, high), or {channels}, low below high")
    if not len(look.mean) == len(look.std) == channels:
        raise ValueError(
            f"mean has {len(look.mean)} numbers and std {len(look.std)}, but an image has "
            f"{channels} channels: set one of each for every channel"
        )


def to_tensor(image: Image.Image) -> UInt8[torch.Tensor, "C H W"]:
    """Return the bytes of an 8-bit image, channels first."""
    pixels = torch.from_numpy(np.array(image, dtype=np.uint8))
    return pixels.unsqueeze(0) if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()


def check_channels(images: object, channels: int) -> None:
    """Check that `images` is a batch (B, C, H, W) of that many channels. Raises InputError: no tensor, or
    another number of dimensions or of channels."""
    if not isinstance(images, torch.Tensor):
        kind = type(images).__name__
        raise InputError(f"the model takes a tensor, not {kind}: model.preprocessing(images) returns one")
    if images.ndim != 4:
        several = "a list of images" if images.ndim == 3 else "single images"
        raise InputError(
            f"the model takes a batch of shape (B, {channels}, H, W), not {tuple(images.shape)}: "
            f"model.preprocessing of {several} gives one"
            + (", or add a dimension with images[None]" if images.ndim == 3 else "")
        )
    if images.shape[1] != channels:
        raise InputError(f"the images have {images.shape[1]} channels, but the model takes {channels}")


def layer_numbers(layers: Sequence[int] | None, depth: int, *, first: int = 0) -> list[int]:
    """Return the layers that a user asks for, counted from the start; all from 1 for None. Raises InputError:
    a layer that does not exist."""
    if layers is None:
        return list(range(1, depth + 1))
    for layer in layers:
        if not first <= (layer if layer >= 0 else depth + 1 + layer) <= depth:
            raise InputError(f"there is no layer {layer}: the model has {first} to {depth}")
    return [layer if layer >= 0 else depth + 1 + layer for layer in layers]


STEP = 1e-5  # of the scale, to which NaFlex's codebases search it


class NativePreprocessing(Preprocessing):
    """Resize each image to whole patches, as many as `patches` allows, in its own aspect ratio but for the
    rounding up to whole patches; scale, normalize (NaFlex of SigLIP 2, arXiv 2502.14786, section 2.4.2)."""

    patch_size: Sides = setting((16, 16), "height and width of a patch in pixels")
    patches: Positive = setting(256, "maximum number of patches of an image")

    def size_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the (H, W) to which an image of `size` is resized."""

        def whole(scale: float) -> tuple[int, int]:
            """Return the size at a scale, rounded up to whole patches."""
            rows, columns = self.patch_size
            height = max(rows, rows * math.ceil(size[0] * scale / rows))
            width = max(columns, columns * math.ceil(size[1] * scale / columns))
            return height, width

        low, high = STEP / 10, 100.0
        while high - low >= STEP:
            scale = (low + high) / 2
            height, width = whole(scale)
            fits = (height // self.patch_size[0]) * (width // self.patch_size[1]) <= self.patches
            low, high = (scale, high) if fits else (low, scale)
        height, width = whole(low)
        if (height // self.patch_size[0]) * (width // self.patch_size[1]) > self.patches:
            raise InputError(
                f"an image of {size[1]}x{size[0]} pixels is too long for {self.patches} patches: allow more "
                "with patches="
            )
        return height, width

    def resized(self, image: Image.Image, mean: Sequence[float]) -> Image.Image:
        """Return an upright image at its own size."""
        height, width = self.size_of((image.height, image.width))
        return image.resize((width, height), getattr(Image.Resampling, self.interpolation.upper()))

    def batch(self, images: Sequence[torch.Tensor]) -> Float[torch.Tensor, "B C H W"]:
        """Return images (C, H, W) of any sizes as one batch, padded with NaN."""
        return padded(images)


def padded(images: Sequence[torch.Tensor]) -> Float[torch.Tensor, "B C H W"]:
    """Return images of any sizes as one batch, each in the upper left corner, with NaN around it."""
    height = max(image.shape[1] for image in images)
    width = max(image.shape[2] for image in images)
    batch = torch.full((len(images), images[0].shape[0], height, width), math.nan, device=images[0].device)
    for row, image in zip(batch, images, strict=True):
        row[:, : image.shape[1], : image.shape[2]] = image
    return batch


def unpadded(batch: Float[torch.Tensor, "B C H W"]) -> list[Float[torch.Tensor, "C h w"]]:
    """Return the images of a batch that `padded` gave."""
    there = ~batch[:, 0].isnan()
    heights, widths = there[:, :, 0].sum(dim=1).tolist(), there[:, 0].sum(dim=1).tolist()
    return [image[:, :h, :w] for image, h, w in zip(batch, heights, widths, strict=True)]
