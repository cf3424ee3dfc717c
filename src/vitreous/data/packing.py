"""Shards of images that were resized once: an epoch then decodes small files, read in a row."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from vitreous.data.dataset import ImageDataset, LabelTargets, Splits
from vitreous.data.files import lossless_file
from vitreous.data.loading import BadFiles
from vitreous.data.sources.shards import CLASSES
from vitreous.data.workers import in_threads, one_core
from vitreous.errors import InputError, check_free, writing_to
from vitreous.models.stored import BadImage, Jpeg, stored
from vitreous.results import Result
from vitreous.whole_files import folder_for, whole

PackedSample = dict[str, bytes]  # an image and its label: files by their names


class Packing(NamedTuple):
    """How images are written. size: pixels of the shorter side, of which smaller images keep theirs.
    quality: of the JPEGs. raw: no JPEGs but pixels (PPM): many times as large, and nothing to decode."""

    size: int = 256
    quality: int = 90
    raw: bool = False
    per_shard: int = 5_000
    workers: int | None = None

    @property
    def pipeline(self) -> str:
        """What happens to an image, in order, in one line; see `vitreous.data.image_samples.pipeline`."""
        return f"decode | shrink({self.size}) | {'ppm' if self.raw else f'jpeg({self.quality})'}"


@dataclass(frozen=True)
class Packed(Result):
    """What was written into `folder`; `bad` was left out, and `pipeline` is what happened to an image."""

    folder: Path
    images: int
    shards: int
    bytes: int
    bad: BadFiles
    pipeline: str

    def to_json(self) -> dict[str, object]:
        return {
            "data": str(self.folder),
            "images": self.images,
            "shards": self.shards,
            "bytes": self.bytes,
            "failed": [{"path": name, "reason": reason} for name, reason in self.bad],
            "pipeline": self.pipeline,
        }


def pack(splits: Splits, folder: Path, packing: Packing, *, strict: bool = False) -> Packed:
    """Write `train-00000.tar` and so on, and `classes.txt`: DATA is then the folder itself. Raises
    InputError: the folder holds something, or cannot be written; with `strict`, an image cannot be read. Then
    nothing of the packing is kept."""
    if any("\n" in name for name in splits.train.classes):
        raise InputError(f"{splits.name} has a class with a line break in its name: rename it")
    check_free(folder, "name a new folder")
    images, bad = 0, BadFiles(allowed=0.0) if strict else BadFiles()
    with (
        writing_to(folder, "free up space, or name another folder"),
        folder_for(folder),
        whole(folder, new=True) as temporary,
    ):
        temporary.mkdir()
        for name, part in (("train", splits.train), ("val", splits.validation), ("test", splits.test)):
            samples = iter(()) if part is None else packed_samples(part, packing, bad)
            for number in count():
                written = write_shard(temporary / f"{name}-{number:05}.tar", samples, packing.per_shard)
                images += written
                if not written:
                    break
        names = "".join(f"{name}\n" for name in splits.train.classes)
        (temporary / CLASSES).write_text(names, encoding="utf-8")
    sizes = [shard.stat().st_size for shard in folder.glob("*.tar")]
    return Packed(folder, images, len(sizes), sum(sizes), bad, packing.pipeline)


def packed_samples(images: ImageDataset, packing: Packing, bad: BadFiles) -> Iterator[PackedSample]:
    """Yield every good image, small, with its label."""
    jobs = in_threads(
        partial(shrink, images, packing),
        range(len(images)),
        workers=packing.workers,
        initializer=one_core,
    )
    for number, data in enumerate(jobs):
        if isinstance(data, BadImage):
            bad.add(data)
        else:
            suffix, content = data
            label_suffix, label = encoded_label(images, number)
            yield {f"{number:08}{suffix}": content, f"{number:08}.{label_suffix}": label}
    bad.check(len(images))


def encoded_label(images: ImageDataset, number: int) -> tuple[str, bytes]:
    """Return the suffix and the content of a label's file: a class number, or the weights of several
    classes."""
    targets = images.targets
    if not isinstance(targets, LabelTargets):
        return "cls", str(int(targets.strata(slice(number, number + 1))[0])).encode()
    # NumPy prints the shortest decimal that gives the same float32 again.
    weights = {targets.classes[place]: float(str(weight)) for place, weight in targets.weights(number)}
    return "json", json.dumps({"label": weights}, ensure_ascii=False).encode()


def shrink(images: ImageDataset, packing: Packing, index: int) -> tuple[str, bytes] | BadImage:
    """Return the suffix and the content of the file of one image, upright, its shorter side no longer than
    wanted. A JPEG that is small enough and upright stays the file that it is; an image of more than 8 bits or
    of bands keeps its values, so that the range of the shards is that of the images."""
    file = io.BytesIO()
    try:
        image = images.opened(index)
        if isinstance(image, Jpeg) and not packing.raw and min(image.size) <= packing.size:
            image.pixels()
            if image.damage is None:
                return ".jpg", image.data
        values = image.values()
        if values is not None:
            return lossless_file(shrunk_values(values, packing.size))
        pixels = stored(image, image.name, image.bands).shrunk(packing.size)  # gray stays gray
    except BadImage as bad:
        return bad
    channels_last = pixels.permute(1, 2, 0).contiguous().numpy()
    small = Image.fromarray(channels_last if image.bands == 3 else channels_last[..., 0])
    if packing.raw:
        small.save(file, "PPM")
        return ".pgm" if image.bands == 1 else ".ppm", file.getvalue()
    # 4:2:0 halves the time of decoding, which is what shards are for.
    small.save(file, "JPEG", quality=packing.quality, subsampling="4:2:0")
    return ".jpg", file.getvalue()


def shrunk_values(values: np.ndarray, side: int) -> np.ndarray:
    """Return an image (H, W, bands) of the same type with its shorter side at `side` pixels, or as it is if
    that is smaller. No value leaves the range of the image."""
    height, width, _ = values.shape
    scale = side / min(height, width)
    if scale >= 1 or not np.isfinite(values).all():
        return values
    size = (max(round(height * scale), 1), max(round(width * scale), 1))
    planes = torch.from_numpy(np.moveaxis(values, 2, 0).astype(np.float32))[None]
    resized = torch.nn.functional.interpolate(planes, size=size, mode="bicubic", antialias=True)[0]
    small = np.moveaxis(resized.numpy(), 0, 2).clip(values.min(), values.max())
    return (small if values.dtype.kind == "f" else np.rint(small)).astype(values.dtype)


def write_shard(path: Path, samples: Iterator[PackedSample], most: int) -> int:
    """Write up to `most` samples to a tar file, and return how many there were; of none there is no file."""
    written = 0
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for sample in islice(samples, most):
            for name, data in sample.items():
                # Without date or owner, so that the same images give the same shard.
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
            written += 1
    if not written:
        path.unlink()
    return written
