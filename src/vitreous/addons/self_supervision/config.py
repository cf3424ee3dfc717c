"""The configuration of a run of each objective."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import model_validator

from vitreous.addons.self_supervision.contrastive import ONE_IMAGE, ContrastiveConfig
from vitreous.addons.self_supervision.dino import DINOConfig
from vitreous.addons.self_supervision.distillation import FeatureDistillationConfig
from vitreous.models.config_parts import Config, setting
from vitreous.tasks.pretraining.rules import PretrainingRunConfig
from vitreous.training.config import Tree

NOT_OF_VIEWS = ("random_resized_crop", "flip", "policy", "color_jitter", "noise")


class ViewsRunConfig(PretrainingRunConfig):
    """A run that learns from several views of each image, which change it in ways of their own."""

    @model_validator(mode="after")
    def _changes_of_views(self) -> ViewsRunConfig:
        instead = f"has no effect: set pretraining.{self.task}.views instead"
        self.check_defaults("augmentation", NOT_OF_VIEWS, instead)
        return self


class ContrastiveSettings(Config):
    """The group [pretraining] of contrastive learning."""

    contrastive: ContrastiveConfig = ContrastiveConfig()


class ContrastiveRunConfig(ViewsRunConfig):
    """All of a run of contrastive learning."""

    task: Literal["contrastive"] = setting("contrastive", "always contrastive")
    pretraining: ContrastiveSettings = ContrastiveSettings()

    @classmethod
    def following(cls, tree: Tree, override: Tree) -> Tree:
        """The loss grows with the images that are compared: evaluation compares as many."""
        found, asked = dict(super().following(tree, override)), override.get("training", {})
        batch, machine = tree["training"]["batch_size"], tree["training"]["machine"]
        parts = machine.get("grad_accum_steps", 1) if isinstance(machine, Mapping) else 1
        own = asked.get("machine") if isinstance(asked.get("machine"), Mapping) else {}
        changed = "batch_size" in asked or "grad_accum_steps" in own
        valid = type(batch) is type(parts) is int and batch >= parts > 0  # what is not is refused later
        if changed and valid and "evaluation_batch_size" not in own:
            found["training"] = {"machine": {"evaluation_batch_size": batch // parts}}
        return found

    @model_validator(mode="after")
    def _several_images(self) -> ContrastiveRunConfig:
        if self.training.batch_size == self.training.computed.grad_accum_steps:
            raise ValueError(ONE_IMAGE)
        return self


class DINOSettings(Config):
    """The group [pretraining] of DINO."""

    dino: DINOConfig = DINOConfig()


class DINORunConfig(ViewsRunConfig):
    """All of a run of DINO."""

    task: Literal["dino"] = setting("dino", "always dino")
    pretraining: DINOSettings = DINOSettings()


class DistillationSettings(Config):
    """The group [pretraining] of a student without labels."""

    distillation: FeatureDistillationConfig = FeatureDistillationConfig()


class DistillationRunConfig(PretrainingRunConfig):
    """All of a run that learns the features of a teacher."""

    task: Literal["distillation"] = setting("distillation", "always distillation")
    pretraining: DistillationSettings = DistillationSettings()
