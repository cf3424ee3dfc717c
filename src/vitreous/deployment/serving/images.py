"""Serving models of images: labels, features and attention of a classifier, the class of each pixel of a
segmenter."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float
from pydantic import BaseModel, Field
from torch import Tensor

from vitreous.data.segmentation.masked import mask_image, palette
from vitreous.data.transforms import evaluation_pixels
from vitreous.deployment.answering import Prediction
from vitreous.deployment.predictor import ClassPredictor, class_shares, output_labels
from vitreous.deployment.serving.endpoints import (
    Answer,
    Endpoint,
    Heat,
    ImageHeader,
    LayerAndHead,
    NoParameters,
    Question,
    Seen,
    ServedImages,
    heat_png,
    rounded,
    selected_map,
)
from vitreous.deployment.serving.exported import FeaturesAnswer, LabelTensors, Top
from vitreous.errors import InputError, nearest
from vitreous.evaluation.segmentation import masks_of
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.images import data_uri, rgb
from vitreous.inspection.measures import readout_attention, readout_of, rollout_map, to_grid
from vitreous.inspection.relevance import relevance
from vitreous.languages import phrase
from vitreous.models.config_parts import Config, setting
from vitreous.models.names import Runnable
from vitreous.models.program import Program
from vitreous.models.segmenter import Segmenter
from vitreous.models.vit import ViT
from vitreous.training.precision import with_cast_weights


class Look(LayerAndHead):
    """Which attention; a layer and a head only of kind=attention."""

    kind: Annotated[
        Literal["rollout", "attention", "evidence"],
        Field(
            description="rollout of all layers (arXiv 2005.00928), attention of one layer, or evidence for a "
            "class (arXiv 2103.15679)"
        ),
    ] = "rollout"
    label: Annotated[str | None, Field(description="for kind=evidence; by default the model's answer")] = None
    patch: Annotated[
        str | None,
        Field(
            pattern=r"^[1-9]\d{0,3}x[1-9]\d{0,3}$",
            description="for kind=rollout and kind=attention: of a patch, ROWxCOLUMN from 1, as 3x5; "
            "by default what the head reads",
        ),
    ] = None
    seen: Seen = False
    format: Heat = "json"


class LookAnswer(BaseModel):
    path: str
    kind: str
    of: str = Field(description="whose attention it is, or the label that evidence is for")
    grid: tuple[int, int] = Field(description="rows and columns of patches")
    values: list[list[float]] = Field(description="a weight for each patch, row by row")
    seen: str | None = setting(None, "the image as the model sees it")


class Classifier(ServedImages):
    """Answers for a ViT or a BiT."""

    task = "classification"

    def __init__(self, model: Runnable, device: torch.device, *, most_pixels: int) -> None:
        super().__init__(model.to(device).eval(), most_pixels)
        self.device = device
        self.answering = self.model  # what labels and features are computed with
        self.predictor = None if model.config.num_classes is None else ClassPredictor(model, device)
        self.endpoints = tuple(self.offered())

    def lower(self) -> None:
        """Answer in bf16 with weights that are cast once; attention stays in float32."""
        if isinstance(self.model, Program):
            raise InputError(f"{self.model.path} computes in the precision it was written in: use fp32")
        self.answering = with_cast_weights(self.model)
        if self.predictor:
            self.predictor = ClassPredictor(self.answering, self.device)
        super().lower()

    def offered(self) -> list[Endpoint]:
        """What this model can be asked: without a head no labels, without attention no maps."""
        labels = "The most probable labels of images, as vitreous predict --json gives them"
        features = "What the head sees of images"
        maps = "Where the model looks: rollout, attention of a layer, or evidence for a class"
        look = partial(look_at, self.model, self.device)
        offered = [Endpoint("embed", "features", features, NoParameters, FeaturesAnswer, self.features)]
        if self.predictor:
            predict = Endpoint("predict", "predictions", labels, Top, Prediction, self.predict)
            offered.insert(0, predict)
        if isinstance(self.model, ViT):
            offered.append(Endpoint("attention", "attention", maps, Look, LookAnswer, look, together=False))
        return offered

    @property
    def tensors(self) -> Endpoint:
        """Every label's probability; of a model without labels its first endpoint."""
        first = self.endpoints[0]
        if not self.predictor or first.parameters is not Top:
            return first
        return Endpoint(
            "tensors", "tensors", "", NoParameters, LabelTensors, self.in_precision(self.label_tensors)
        )

    def prepare(self, opened: ImageHeader) -> Tensor:
        """What `vitreous predict` makes of an image: its pixels at the model's size."""
        return evaluation_pixels(self.encoded(opened), self.model.preprocessing)

    def facts(self) -> dict[str, Any]:
        config = self.model.config
        return {
            "labels": self.predictor.labels if self.predictor else [],
            **super().facts(),
            **({"layers": config.depth, "heads": config.heads} if isinstance(self.model, ViT) else {}),
        }

    def images(self, questions: Sequence[Question]) -> Tensor:
        """A batch (B, C, H, W) for the model."""
        pixels = torch.stack([each.what for each in questions]).to(self.device)
        return self.model.preprocessing.normalize(pixels)

    def predict(self, questions: Sequence[Question]) -> list[Answer]:
        assert self.predictor  # else it is not offered
        most = max(each.parameters.top for each in questions)
        found = self.predictor.choices(self.images(questions), top=most)
        return [
            Prediction.of(each.name, choices[: each.parameters.top]).to_json()
            for each, choices in zip(questions, found, strict=True)
        ]

    def label_tensors(self, questions: Sequence[Question]) -> list[Answer]:
        assert self.predictor
        found = self.predictor.probabilities(self.images(questions)).tolist()
        best = [max(range(len(row)), key=row.__getitem__) for row in found]
        return [
            {
                "path": each.name,
                "label": self.predictor.labels[first],
                "probability": row[first],
                "probabilities": row,
            }
            for each, row, first in zip(questions, found, best, strict=True)
        ]

    @torch.inference_mode()
    def features(self, questions: Sequence[Question]) -> list[Answer]:
        found = self.answering.features(self.images(questions)).float().flatten(1)
        return [
            {"path": each.name, "features": row} for each, row in zip(questions, found.tolist(), strict=True)
        ]


def look_at(model: ViT, device: torch.device, questions: Sequence[Question]) -> list[Answer]:
    """The map of one image; as a PNG, or as numbers."""
    (question,) = questions
    wanted: Look = question.parameters
    images = model.preprocessing.normalize(question.what[None].to(device))
    of, weights = whose(model, images, wanted)
    match wanted.kind:
        case "rollout":
            values = rollout_map(model, images, weights)[0]
        case "attention":
            values = attended(model, images, weights, wanted)
        case "evidence":
            values, of = evidence(model, images, wanted.label)
    if wanted.format == "png":
        return [heat_png(question.what, values)]
    found = {
        "path": question.name,
        "kind": wanted.kind,
        "of": of,
        "grid": list(model.config.grid),
        "values": rounded(values),
    }
    return [{**found, "seen": data_uri(rgb(question.what))} if wanted.seen else found]


@torch.inference_mode()
def whose(model: ViT, images: Float[Tensor, "1 C H W"], wanted: Look) -> tuple[str, Float[Tensor, "1 T"]]:
    """Whose attention is wanted, and the weight of each token in it: what the head reads, or one patch.
    Raises InputError: there is no such patch, or it is asked of the evidence for a class."""
    config = model.config
    if wanted.patch is None:
        return phrase(f"readouts.{config.pooling}"), readout_of(model, images)
    if wanted.kind == "evidence":
        raise InputError("patch goes with kind=rollout and kind=attention: leave it out of kind=evidence")
    row, column = map(int, wanted.patch.split("x"))
    rows, columns = config.grid
    if row > rows or column > columns:
        raise InputError(f"there is no patch {wanted.patch}: the grid has {rows} rows and {columns} columns")
    weights = torch.zeros(1, config.sequence_length)
    weights[0, config.num_prefix_tokens + (row - 1) * columns + column - 1] = 1
    return phrase("serve.patch", row=row, column=column), weights


@torch.inference_mode()
def attended(
    model: ViT, images: Float[Tensor, "1 C H W"], weights: Float[Tensor, "1 T"], wanted: Look
) -> Float[Tensor, "rows columns"]:
    """What the tokens that have weights attend to in one layer."""
    with capture_attention(
        model, reduce=lambda maps: readout_attention(maps.float(), weights).cpu()
    ) as attention:
        model(images)
    return to_grid(selected_map([maps[0] for maps in attention.maps], wanted), model.config)


def evidence(
    model: ViT, images: Float[Tensor, "1 C H W"], label: str | None
) -> tuple[Float[Tensor, "rows columns"], str]:
    """Which patches speak for a class, or for the model's answer; and its label. Raises InputError: there is
    no such class, or the model has no classes."""
    labels = output_labels(model)
    if label is None:
        with torch.inference_mode():
            label = labels[int(model(images).argmax(dim=-1))]
    if label not in labels:
        raise InputError(f"the model has no class {label!r}: {nearest(label, labels)}")
    found = relevance(model, images.clone(), torch.tensor([labels.index(label)]))
    return found.patches[0].cpu(), label


MOST_SEGMENTED = 16_000_000  # pixels: each is answered for, which costs more than a label for them all


class MaskFormat(Config):
    format: Annotated[Literal["json", "png"], Field(description="png: the mask itself; of one image")] = (
        "json"
    )


class MaskAnswer(BaseModel):
    path: str
    size: tuple[int, int] = Field(description="height and width of the mask: those of the upright image")
    shares: dict[str, float] = Field(description="the part of the pixels of each class, largest first")
    mask: str = Field(description="a PNG as a data URI: its values are class numbers, its palette the colors")


class ImageSegmenter(ServedImages):
    """Answers for a Segmenter."""

    task = "segmentation"

    def __init__(self, model: Segmenter, device: torch.device, *, most_pixels: int) -> None:
        super().__init__(model.to(device).eval(), min(most_pixels, MOST_SEGMENTED))
        self.classes = output_labels(model)
        summary = "The class of each pixel, and the share of each class"
        self.endpoints = (Endpoint("predict", "predictions", summary, MaskFormat, MaskAnswer, self.predict),)

    def facts(self) -> dict[str, Any]:
        colors = palette(len(self.classes)).tolist()
        return {"labels": self.classes, "palette": colors, **super().facts()}

    def predict(self, questions: Sequence[Question]) -> list[Answer]:
        masks = masks_of(self.model, [each.what for each in questions])
        answers: list[Answer] = []
        for each, mask in zip(questions, masks, strict=True):
            buffer = io.BytesIO()
            mask_image(mask, len(self.classes)).save(buffer, format="PNG")
            if each.parameters.format == "png":
                answers.append(buffer.getvalue())
                continue
            answers.append(
                {
                    "path": each.name,
                    "size": list(mask.shape),
                    "shares": class_shares(mask, self.classes),
                    "mask": "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii"),
                }
            )
        return answers
