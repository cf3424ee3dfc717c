"""How data is split, kept and loaded, and how training images are changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from vitreous.models.config_parts import Config, Positive, Probability

# What the labels of a source are; "unlabeled": images of one class, where not all have a label.
Targets = Literal["classes", "numbers", "unlabeled"]
Fraction = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]


class DataConfig(Config):
    """How a source is split, and how its images are loaded."""

    split_seed: int = Field(default=0, ge=0, description="another number samples another split")
    split_by: Literal["name", "time", "random"] = Field(
        default="name",
        description="a hash of each image's name, so that other images do not matter; time: the newest are "
        "held out; random: of all images, as runs without split.csv",
    )
    time: str = Field(
        default="exif",
        min_length=1,
        description="of split_by=time: when the camera took an image; file: when it was changed; or a "
        "manifest's column",
    )
    folds: int | None = Field(default=None, ge=2, description="of cross-validation; None: none")
    fold: int = Field(default=0, ge=0, description="which of the folds is the test part, from 0")
    exclude: str | None = Field(
        default=None, description="a CSV with the column path: images that are left out of every part"
    )
    group_by: str | None = Field(
        default=None,
        description="images of one group are in one part: a manifest's column, or a pattern of names",
    )
    split_file: str | None = Field(
        default=None, description="split.csv of another run, whose parts these data get"
    )
    new_images: bool = Field(
        default=False, description="take in images that split.csv does not list, where there is one"
    )
    test_fraction: Probability = Field(
        default=0.2, description="held out of a source that has no split of its own, class by class"
    )
    validation_fraction: Literal["auto"] | Probability = Field(
        default="auto",
        description="taken from what is left for training, for curves, calibration and model selection; "
        "auto: 300 images, but 1 to 10 %, where there are 200 and more, and 10 of a class",
    )
    nested: Literal["ask", "inner", "outer"] = Field(
        default="ask", description="the classes of a folder whose folders all hold the same folders"
    )
    workers: int | None = Field(
        default=None, ge=0, description="threads that decode; None: the process's share of the cores"
    )
    worker_processes: bool = Field(
        default=False,
        description="processes and not threads decode, in training: the same batches, for many workers",
    )
    in_memory: Literal["auto"] | bool = Field(
        default="auto", description="decode once and keep; auto: if it fits a quarter of the memory"
    )
    class_balance: bool = Field(default=False, description="sample every class equally often")
    strict: bool = Field(default=False, description="an image that cannot be read is an error")
    bad_files: Fraction = Field(
        default=0.01, description="part of the images that cannot be read, from which on training stops"
    )
    streaming: bool = Field(
        default=False,
        description="hf: sources are fetched while training, not downloaded before; shards on this machine "
        "are read one after the other, as suits a network's file system",
    )
    cache_gb: float = Field(
        default=100.0, gt=0, description="of shards that are fetched (s3://, https://), on this machine"
    )
    label_separator: str = Field(
        default="|", min_length=1, description="between the labels of one image in a manifest"
    )

    def with_split(self, file: Path | None) -> DataConfig:
        """Return the same with the parts of a run's split.csv, if it has one. That lists what was excluded,
        too."""
        recorded = {"split_file": str(file), "exclude": None}
        return self.model_copy(update=recorded) if file and file.is_file() else self

    @model_validator(mode="after")
    def _one_way_to_split(self) -> DataConfig:
        if self.folds is not None and self.fold >= self.folds:
            raise ValueError(f"fold {self.fold} is not one of {self.folds}, which are numbered from 0")
        if self.split_by != "name" and self.folds is not None:
            raise ValueError(f"folds are by name: leave out split_by={self.split_by}, or folds")
        if self.split_by == "time" and self.group_by is not None:
            raise ValueError("group_by has no effect where the newest images are held out: leave it out")
        if self.time != "exif" and self.split_by != "time":
            raise ValueError(f"time={self.time} has no effect without split_by=time: leave it out")
        if self.worker_processes and self.workers == 0:
            raise ValueError("worker_processes=true has no effect with workers=0: leave one of them out")
        return self


class RandomResizedCropConfig(Config):
    """A random part of the image, resized to the model's size (Inception's crop; arXiv 1409.4842)."""

    scale: tuple[float, float] = Field(default=(0.08, 1.0), description="part of the area, least and most")
    ratio: tuple[float, float] = Field(default=(3 / 4, 4 / 3), description="width / height, least and most")
    sampler: Literal["log-uniform", "uniform"] = Field(
        default="log-uniform",
        description="distribution of the ratio: log-uniform in torchvision and timm, uniform in TensorFlow "
        "and big_vision",
    )

    @model_validator(mode="after")
    def _ordered(self) -> RandomResizedCropConfig:
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ValueError(f"scale {self.scale} must be two ascending numbers in 0 ... 1")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"ratio {self.ratio} must be two ascending numbers above 0")
        return self


class RandAugmentConfig(Config):
    """RandAugment (arXiv 1909.13719): `layers` operations, sampled for each image, at one magnitude."""

    layers: Positive = Field(default=2, description="operations for each image [N]")
    magnitude: NotNegative = Field(
        default=9.0, description="[M] of 10; of 30 in torchvision's and big_vision's lists"
    )
    magnitude_std: NotNegative = Field(
        default=0.0, description="standard deviation of the magnitude; 0.5 in DeiT"
    )
    probability: Fraction = Field(default=1.0, description="of each operation; timm uses 0.5")
    operations: Literal["paper", "torchvision", "timm", "big_vision"] = Field(
        default="paper", description="the list of operations and their ranges; the frameworks disagree"
    )

    @model_validator(mode="after")
    def _within(self) -> RandAugmentConfig:
        strongest = 30 if self.operations in ("torchvision", "big_vision") else 10
        if self.magnitude > strongest:
            raise ValueError(
                f"magnitude {self.magnitude:g} is above {strongest}, the strongest of the list "
                f"{self.operations!r}"
            )
        return self


class ColorJitterConfig(Config):
    """Brightness, contrast, saturation by factors in 1 ± value; hue by turns of ± value; in random order."""

    brightness: NotNegative = Field(default=0.3, description="factor 1 ± this")
    contrast: NotNegative = Field(default=0.3, description="factor 1 ± this")
    saturation: NotNegative = Field(default=0.3, description="factor 1 ± this")
    hue: Annotated[float, Field(ge=0, le=0.5)] = Field(
        default=0.0, description="± this part of the color circle, up to 0.5"
    )


class AffineConfig(Config):
    """Rotation, shift, scale and shear of each image, sampled uniformly; and bending, on top of them."""

    rotate: Annotated[float, Field(ge=0, le=180)] = Field(default=0.0, description="± degrees")
    translate: Fraction = Field(default=0.0, description="± part of each side")
    scale: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.0, description="1 ± this")
    shear: Annotated[float, Field(ge=0, lt=80)] = Field(default=0.0, description="± degrees")
    elastic: Fraction = Field(
        default=0.0, description="smooth bending: standard deviation at 4 x 4 points, as a part of each side"
    )
    fill: Literal["border", "mean", "darkest"] = Field(
        default="border",
        description="of what comes in: the edge repeated, the mean color, or the image's darkest value",
    )


class AugmentationConfig(Config):
    """What is done to training images, in the order of the fields. Nothing, unless set."""

    repeated_augmentation: Positive = Field(
        default=1, description="copies of an image in a batch (arXiv 1902.05509)"
    )
    random_resized_crop: RandomResizedCropConfig | None = Field(
        default=None, description="a random part, resized; None: the evaluation's crop"
    )
    flip: Fraction = Field(default=0.0, description="probability of mirroring left and right")
    three_augment: bool = Field(
        default=False, description="one of gray, solarize, blur (DeiT-III, arXiv 2204.07118)"
    )
    rand_augment: RandAugmentConfig | None = Field(
        default=None, description="random operations (1909.13719); None: off"
    )
    color_jitter: ColorJitterConfig | None = Field(
        default=None, description="random brightness, contrast, saturation and hue; None: off"
    )
    affine: AffineConfig | None = Field(
        default=None, description="random rotation, shift, scale and shear; None: off"
    )
    noise: NotNegative = Field(default=0.0, description="standard deviation, of normalized values")
    random_erasing: Fraction = Field(default=0.0, description="probability of one rectangle (1708.04896)")
    mixup: NotNegative = Field(default=0.0, description="alpha of Mixup's Beta (arXiv 1710.09412); 0: none")
    cutmix: NotNegative = Field(default=0.0, description="alpha of CutMix's Beta (arXiv 1905.04899); 0: none")
    mix_probability: Fraction = Field(default=1.0, description="of a batch being mixed at all")

    @property
    def mixes(self) -> bool:
        """Whether targets become soft."""
        return (self.mixup > 0 or self.cutmix > 0) and self.mix_probability > 0

    @property
    def changes_colors(self) -> bool:
        """Whether colors are changed, which is done image by image."""
        return bool(self.three_augment or self.rand_augment or self.color_jitter)

    @property
    def per_image(self) -> bool:
        """Whether images are changed one by one, before they form a batch."""
        return bool(self.random_resized_crop) or self.changes_colors
