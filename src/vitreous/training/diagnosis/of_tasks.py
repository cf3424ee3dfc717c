"""Checks of runs that learn something else than classes: what such a run has in common with any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from PIL import Image

from vitreous.checkpoints import load, load_image_model
from vitreous.checkpoints.files import read_safetensors
from vitreous.data.config import DataConfig
from vitreous.data.dataset import BadImage, sampled
from vitreous.data.segmentation.folders import open_masked
from vitreous.data.sources import open_data
from vitreous.data.text.captions import open_captions
from vitreous.models.captioner import Captioner
from vitreous.models.names import Model
from vitreous.training.callbacks import read_metrics
from vitreous.training.checkpointer import Checkpointer
from vitreous.training.config import RunConfig, TrainingConfig
from vitreous.training.diagnosis.findings import Finding
from vitreous.training.diagnosis.of_course import course_findings
from vitreous.training.diagnosis.of_model import geometry, normalization, origin_of_nan
from vitreous.training.run import Run, read_tree
from vitreous.training.segmentation.config import SegmentationConfig
from vitreous.training.sequence.config import ReadingConfig
from vitreous.training.sequence.run import SequenceRun
from vitreous.training.settings import validated

SAMPLE = 32  # images that are looked at


def segmenter_findings(path: Path) -> Iterator[Finding]:
    """A segmenter's run."""
    config = Run.open(path, SegmentationConfig).config
    yield from course(path, config.training, config.data)
    if (path / "model").exists():
        images = open_masked(config.source, config.data).train
        places = range(0, len(images), max(len(images) // SAMPLE, 1))
        yield from shown(load_image_model(path / "model"), readable(lambda i: images.pair(i)[0], places))


def reader_findings(path: Path) -> Iterator[Finding]:
    """The run of a reader of images."""
    config = SequenceRun.open(path, ReadingConfig).config
    yield from course(path, config.training)
    if (path / "model").exists():
        data = open_captions(config.source, seed=config.seed, test_fraction=config.test_fraction)
        model = load(path, kind=Captioner)
        images = data.test.images
        yield from shown(model.encoder, readable(images.image, sampled(images, SAMPLE)))


def translator_findings(path: Path) -> Iterator[Finding]:
    """A translator's run."""
    yield from course(path, SequenceRun.open(path).config.training)


def encoder_findings(path: Path) -> Iterator[Finding]:
    """A pre-training run."""
    tree = read_tree(path)
    config = validated({name: part for name, part in tree.items() if name != "pretraining"}, RunConfig)
    yield from course(path, config.training, config.data)
    if (path / "model").exists():
        model, images = load_image_model(path / "model"), open_data(config.source, config.data).train
        yield from geometry(model, images)
        yield from shown(model, readable(images.image, sampled(images, SAMPLE)))


def course(path: Path, training: TrainingConfig, data: DataConfig | None = None) -> Iterator[Finding]:
    """What a run's numbers say, and whether its weights are numbers."""
    rows, kept = read_metrics(path / "metrics.jsonl"), (path / "model").exists()
    yield from course_findings(training, rows, kept=kept, data=data)
    yield from weights(path)


def weights(path: Path) -> Iterator[Finding]:
    """The first weight that is not finite, of the model or else of the newest state."""
    file = path / "model" / "model.safetensors"
    state = None if file.exists() else Checkpointer(path / "checkpoints").newest()
    tensors = read_safetensors(file) if file.exists() else state.tensors if state else {}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            yield Finding(
                "origin of NaN",
                f"the weight {name} is not finite",
                "train anew with a lower training.peak_lr or a longer training.schedule.warmup",
            )
            return


def readable(image: Callable[[int], Image.Image], places: Iterable[int]) -> list[Image.Image]:
    """Some images; those that cannot be read are named in the run's bad_files.txt."""
    found = []
    for place in places:
        with suppress(BadImage):
            found.append(image(place))
    return found


def shown(model: Model, images: Sequence[Image.Image]) -> Iterator[Finding]:
    """What the model is shown, and whether numbers come out."""
    batch = model.preprocessing(images)
    yield from normalization(model, batch)
    yield from origin_of_nan(model, batch)
