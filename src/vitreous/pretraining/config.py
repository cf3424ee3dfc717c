"""The whole description of a pre-training run: a training run's, with an objective that needs no labels."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

from pydantic import model_validator

from vitreous.models.config import Config
from vitreous.pretraining.dino import DINOConfig
from vitreous.pretraining.mae import MAEConfig
from vitreous.pretraining.masked_patch import MaskedPatchConfig
from vitreous.pretraining.simmim import SimMIMConfig
from vitreous.training.config import RunConfig, TrainingConfig

ObjectiveName = Literal["masked-patch", "mae", "simmim", "dino"]
OBJECTIVES: tuple[ObjectiveName, ...] = get_args(ObjectiveName)


class PretrainingConfig(Config):
    """Which objective, and the settings of each; only those of the chosen one matter."""

    objective: ObjectiveName = "mae"
    masked_patch: MaskedPatchConfig = MaskedPatchConfig()
    mae: MAEConfig = MAEConfig()
    simmim: SimMIMConfig = SimMIMConfig()
    dino: DINOConfig = DINOConfig()


class PretrainingRunConfig(RunConfig):
    """All of a pre-training run; `vitreous pretrain --config` runs it again."""

    command: ClassVar[str] = "pretrain"

    pretraining: PretrainingConfig = PretrainingConfig()

    @model_validator(mode="after")
    def _without_labels(self) -> PretrainingRunConfig:
        asked, default = self.training, TrainingConfig()
        for name in ("loss", "label_smoothing", "distillation", "lora"):
            if getattr(asked, name) != getattr(default, name):
                raise ValueError(f"training.{name} is not for pre-training: leave it out")
        return self
