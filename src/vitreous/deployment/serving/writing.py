"""Serving models that write text: image to text, translation, and their attention."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field
from torch import Tensor

from vitreous.data.text.batches import padded
from vitreous.deployment.serving.endpoints import (
    Answer,
    Beams,
    Endpoint,
    Heat,
    LayerAndHead,
    Question,
    Seen,
    Served,
    ServedImages,
    heat_png,
    rounded,
    selected_map,
)
from vitreous.errors import InputError
from vitreous.evaluation.text_models import Reader, Translator, WrittenText
from vitreous.inspection.images import data_uri, rgb
from vitreous.inspection.sequence_report import text_attention, token_labels


class ReadAnswer(BaseModel):
    """As of `vitreous predict --json`."""

    path: str
    text: str
    score: float = Field(description="log probability divided by a power of its length")


class Layer(Beams, LayerAndHead):
    """Which cross-attention of the decoder."""


class LookAtImage(Layer):
    seen: Seen = False
    token: Annotated[int, Field(ge=1, description="for format=png: which written token, from 1")] = 1
    format: Heat = "json"


class ImageTokens(BaseModel):
    path: str
    text: str
    tokens: list[str] = Field(description="what was written, the end mark last")
    grid: tuple[int, int] = Field(description="rows and columns of patches")
    values: list[list[list[float]]] = Field(description="for each token a weight for each patch")
    seen: str | None = None


class Translating(Beams):
    length_penalty: Annotated[float, Field(ge=0, le=5, description="higher favors longer translations")] = 0.6


class TranslationAnswer(BaseModel):
    """As of `vitreous translate --json`."""

    source: str
    text: str
    score: float | None = Field(description="null where beams is 1")


class TextTokens(BaseModel):
    source: str
    text: str
    read: list[str] = Field(description="the tokens of the source")
    tokens: list[str] = Field(description="what was written, the end mark last")
    values: list[list[float]] = Field(description="for each written token a weight for each that was read")


class ImageReader(ServedImages):
    """Answers for a Captioner."""

    task = "captioning"

    def __init__(self, reader: Reader, *, most_pixels: int) -> None:
        super().__init__(reader.model, most_pixels)
        self.reader = reader
        text = "The text in images, as vitreous predict --json gives it"
        maps = "Where in the image each token was read"
        self.endpoints = (
            Endpoint("predict", "predictions", text, Beams, ReadAnswer, self.read),
            Endpoint("attention", "attention", maps, LookAtImage, ImageTokens, self.look, together=False),
        )

    def facts(self) -> dict[str, Any]:
        decoder = self.model.config.decoder
        return {**super().facts(), "layers": decoder.depth, "heads": decoder.heads}

    def read(self, questions: Sequence[Question]) -> list[Answer]:
        return in_groups(questions, lambda each: each.parameters.beams, self.read_alike)

    def read_alike(self, questions: Sequence[Question]) -> list[Answer]:
        found = self.reader.read([each.what for each in questions], beams=questions[0].parameters.beams)
        return [
            {"path": each.name, "text": text.text, "score": text.score}
            for each, text in zip(questions, found, strict=True)
        ]

    def look(self, questions: Sequence[Question]) -> list[Answer]:
        """Cross-attention over the image for each token that is written."""
        (question,) = questions
        wanted: LookAtImage = question.parameters
        (found,) = self.reader.read([question.what], beams=wanted.beams)
        preprocessing, config = self.model.preprocessing, self.model.config.encoder
        images = preprocessing([question.what]).to(self.model.text.tokens.weight.device)
        cross = text_attention(self.model, images, padded([found.ids]).to(images.device)).cross
        values = selected_map(list(cross), wanted)[:, config.num_prefix_tokens :].reshape(-1, *config.grid)
        pixels = preprocessing.denormalize(images)[0].cpu()
        if wanted.format == "png":
            if wanted.token > len(values):
                raise InputError(f"token {wanted.token} is not there: {len(values)} were written")
            return [heat_png(pixels, values[wanted.token - 1])]
        answer = {
            "path": question.name,
            "text": found.text,
            "tokens": token_labels(self.reader.tokenizer, found.ids[1:]),
            "grid": list(config.grid),
            "values": rounded(values),
        }
        return [{**answer, "seen": data_uri(rgb(pixels))} if wanted.seen else answer]


class TextTranslator(Served):
    """Answers for a Transformer that translates."""

    task = "translation"
    takes = "texts"

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.model = translator.model
        text = "Translations of texts, as vitreous translate --json gives them"
        maps = "Which token of the source each written token looked at"
        self.endpoints = (
            Endpoint("translate", "translations", text, Translating, TranslationAnswer, self.translate),
            Endpoint("attention", "attention", maps, Layer, TextTokens, self.look, together=False),
        )

    def open(self, data: bytes, name: str) -> list[int]:
        return self.translator.encode(data.decode("utf-8"))

    def sample(self) -> bytes:
        return b"1"

    def facts(self) -> dict[str, Any]:
        config = self.model.config
        return {
            "vocabulary": config.vocabulary,
            "most_tokens": config.max_length,
            "layers": config.depth,
            "heads": config.heads,
        }

    def translate(self, questions: Sequence[Question]) -> list[Answer]:
        """Texts of one length are decoded together: how far a translation may grow depends on the longest
        source in the batch, and no answer may depend on another user's text."""
        return in_groups(questions, lambda each: (len(each.what), each.parameters), self.translate_alike)

    def translate_alike(self, questions: Sequence[Question]) -> list[Answer]:
        wanted: Translating = questions[0].parameters
        found = self.decoded(self.source(questions), wanted.beams, wanted.length_penalty)
        return [
            {"source": each.name, "text": text.text, "score": text.score}
            for each, text in zip(questions, found, strict=True)
        ]

    def source(self, questions: Sequence[Question]) -> Tensor:
        """A padded batch (B, S) of texts."""
        return padded([each.what for each in questions]).to(self.model.text.tokens.weight.device)

    def decoded(self, source: Tensor, beams: int, length_penalty: float) -> list[WrittenText]:
        """As long as `Translator.translate` lets a translation become."""
        limit = min(source.shape[1] + 50, self.model.config.max_length)
        return self.translator.decode(source, beams, length_penalty, limit)

    def look(self, questions: Sequence[Question]) -> list[Answer]:
        """Cross-attention over the source for each token that is written."""
        (question,) = questions
        wanted: Layer = question.parameters
        source = self.source(questions)
        (found,) = self.decoded(source, wanted.beams, Translating().length_penalty)
        cross = text_attention(self.model, source, padded([found.ids]).to(source.device)).cross
        return [
            {
                "source": question.name,
                "text": found.text,
                "read": token_labels(self.translator.tokenizer, question.what),
                "tokens": token_labels(self.translator.tokenizer, found.ids[1:]),
                "values": rounded(selected_map(list(cross), wanted)),
            }
        ]


def in_groups(
    questions: Sequence[Question],
    kind: Callable[[Question], Hashable],
    answer: Callable[[Sequence[Question]], list[Answer]],
) -> list[Answer]:
    """The answers, in order, when only questions of one kind can be computed together."""
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for row, question in enumerate(questions):
        groups[kind(question)].append(row)
    answers: dict[int, Answer] = {}
    for rows in groups.values():
        answers |= zip(rows, answer([questions[row] for row in rows]), strict=True)
    return [answers[row] for row in range(len(questions))]
