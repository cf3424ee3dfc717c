"""Serving a segmenter: a class for each pixel."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, Field

from vitreous.data.segmentation.masked import mask_image, palette
from vitreous.deployment.predictor import class_shares, output_labels
from vitreous.deployment.serving.endpoints import Answer, Endpoint, Question, ServedImages
from vitreous.evaluation.segmentation import masks_of
from vitreous.models.config_parts import Config
from vitreous.models.segmenter import Segmenter

MOST_PIXELS = 16_000_000  # every pixel is answered for, which costs more than a label for them all


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
        super().__init__(model.to(device).eval(), min(most_pixels, MOST_PIXELS))
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
