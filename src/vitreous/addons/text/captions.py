"""Images with their text: from a manifest, or lines of handwritten digits composed from scikit-learn's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from vitreous.addons.text.batches import CaptionBatch, padded, tokens_per_target
from vitreous.addons.text.digit_lines import DIGIT_LINES, digit_lines
from vitreous.addons.text.tokenizer import END, START, Tokenizer
from vitreous.data.checks import image_findings
from vitreous.data.config import MANIFESTS, AugmentationConfig
from vitreous.data.dataset import ClassTargets, ImageDataset, Indices, Subset, one_class
from vitreous.data.examinations import DataReport
from vitreous.data.findings import Finding, finding
from vitreous.data.held_out import MOST_HELD_OUT, held_out_names
from vitreous.data.image_samples import ImageReader, image_loader, training_reader
from vitreous.data.loading import BadFiles, DevicePrefetcher, Sample
from vitreous.data.sampling import Rows
from vitreous.data.sources.folders import FileImages, path_array
from vitreous.data.sources.manifests import read_manifest
from vitreous.data.survey import survey_images
from vitreous.errors import InputError
from vitreous.models.preprocessing import Preprocessing
from vitreous.outside import local_path

LONG = 4  # times as long as the median text
SHORT = 10  # characters, of which a median below says nothing
RARE = 3  # times that a character is in all texts
TEST_FRACTION = 0.05  # held out where the manifest says nothing, as training does


class Captions(NamedTuple):
    """Images, and the text of each."""

    images: ImageDataset
    texts: Sequence[str]

    def subset(self, rows: np.ndarray) -> Captions:
        return Captions(Subset(self.images, rows), [self.texts[row] for row in rows])


class CaptionSplits(NamedTuple):
    """Images to learn from and images to test on, and how many were left out because they have no text. Of
    digit-lines, `train` are single digits, from which `digit_line_loader` composes lines.

    `out_of_distribution` is what a model is tested on that learned from none of this: the manifest's own test
    part, or everything where it has no split.
    """

    train: Captions
    test: Captions
    out_of_distribution: Captions
    empty: int
    name: str


def open_captions(spec: str, *, seed: int, test_fraction: float) -> CaptionSplits:
    """The images and texts that `spec` names.

    Args:
        spec: "digit-lines", or a manifest (.csv, .tsv, .parquet) with the columns path, label (the text) and,
            if wanted, split (train or test).
        test_fraction: held out by a hash of the image's name, where the manifest has no split.

    Raises:
        InputError: no such manifest, or fewer than two images with a text.
    """
    if spec == DIGIT_LINES:
        train, test = (Captions(*lines) for lines in digit_lines(seed))
        return CaptionSplits(train, test, test, 0, spec)
    path = local_path(spec)
    if not path.is_file() or path.suffix not in MANIFESTS:
        raise InputError(
            f"{spec} is not a manifest: give a .csv, .tsv or .parquet file with the columns path and label "
            f"(the text), or {DIGIT_LINES}"
        )
    table = read_manifest(path)
    images = FileImages(path.parent, path_array(table.paths), one_class(len(table.paths), "text"))
    everything = Captions(images, table.labels)
    with_text = np.array([row for row, text in enumerate(table.labels) if text.strip()], dtype=np.int64)
    if len(with_text) < 2:
        raise InputError(f"{spec} has {len(with_text)} images with a text: at least two are needed")
    if table.splits:
        learned = np.array([table.splits[row] == "train" for row in with_text])
        train_rows, test_rows = with_text[learned], with_text[~learned]
        if not len(train_rows) or not len(test_rows):
            raise InputError(
                f"{spec}: its column split names {len(train_rows)} images train and {len(test_rows)} other"
            )
    else:
        names = [table.paths[row] for row in with_text]
        held = held_out_names(names, test_fraction, seed, most=MOST_HELD_OUT)
        train_rows, test_rows = with_text[~held], with_text[held]
    return CaptionSplits(
        everything.subset(train_rows),
        everything.subset(test_rows),
        everything.subset(test_rows if table.splits else with_text),
        len(table.paths) - len(with_text),
        path.stem,
    )


class EncodedCaptions(NamedTuple):
    """Images and the token ids of their texts, and how many texts were longer than the model writes."""

    images: ImageDataset
    targets: list[list[int]]
    too_long: int


def encode_captions(captions: Captions, tokenizer: Tokenizer, longest: int) -> EncodedCaptions:
    """Return texts with both marks, none of more than `longest` tokens, and their images. Raises InputError:
    every text is too long."""
    targets = [[START, *tokenizer.encode(text), END] for text in captions.texts]
    rows = np.array([row for row, target in enumerate(targets) if len(target) <= longest], dtype=np.int64)
    if not len(rows):
        raise InputError(
            f"each of the {len(targets)} texts has more than {longest} tokens: raise "
            "model.decoder.max_length, or tokenizer.vocabulary for longer tokens"
        )
    images = Subset(captions.images, rows)
    return EncodedCaptions(images, [targets[row] for row in rows], len(targets) - len(rows))


class CaptionReader:
    """Images at the model's size, with the token ids of their texts. images: reads the images."""

    def __init__(self, encoded: EncodedCaptions, images: ImageReader) -> None:
        self.images, self.texts = images, encoded.targets
        self.read, self.needs_rng, self.in_memory = images.read, images.needs_rng, images.in_memory

    def collate(self, samples: Sequence[Sample], indices: Indices, rows: Rows) -> CaptionBatch:
        """Return samples as a batch."""
        return CaptionBatch(
            self.images.stacked(samples, indices),
            padded([self.texts[row] for row in indices]),
            tokens_per_target([self.texts[row] for row in rows.indices], len(indices)),
        )


def caption_loader(
    encoded: EncodedCaptions,
    *,
    preprocessing: Preprocessing,
    batch_size: int,
    workers: int = 0,
    world_size: int = 1,
    **options: Any,
) -> DevicePrefetcher[CaptionBatch]:
    """Return shuffled batches of images and texts: rows of a whole batch, which `world_size` processes share.
    options: more arguments of `image_loader`."""
    augmentation, bad = AugmentationConfig(), BadFiles()
    images = training_reader(encoded.images, preprocessing, augmentation, "auto", bad=bad, workers=workers)
    return image_loader(
        encoded.images,
        preprocessing=preprocessing,
        augmentation=augmentation,
        batch_size=batch_size // world_size,
        workers=workers,
        world_size=world_size,
        reader=CaptionReader(encoded, images),
        bad=bad,
        **options,
    )


def check_texts(source: str, *, workers: int | None = None) -> DataReport:
    """Look at every image of a manifest, and at every text. Raises InputError: no manifest, or next to
    nothing in it."""
    data = open_captions(source, seed=0, test_fraction=TEST_FRACTION)
    number = {text: row for row, text in enumerate(sorted({*data.train.texts, *data.test.texts}))}
    parts = {}
    for name, part in (("train", data.train), ("test", data.test)):
        images = parts[name] = part.images.subset(np.arange(len(part.texts)))
        numbers = np.array([number[text] for text in part.texts], dtype=np.int64)
        images.targets = ClassTargets(numbers, tuple(number))
    seen = survey_images(parts, workers=workers)
    return DataReport(
        (*image_findings(seen, "texts"), *text_findings(data)), seen.counts, {}, tuple(seen.bad.reasons)
    )


def text_findings(data: CaptionSplits) -> Iterator[Finding]:
    """What the texts alone tell."""
    yield from finding("no text", (), data.empty, severity="warning")
    learned = Counter("".join(data.train.texts))
    unseen = sorted(set("".join(data.test.texts)) - set(learned))
    yield from finding("unseen character", unseen, severity="warning")
    rare = sorted(letter for letter, times in learned.items() if times < RARE)
    yield from finding("rare character", rare, severity="note", times=RARE)
    everything = [*data.train.texts, *data.test.texts]
    usual = float(np.median([len(text) for text in everything]))
    long = [text for text in everything if len(text) > LONG * max(usual, SHORT)]
    yield from finding("long text", long, severity="note", times=LONG, usual=usual)
