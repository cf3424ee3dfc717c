"""The whole description of a pre-training run: a training run's, with an objective that needs no labels."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

from pydantic import model_validator

from vitreous.models.config import Config
from vitreous.tasks.pretraining.dino import DINOConfig
from vitreous.tasks.pretraining.mae import MAEConfig
from vitreous.tasks.pretraining.masked_patch import MaskedPatchConfig
from vitreous.tasks.pretraining.simmim import SimMIMConfig
from vitreous.training.config import RunConfig

ObjectiveName = Literal["masked-patch", "mae", "simmim", "dino"]
OBJECTIVES: tuple[ObjectiveName, ...] = get_args(ObjectiveName)


class PretrainingConfig(Config):
    """The settings of each objective; a run has those of its own."""

    masked_patch: MaskedPatchConfig = MaskedPatchConfig()
    mae: MAEConfig = MAEConfig()
    simmim: SimMIMConfig = SimMIMConfig()
    dino: DINOConfig = DINOConfig()


class PretrainingRunConfig(RunConfig):
    """All of a pre-training run; `vitreous pretrain --config` runs it again."""

    command: ClassVar[str] = "pretrain"

    task: str = "mae"
    pretraining: PretrainingConfig = PretrainingConfig()

    @model_validator(mode="after")
    def _nothing_ignored(self) -> PretrainingRunConfig:
        if self.task not in OBJECTIVES:
            raise ValueError(f"task is {self.task!r}: choose one of {', '.join(OBJECTIVES)}")
        for group, names in (
            ("training", ("loss", "label_smoothing", "distillation", "lora")),
            ("augmentation", ("mixup", "cutmix", "mix_probability")),
            ("data", ("class_balance",)),
        ):
            given = getattr(self, group)
            for name in names:
                if getattr(given, name) != type(given).model_fields[name].default:
                    raise ValueError(f"{group}.{name} is not for pre-training: leave it out")
        for name in type(self.pretraining).model_fields:
            if name != self.task.replace("-", "_") and getattr(self.pretraining, name) != default_of(name):
                raise ValueError(
                    f"pretraining.{name} has no effect with the objective {self.task}: leave it out, or "
                    f"choose --objective {name.replace('_', '-')}"
                )
        return self


def default_of(objective: str) -> Config:
    """Return the default settings of an objective."""
    default: Config = PretrainingConfig.model_fields[objective].default
    return default
