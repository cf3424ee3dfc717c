"""From an image of any size and mode to the tensor that a model was made for. Travels with the weights."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeGuard, Union

import numpy as np
from jaxtyping import Float, Real, UInt8
from PIL import Image, ImageOps
from pydantic import BeforeValidator, Field, model_validator

from vitreous.errors import InputError, LazyModule
from vitreous.models.bands import MOST, Range, checked, read_bands, to_bytes
from vitreous.models.config_parts import Config, Positive, Sides, setting
from vitreous.outside import read_regular

if TYPE_CHECKING:
    import torch
else:  # exported models answer without it
    torch = LazyModule("torch")


ImageLike = Union[Image.Image, str, Path, np.ndarray, "torch.Tensor"]
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
        "crop", "shorter side and center crop, squashed to the size, or padded"
    )
    crop_fraction: Annotated[float, Field(gt=0, le=1)] = setting(
        1.0, "part of the resized image that the center crop takes"
    )
    crop_start: Literal["rounded", "floored"] = setting(
        "rounded", "half of what is cut off: to even (torchvision, timm), or down"
    )
    interpolation: Interpolation = setting("bicubic", "filter of the resizing")
    mean: tuple[float, ...] = setting(HALF, "subtracted from each channel, in 0 ... 1")
    std: tuple[Annotated[float, Field(gt=0)], ...] = setting(HALF, "divides each channel, after the mean")
    value_range: tuple[tuple[float, float], ...] | None = setting(
        None,
        "the (least, largest) stored value that become 0 and 1: one pair, or one for each channel; of images "
        "of more than 8 bits, as they were measured; None: of their type",
    )

    def of_size(self, size: tuple[int, int], channels: int) -> Preprocessing:
        """Return the preprocessing of a model that takes images (H, W) of so many channels."""
        return Preprocessing(size=size, channels=channels, **self.model_dump())


class Preprocessing(ImagePreparation):
    """How images are prepared for one model: `ImagePreparation`, at its size and with its channels."""

    size: Sides = setting((224, 224), "(H, W) that the model takes")
    channels: Positive = setting(3, "3 for color, 1 for gray")

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

    def image(self, image: Image.Image) -> Image.Image:
        """Return the image upright, in gray or RGB, at exactly `size`."""
        image = upright(image, self.channels, self.value_range)
        height, width = self.size
        resample = getattr(Image.Resampling, self.interpolation.upper())
        if self.resize == "fit":
            mean = tuple(round(255 * m) for m in self.mean)
            fill = mean if self.channels == 3 else mean[0]
            return ImageOps.pad(image, (width, height), resample, color=fill)
        tall, wide = self.rescaled((image.height, image.width))
        top, left = self.corner((tall, wide))
        if tall * wide > MOST_RESIZED:  # of a very long image only what is seen
            x, y = image.width / wide, image.height / tall
            box = (left * x, top * y, (left + width) * x, (top + height) * y)
            return image.resize((width, height), resample, box)
        return image.resize((wide, tall), resample).crop((left, top, left + width, top + height))

    def pixels(self, image: Image.Image | np.ndarray) -> UInt8[torch.Tensor, "C H W"]:
        """Return an image at exactly `size`, as bytes.

        Args:
            image: of Pillow, or the stored values (H, W, bands), of as many bands as the model has channels.

        Raises:
            InputError: another number of bands, or values that are not numbers.
        """
        if isinstance(image, Image.Image):
            return to_tensor(self.image(image))
        values = self.bands(image)
        if self.channels in (1, 3):
            return to_tensor(self.image(Image.fromarray(values[..., 0] if values.shape[2] == 1 else values)))
        one = {"channels": 1, "mean": self.mean[:1], "std": self.std[:1], "value_range": None}
        single = self.model_copy(update=one)
        bands: list[torch.Tensor] = []
        for band in range(self.channels):
            values_of_band = Image.fromarray(np.ascontiguousarray(values[..., band]))
            bands.append(to_tensor(single.image(values_of_band)))
        return torch.cat(bands)

    def bands(self, values: np.ndarray) -> UInt8[np.ndarray, "H W bands"]:
        """Return stored values (H, W, bands) as bytes. Raises InputError."""
        return bytes_of_bands(values, self.channels, self.value_range)

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
        factor, shift = (each.to(pixels.device) for each in self.factor_and_shift())
        numbers = torch.empty(pixels.shape, device=pixels.device, dtype=torch.float32)
        return torch.mul(pixels, factor, out=numbers).add_(shift)

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
            return self.normalize(self.pixels(as_stored(given)))
        pixels = [self.pixels(as_stored(image)) for image in given]
        if not pixels:
            raise InputError("there are no images: preprocessing takes one image, or a list of at least one")
        return self.normalize(self.batch(pixels))


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
            f"{channels} channels: give one of each for every channel"
        )


def is_image(value: object) -> TypeGuard[ImageLike]:
    """Return whether this is of a type that one image may have."""
    kinds = Image.Image | str | Path | np.ndarray | bytes | bytearray | memoryview
    return isinstance(value, kinds) or hasattr(value, "detach") or hasattr(value, "read")


def as_stored(image: ImageLike) -> Image.Image | np.ndarray:
    """Return any image as a PIL image, or, where Pillow does not keep it whole, the values (H, W, bands) that
    it stores. Raises InputError as `as_pil`."""
    if isinstance(image, str | Path):
        try:
            content = read_regular(image)
        except FileNotFoundError:
            raise InputError(f"there is no image {image}") from None
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read the image {image}: {error}") from None
        return stored_in(content, str(image))
    if (content_given := stored_bytes(image)) is not None:
        return stored_in(content_given, "given as bytes")
    if hasattr(image, "detach"):
        assert isinstance(image, torch.Tensor)
        bands = image.ndim == 3 and image.shape[0] <= MOST and image.shape[0] not in (1, 3, 4)
        if bands and image.shape[-1] > MOST and not image.is_meta:
            return as_stored(image.detach().cpu().permute(1, 2, 0).numpy())
    if isinstance(image, np.ndarray):
        several = image.ndim == 3 and image.shape[2] in (2, *range(5, MOST + 1))
        wide = image.dtype.kind in "ui" and image.dtype.itemsize in (2, 4)  # those that files store
        if several or (wide and image.ndim in (2, 3)):
            try:
                return checked(image)
            except ValueError as error:
                raise InputError(f"an image cannot be read: {error}") from None
    return as_pil(image)


def stored_in(content: bytes, name: str) -> Image.Image | np.ndarray:
    """Return what a file's bytes store. Raises InputError."""
    try:
        values = read_bands(content)
    except Exception as error:  # whatever damaged bytes make a reader stumble on
        raise InputError(f"cannot read the image {name}: {' '.join(str(error).split())}") from None
    return opened(content, name) if values is None else values


def bytes_of_bands(
    values: np.ndarray, channels: int, value_range: Range | None
) -> UInt8[np.ndarray, "H W bands"]:
    """Return stored values (H, W, bands) as bytes, of as many bands as a model has channels: gray and color
    become each other. Raises InputError."""
    bands = values.shape[2]
    if bands != channels and not (bands in (1, 3) and channels in (1, 3)):
        raise InputError(f"an image has {bands} bands, and the model takes {channels}: give it such images")
    try:
        return to_bytes(values, value_range if value_range and len(value_range) in (1, bands) else None)
    except ValueError as error:
        raise InputError(f"an image cannot be used: {error}") from None


def as_pil(image: ImageLike) -> Image.Image:
    """Return any image as a PIL image; see `Preprocessing.__call__` for what it may be. Raises InputError: a
    file that cannot be read, or numbers that are not an image."""
    if isinstance(image, Image.Image):
        return with_pixels(image)
    if isinstance(image, str | Path):
        try:
            return opened(read_regular(image), str(image))
        except FileNotFoundError:
            raise InputError(f"there is no image {image}") from None
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read the image {image}: {error}") from None
    if (content := stored_bytes(image)) is not None:
        return opened(content, "given as bytes")
    if hasattr(image, "detach"):
        assert isinstance(image, torch.Tensor)
        if image.is_meta or image.layout != torch.strided:
            what = "on the meta device" if image.is_meta else f"of layout {image.layout}"
            raise InputError(f"a tensor {what} has no pixels to read: give a dense one with values")
        image = image.detach().cpu()
        if image.ndim == 3 and image.shape[0] in (1, 3, 4):
            image = image.permute(1, 2, 0)
        pixels = image.float().numpy() if image.dtype.is_floating_point else image.numpy()
    elif isinstance(image, np.ndarray):
        pixels = image
    else:
        raise InputError(
            f"an object of type {type(image).__name__} is not an image: give a PIL image, a path, a NumPy "
            "array or a tensor"
        )
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if pixels.size == 0 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))):
        first = pixels.ndim == 3 and pixels.shape[0] in (1, 3, 4)
        hint = ": its channels come first; give image.transpose(1, 2, 0)" if first else ""
        shape = tuple(pixels.shape)
        raise InputError(
            f"an image of shape {shape} is not (H, W), or (H, W, C) with 1, 3 or 4 channels{hint}"
        )
    if np.issubdtype(pixels.dtype, np.floating):
        if not (np.isfinite(pixels).all() and pixels.min() >= 0 and pixels.max() <= 1):
            raise InputError(
                f"a floating-point image has values in 0 ... 1, this one in {pixels.min():g} ... "
                f"{pixels.max():g}: scale it, or give bytes (uint8)"
            )
        pixels = (pixels * 255).round().astype(np.uint8)
    if pixels.dtype == bool:
        pixels = pixels.astype(np.uint8) * 255
    if pixels.dtype != np.uint8:
        raise InputError(f"an image of {pixels.dtype} is neither bytes (uint8) nor floating-point in 0 ... 1")
    return Image.fromarray(np.ascontiguousarray(pixels))


def stored_bytes(image: object) -> bytes | None:
    """Return the bytes of an image that is given as bytes, or as a file that is open for reading them, from
    where it is on; None for anything else. Raises InputError: a file of text."""
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, Image.Image) or not callable(read := getattr(image, "read", None)):
        return None
    content = read()
    if not isinstance(content, bytes):
        raise InputError("an image's file is open as text: open it for bytes, as in open(path, 'rb')")
    return content


def opened(content: bytes, name: str) -> Image.Image:
    """Return the image that a file's bytes hold. Raises InputError."""
    try:
        image = Image.open(io.BytesIO(content))
        image.load()
    except Exception as error:  # Pillow's readers let through whatever damaged bytes make them stumble on
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"cannot read the image {name}: {reason}") from None
    return with_pixels(image)


def with_pixels(image: Image.Image) -> Image.Image:
    """Return an image as it is. Raises InputError: it has no pixels."""
    if not image.width or not image.height:
        raise InputError(f"an image of {image.width}x{image.height} pixels is empty: give one with pixels")
    return image


def upright(image: Image.Image, channels: int = 3, value_range: Range | None = None) -> Image.Image:
    """Return any PIL image as 8-bit RGB (or gray, for one channel), with its EXIF orientation applied.

    Gray of more than 8 bits is scaled from `value_range`, by default that of its type (Pillow alone would
    clip it), floating-point gray from its own range;
    transparency is composited on white; palettes, CMYK and YCbCr are converted. Raises InputError: neither
    one channel nor three.
    """
    if channels not in (1, 3):
        raise InputError(
            f"an image is made gray or RGB, and the model takes {channels} channels: give the model a tensor "
            f"(B, {channels}, H, W), normalized as its preprocessing says"
        )
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image)
        if value_range is None and image.mode != "F":
            value_range = ((0, 65535),)
        try:
            image = Image.fromarray(to_bytes(values, value_range[:1] if value_range else None))
        except ValueError as error:
            raise InputError(f"an image cannot be used: {error}") from None
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    image = image.convert("L" if channels == 1 else "RGB")
    image.info.clear()  # EXIF data, which would be read again, and may be damaged
    return image


def to_tensor(image: Image.Image) -> UInt8[torch.Tensor, "C H W"]:
    """Return the bytes of an 8-bit image, channels first."""
    pixels = torch.from_numpy(np.array(image, dtype=np.uint8))
    return pixels.unsqueeze(0) if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()


def check_channels(images: object, channels: int) -> None:
    """Check that `images` is a batch (B, C, H, W) of that many channels. Raises InputError: no tensor, or
    another number of dimensions or of channels."""
    if not isinstance(images, torch.Tensor):
        kind = type(images).__name__
        raise InputError(f"the model takes a tensor, not {kind}: model.preprocessing of images gives one")
    if images.ndim != 4:
        several = "a list of images" if images.ndim == 3 else "single images"
        raise InputError(
            f"the model takes a batch of shape (B, {channels}, H, W), not {tuple(images.shape)}: "
            f"model.preprocessing of {several} gives one"
            + (", or add a dimension with images[None]" if images.ndim == 3 else "")
        )
    if images.shape[1] != channels:
        raise InputError(f"the images have {images.shape[1]} channels, the model takes {channels}")


def layer_numbers(layers: Sequence[int] | None, depth: int, *, first: int = 0) -> list[int]:
    """The layers that a user asks for, counted from the start; all from 1 for None. Raises InputError: a
    layer that does not exist."""
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

    patch_size: Sides = setting((16, 16), "rows and columns of pixels")
    patches: Positive = setting(256, "the most of an image")

    def size_of(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the (H, W) to which an image of `size` is resized."""

        def whole(scale: float) -> tuple[int, int]:
            """The size at a scale, rounded up to whole patches."""
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

    def image(self, image: Image.Image) -> Image.Image:
        """Return the image upright, in gray or RGB, at its own size."""
        image = upright(image, self.channels, self.value_range)
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
