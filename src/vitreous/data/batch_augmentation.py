"""What is done to whole batches on their device: normalization, and the augmentation that is not image by
image."""

from __future__ import annotations

import math
from functools import cache, cached_property
from typing import Any

import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from vitreous.data.config import AffineConfig, AugmentationConfig, MixConfig
from vitreous.data.loading import BatchT
from vitreous.models.preprocessing import Preprocessing, normalize
from vitreous.rng import numpy_generator, torch_generator

AREA = (0.02, 1 / 3)  # of an erased rectangle, as a part of the image; torchvision's and timm's range
RATIO = (0.3, 1 / 0.3)  # height / width


class BatchRandom:
    """Random numbers for each image of a batch, keyed by (seed, epoch, step) and, for small views, a place.

    Those of `uniform` and `normal` are sampled for the batch of all processes, of which this one takes its
    rows: two processes see what one with the whole batch would have seen. They are few; noise for every pixel
    comes from `noise_generator`, which each process has of its own.

    Args:
        size: images in this process's part of the batch.
    """

    def __init__(self, seed: int, *when: int, size: int, rank: int = 0, world_size: int = 1) -> None:
        self.seed, self.when = seed, when
        self.rank, self.total = rank, size * world_size
        self.mine = slice(rank * size, (rank + 1) * size)

    @cached_property
    def generator(self) -> torch.Generator:
        return torch_generator(self.seed, "batch", *self.when)

    def uniform(self, low: float, high: float) -> Float[Tensor, " B"]:
        """Return one number for each image."""
        return torch.empty(self.total).uniform_(low, high, generator=self.generator)[self.mine]

    def normal(self, *shape: int) -> Float[Tensor, "B *shape"]:
        """Return a few standard normal numbers for each image."""
        return torch.randn(self.total, *shape, generator=self.generator)[self.mine]

    def noise_generator(self, device: torch.device) -> torch.Generator:
        """Return this process's generator on a device."""
        return torch_generator(self.seed, "noise", *self.when, self.rank, device=device)


class BatchTransform(nn.Module):
    """Turns a batch of bytes into what the model is trained on: normalized and augmented.
    classes: of which targets become soft where images are mixed."""

    factor: Float[Tensor, "C 1 1"]
    shift: Float[Tensor, "C 1 1"]

    def __init__(
        self,
        preprocessing: Preprocessing,
        augmentation: AugmentationConfig,
        *,
        classes: int = 0,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__()
        self.augmentation = augmentation
        self.classes, self.seed, self.rank, self.world_size = classes, seed, rank, world_size
        factor, shift = preprocessing.factor_and_shift()
        self.register_buffer("factor", factor)
        self.register_buffer("shift", shift)

    def forward(self, batch: BatchT, epoch: int, step: int) -> BatchT:
        """Return a NamedTuple with `images` normalized and augmented, `masks` and `targets` changed alike."""
        fields: dict[str, Any] = batch._asdict()  # type: ignore[attr-defined]
        images = fields["images"]
        # Several views of each image have been changed one by one.
        if images.ndim == 5:
            return type(batch)(*(self.views(each, epoch, step, place) for place, each in enumerate(batch)))
        self.augment(fields, self.random(epoch, step, len(images)))
        if "masks" in fields:
            fields["masks"] = fields["masks"].long()
        return type(batch)(**fields)

    def augment(self, fields: dict[str, Any], random: BatchRandom) -> None:
        """Normalize and augment the images of a batch in place, and change its masks and targets alike."""
        config = self.augmentation
        for probability, side in zip(config.flip, (-1, -2), strict=True):
            if probability:
                flipped = random.uniform(0.0, 1.0) < probability
                fields["images"] = flip(fields["images"], flipped, side)
                if "masks" in fields:
                    fields["masks"] = flip(fields["masks"], flipped, side)
        images = normalize(fields["images"], self.factor, self.shift)
        if config.affine:
            images = affine(images, config.affine, random)
        if config.noise:
            noise = torch.empty_like(images).normal_(generator=random.noise_generator(images.device))
            images = images.add_(noise, alpha=config.noise)
        if config.random_erasing:
            images = erase(images, config.random_erasing, random)
        if config.mix:
            targets = fields["targets"]
            if not targets.is_floating_point():  # class numbers; rows, and numbers to predict, stay
                targets = F.one_hot(targets, self.classes).float()
            images, fields["targets"] = mix(images, targets, config.mix, random)
        fields["images"] = images

    def views(
        self, pixels: UInt8[Tensor, "B V C h w"], epoch: int, step: int, place: int
    ) -> Float[Tensor, "B V C h w"]:
        """Return views normalized, and moved as images are: each in its own way."""
        images = normalize(pixels, self.factor, self.shift)
        if self.augmentation.affine and pixels.shape[1]:
            random = self.random(epoch, step, len(pixels) * pixels.shape[1], place)
            moved = affine(images.flatten(0, 1), self.augmentation.affine, random)
            images = moved.view_as(images)
        return images

    def random(self, epoch: int, step: int, size: int, place: int = 0) -> BatchRandom:
        """Return the random numbers of `size` images; of a second kind of views (`place` 1) others."""
        when = (epoch, step, place) if place else (epoch, step)
        return BatchRandom(self.seed, *when, size=size, rank=self.rank, world_size=self.world_size)


def on_device(small: Tensor, like: Tensor) -> Tensor:
    """Return a small tensor on the device of another, without waiting for the device."""
    return (small.pin_memory() if like.is_cuda else small).to(like.device, non_blocking=True)


def flip(
    images: Shaped[Tensor, "B *C H W"], flipped: Shaped[Tensor, " B"], side: int = -1
) -> Shaped[Tensor, "B *C H W"]:
    """Mirror some images along a side: -1 left and right, -2 top and bottom; on the CPU in place."""
    if images.device.type != "cpu":
        chosen = on_device(flipped, images).view(-1, *[1] * (images.ndim - 1))
        return torch.where(chosen, images.flip(side), images)
    # One by one they stay in the cache, which is 20 times as fast.
    for place in flipped.nonzero().flatten().tolist():
        images[place] = images[place].flip(side)
    return images


def affine(
    images: Float[Tensor, "B C H W"], config: AffineConfig, random: BatchRandom
) -> Float[Tensor, "B C H W"]:
    """Rotate, scale, shear and shift each image by its own numbers, interpolated bilinearly."""
    height, width = images.shape[2:]
    angle = random.uniform(-config.rotate, config.rotate) * (math.pi / 180)
    shear = (random.uniform(-config.shear, config.shear) * (math.pi / 180)).tan()
    scale = 1 / random.uniform(1 - config.scale, 1 + config.scale)
    # Shifts are parts of a side; the grid's side is 2 long.
    right = 2 * random.uniform(-config.translate, config.translate)
    down = 2 * random.uniform(-config.translate, config.translate)
    cos, sin = angle.cos() * scale, angle.sin() * scale
    # Rows of (rotation x shear), from the place in the result to the place in the image. The grid runs from
    # -1 to 1 on both sides, so that an image that is not square needs its ratio put in.
    ratio = height / width
    rows = torch.stack([cos, (cos * shear - sin) * ratio, right, sin / ratio, sin * shear + cos, down], dim=1)
    grid = F.affine_grid(on_device(rows.view(-1, 2, 3), images), list(images.shape), align_corners=False)
    if config.elastic:
        points = on_device(2 * config.elastic * random.normal(2, 4, 4), images)
        grid = grid + bending(points, height, width)
    # Where nothing is known grid_sample puts zeros: the mean, as images are normalized.
    level = images.amin(dim=(2, 3), keepdim=True) if config.fill == "darkest" else 0.0
    padding = "border" if config.fill == "border" else "zeros"
    moved = F.grid_sample(images - level, grid, mode="bilinear", padding_mode=padding, align_corners=False)
    return moved + level


def bending(points: Float[Tensor, "B 2 4 4"], height: int, width: int) -> Float[Tensor, "B H W 2"]:
    """Return elastic distortions (Simard et al., 2003), in half sides, from those at 4 x 4 points."""
    smooth = bicubic(height, points.device) @ points @ bicubic(width, points.device).T
    return smooth.permute(0, 2, 3, 1)


@cache
def bicubic(size: int, device: torch.device) -> Float[Tensor, "size 4"]:
    """Return bicubic interpolation from 4 points to `size` as a matrix, which is quicker for few pixels."""
    return F.interpolate(torch.eye(4)[None, ..., None], (size, 1), mode="bicubic")[0, ..., 0].T.to(device)


def erase(
    images: Float[Tensor, "B C H W"], probability: float, random: BatchRandom
) -> Float[Tensor, "B C H W"]:
    """Replace one rectangle of some images by normal noise, pixel by pixel (random erasing, arXiv
    1708.04896); on the CPU in place."""
    height, width = images.shape[2:]
    chosen = random.uniform(0.0, 1.0) < probability
    area = random.uniform(*AREA) * (height * width)
    ratio = random.uniform(math.log(RATIO[0]), math.log(RATIO[1])).exp()
    tall = (area * ratio).sqrt().round().clamp(1, height)
    wide = (area / ratio).sqrt().round().clamp(1, width)
    top = (random.uniform(0.0, 1.0) * (height - tall + 1)).floor()
    left = (random.uniform(0.0, 1.0) * (width - wide + 1)).floor()
    generator = random.noise_generator(images.device)
    # Noise is drawn for the rectangles alone, which are a fraction of all pixels.
    if images.device.type == "cpu":
        boxes = torch.stack([top, top + tall, left, left + wide], dim=1).int()
        for place in chosen.nonzero().flatten().tolist():
            first, last, start, end = boxes[place].tolist()
            images[place, :, first:last, start:end].normal_(generator=generator)
        return images
    inside = is_between(height, top, tall)[:, :, None] & is_between(width, left, wide)[:, None, :]
    inside = on_device(chosen[:, None, None] & inside, images)
    noise = torch.empty_like(images).normal_(generator=generator)
    return torch.where(inside[:, None], noise, images)


def is_between(length: int, first: Tensor, number: Tensor) -> Shaped[Tensor, "B length"]:
    """Return which of `length` places are in first ... first + number."""
    place = torch.arange(length)
    return (place >= first[:, None]) & (place < (first + number)[:, None])


def mix(
    images: Float[Tensor, "B C H W"],
    targets: Float[Tensor, "B *classes"],
    config: MixConfig,
    random: BatchRandom,
) -> tuple[Float[Tensor, "B C H W"], Float[Tensor, "B *classes"]]:
    """Mix each image with its neighbor, 0 with 1, 2 with 3 ..., and their targets alike; an odd last one
    stays.

    One weight is sampled for the batch, from Beta(alpha, alpha). Where both Mixup (arXiv 1710.09412) and
    CutMix (arXiv 1905.04899) are asked for, each batch takes one at random, as timm does. Neighbors are
    pairs within one process: the same ones with any number of processes of which each has an even number of
    images.
    """
    rng = numpy_generator(random.seed, "mix", *random.when)  # of what is sampled once for the batch
    if rng.random() >= config.probability:
        return images, targets
    partner = (torch.arange(len(images), device=images.device) ^ 1).clamp(max=len(images) - 1)
    cut = config.cutmix > 0 and (config.mixup == 0 or rng.random() < 0.5)
    alpha = config.cutmix if cut else config.mixup
    own = float(rng.beta(alpha, alpha))
    if cut:
        height, width = images.shape[2:]
        side = (1 - own) ** 0.5
        row, column = rng.integers(height), rng.integers(width)
        top, bottom = span(int(row), int(side * height), height)
        left, right = span(int(column), int(side * width), width)
        mixed = images.clone()
        mixed[:, :, top:bottom, left:right] = images[partner, :, top:bottom, left:right]
        own = 1 - (bottom - top) * (right - left) / (height * width)
    else:
        mixed = torch.lerp(images[partner], images, own)
    shares = torch.lerp(targets[partner], targets, own)
    return mixed, (shares > 0).to(shares) if config.whole_targets else shares


def span(center: int, length: int, limit: int) -> tuple[int, int]:
    """Return a stretch of `length` around a place, clipped at the image's edges, as timm cuts it."""
    return max(center - length // 2, 0), min(center + (length + 1) // 2, limit)
