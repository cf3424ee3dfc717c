"""Serving a classifier: labels, features, and attention."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from vitreous.data.transforms import evaluation_pixels
from vitreous.deployment.predictor import Prediction, Predictor
from vitreous.deployment.serving.endpoints import Answer, Endpoint, NoParameters, Question
from vitreous.deployment.serving.looking import Look, LookAnswer, look_at
from vitreous.deployment.serving.pixels import ServedImages
from vitreous.models.config import Config
from vitreous.models.names import Model
from vitreous.models.vit import ViT


class Top(Config):
    top: Annotated[int, Field(ge=1, description="how many of the most probable labels to return")] = 5


class FeaturesAnswer(BaseModel):
    path: str
    features: list[float] = Field(description="what the head sees")


class Classifier(ServedImages):
    """Answers for a ViT or a BiT."""

    task = "classification"

    def __init__(self, model: Model, device: torch.device, *, most_pixels: int) -> None:
        super().__init__(model.to(device).eval(), most_pixels)
        self.device = device
        headless = model.config.num_classes is None
        self.predictor = None if headless else Predictor(model, device)
        self.endpoints = tuple(self.offered())

    def offered(self) -> list[Endpoint]:
        """What this model can be asked: without a head no labels, without attention no maps."""
        labels = "The most probable labels of images, as vitreous predict --json gives them"
        features = "What the head sees of images"
        maps = "Where the model looks: rollout, attention of a layer, or evidence for a class"
        look = partial(look_at, self.model, self.device)
        offered = [Endpoint("features", "features", features, NoParameters, FeaturesAnswer, self.features)]
        if self.predictor:
            predict = Endpoint("predict", "predictions", labels, Top, Prediction, self.predict)
            offered.insert(0, predict)
        if isinstance(self.model, ViT):
            offered.append(Endpoint("attention", "attention", maps, Look, LookAnswer, look, together=False))
        return offered

    def decode(self, data: bytes, name: str) -> Tensor:
        """What `vitreous predict` makes of a file's bytes."""
        return evaluation_pixels(self.checked(data, name), self.model.preprocessing)

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

    @torch.inference_mode()
    def features(self, questions: Sequence[Question]) -> list[Answer]:
        found = self.model.features(self.images(questions)).float().flatten(1)
        return [
            {"path": each.name, "features": row} for each, row in zip(questions, found.tolist(), strict=True)
        ]
