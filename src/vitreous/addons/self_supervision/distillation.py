"""Distillation without labels: a small student learns the features of any loaded teacher (DINOv2, CLIP).

The student's features, through one linear map that is discarded, follow the teacher's, each vector normalized
by its own mean and standard deviation (as in 2205.14141); the loss is the smooth L1 distance.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vitreous.addons.self_supervision.dino import feature_width
from vitreous.layers.initialization import init_weights
from vitreous.models.config_parts import Config, setting
from vitreous.models.model import Model
from vitreous.rng import torch_generator
from vitreous.training.initial_model import checkpoint
from vitreous.training.objectives import TeachersImages

BETA = 2.0  # of the smooth L1 distance: quadratic below it


class FeatureDistillationConfig(Config):
    """The teacher whose features are learned."""

    teacher: str = setting("", "any model or run, such as runs/large or hf:facebook/dinov2-small")


class FeatureDistillation(nn.Module):
    """The objective around `model`, the student."""

    def __init__(self, model: Model, config: FeatureDistillationConfig, *, seed: int = 0) -> None:
        super().__init__()
        teacher = checkpoint(config.teacher).eval().requires_grad_(False)
        self.model = model
        self.prediction = nn.Linear(feature_width(model), feature_width(teacher))
        init_weights(self.prediction, torch_generator(seed, "distillation"))
        # In a tuple: a saved state has what learns, and not the teacher.
        # The student may have no memory yet, so the layer is built where the teacher is.
        with torch.device(next(teacher.parameters()).device):
            self.teacher = (TeachersImages(teacher, model.preprocessing), teacher)

    @property
    def encoder(self) -> Model:
        """What pre-training was for."""
        return self.model

    @torch.no_grad()
    def targets(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D"]:
        """Return the teacher's features of the student's images, each vector normalized."""
        shown, teacher = self.teacher
        teacher.to(images.device)
        features = teacher.features(shown.to(images.device)(images)).flatten(1).float()
        return F.layer_norm(features, features.shape[1:])

    def forward(
        self, images: Float[Tensor, "B C H W"], generator: torch.Generator
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the distance to the teacher's features, and their mean cosine similarity."""
        targets = self.targets(images)
        predicted = self.prediction(self.model.features(images).flatten(1)).float()
        similarity = F.cosine_similarity(predicted, targets).mean()
        return F.smooth_l1_loss(predicted, targets, beta=BETA), {"cosine": similarity.detach()}

    @torch.no_grad()
    def trivial_loss(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> Float[Tensor, ""]:
        """Return the loss of one answer to all images: their mean."""
        targets = self.targets(images)
        return F.smooth_l1_loss(targets.mean(dim=0).expand_as(targets), targets, beta=BETA)

    def illustration(self, images: Float[Tensor, "B C H W"], generator: torch.Generator) -> None:
        """Show nothing: a teacher asks nothing that could be seen."""
