"""What a model of images answers: its class or its number, its features, and where it looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from pydantic import BaseModel, Field, ValidationError, model_validator
from torch import Tensor

from vitreous.data.transforms import evaluation_pixels
from vitreous.deployment.answers import Prediction
from vitreous.deployment.classifier import ClassPredictor, output_labels
from vitreous.errors import InputError, nearest
from vitreous.evaluation.outputs import number_outputs
from vitreous.extensions import OutputKind
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.images import enlarged, overlay, png, rgb
from vitreous.inspection.measures import readout_attention, readout_of, rollout_map, to_grid
from vitreous.inspection.relevance import relevance
from vitreous.languages import phrase
from vitreous.models.config_parts import Config
from vitreous.models.model import Runnable
from vitreous.models.settings import explain
from vitreous.models.stored import BadImage, stored
from vitreous.models.vit import ViT
from vitreous.tasks.regression import PredictedNumber
from vitreous.training.machine import computing, with_cast_weights

MOST_RATIO = 100  # of an image's longer side to its shorter one
# Pillow decodes JPEG 2000 under the interpreter's lock, so that nothing else is answered meanwhile.
LOCKING, MOST_LOCKING = "JPEG2000", 4_000_000  # pixels, about a fifth of a second
MOST_RESIZED = 16_000_000  # pixels of an image when its shorter side has the model's size
SHOWN = 512  # pixels of an overlay's longer side, at least
DIGITS = 6  # significant ones of a weight: more than an eye or a plot can tell
NOT_FINITE = "the model's answer is not a finite number: its weights are damaged, or too large for bf16"


class Question(NamedTuple):
    """One image at the model's size, what it is called, and how it is to be answered."""

    name: str
    pixels: Tensor  # uint8 (C, H, W)
    parameters: Any  # of the endpoint


AnswerBody = dict[str, object] | bytes  # bytes: a PNG


class Endpoint(NamedTuple):
    """One address."""

    name: str  # after /v1/
    key: str  # of the list of answers
    summary: str  # for the documentation
    parameters: type[Config]
    item: type  # the form of one answer
    answer: Callable[[Sequence[Question]], list[AnswerBody]]
    together: bool = True  # whether questions are answered in batches; else one at a time


class NoParameters(Config):
    """Nothing can be chosen."""


class Top(Config):
    top: Annotated[int, Field(ge=1, description="how many of the most probable labels to return")] = 5


class FeaturesAnswer(BaseModel):
    path: str
    features: list[float] = Field(description="the feature vector that the head receives")


class AttentionQuery(Config):
    """Which attention."""

    kind: Annotated[
        Literal["rollout", "attention", "evidence"],
        Field(
            description="rollout of all layers (arXiv 2005.00928), attention of one layer, or evidence for a "
            "class (arXiv 2103.15679)"
        ),
    ] = "rollout"
    layer: Annotated[
        int | None, Field(ge=1, description="the layer for kind=attention, from 1; by default the last one")
    ] = None
    head: Annotated[
        int, Field(ge=0, description="the head for kind=attention, from 1; 0 is the mean of all heads")
    ] = 0
    label: Annotated[
        str | None, Field(description="the class for kind=evidence; by default the predicted class")
    ] = None
    patch: Annotated[
        str | None,
        Field(
            pattern=r"^[1-9]\d{0,3}x[1-9]\d{0,3}$",
            description="for kind=rollout and kind=attention: the patch used as the query, ROWxCOLUMN from "
            "1, such as 3x5; by default what the head reads",
        ),
    ] = None
    format: Annotated[
        Literal["json", "png"], Field(description="png: a heat map over the image, for a single image only")
    ] = "json"

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> AttentionQuery:
        kinds = {"layer": "attention", "head": "attention", "label": "evidence"}
        for name, kind in kinds.items():
            if name in self.model_fields_set and self.kind != kind:
                raise ValueError(
                    f"{name} has no effect with kind={self.kind}: use kind={kind}, or leave it out"
                )
        if self.patch and self.kind == "evidence":
            raise ValueError("patch has no effect with kind=evidence: leave it out")
        return self


class LookAnswer(BaseModel):
    path: str
    kind: str
    of: str = Field(description="the token whose attention is shown, or the class for kind=evidence")
    grid: tuple[int, int] = Field(description="number of rows and columns of patches")
    values: list[list[float]] = Field(description="a weight for each patch, row by row")


def parse_parameters(given: Mapping[str, object], kind: type[Config]) -> Config:
    """Return the parameters of a request. Raises InputError: an unknown name, or a value that does not do."""
    known = list(kind.model_fields)
    for name in given:
        if name not in known:
            end = nearest(name, known) if known else "there are none here"
            raise InputError(f"unknown parameter {name!r}: {end}")
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise InputError(explain(error, "parameter").removeprefix("parameter.")) from None


def check_numbers(questions: Sequence[Question], numbers: Tensor) -> None:
    """Raise BadImage for an image for which the model's numbers are not finite."""
    for question, row in zip(questions, numbers, strict=True):
        if not row.isfinite().all():
            raise BadImage(question.name, NOT_FINITE)


class ServedModel:
    """A model without a head: its features, and where it looks.

    Args:
        precision: of predictions and features, "fp32" or "bf16"; attention is computed in float32.
        most_pixels: of an image that is sent.
    """

    def __init__(self, model: Runnable, device: torch.device, *, precision: str, most_pixels: int) -> None:
        self.model = model.to(device).eval()
        self.device, self.precision, self.most_pixels = device, precision, most_pixels
        # In bf16 the weights are cast once, and not again in every batch.
        self.answering: Any = with_cast_weights(self.model) if precision == "bf16" else self.model
        self.labels: list[str] = []
        self.endpoints = tuple(self.offered())

    def offered(self) -> list[Endpoint]:
        """Return what this model can be asked; the first is the page's."""
        summary = "The features of images: the vectors that the head receives"
        offered = [Endpoint("embed", "features", summary, NoParameters, FeaturesAnswer, self.features)]
        if isinstance(self.model, ViT) and not self.model.has_untrained_layers:
            summary = "Attention maps: rollout, attention of a layer, or evidence for a class"
            offered.append(
                Endpoint(
                    "attention", "attention", summary, AttentionQuery, LookAnswer, self.look, together=False
                )
            )
        return offered

    def prepare(self, data: bytes, name: str) -> tuple[Tensor, str | None]:
        """Return what `vitreous predict` makes of an image: its pixels at the model's size; and what is
        missing of it. No pixel is decoded before the header allows it. Raises BadImage."""
        preprocessing = self.model.preprocessing

        def allow(size: tuple[int, int], format: str | None) -> None:
            (height, width), most, allowed = size, self.most_pixels, "allowed"
            if format == LOCKING and most > MOST_LOCKING:
                most, allowed = MOST_LOCKING, "allowed in JPEG 2000: send a JPEG or a PNG"
            if height * width > most:
                raise BadImage(name, f"{width}x{height} pixels exceed the {most} that are {allowed}")
            tall, wide = preprocessing.rescaled(size)
            if max(size) > MOST_RATIO * min(size) or tall * wide > MOST_RESIZED:
                raise BadImage(
                    name,
                    f"{width}x{height} pixels are too narrow: one side may be at most {MOST_RATIO} times the "
                    "other",
                )

        channels, value_range = preprocessing.channels, preprocessing.value_range
        image = stored(data, name, channels, value_range, most_pixels=self.most_pixels, allow=allow)
        return evaluation_pixels(image, preprocessing), image.damage

    def batch(self, questions: Sequence[Question]) -> Float[Tensor, "B C H W"]:
        """Return the images of questions, normalized."""
        pixels = torch.stack([each.pixels for each in questions]).to(self.device)
        return self.model.preprocessing.normalize(pixels)

    def features(self, questions: Sequence[Question]) -> list[AnswerBody]:
        with torch.inference_mode(), computing(self.precision, self.device):
            rows = self.answering.features(self.batch(questions)).float().flatten(1).cpu()
        check_numbers(questions, rows)
        answers: list[AnswerBody] = []
        for question, row in zip(questions, rows.tolist(), strict=True):
            answers.append({"path": question.name, "features": row})
        return answers

    def look(self, questions: Sequence[Question]) -> list[AnswerBody]:
        """Return the map of one image; as a PNG, or as numbers."""
        (question,) = questions
        wanted: AttentionQuery = question.parameters
        assert isinstance(self.model, ViT)  # else it is not offered
        of, values = requested_map(self.model, self.batch(questions), wanted)
        check_numbers(questions, values[None])
        if wanted.format == "png":
            image = enlarged(rgb(question.pixels), SHOWN)
            return [png(overlay(image, values.float().cpu()))]
        rows = [[float(f"{value:.{DIGITS}g}") for value in row] for row in values.tolist()]
        grid = list(self.model.config.grid)
        return [{"path": question.name, "kind": wanted.kind, "of": of, "grid": grid, "values": rows}]

    def facts(self) -> dict[str, object]:
        """Return what GET /v1/model says of the model itself."""
        facts: dict[str, object] = {
            "labels": self.labels,
            "preprocessing": self.model.preprocessing.model_dump(mode="json"),
        }
        if isinstance(self.model, ViT):
            facts |= {"layers": self.model.config.depth, "heads": self.model.config.heads}
        return facts

    def warm_up(self) -> None:
        """Ask everything once: kernels are chosen and memory is allocated before the first request. Raises
        InputError: the answer is not finite."""
        preprocessing = self.model.preprocessing
        gray = torch.full((preprocessing.channels, *preprocessing.size), 128, dtype=torch.uint8)
        try:
            for endpoint in self.endpoints:
                endpoint.answer([Question("warm-up", gray, endpoint.parameters())])
        except BadImage as bad:
            raise InputError(
                f"the model cannot be served, since it fails on a gray image: {bad.reason}"
            ) from None


class Classifier(ServedModel):
    """Labels with probabilities, beside what a model without a head answers."""

    def offered(self) -> list[Endpoint]:
        self.predictor = ClassPredictor(self.answering, self.device)
        self.labels = self.predictor.labels
        summary = "The most probable labels of images, as vitreous predict --json gives them"
        return [
            Endpoint("predict", "predictions", summary, Top, Prediction, self.predict),
            *super().offered(),
        ]

    def predict(self, questions: Sequence[Question]) -> list[AnswerBody]:
        with computing(self.precision, self.device):
            probabilities = self.predictor.probabilities(self.batch(questions))
        most = max(each.parameters.top for each in questions)
        choices = self.predictor.most_probable(probabilities, most)
        answers: list[AnswerBody] = []
        for question, found in zip(questions, choices, strict=True):
            answers.append(Prediction.of(question.name, found[: question.parameters.top]).to_json())
        return answers


class Regressor(ServedModel):
    """A number, beside what a model without a head answers."""

    def offered(self) -> list[Endpoint]:
        summary = "The number of each image, as vitreous predict --json gives it"
        return [
            Endpoint("predict", "predictions", summary, NoParameters, PredictedNumber, self.predict),
            *super().offered(),
        ]

    def predict(self, questions: Sequence[Question]) -> list[AnswerBody]:
        with torch.inference_mode(), computing(self.precision, self.device):
            values = number_outputs(self.answering, self.batch(questions)).flatten().cpu()
        check_numbers(questions, values)
        answers: list[AnswerBody] = []
        for question, value in zip(questions, values.tolist(), strict=True):
            answers.append({"path": question.name, "value": value})
        return answers


# How models are served, by what their outputs are.
KINDS: dict[OutputKind, type[ServedModel]] = {
    "softmax": Classifier,
    "sigmoid": Classifier,
    "number": Regressor,
}


def requested_map(
    model: ViT, images: Float[Tensor, "1 C H W"], wanted: AttentionQuery
) -> tuple[str, Float[Tensor, "rows columns"]]:
    """Return the name of what asks, or the label that evidence is for; and a weight for each patch. Raises
    InputError: no such layer, head, patch or class."""
    config = model.config
    if wanted.kind == "evidence":
        labels, label = output_labels(model), wanted.label
        if label is None:
            with torch.inference_mode():
                label = labels[int(model(images).argmax(dim=-1))]
        if label not in labels:
            raise InputError(f"the model has no class {label!r}: {nearest(label, labels)}")
        found = relevance(model, images.clone(), torch.tensor([labels.index(label)]))
        return label, found.patches[0].cpu()

    with torch.inference_mode():
        if wanted.patch is None:
            of, asking = phrase(f"readouts.{config.pooling.kind}"), readout_of(model, images)
        else:
            row, column = map(int, wanted.patch.split("x"))
            rows, columns = config.grid
            if row > rows or column > columns:
                raise InputError(
                    f"there is no patch {wanted.patch}: the grid has {rows} rows and {columns} columns"
                )
            of, asking = f"the patch in row {row}, column {column}", torch.zeros(1, config.sequence_length)
            asking[0, config.num_prefix_tokens + (row - 1) * columns + column - 1] = 1
        if wanted.kind == "rollout":
            return of, rollout_map(model, images, asking)[0]

        layer = wanted.layer or config.depth
        if layer > config.depth:
            raise InputError(f"there is no layer {layer}: the model has {config.depth}")
        if wanted.head > config.heads:
            raise InputError(f"there is no head {wanted.head}: layer {layer} has {config.heads}")
        with capture_attention(
            model, reduce=lambda maps: readout_attention(maps.float(), asking).cpu()
        ) as attention:
            model(images)
        heads = attention.maps[layer - 1][0]  # (heads, T)
        return of, to_grid(heads[wanted.head - 1] if wanted.head else heads.mean(dim=0), config)
