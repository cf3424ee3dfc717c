"""Serving models that write text: image to text, translation, and their attention."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, Any

from PIL import Image
from pydantic import BaseModel, Field
from torch import Tensor

from vitreous.data.text.batches import padded
from vitreous.deployment.serving.endpoints import Answer, Beams, Endpoint, Question
from vitreous.deployment.serving.looking import Heat, Seen
from vitreous.deployment.serving.pixels import blank, heat_png, rounded, whole_image
from vitreous.errors import InputError
from vitreous.evaluation.text_models import Reader, Translation, Translator
from vitreous.inspection.images import data_uri, rgb
from vitreous.inspection.sequence_report import text_attention, token_labels


class ReadAnswer(BaseModel):
    """As of `vitreous predict --json`."""

    path: str
    text: str
    score: float = Field(description="log probability divided by a power of its length")


class Layer(Beams):
    """Which cross-attention."""

    layer: Annotated[int | None, Field(ge=1, description="of the decoder, from 1; by default the last")] = (
        None
    )
    head: Annotated[int, Field(ge=0, description="from 1; 0 is the mean of all")] = 0


class LookAtImage(Layer):
    seen: Seen = False
    token: Annotated[int, Field(ge=1, description="for format=png: which written token, from 1")] = 1
    format: Heat = "json"


class ImageTokensAnswer(BaseModel):
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


class TextTokensAnswer(BaseModel):
    source: str
    text: str
    read: list[str] = Field(description="the tokens of the source")
    tokens: list[str] = Field(description="what was written, the end mark last")
    values: list[list[float]] = Field(description="for each written token a weight for each that was read")


class ImageReader:
    """Answers for a Captioner."""

    task = "captioning"

    def __init__(self, reader: Reader, *, most_pixels: int) -> None:
        self.reader = reader
        self.model = reader.model
        self.most_pixels = most_pixels
        self.endpoints: tuple[Endpoint, ...] = (
            Endpoint(
                name="predict",
                takes="images",
                key="predictions",
                summary="The text in images, as vitreous predict --json gives it",
                parameters=Beams,
                item=ReadAnswer,
                answer=self.read,
            ),
            Endpoint(
                name="attention",
                takes="images",
                key="attention",
                summary="Where in the image each token was read",
                parameters=LookAtImage,
                item=ImageTokensAnswer,
                answer=self.look,
                together=False,
            ),
        )

    def decode(self, data: bytes, name: str) -> Image.Image:
        return whole_image(data, name, self.model.preprocessing, most=self.most_pixels)

    def sample(self) -> bytes:
        return blank(self.model.preprocessing)

    def facts(self) -> dict[str, Any]:
        decoder = self.model.config.decoder
        return {
            "preprocessing": self.model.preprocessing.model_dump(mode="json"),
            "layers": decoder.depth,
            "heads": decoder.heads,
        }

    def read(self, questions: Sequence[Question]) -> list[Answer]:
        return in_groups(questions, lambda each: each.parameters.beams, self.read_alike)

    def read_alike(self, questions: Sequence[Question]) -> list[Answer]:
        found = self.reader.read([each.what for each in questions], beams=questions[0].parameters.beams)
        return [
            {"path": each.name, "text": text.text, "score": text.score}
            for each, text in zip(questions, found, strict=True)
        ]

    def look(self, questions: Sequence[Question]) -> list[Answer]:
        return [self.look_at(each) for each in questions]

    def look_at(self, question: Question) -> Answer:
        """Cross-attention over the image for each token that is written."""
        wanted: LookAtImage = question.parameters
        (found,) = self.reader.read([question.what], beams=wanted.beams)
        preprocessing, config = self.model.preprocessing, self.model.config.encoder
        images = preprocessing([question.what]).to(self.model.text.tokens.weight.device)
        cross = text_attention(self.model, images, padded([found.ids]).to(images.device)).cross
        values = selected_attention(cross, wanted)[:, config.num_prefix_tokens :].reshape(-1, *config.grid)
        pixels = preprocessing.denormalize(images)[0].cpu()
        if wanted.format == "png":
            if wanted.token > len(values):
                raise InputError(f"token {wanted.token} is not there: {len(values)} were written")
            return heat_png(pixels, values[wanted.token - 1])
        return {
            "path": question.name,
            "text": found.text,
            "tokens": token_labels(self.reader.tokenizer, found.ids[1:]),
            "grid": list(config.grid),
            "values": rounded(values),
            **({"seen": data_uri(rgb(pixels))} if wanted.seen else {}),
        }


class TextTranslator:
    """Answers for a Transformer that translates."""

    task = "translation"

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.model = translator.model
        self.endpoints: tuple[Endpoint, ...] = (
            Endpoint(
                name="translate",
                takes="texts",
                key="translations",
                summary="Translations of texts, as vitreous translate --json gives them",
                parameters=Translating,
                item=TranslationAnswer,
                answer=self.translate,
            ),
            Endpoint(
                name="attention",
                takes="texts",
                key="attention",
                summary="Which token of the source each written token looked at",
                parameters=Layer,
                item=TextTokensAnswer,
                answer=self.look,
                together=False,
            ),
        )

    def decode(self, data: bytes, name: str) -> list[int]:
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

    def decoded(self, source: Tensor, beams: int, length_penalty: float) -> list[Translation]:
        """As long as `Translator.translate` lets a translation become."""
        limit = min(source.shape[1] + 50, self.model.config.max_length)
        return self.translator.decode(source, beams, length_penalty, limit)

    def look(self, questions: Sequence[Question]) -> list[Answer]:
        return [self.look_at(each) for each in questions]

    def look_at(self, question: Question) -> Answer:
        """Cross-attention over the source for each token that is written."""
        wanted: Layer = question.parameters
        source = self.source([question])
        (found,) = self.decoded(source, wanted.beams, Translating().length_penalty)
        cross = text_attention(self.model, source, padded([found.ids]).to(source.device)).cross
        return {
            "source": question.name,
            "text": found.text,
            "read": token_labels(self.translator.tokenizer, question.what),
            "tokens": token_labels(self.translator.tokenizer, found.ids[1:]),
            "values": rounded(selected_attention(cross, wanted)),
        }


def selected_attention(cross: Tensor, wanted: Layer) -> Tensor:
    """The map (T, S) of one layer and head, or of the mean of the heads."""
    layers, heads = cross.shape[:2]
    layer = wanted.layer or layers
    if layer > layers:
        raise InputError(f"layer {layer} is not there: the decoder has {layers}")
    if wanted.head > heads:
        raise InputError(f"head {wanted.head} is not there: each layer has {heads}")
    maps = cross[layer - 1]
    return maps[wanted.head - 1] if wanted.head else maps.mean(dim=0)


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
