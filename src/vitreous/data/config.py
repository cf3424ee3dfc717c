"""How data is split, kept and loaded, and how training images are changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from vitreous.models.config_parts import Config, Positive, Probability, setting, with_kind

# What the labels of a source are; "unlabeled": images of one class, where not all have a label.
TargetKind = Literal["classes", "numbers", "unlabeled"]
BUNDLED = ("digits",)  # names of datasets that come with the package, also where a folder has this name
MANIFESTS = (".csv", ".tsv", ".jsonl", ".parquet")  # tables with a row for each image
# Names of their columns, in lower case, the usual ones first: of the images, and of their labels.
PATH_COLUMNS = (
    *("path", "file_name", "filename", "image", "image_path", "img_path", "file", "file_path", "filepath"),
    *("image_name", "img_name", "image_id", "img"),
)
LABEL_COLUMNS = ("label", "labels", "class", "class_name", "category", "target")
Fraction = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]


class SplitConfig(Config):
    """Which images are left out, and how some of the others are held out."""

    kind: str
    exclude: str | None = setting(None, "a CSV with the column path: images that are left out of every part")


class SplitByName(SplitConfig):
    """Images are held out by a hash of their names."""

    kind: Literal["name"] = setting(
        "name", "name: by a hash of each image's name, so that other images do not matter; time: the newest"
    )
    seed: int = setting(0, "another number samples another split", ge=0)
    group_by: str | None = setting(None, "a group is in one part: a manifest's column, or a pattern of names")


class SplitByTime(SplitConfig):
    """The newest images are held out."""

    kind: Literal["time"] = setting("time", "the newest are held out")
    time: str = setting(
        "exif",
        "when the camera took an image; file: when it was changed; or a manifest's column",
        min_length=1,
    )


Split = Annotated[
    Annotated[SplitByName | SplitByTime, Field(discriminator="kind")], with_kind("data.split", "name")
]


class FolderForm(Config):
    """A folder with a sub-folder for each class."""

    kind: Literal["folder"] = setting("folder", "folder, manifest, hub, shards, fetched or plain, by DATA")
    nested: Literal["ask", "inner", "outer"] = setting(
        "ask", "the classes of a folder whose folders all hold the same folders"
    )


class ManifestForm(Config):
    """A table of images."""

    kind: Literal["manifest"] = setting("manifest", "a .csv, .tsv, .jsonl or .parquet file")
    path_column: str | None = setting(
        None, "the column that names the images; None: path, file_name, filename, image or another usual name"
    )
    label_column: str | None = setting(
        None,
        "the column of the labels; or several of 0 and 1, a class each, with commas between them; None: "
        "label, class or another usual name, the only other column, or all others if they hold 0 and 1",
    )
    label_separator: str = setting("|", "between the labels of one image", min_length=1)


class HubForm(Config):
    """A dataset of the datasets library."""

    kind: Literal["hub"] = setting("hub", "hf:NAME")
    streaming: bool = setting(False, "images are fetched while training, not downloaded before")


class ShardsForm(Config):
    """Tar shards on this machine."""

    kind: Literal["shards"] = setting("shards", "tar files")
    streaming: bool = setting(False, "shards are read one after the other, as suits a network's file system")


class FetchedForm(Config):
    """Tar shards that are fetched."""

    kind: Literal["fetched"] = setting("fetched", "tar files at s3://, https:// ...")
    cache_gb: float = setting(100.0, "of them that stay on this machine", gt=0)


class PlainForm(Config):
    """Anything else, which has no settings of its own."""

    kind: Literal["plain"] = setting("plain", "anything else")


AnyForm = FolderForm | ManifestForm | HubForm | ShardsForm | FetchedForm | PlainForm
Form = Annotated[AnyForm, Field(discriminator="kind")]
FormT = TypeVar("FormT", bound=AnyForm)


class RecordedSplit(Config):
    """The parts that a run has recorded in its split.csv."""

    file: str | None = setting(None, "split.csv of another run, whose parts these data get")
    new_images: bool = setting(False, "take in images that split.csv does not list, where there is one")


class ReadingConfig(Config):
    """How the images of a source are read."""

    workers: Annotated[int, Field(ge=0)] | None = setting(
        None, "threads that decode; None: as many as the process's share of the cores"
    )
    processes: bool = setting(
        False, "the workers are processes, in training: the same batches, for many workers"
    )
    in_memory: Literal["auto"] | bool = setting(
        "auto", "decode once and keep; auto: if it fits a quarter of the memory"
    )
    bad_files: Fraction = setting(
        0.01, "part of images that cannot be read, from which on training stops; 0: at the first"
    )


class DataConfig(Config):
    """How a source is split, and how its images are loaded."""

    split: Split | None = setting(
        None, "how images are held out, and which left out; None: by a hash of each image's name"
    )
    recorded: RecordedSplit | None = setting(None, "parts that a run has recorded; None: they are drawn")
    test_fraction: Probability = setting(0.2, "held out, class by class, of a source without a split")
    validation_fraction: Literal["auto"] | Probability = setting(
        "auto",
        "taken from what is left for training, for curves, calibration and model selection; auto: 300 "
        "images, but 1 to 10%, where there are 200 and more, and 10 of a class",
    )
    form: Form | None = setting(None, "what DATA is, with its own settings; None: as it is found")
    reading: ReadingConfig | None = setting(
        None, "threads or processes, what is kept in memory, broken files; None: as suits the machine"
    )
    class_balance: bool = setting(False, "sample every class equally often")

    def settings_of(self, form: type[FormT]) -> FormT:
        """Return the settings of a form of DATA: those that were given, or its defaults."""
        return self.form if isinstance(self.form, form) else form()

    def with_split(self, file: Path | None) -> DataConfig:
        """Return the same with the parts, and what was excluded, of a run's split.csv, if it has one."""
        if not file or not file.is_file():
            return self
        recorded = (self.recorded or RecordedSplit()).model_copy(update={"file": str(file)})
        split = self.split and self.split.model_copy(update={"exclude": None})
        return self.model_copy(update={"recorded": recorded, "split": split})

    @property
    def read(self) -> ReadingConfig:
        """How images are read: as it was asked for, or as suits the machine."""
        return self.reading or ReadingConfig()

    @property
    def split_seed(self) -> int:
        """What samples another split of a source; 0 where the newest images are held out."""
        return self.split.seed if isinstance(self.split, SplitByName) else 0

    @property
    def group_by(self) -> str | None:
        """What images are kept together by."""
        return self.split.group_by if isinstance(self.split, SplitByName) else None


class RandomResizedCropConfig(Config):
    """A random part of the image, resized to the model's size (Inception's crop; arXiv 1409.4842)."""

    scale: tuple[float, float] = setting((0.08, 1.0), "part of the area, least and most")
    ratio: tuple[float, float] = setting((3 / 4, 4 / 3), "width / height, least and most")
    sampler: Literal["log-uniform", "tensorflow"] = setting(
        "log-uniform",
        "how boxes are drawn: log-uniform draws area and ratio as torchvision and timm do; tensorflow draws "
        "ratio and height, which makes smaller boxes (vit_jax, big_vision)",
    )
    antialias: bool = setting(
        True, "average what is made smaller, as Pillow does; false: bilinear samples, as tf.image.resize"
    )
    truncate: bool = setting(
        False, "cut off what is below a whole gray level after resizing, as tf.cast; false: round"
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

    kind: Literal["rand-augment"] = setting(
        "rand-augment", "random operations, or three-augment: one of gray, solarize, blur"
    )
    layers: Positive = setting(2, "operations for each image [N]")
    magnitude: NotNegative = setting(9.0, "[M] of 10; of 30 in torchvision's and big_vision's lists")
    magnitude_std: NotNegative = setting(0.0, "standard deviation of the magnitude; 0.5 in DeiT")
    probability: Fraction = setting(1.0, "of each operation; timm uses 0.5")
    operations: Literal["paper", "torchvision", "timm", "big_vision"] = setting(
        "paper", "the list of operations and their ranges; the frameworks disagree"
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


class ThreeAugmentConfig(Config):
    """One of gray, solarize, blur (DeiT-III, arXiv 2204.07118)."""

    kind: Literal["three-augment"] = setting("three-augment", "one of gray, solarize, blur")


AnyPolicy = RandAugmentConfig | ThreeAugmentConfig
Policy = Annotated[
    Annotated[AnyPolicy, Field(discriminator="kind")], with_kind("augmentation.policy", "rand-augment")
]


class ColorJitterConfig(Config):
    """Brightness, contrast, saturation by factors in 1 ± value; hue by turns of ± value; in random order."""

    brightness: NotNegative = setting(0.3, "factor 1 ± this")
    contrast: NotNegative = setting(0.3, "factor 1 ± this")
    saturation: NotNegative = setting(0.3, "factor 1 ± this")
    hue: Annotated[float, Field(ge=0, le=0.5)] = setting(0.0, "± this part of the color circle, up to 0.5")


class AffineConfig(Config):
    """Rotation, shift, scale and shear of each image, sampled uniformly; and bending, on top of them."""

    rotate: Annotated[float, Field(ge=0, le=180)] = setting(0.0, "± degrees")
    translate: Fraction = setting(0.0, "± part of each side")
    scale: Annotated[float, Field(ge=0, lt=1)] = setting(0.0, "1 ± this")
    shear: Annotated[float, Field(ge=0, lt=80)] = setting(0.0, "± degrees")
    elastic: Fraction = setting(0.0, "smooth bending: deviation at 4 x 4 points, as a part of each side")
    fill: Literal["border", "mean", "darkest"] = setting(
        "border", "of what comes in: the edge repeated, the mean color, or the image's darkest value"
    )


class MixConfig(Config):
    """Pairs of images are mixed, and their targets alike; with both, each batch takes one at random."""

    mixup: NotNegative = setting(0.0, "alpha of Mixup's Beta (arXiv 1710.09412); 0: none")
    cutmix: NotNegative = setting(0.0, "alpha of CutMix's Beta (arXiv 1905.04899); 0: none")
    probability: Fraction = setting(1.0, "of a batch being mixed at all")
    whole_targets: bool = setting(
        False, "the classes of both images count in full, and not by their shares (DeiT III)"
    )

    @model_validator(mode="after")
    def _something(self) -> MixConfig:
        if not (self.mixup or self.cutmix):
            raise ValueError("nothing is mixed: set mixup or cutmix, or augmentation.mix=none")
        return self


def sideways(flip: object) -> object:
    """A single probability is that of left and right."""
    return (flip, 0.0) if isinstance(flip, int | float) and not isinstance(flip, bool) else flip


Flip = Annotated[tuple[Fraction, Fraction], BeforeValidator(sideways)]


class AugmentationConfig(Config):
    """What is done to training images, in the order of the fields. Nothing, unless set."""

    repeated_augmentation: Positive = setting(1, "copies of an image in a batch (arXiv 1902.05509)")
    random_resized_crop: RandomResizedCropConfig | None = setting(
        None, "a random part, resized; None: the evaluation's crop"
    )
    flip: Flip = setting(
        (0.0, 0.0), "probabilities of mirroring left and right, top and bottom; one number: of the first"
    )
    policy: Policy | None = setting(None, "random operations on each image; None: none")
    color_jitter: ColorJitterConfig | None = setting(
        None, "random brightness, contrast, saturation and hue; None: off"
    )
    affine: AffineConfig | None = setting(None, "random rotation, shift, scale and shear; None: off")
    noise: NotNegative = setting(0.0, "standard deviation, of normalized values")
    random_erasing: Fraction = setting(0.0, "probability of one rectangle (1708.04896)")
    mix: MixConfig | None = setting(None, "Mixup and CutMix, by which targets become soft; None: off")

    @property
    def changes_colors(self) -> bool:
        """Whether colors are changed, which is done image by image."""
        return bool(self.policy or self.color_jitter)

    @property
    def per_image(self) -> bool:
        """Whether images are changed one by one, before they form a batch."""
        return bool(self.random_resized_crop) or self.changes_colors
