"""Captioning: the text of an image (a Vision Transformer and the decoder of arXiv 1706.03762)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import nn

from vitreous.data.config import DataConfig
from vitreous.data.dataset import BadImage, ImageDataset
from vitreous.data.loading import worker_count
from vitreous.data.sources.bundled import open_digits
from vitreous.data.text.captions import (
    Captions,
    CaptionSplits,
    caption_loader,
    encode_captions,
    open_captions,
)
from vitreous.data.text.digit_lines import DIGIT_LINES, compose, digit_line_loader
from vitreous.data.text.tokenizer import Tokenizer, tokenizer_from_json
from vitreous.deployment.serving.endpoints import Limits, Served
from vitreous.evaluation.reading import CaptioningEvaluation, evaluate_reader
from vitreous.evaluation.result import Evaluation
from vitreous.evaluation.text_models import Reader
from vitreous.models.captioner import Captioner
from vitreous.tasks.segmentation.task import image_batches
from vitreous.tasks.task import Card, Material, Progress
from vitreous.tasks.text.config import CaptioningConfig
from vitreous.tasks.text.recipes import digit_lines_config, images_config
from vitreous.tasks.text.task import TextTask, check_tokenizer, check_unchanged
from vitreous.training.distributed import World
from vitreous.training.run import Run

if TYPE_CHECKING:
    from vitreous.inspection.model_report import Question
    from vitreous.inspection.page import Inspection

INSTEAD = "use --set model.encoder.width=96 and its like"


@dataclass(frozen=True)
class Caption:
    """The text of an image, and its log probability divided by a power of its length."""

    path: str
    text: str
    score: float

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "text": self.text, "score": self.score}

    def line(self) -> str:
        return f"{self.path}  {self.text}"


class Captioning(TextTask):
    """Texts for images."""

    name = "captioning"
    noun = "a model that writes text"
    config = CaptioningConfig
    default_source = DIGIT_LINES
    options: ClassVar[Mapping[str, frozenset[str]]] = {"train": frozenset({"--minutes"})}
    inspected = 4
    instead: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("--model", "--init", "--recipe", "--image-size"), INSTEAD),
        "--batch-size auto": "give a number, and --set training.accumulate=2 splits such a batch",
        "--strict": "leave it out; images that cannot be read are listed in the run's bad_files.txt",
    }

    def open_source(self, source: str, *, seed: int, test_fraction: float) -> CaptionSplits:
        return open_captions(source, seed=seed, test_fraction=test_fraction)

    def recipe(self, source: str, examples: int) -> CaptioningConfig:
        return digit_lines_config() if source == DIGIT_LINES else images_config()

    def training_part(self, data: CaptionSplits) -> Sequence[str]:
        return data.train.texts

    def prepare(
        self, config: CaptioningConfig, data: CaptionSplits, *, device: torch.device, world: World
    ) -> Material:
        world.share(config.training.batch_size)  # raises where the processes cannot share a batch
        tokenizer = Tokenizer.train(data.train.texts, config.tokenizer.vocabulary)
        longest = config.model.decoder.max_length
        options: dict[str, Any] = {
            "preprocessing": config.preprocessing,
            "batch_size": config.training.batch_size,
            "seed": config.seed,
            "rank": world.rank,
            "world_size": world.size,
            "device": device,
        }
        if config.source == DIGIT_LINES:
            loader = digit_line_loader(data.train.images, tokenizer, longest=longest, **options)
            examples, too_long = len(data.train.texts), 0
        else:
            encoded = encode_captions(data.train, tokenizer, longest)
            loader = caption_loader(encoded, workers=worker_count(None), **options)
            examples, too_long = len(encoded.targets), encoded.too_long
        skipped = {"empty": data.empty, "too_long": too_long}
        return self.material(loader, tokenizer, skipped, longest, examples=examples, bad=loader.bad)

    def random_model(self, config: CaptioningConfig) -> nn.Module:
        return Captioner(config.model, preprocessing=config.preprocessing, seed=config.seed)

    def answerer(self, result: Any, material: Material) -> Reader:
        return Reader(result, tokenizer_from_json(material.tokenizer or "", where="the run"))

    def not_learned(self, data: CaptionSplits) -> Captions:
        return data.strange

    def evaluate(
        self,
        answerer: Reader,
        examples: Captions,
        *,
        device: torch.device,
        batch_size: int,
        workers: int = 0,
        progress: Progress | None = None,
        **options: Any,
    ) -> CaptioningEvaluation:
        return evaluate_reader(answerer, examples, batch_size=batch_size)

    def report(
        self, run: Run, answerer: Any, evaluation: Evaluation | None, examples: Any, data: Any, **more: Any
    ) -> Path:
        images = readable_images(examples.images, self.inspected)
        from vitreous.inspection.sequence_report import write_reading_report

        return write_reading_report(answerer, images, run.path, run.path).report

    def to_inspect(self, examples: Captions) -> ImageDataset:
        return examples.images

    def inspect(self, answerer: Any, examples: Sequence[Any], folder: Path, question: Question) -> Inspection:
        from vitreous.inspection.sequence_report import write_reading_report

        check_tokenizer(answerer)
        return write_reading_report(answerer, examples, folder, Path(question.name))

    def sample_images(self, data: CaptionSplits, count: int) -> list[Image.Image]:
        return [image for image, _ in readable_images(data.test.images, count)]

    def card(self, config: CaptioningConfig, result: Mapping[str, Any]) -> Card:
        encoder, decoder = config.model.encoder, config.model.decoder
        rows, columns = encoder.patch_size
        return Card(
            f"A Vision Transformer of {encoder.depth} layers, width {encoder.width}, patches of "
            f"{rows}x{columns} pixels, and a decoder (arXiv 1706.03762) of {decoder.depth} layers that "
            f"writes {decoder.vocabulary} byte-pair tokens",
            text_facts(config, result),
            "predict RUN image.png",
            "print(vt.predict(model, [image]))",
            "The figures hold for images like those it was measured on.",
        )

    def open(self, spec: str, **overrides: Any) -> Reader:
        check_unchanged(spec, overrides)
        return Reader.load(Path(spec).expanduser())

    def predict(
        self,
        answerer: Reader,
        images: ImageDataset,
        failed: dict[str, str],
        *,
        device: torch.device,
        batch_size: int,
        workers: int = 0,
        **options: Any,
    ) -> Iterator[Caption]:
        """Yield the text of each image."""
        for some in image_batches(images, batch_size, failed):
            texts = answerer.read([image for _, image in some], batch_size=batch_size)
            for (row, _), (text, score, _) in zip(some, texts, strict=True):
                yield Caption(images.name(row), text, score)

    def serve(self, answerer: Reader, device: torch.device, limits: Limits) -> Served:
        from vitreous.deployment.serving.writing import ImageReader

        return ImageReader(answerer, most_pixels=limits.pixels)

    def examples(self, run: Path, config: CaptioningConfig, count: int) -> Sequence[Image.Image]:
        """Return lines of held-out digits."""
        if config.source != DIGIT_LINES:
            return ()
        _, _, digits = open_digits(DataConfig(split_seed=config.seed))
        assert digits is not None  # a share is held out by default
        lines, _ = compose(digits, count, np.random.default_rng((config.seed, 1)))
        return [lines.image(row) for row in range(count)]


def text_facts(config: Any, result: Mapping[str, Any]) -> dict[str, str]:
    """Return what the card of a model that writes text says of its training."""
    skipped = result["skipped"]
    return {
        "Weights": f"the mean of the last {config.averaging.checkpoints} checkpoints",
        "Left out": f"{skipped['empty']} without text, {skipped['too_long']} that are too long",
    }


def readable_images(images: ImageDataset, count: int) -> list[tuple[Image.Image, str]]:
    """Return the first images that can be read, with their names."""
    shown: list[tuple[Image.Image, str]] = []
    for row in range(len(images)):
        if len(shown) == count:
            break
        with suppress(BadImage):  # reported where the held-out part was evaluated
            shown.append((images.image(row), Path(images.name(row)).name))
    return shown


DEFINED = (Captioning(),)
