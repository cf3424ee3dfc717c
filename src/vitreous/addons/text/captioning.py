"""Captioning: the text of an image (a Vision Transformer and the decoder of arXiv 1706.03762)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import nn

from vitreous.addons.text.captions import (
    Captions,
    CaptionSplits,
    caption_loader,
    encode_captions,
    open_captions,
)
from vitreous.addons.text.digit_lines import DIGIT_LINES, digit_line_loader
from vitreous.addons.text.evaluation import CaptioningEvaluation, evaluate_reader
from vitreous.addons.text.models import Reader
from vitreous.addons.text.task import (
    RECIPES,
    TRAINING_FACTS,
    CaptioningConfig,
    LoaderOptions,
    TextLoader,
    TextTask,
    images_config,
)
from vitreous.addons.text.tokenizer import Tokenizer
from vitreous.addons.text.transformer import Captioner
from vitreous.data.dataset import ImageDataset
from vitreous.data.image_list import ImageRows
from vitreous.data.workers import loading_workers
from vitreous.errors import Param
from vitreous.evaluation.outputs import decoded_rows
from vitreous.models.stored import ImageLike
from vitreous.tasks.recipe_choice import packaged_config
from vitreous.tasks.task import About, Card, Trained, module_of

INSTEAD = f"use {Param('settings')} model.encoder.width=96 and its like"


@dataclass(frozen=True)
class Caption:
    """The text of an image, and its log probability divided by a power of its length."""

    path: str
    text: str
    score: float | None

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    def line(self) -> str:
        return f"{self.path}  {self.text}"


class Captioning(TextTask[CaptioningConfig, CaptionSplits, Reader]):
    """Texts for images."""

    name, config, answers = "captioning", CaptioningConfig, Reader
    about = About(
        noun="a model that writes text",
        card=Card(
            "A Vision Transformer of {model.encoder.depth} layers, width {model.encoder.width}, patches of "
            "{model.encoder.patch_size[0]}x{model.encoder.patch_size[1]} pixels, and a decoder (arXiv "
            "1706.03762) of {model.decoder.depth} layers that writes {model.decoder.vocabulary} byte-pair "
            "tokens",
            TRAINING_FACTS,
            "predict RUN image.png",
            "print(vt.predict(model, [image]))",
            "The figures hold for images like those it was measured on.",
        ),
        source=DIGIT_LINES,
        panels="text",
        inspected=4,
        options={"train": frozenset({"minutes"}), "predict": frozenset({"out"})},
        instead={
            **dict.fromkeys(("model", "init", "recipe", "image_size"), INSTEAD),
            "batch_size auto": f"give a number, and {Param('settings')} training.machine.grad_accum_steps=2 "
            "splits it",
            "group_by": "give the manifest a column split",
            "strict": "leave it out; images that cannot be read are listed in the run's bad_files.txt",
        },
    )

    def open_source(self, source: str, config: CaptioningConfig) -> CaptionSplits:
        return open_captions(source, **config.split_options)

    def recipe(self, source: str, data: CaptionSplits) -> CaptioningConfig:
        if source == DIGIT_LINES:
            return packaged_config(CaptioningConfig, RECIPES / "digit-lines.toml")
        return images_config(len(data.train.texts))

    def training_texts(self, data: CaptionSplits) -> list[str]:
        return list(data.train.texts)

    def batches(
        self,
        config: CaptioningConfig,
        data: CaptionSplits,
        tokenizer: Tokenizer,
        **options: Unpack[LoaderOptions],
    ) -> tuple[TextLoader, int, int]:
        longest, shown = config.decoder.max_length, config.prepared
        if config.source == DIGIT_LINES:
            lines = digit_line_loader(
                data.train.images, tokenizer, longest=longest, preprocessing=shown, **options
            )
            return lines, len(data.train.texts), 0
        encoded = encode_captions(data.train, tokenizer, longest)
        loader = caption_loader(encoded, workers=loading_workers(None), preprocessing=shown, **options)
        return loader, len(encoded.targets), encoded.too_long

    def build(self, config: CaptioningConfig, data: CaptionSplits, *, steps: int) -> nn.Module:
        return Captioner(config.model, preprocessing=config.prepared, seed=config.seed)

    def not_learned(self, data: CaptionSplits) -> Captions:
        return data.out_of_distribution

    def evaluate(self, answerer: Reader, examples: Captions, **options: Any) -> CaptioningEvaluation:
        used = {"batch_size", "world"} & options.keys()
        return evaluate_reader(answerer, examples, **{name: options[name] for name in used})

    def report(
        self,
        trained: Trained[CaptioningConfig, CaptionSplits],
        answerer: Reader,
        evaluation: Any,
        **more: Any,
    ) -> Path:
        from vitreous.addons.text.figures import Measured, write_reading_report

        test, path = trained.data.test.images, trained.run.path
        images: list[tuple[ImageLike, str]] = []
        for row, read in islice(test.readable(range(len(test))), self.about.inspected):
            images.append((read, Path(test.name(row)).name))
        measured = Measured(evaluation, more["findings"])
        return write_reading_report(answerer, images, path, path, measured).report

    def to_inspect(self, examples: Captions) -> ImageDataset:
        return examples.images

    def image_rows(self, answerer: Reader, images: ImageDataset, **batching: Any) -> Iterator[ImageRows]:
        model: Any = module_of(answerer)
        yield from decoded_rows(model.preprocessing, images, batching["batch_size"])

    def answer_function(
        self, answerer: Reader, device: torch.device, **options: Any
    ) -> Callable[[Sequence[str], Sequence[ImageLike]], Iterable[Caption]]:
        def captions(names: Sequence[str], images: Sequence[ImageLike]) -> Iterator[Caption]:
            found = answerer.read(images, batch_size=len(images))
            for name, each in zip(names, found, strict=True):
                yield Caption(name, each.text, each.score)

        return captions


DEFINED = (Captioning(),)
