"""A task for each objective, and the configuration of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import model_validator
from torch import nn

from vitreous.addons.self_supervision.contrastive import ONE_IMAGE, Contrastive, ContrastiveConfig
from vitreous.addons.self_supervision.dino import DINO, DINOConfig
from vitreous.addons.self_supervision.distillation import FeatureDistillation, FeatureDistillationConfig
from vitreous.addons.self_supervision.views import ViewReader, Views, ViewsConfig, multi_crop
from vitreous.data.dataset import DataSummary, ImageDataset, Splits
from vitreous.data.findings import Finding, finding
from vitreous.errors import InputError, Param
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config, setting
from vitreous.models.model import Model
from vitreous.tasks.pretraining.rules import PretrainingRunConfig
from vitreous.tasks.pretraining.task import INFO, Pretraining, PretrainingT
from vitreous.tasks.task import Tree
from vitreous.training.config import RunConfig
from vitreous.training.diagnosis import ENOUGH_STEPS
from vitreous.training.objectives import Measured, Objective

FOLDER = Path(__file__).parent
DROP_PATH = 0.1  # of DINO's student
INFORMATION = 0.05  # nats that an answer of DINO's teacher tells of its image, below which all are the same
UNCHANGED = dict.fromkeys(("flip", "color", "gray", "blur", "solarize"), 0.0)
GRAY_VIEWS = ViewsConfig(large_scale=(0.8, 1.0), small_scale=(0.3, 0.6), small_count=0, **UNCHANGED)
# Of DINO's teacher, where no recipe says it: the authors' own first choice. What views have in common is kept
# only if they agree by more than this over the student's temperature (benchmarks/dino_collapse.py).
TEMPERATURE = 0.04
# Of [augmentation]: views change images in ways of their own.
NOT_OF_VIEWS = ("random_resized_crop", "flip", "policy", "color_jitter", "noise")


class ViewsRunConfig(PretrainingRunConfig):
    """A run that learns from several views of each image, which change it in ways of their own."""

    @model_validator(mode="after")
    def _changes_of_views(self) -> ViewsRunConfig:
        instead = f"has no effect: set pretraining.{self.task}.views instead"
        self.check_defaults("augmentation", NOT_OF_VIEWS, instead)
        return self


class ContrastiveSettings(Config):
    """The settings of contrastive learning."""

    contrastive: ContrastiveConfig = ContrastiveConfig()


class ContrastiveRunConfig(ViewsRunConfig):
    """The complete configuration of a run of contrastive learning."""

    task: Literal["contrastive"] = setting("contrastive", "always contrastive")
    pretraining: ContrastiveSettings = ContrastiveSettings()

    @classmethod
    def following(cls, tree: Tree, override: Tree) -> Tree:
        """Return the batch of the evaluation: the loss grows with the images that are compared, and it
        compares as many."""
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
        if self.training.batch_size == self.training.machine_config.grad_accum_steps:
            raise ValueError(ONE_IMAGE)
        return self


class DINOSettings(Config):
    """The settings of DINO."""

    dino: DINOConfig = DINOConfig()


class DINORunConfig(ViewsRunConfig):
    """The complete configuration of a run of DINO."""

    task: Literal["dino"] = setting("dino", "always dino")
    pretraining: DINOSettings = DINOSettings()


class DistillationSettings(Config):
    """The settings of distillation without labels."""

    distillation: FeatureDistillationConfig = FeatureDistillationConfig()


class DistillationRunConfig(PretrainingRunConfig):
    """The complete configuration of a run that learns the features of a teacher."""

    task: Literal["distillation"] = setting("distillation", "always distillation")
    pretraining: DistillationSettings = DistillationSettings()


def of_views(objective: nn.Module, batch: Views, generator: torch.Generator) -> Measured:
    """Return the loss of an objective that is given views of images."""
    measured: Measured = objective(batch, generator)
    return measured


def encoder_width(config: RunConfig) -> int:
    """Return the width of a ViT; of a ResNet that of a middle one."""
    return config.model.width if isinstance(config.model, ViTConfig) else 768


class OfViews(Pretraining[PretrainingT]):
    """An objective that learns from several views of each image."""

    def reader(self, config: Any, data: Splits) -> ViewReader:
        return ViewReader(data.train, config.model.channels, multi_crop(config.model, config.own.views))

    def objective(self, config: object, data: Splits) -> Objective:
        return of_views


class ContrastiveTask(OfViews[ContrastiveRunConfig]):
    """Contrastive learning."""

    name, config, module = "contrastive", ContrastiveRunConfig, Contrastive
    defaults = FOLDER / "contrastive.toml"
    info = replace(INFO, panels="pairs")
    adapting_rate = 0.5  # views change less than what masks hide

    def suited(self, config: RunConfig, data: DataSummary) -> Tree:
        """Return views that are mirrored where `train` mirrors: a letter is none in the mirror, and `train`
        knows."""
        views = {"flip": config.augmentation.flip[0]}
        if data.channels != 3:
            views["blur"] = GRAY_VIEWS.blur
        return {"pretraining": {"contrastive": {"views": views}}}

    def fitted(self, config: RunConfig, data: DataSummary, images: ImageDataset) -> Tree:
        """Return the width of the head."""
        return {"pretraining": {"contrastive": {"head_hidden": min(2048, 4 * encoder_width(config))}}}


def collapse_findings(rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield a finding where the teacher gives every image the same answer: one tells no more than their
    mean."""
    last = rows[-1] if rows else {}
    if not {"teacher_entropy", "marginal_entropy"} <= last.keys() or last["step"] < ENOUGH_STEPS:
        return
    information = last["marginal_entropy"] - last["teacher_entropy"]
    if information < INFORMATION:
        yield from finding("collapse", information=information, entropy=last["teacher_entropy"])


class DINOTask(OfViews[DINORunConfig]):
    """Self-distillation."""

    name, config = "dino", DINORunConfig
    defaults = FOLDER / "dino.toml"
    # What the student should say moves with its teacher.
    info = replace(INFO, moving_target=True, alarms=(collapse_findings,))

    def built(self, model: Model, settings: Any, *, steps: int, seed: int = 0) -> DINO:
        return DINO(model, settings, steps=steps, seed=seed)

    def suited(self, config: RunConfig, data: DataSummary) -> Tree:
        return {"model": {"drop_path": DROP_PATH}} if isinstance(config.model, ViTConfig) else {}

    def fitted(self, config: RunConfig, data: DataSummary, images: ImageDataset) -> Tree:
        """Return the head, a teacher that sharpens from the start, and the views. Gray images, digits and
        letters as a rule, have large views alone, neither blurred, mirrored nor changed in brightness: two
        would have too little in common."""
        width = encoder_width(config)
        dino = DINOConfig(
            prototypes=min(65_536, max(64, data.images // 4)),
            head_hidden=min(2048, 4 * width),
            head_bottleneck=min(256, width),
            teacher_temperature=TEMPERATURE,
            teacher_temperature_start=TEMPERATURE,
            teacher_temperature_warmup=0.0,
            views=ViewsConfig(small_count=4, flip=0.5) if data.channels == 3 else GRAY_VIEWS,
        )
        return {"pretraining": {"dino": dino.model_dump()}}

    def configured(self, config: Any, data: Splits, settings: Tree) -> Any:
        config = super().configured(config, data, settings)
        views = dict(settings.get("pretraining", {}).get("dino", {}).get("views", {}))
        idle = sorted({"small_scale", "small_size"} & views.keys())
        if idle and not config.own.views.small_count:
            what = f"pretraining.dino.views.{idle[0]} has no effect without small views"
            raise InputError(f"{what}: set small_count, or leave it out")
        return config


class DistillationTask(Pretraining[DistillationRunConfig]):
    """The features of a teacher."""

    name, config = "distillation", DistillationRunConfig

    def built(self, model: Model, settings: Any, *, steps: int, seed: int = 0) -> FeatureDistillation:
        return FeatureDistillation(model, settings, seed=seed)

    def check(self, config: Any) -> None:
        """Raise InputError where there is no teacher."""
        if not config.own.teacher:
            raise InputError(
                f"distillation needs a teacher: {Param('settings')} pretraining.distillation.teacher=MODEL, "
                "any model or run"
            )


DEFINED = (ContrastiveTask(), DINOTask(), DistillationTask())
