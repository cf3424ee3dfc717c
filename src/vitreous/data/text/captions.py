"""Images with their text: from a manifest, or lines of handwritten digits composed from scikit-learn's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from vitreous.data.augmentation.batch import BatchTransform
from vitreous.data.dataset import ImageDataset, Indices, Subset
from vitreous.data.image_samples import ImageReader
from vitreous.data.loading import BatchLoader
from vitreous.data.prefetching import DevicePrefetcher
from vitreous.data.sampling import Rows, Sampler, shuffled
from vitreous.data.sources.files import FileImages, FileTable
from vitreous.data.sources.manifests import SUFFIXES, read_parquet, read_text
from vitreous.data.text.batches import CaptionBatch, padded, tokens_per_target
from vitreous.data.text.digit_lines import DIGIT_LINES, digit_lines
from vitreous.data.text.tokenizer import END, START, Tokenizer
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing


class Captions(NamedTuple):
    """Images, and the text of each."""

    images: ImageDataset
    texts: Sequence[str]

    def subset(self, rows: np.ndarray) -> Captions:
        return Captions(Subset(self.images, rows), [self.texts[row] for row in rows])


class CaptionSplits(NamedTuple):
    """Images to learn from and images to test on, and how many were left out for want of a text. Of
    digit-lines, `train` are single digits, from which `digit_line_loader` composes lines.

    `strange` is what a model is tested on that learned from none of this: the manifest's own test part, or
    everything where it has no split.
    """

    train: Captions
    test: Captions
    strange: Captions
    empty: int
    name: str


def open_captions(spec: str, *, seed: int, test_fraction: float) -> CaptionSplits:
    """The images and texts that `spec` names.

    Args:
        spec: "digit-lines", or a manifest (.csv, .tsv, .parquet) with the columns path, label (the text)
            and, if
            wanted, split (train or test).
        test_fraction: held out at random where the manifest has no split.

    Raises:
        InputError: no such manifest, or fewer than two images with a text.
    """
    if spec == DIGIT_LINES:
        train, test = (Captions(*lines) for lines in digit_lines(seed))
        return CaptionSplits(train, test, test, 0, spec)
    path = Path(spec).expanduser()
    if not path.is_file() or path.suffix not in SUFFIXES:
        raise InputError(
            f"{spec} is not a manifest: give a .csv, .tsv or .parquet file with the columns path and label "
            f"(the text), or {DIGIT_LINES}"
        )
    table = read_parquet(path) if path.suffix == ".parquet" else read_text(path)
    targets = np.zeros(len(table.paths), dtype=np.int64)
    images = FileImages(path.parent, FileTable.of(table.paths), targets, ("text",))
    everything = Captions(images, table.labels)
    with_text = np.array([row for row, text in enumerate(table.labels) if text.strip()], dtype=np.int64)
    if len(with_text) < 2:
        raise InputError(f"{spec} has {len(with_text)} images with a text: at least two are needed")
    train_rows, test_rows = split_rows(with_text, table.splits, seed, test_fraction, where=spec)
    return CaptionSplits(
        everything.subset(train_rows),
        everything.subset(test_rows),
        everything.subset(test_rows if table.splits else with_text),
        len(table.paths) - len(with_text),
        path.stem,
    )


def split_rows(
    rows: np.ndarray, splits: Sequence[str], seed: int, test_fraction: float, *, where: str
) -> tuple[np.ndarray, np.ndarray]:
    """(train, test) rows, as the manifest says or at random."""
    if splits:
        train = np.array([row for row in rows if splits[row] == "train"], dtype=np.int64)
        test = np.array([row for row in rows if splits[row] != "train"], dtype=np.int64)
        if not len(train) or not len(test):
            raise InputError(
                f"{where}: its column split names {len(train)} images train and {len(test)} other"
            )
        return train, test
    mixed = np.random.default_rng(seed).permutation(rows)
    count = min(max(round(test_fraction * len(rows)), 1), 2000)
    return np.sort(mixed[count:]), np.sort(mixed[:count])


class EncodedCaptions(NamedTuple):
    """Images and the token ids of their texts, and how many were left out because the model writes fewer
    tokens."""

    images: ImageDataset
    targets: list[list[int]]
    too_long: int


def encode_captions(captions: Captions, tokenizer: Tokenizer, longest: int) -> EncodedCaptions:
    """Return texts with both marks, none of more than `longest` tokens, and their images."""
    targets = [[START, *tokenizer.encode(text), END] for text in captions.texts]
    rows = np.array([row for row, target in enumerate(targets) if len(target) <= longest], dtype=np.int64)
    images = Subset(captions.images, rows)
    return EncodedCaptions(images, [targets[row] for row in rows], len(targets) - len(rows))


def caption_loader(
    encoded: EncodedCaptions,
    *,
    preprocessing: Preprocessing,
    batch_size: int,
    seed: int,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    device: str | torch.device = "cpu",
) -> DevicePrefetcher[CaptionBatch]:
    """Return shuffled batches of images and texts.

    Args:
        batch_size: rows of a whole batch, which `world_size` processes share.
    """
    images, targets = encoded.images, encoded.targets
    reader = ImageReader(images, preprocessing, in_memory="auto", processes=world_size)

    def collate(samples: Sequence[Any], indices: Indices, rows: Rows) -> CaptionBatch:
        return CaptionBatch(
            reader.stack(samples, indices),
            padded([targets[row] for row in indices]),
            tokens_per_target([targets[row] for row in rows.indices], len(indices)),
        )

    sampler = Sampler(
        lambda epoch: shuffled(len(images), seed=seed, epoch=epoch),
        len(images),
        batch_size=batch_size,
        rank=rank,
        world_size=world_size,
    )
    loader = BatchLoader(sampler, reader.read, collate, workers, prepare=reader.prepare)
    return DevicePrefetcher(loader, BatchTransform(preprocessing), device)
