"""The whole description of how a segmenter is trained: what its `config.toml` holds."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from vitreous.data.config import AugmentationConfig
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.segmenter import SegmenterConfig
from vitreous.training.config import RunConfig

CHANGES = ("random_resized_crop", "flip", "three_augment", "color_jitter", "noise")


class SegmentationConfig(RunConfig):
    """All of a segmenter's run."""

    vit: ClassVar[type[ViTConfig]] = SegmenterConfig

    task: Literal["segmentation"] = "segmentation"
    source: str = "digit-pages"
    model: SegmenterConfig = SegmenterConfig()
    preprocessing: Preprocessing = Preprocessing(resize="squash", interpolation="bilinear")

    @model_validator(mode="after")
    def _for_pixels(self) -> SegmentationConfig:
        shown = self.preprocessing
        if shown.resize != "squash" or shown.crop_fraction != 1:
            raise ValueError(
                "a segmenter sees whole images: set preprocessing.resize=squash and "
                "preprocessing.crop_fraction=1"
            )
        for name in AugmentationConfig.model_fields:
            default = AugmentationConfig.model_fields[name].default
            used = name in CHANGES or (name == "mix_probability" and not self.augmentation.mixes)
            if not used and getattr(self.augmentation, name) != default:
                raise ValueError(
                    f"augmentation.{name} cannot change a mask too: leave it out; there are "
                    f"{', '.join(CHANGES)}"
                )
        for name, wrong in (
            ("training.loss", self.training.loss != "softmax"),
            ("training.distillation.teacher", bool(self.training.distillation.teacher)),
            ("evaluation.fewshot", self.evaluation.fewshot),
            ("data.class_balance", self.data.class_balance),
            ("data.in_memory", self.data.in_memory != "auto"),
        ):
            if wrong:
                raise ValueError(f"{name} is for images that have one class each: leave it out")
        return self
