"""Serving a classifier: labels, features, and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from vitreous.deployment.predictor import Prediction, Predictor
from vitreous.deployment.serving.endpoints import Answer, Endpoint, NoParameters, Question
from vitreous.deployment.serving.looking import layers_and_heads, look_endpoint
from vitreous.deployment.serving.pixels import blank, model_pixels
from vitreous.models.config import Config
from vitreous.models.names import Model
from vitreous.models.vit import ViT


class Top(Config):
    top: Annotated[int, Field(ge=1, description="how many of the most probable labels to return")] = 5


class ChoiceAnswer(BaseModel):
    label: str
    probability: float


class PredictionAnswer(BaseModel):
    """As of `vitreous predict --json`."""

    path: str
    label: str
    probability: float
    top: list[ChoiceAnswer]


class FeaturesAnswer(BaseModel):
    path: str
    features: list[float] = Field(description="what the head sees")


class Classifier:
    """Answers for a ViT or a BiT.

    Args:
        most_pixels: of an image that is sent.
    """

    task = "classification"

    def __init__(self, model: Model, device: torch.device, *, most_pixels: int) -> None:
        self.model = model.to(device).eval()
        self.device = device
        self.most_pixels = most_pixels
        headless = model.config.num_classes is None
        self.predictor = None if headless else Predictor(model, device)
        self.endpoints = tuple(self.offered())

    def offered(self) -> list[Endpoint]:
        """What this model can be asked: without a head no labels, without attention no maps."""
        found = []
        if self.predictor:
            found.append(
                Endpoint(
                    name="predict",
                    takes="images",
                    key="predictions",
                    summary="The most probable labels of images, as vitreous predict --json gives them",
                    parameters=Top,
                    item=PredictionAnswer,
                    answer=self.predict,
                )
            )
        found.append(
            Endpoint(
                name="features",
                takes="images",
                key="features",
                summary="What the head sees of images",
                parameters=NoParameters,
                item=FeaturesAnswer,
                answer=self.features,
            )
        )
        if isinstance(self.model, ViT):
            found.append(look_endpoint(self.model, self.device))
        return found

    def decode(self, data: bytes, name: str) -> Tensor:
        return model_pixels(data, name, self.model.preprocessing, most=self.most_pixels)

    def sample(self) -> bytes:
        return blank(self.model.preprocessing)

    def facts(self) -> dict[str, Any]:
        return {
            "labels": self.predictor.labels if self.predictor else [],
            "preprocessing": self.model.preprocessing.model_dump(mode="json"),
            **(layers_and_heads(self.model) if isinstance(self.model, ViT) else {}),
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
            Prediction(each.name, choices[: each.parameters.top]).to_json()
            for each, choices in zip(questions, found, strict=True)
        ]

    @torch.inference_mode()
    def features(self, questions: Sequence[Question]) -> list[Answer]:
        found = self.model.features(self.images(questions)).float().flatten(1)
        return [
            {"path": each.name, "features": row} for each, row in zip(questions, found.tolist(), strict=True)
        ]
