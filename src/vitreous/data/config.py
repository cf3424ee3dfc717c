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
    exclude: str | None = setting(
        None, "a CSV file with the column path, which lists images to leave out of every set"
    )


class SplitByName(SplitConfig):
    """Images are held out by a hash of their names."""

    kind: Literal["name"] = setting(
        "name",
        "name: images are held out by a hash of their names, so other images do not matter; time: "
        "the newest images are held out",
    )
    seed: int = setting(0, "seed of the split: a different number gives a different split", ge=0)
    group_by: str | None = setting(
        None,
        "what keeps a group of images in one set: a column of the manifest, or a pattern that is "
        "searched for in the names",
    )


class SplitByTime(SplitConfig):
    """The newest images are held out."""

    kind: Literal["time"] = setting("time", "the newest images are held out")
    time: str = setting(
        "exif",
        "exif: the time at which the camera took an image; file: the time at which the file was "
        "changed; otherwise, a column of the manifest",
        min_length=1,
    )


Split = Annotated[
    Annotated[SplitByName | SplitByTime, Field(discriminator="kind")], with_kind("data.split", "name")
]


class FolderForm(Config):
    """A folder with a sub-folder for each class."""

    kind: Literal["folder"] = setting(
        "folder", "the form of DATA: folder, manifest, hub, shards, fetched or plain"
    )
    nested: Literal["ask", "inner", "outer"] = setting(
        "ask",
        "which folders are the classes if the subfolders of DATA all contain folders with the same names",
    )


class ManifestForm(Config):
    """A table of images."""

    kind: Literal["manifest"] = setting("manifest", "a .csv, .tsv, .jsonl or .parquet file")
    path_column: str | None = setting(
        None,
        "the column that names the images; None: path, file_name, filename, image or another common name",
    )
    label_column: str | None = setting(
        None,
        "the column that holds the labels, or several columns of 0s and 1s, separated by commas, one "
        "for each class; None: label, class or another common name, the only other column, or all "
        "other columns if they contain only 0 and 1",
    )
    label_separator: str = setting("|", "separator between the labels of an image", min_length=1)


class HubForm(Config):
    """A dataset of the datasets library."""

    kind: Literal["hub"] = setting("hub", "hf:NAME")
    streaming: bool = setting(False, "fetch images during training instead of downloading them first")


class ShardsForm(Config):
    """Tar shards on this machine."""

    kind: Literal["shards"] = setting("shards", "tar files")
    streaming: bool = setting(False, "read shards one after another, which suits network file systems")


class FetchedForm(Config):
    """Tar shards that are fetched."""

    kind: Literal["fetched"] = setting("fetched", "tar files at s3://, https:// ...")
    cache_gb: float = setting(100.0, "gigabytes of downloaded shards to cache on this machine", gt=0)


class PlainForm(Config):
    """Anything else, which has no settings of its own."""

    kind: Literal["plain"] = setting("plain", "any other form of DATA")


AnyForm = FolderForm | ManifestForm | HubForm | ShardsForm | FetchedForm | PlainForm
DataForm = Annotated[AnyForm, Field(discriminator="kind")]
FormT = TypeVar("FormT", bound=AnyForm)


class RecordedSplit(Config):
    """The parts that a run has recorded in its split.csv."""

    file: str | None = setting(None, "the split.csv file of another run, whose split is used for this data")
    new_images: bool = setting(False, "include images that split.csv does not list")


class ReadingConfig(Config):
    """How the images of a source are read."""

    workers: Annotated[int, Field(ge=0)] | None = setting(
        None, "number of threads that decode images; None: the process's share of the cores"
    )
    processes: bool = setting(
        False,
        "use processes instead of threads as workers in training: they give the same batches, and "
        "suit a large number of workers",
    )
    in_memory: Literal["auto"] | bool = setting(
        "auto", "keep decoded images in memory; auto: if they fit into a quarter of the memory"
    )
    bad_files: Fraction = setting(
        0.01,
        "share of unreadable images above which training stops, if there are more than three; 0: training "
        "stops at the first one",
    )


class DataConfig(Config):
    """How a source is split, and how its images are loaded."""

    split: Split | None = setting(
        None, "how images are held out, and which are excluded; None: by a hash of each image's name"
    )
    recorded: RecordedSplit | None = setting(None, "a split recorded by a run; None: a new split is made")
    test_fraction: Probability = setting(
        0.2, "share of each class that is held out for testing, if the source has no split of its own"
    )
    validation_fraction: Literal["auto"] | Probability = setting(
        "auto",
        "share of the remaining images that is used for curves, calibration and model selection; "
        "auto: about 300 images (1 to 10%), if there are at least 200, and 10 per class on average",
    )
    form: DataForm | None = setting(
        None, "the form of DATA, with its own settings; None: the form is detected"
    )
    reading: ReadingConfig | None = setting(
        None,
        "threads or processes, caching in memory, and handling of unreadable files; None: chosen for "
        "the machine",
    )
    class_balance: bool = setting(False, "sample every class equally often")

    def settings_of(self, form: type[FormT]) -> FormT:
        """Return the settings of a form of DATA: those that were given, or its defaults."""
        return self.form if isinstance(self.form, form) else form()

    def without_validation(self) -> DataConfig:
        """Return the same without a validation set, unless one is asked for."""
        asked = self.validation_fraction != "auto"
        return self if asked else self.model_copy(update={"validation_fraction": 0.0})

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

    scale: tuple[float, float] = setting((0.08, 1.0), "smallest and largest share of the image's area")
    ratio: tuple[float, float] = setting((3 / 4, 4 / 3), "smallest and largest aspect ratio (width / height)")
    sampler: Literal["log-uniform", "tensorflow"] = setting(
        "log-uniform",
        "how crops are sampled: log-uniform samples the area and the aspect ratio, as in torchvision "
        "and timm; tensorflow samples the aspect ratio and the height, which gives smaller crops "
        "(vit_jax, big_vision)",
    )
    antialias: bool = setting(
        True,
        "use antialiasing when shrinking images, as in Pillow; false: sample bilinearly without "
        "antialiasing, as in tf.image.resize",
    )
    truncate: bool = setting(
        False, "truncate values to whole gray levels after resizing, as tf.cast does; false: round them"
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
        "rand-augment", "random operations, or three-augment: one of gray, solarize and blur"
    )
    layers: Positive = setting(2, "number of operations for each image [N]")
    magnitude: NotNegative = setting(
        9.0, "magnitude [M] on a scale up to 10; up to 30 in torchvision's and big_vision's lists"
    )
    magnitude_std: NotNegative = setting(0.0, "standard deviation of the magnitude; DeiT uses 0.5")
    probability: Fraction = setting(1.0, "probability of each operation; timm uses 0.5")
    operations: Literal["paper", "torchvision", "timm", "big_vision"] = setting(
        "paper", "the list of operations and their ranges, which differ between frameworks"
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

    kind: Literal["three-augment"] = setting("three-augment", "one of gray, solarize and blur")


AnyPolicy = RandAugmentConfig | ThreeAugmentConfig
Policy = Annotated[
    Annotated[AnyPolicy, Field(discriminator="kind")], with_kind("augmentation.policy", "rand-augment")
]


class ColorJitterConfig(Config):
    """Brightness, contrast, saturation by factors in 1 ± value; hue by turns of ± value; in random order."""

    brightness: NotNegative = setting(0.3, "range of the random factor: 1 ± this value")
    contrast: NotNegative = setting(0.3, "range of the random factor: 1 ± this value")
    saturation: NotNegative = setting(0.3, "range of the random factor: 1 ± this value")
    hue: Annotated[float, Field(ge=0, le=0.5)] = setting(
        0.0, "range of the random shift of the hue: ± this share of the color wheel, up to 0.5"
    )


class AffineConfig(Config):
    """Rotation, shift, scale and shear of each image, sampled uniformly; and bending, on top of them."""

    rotate: Annotated[float, Field(ge=0, le=180)] = setting(
        0.0, "range of the random rotation: ± this number of degrees"
    )
    translate: Fraction = setting(0.0, "range of the random shift: ± this share of each side")
    scale: Annotated[float, Field(ge=0, lt=1)] = setting(0.0, "range of the random scale: 1 ± this value")
    shear: Annotated[float, Field(ge=0, lt=80)] = setting(
        0.0, "range of the random shear: ± this number of degrees"
    )
    elastic: Fraction = setting(
        0.0,
        "elastic deformation: standard deviation of the shifts of 4 x 4 control points, as a share of each "
        "side",
    )
    fill: Literal["border", "mean", "darkest"] = setting(
        "border",
        "what fills the areas that become visible: the edge pixels, the mean color, or the image's "
        "darkest value",
    )


class MixConfig(Config):
    """Pairs of images are mixed, and their targets alike; with both, each batch takes one at random."""

    mixup: NotNegative = setting(0.0, "alpha of Mixup's Beta distribution (arXiv 1710.09412); 0: no Mixup")
    cutmix: NotNegative = setting(0.0, "alpha of CutMix's Beta distribution (arXiv 1905.04899); 0: no CutMix")
    probability: Fraction = setting(1.0, "probability that a batch is mixed")
    whole_targets: bool = setting(
        False, "count the classes of both images in full, instead of in proportion to their shares (DeiT III)"
    )

    @model_validator(mode="after")
    def _something(self) -> MixConfig:
        if not (self.mixup or self.cutmix):
            raise ValueError("nothing is mixed: set mixup or cutmix, or augmentation.mix=none")
        return self


def sideways(flip: object) -> object:
    """Return the two probabilities: a single one is that of left and right."""
    return (flip, 0.0) if isinstance(flip, int | float) and not isinstance(flip, bool) else flip


Flip = Annotated[tuple[Fraction, Fraction], BeforeValidator(sideways)]


class AugmentationConfig(Config):
    """What is done to training images, in the order of the fields. Nothing, unless set."""

    repeated_augmentation: Positive = setting(
        1, "number of copies of each image in a batch (arXiv 1902.05509)"
    )
    random_resized_crop: RandomResizedCropConfig | None = setting(
        None, "crop a random part of the image and resize it; None: crop as in evaluation"
    )
    flip: Flip = setting(
        (0.0, 0.0),
        "probabilities of mirroring an image horizontally and vertically; one number: only horizontally",
    )
    policy: Policy | None = setting(None, "random operations on each image; None: no such operations")
    color_jitter: ColorJitterConfig | None = setting(
        None, "random changes in brightness, contrast, saturation and hue; None: off"
    )
    affine: AffineConfig | None = setting(None, "random rotation, shift, scale and shear; None: off")
    noise: NotNegative = setting(0.0, "standard deviation of the noise that is added to normalized values")
    random_erasing: Fraction = setting(0.0, "probability that a random rectangle is erased (1708.04896)")
    mix: MixConfig | None = setting(None, "Mixup and CutMix, which make targets soft; None: off")

    @property
    def changes_colors(self) -> bool:
        """Whether colors are changed, which is done image by image."""
        return bool(self.policy or self.color_jitter)

    @property
    def per_image(self) -> bool:
        """Whether images are changed one by one, before they form a batch."""
        return bool(self.random_resized_crop) or self.changes_colors
