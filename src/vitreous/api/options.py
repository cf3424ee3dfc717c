"""The options of everything that is done with a model or with data but training it, each written once: see
`vitreous.training.options`, whose module also says what an option is.

Only types are imported: the help of a command is read before PyTorch is.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

from vitreous.extensions import WRITTEN_FORMATS
from vitreous.training.options import (
    ANY_SETTING,
    SIZE,
    ConfigFile,
    DeviceOption,
    ImageSize,
    ModelLike,
    Option,
    Settings,
)

if TYPE_CHECKING:
    from vitreous.models.preprocessing import Preprocessing

Threshold = int | float | str | Mapping[str, float]

# What means the same in several commands.
BatchSize = Annotated[int | None, Option("number of images in a batch; by default 16 on a CPU, 64 on a GPU")]
DataSettings = Annotated[
    "Settings | None",
    Option('settings of the data: {"data.form.label_column": "diagnosis"}', in_shell=ANY_SETTING),
]
InputSize = Annotated[
    "ImageSize | None",
    Option(
        "input size of the model in pixels: 384, or (height, width); by default its own",
        in_shell=SIZE,
        of="images",
    ),
]
ModelSettings = Annotated[
    "Settings | None",
    Option('fields of the model\'s configuration: {"model.heads": 12}', in_shell=ANY_SETTING, of="images"),
]
PageLanguage = Annotated[str | None, Option("language of the page: en or ko; by default that of the locale")]
WordsLanguage = Annotated[str | None, Option("language of the text: en or ko; by default that of the locale")]
Patches = Annotated[
    int | None,
    Option(
        "process each image at its own aspect ratio, in at most this many patches (NaFlex); for ViTs with "
        "learned positions. By default, every image is resized to the input size of the model"
    ),
]
PRECISION = "fp32; bf16; auto: bf16 if it is faster and gives the same answers"
PrecisionOption = Annotated[str, Option(PRECISION, default="auto")]
FullPrecision = Annotated[str, Option(PRECISION, default="fp32")]
ProgressOption = Annotated[bool, Option("show a progress bar on stderr", default=True, in_python=True)]
OwnPreprocessing = Annotated[
    "Preprocessing | None",
    Option("image preprocessing, for a module that does not specify its own", in_python=True),
]
TestTimeAugmentation = Annotated[
    bool,
    Option(
        "test-time augmentation: average the predictions for an image, its corner crops and, if the model "
        "was trained with them, mirror images; five or ten times slower",
        default=False,
        of="labels",
    ),
]
Workers = Annotated[
    int | None, Option("number of threads that decode images; by default one per core", of="images")
]


class PredictOptions(TypedDict, total=False):
    top: Annotated[
        int | None,
        Option("number of labels for each image, most probable first; by default 5", of="labels"),
    ]
    threshold: Annotated[
        "Threshold | None",
        Option(
            "also return `labels`, all labels with at least this probability: several if an image can have "
            'several, or none if the model is unsure. {"cat": 0.3} sets it for some labels, and 0.5 for the '
            'others; "best" sets it for each label to the value with the largest F1 on the validation set',
            in_shell="report all labels with at least this probability, several or none: a number; "
            "LABEL=NUMBER for some labels, with 0.5 for the others; or best: for each label of a multi-label "
            "model, the threshold with the largest F1 on the validation set",
            of="labels",
        ),
    ]
    tta: TestTimeAugmentation
    out: Annotated[
        str | Path | None,
        Option(
            "where to write the predictions: a new .csv, .jsonl or .parquet file, to which each row is "
            "written as soon as it is computed; or a folder, which gets a Parquet file for each part of "
            "the images, so that an interrupted job can be resumed. For a task that writes images: their "
            "folder, by default a new one"
        ),
    ]
    image_size: InputSize
    patches: Patches
    batch_size: BatchSize
    workers: Workers
    device: DeviceOption
    precision: PrecisionOption
    settings: ModelSettings
    config: ConfigFile
    progress: ProgressOption


class EmbedOptions(TypedDict, total=False):
    out: Annotated[
        str | Path | None,
        Option(
            "the file for the features, .npz or .parquet; or a folder, which gets a Parquet file for each "
            "part of the images, so that an interrupted job can be resumed"
        ),
    ]
    batch_size: BatchSize
    image_size: InputSize
    patches: Patches
    workers: Workers
    device: DeviceOption
    precision: PrecisionOption
    settings: ModelSettings
    config: ConfigFile
    progress: ProgressOption


class ProbeOptions(TypedDict, total=False):
    shots: Annotated[
        Sequence[int] | None,
        Option("numbers of training images per class; by default 1, 5, 10 and 25"),
    ]
    draws: Annotated[
        int, Option("number of times the shots are sampled, for a confidence interval", default=3)
    ]
    batch_size: BatchSize
    image_size: InputSize
    workers: Workers
    seed: Annotated[int, Option("random seed for sampling the shots", default=0)]
    device: DeviceOption
    precision: PrecisionOption
    settings: Annotated[
        "Settings | None",
        Option(
            "fields of the model (model.heads) and of the data (data.test_fraction)", in_shell=ANY_SETTING
        ),
    ]
    config: ConfigFile
    progress: ProgressOption


class EvaluateOptions(TypedDict, total=False):
    tta: TestTimeAugmentation
    real_labels: Annotated[
        str | Path | None,
        Option(
            "a file such as real.json of ImageNet ReaL, for an accuracy that accepts any of several correct "
            "labels: for each validation image, in the order of their names, a list of class numbers; images "
            "with an empty list are left out"
        ),
    ]
    image_size: InputSize
    batch_size: BatchSize
    workers: Workers
    device: DeviceOption
    precision: PrecisionOption
    settings: Annotated[
        "Settings | None",
        Option(
            'settings of the data ({"data.test_fraction": 0.3}) and of the model\'s configuration',
            in_shell=ANY_SETTING,
        ),
    ]
    config: ConfigFile
    progress: ProgressOption


class InspectOptions(TypedDict, total=False):
    out: Annotated[str | Path | None, Option("the folder to create; by default one in inspection/")]
    label: Annotated[str | None, Option("the class to explain; by default the predicted class of each image")]
    patch: Annotated[
        tuple[int, int] | None,
        Option(
            "(row, column) of the patch whose attention is drawn, from 0; by default the middle one",
            in_shell="the patch to follow, counted from 1: 3x5; by default the middle one",
        ),
    ]
    compare: Annotated[
        "ModelLike | None",
        Option("another model to show next to this one, with the similarity of their layers"),
    ]
    attributions: Annotated[
        int | None,
        Option(
            "number of images to compute attributions for, with every method and with a sanity check on "
            "randomized weights; by default, as many as take about a minute"
        ),
    ]
    preprocessing: OwnPreprocessing
    image_size: InputSize
    device: DeviceOption
    precision: Annotated[str, Option("fp32 or bf16", default="fp32")]
    settings: ModelSettings
    config: ConfigFile
    progress: ProgressOption
    language: PageLanguage


class AttributeOptions(TypedDict, total=False):
    label: Annotated[str | None, Option("the class to explain; by default the predicted class of each image")]
    steps: Annotated[int, Option("number of steps of integrated gradients", default=16)]
    seed: Annotated[int, Option("random seed of the randomized weights", default=0)]
    preprocessing: OwnPreprocessing
    image_size: InputSize
    device: DeviceOption
    settings: ModelSettings
    config: ConfigFile
    progress: ProgressOption


class CompareOptions(TypedDict, total=False):
    data: Annotated[
        object,
        Option(
            "a dataset to compare on, in any form that train takes; by default the held-out part of "
            "each run's data"
        ),
    ]
    out: Annotated[str | Path | None, Option("the HTML file; by default a new one in comparisons/")]
    batch_size: Annotated[int, Option("number of examples in a batch", default=64)]
    workers: Workers
    device: DeviceOption
    precision: FullPrecision
    progress: ProgressOption
    language: PageLanguage


class CalibrateOptions(TypedDict, total=False):
    out: Annotated[
        str | Path | None,
        Option("the folder for the calibrated model; by default that of the run, whose model is replaced"),
    ]
    batch_size: BatchSize
    workers: Workers
    device: DeviceOption
    settings: DataSettings
    config: ConfigFile
    progress: ProgressOption


class ExportOptions(TypedDict, total=False):
    format: Annotated[
        str | None,
        Option(
            "onnx, torch, safetensors, or an add-on's format, if the file extension does not determine it"
        ),
    ]
    precision: Annotated[
        str,
        Option(
            "fp32, or another precision that the format supports (the error message lists them)",
            default="fp32",
        ),
    ]
    data: Annotated[
        object,
        Option("images to calibrate a lower precision on; by default the run's validation set"),
    ]
    with_preprocessing: Annotated[
        bool,
        Option(
            "include the preprocessing: the program takes uint8 pixels (B, H, W, C) of any size and returns "
            "probabilities",
            default=False,
        ),
    ]
    image_size: InputSize
    settings: ModelSettings
    config: ConfigFile
    progress: Annotated[
        bool,
        Option(
            "print on stderr that the export has started, since it takes a while",
            default=True,
            in_python=True,
        ),
    ]


class DescribeOptions(TypedDict, total=False):
    image_size: InputSize
    batch_size: Annotated[int, Option("batch size for which the memory is computed", default=1)]
    settings: ModelSettings
    config: ConfigFile
    language: WordsLanguage


class DrawOptions(TypedDict, total=False):
    out: Annotated[str | Path | None, Option("the SVG file to write")]
    theme: Annotated[
        str,
        Option("light, dark, or auto: that of the page or system that shows the drawing", default="auto"),
    ]
    language: WordsLanguage
    image_size: InputSize
    settings: ModelSettings
    config: ConfigFile


class ConvertOptions(TypedDict, total=False):
    format: Annotated[
        str | None,
        Option(f"format to write: {WRITTEN_FORMATS}; by default google for .npz, else vitreous"),
    ]
    source_format: Annotated[str | None, Option("format of the source; by default it is detected")]
    like: Annotated[
        str | None,
        Option(
            "a published model that describes a source of bare weights: timm:NAME, hf:org/name or a folder"
        ),
    ]
    drop: Annotated[
        Sequence[str],
        Option(
            "parts to leave out because the format cannot hold them: representation_size, head, norm_eps, "
            "mlp",
            default=(),
        ),
    ]
    license: Annotated[str | None, Option("license for the model card; by default that of the source")]
    image_size: InputSize
    settings: ModelSettings
    config: ConfigFile


class CheckOptions(TypedDict, total=False):
    task: Annotated[
        str,
        Option("classification, or another task whose data can be checked", default="classification"),
    ]
    workers: Workers
    quarantine: Annotated[
        str | Path | None,
        Option("a folder to which the unreadable files of an image folder are moved"),
    ]
    report: Annotated[
        str | Path | None,
        Option(
            "an HTML page that shows the images with problems; a CSV file of the same name "
            "lists those to exclude from training. Only an earlier report and its list are replaced"
        ),
    ]
    language: PageLanguage
    settings: DataSettings


class PackOptions(TypedDict, total=False):
    size: Annotated[
        int, Option("length of the shorter side in pixels; smaller images are not enlarged", default=256)
    ]
    quality: Annotated[int | None, Option("JPEG quality, 1 to 95; by default 90")]
    raw: Annotated[
        bool,
        Option(
            "store raw pixels instead of JPEGs: no decoding, but nearly ten times as large", default=False
        ),
    ]
    per_shard: Annotated[int, Option("number of images in each shard", default=5000)]
    workers: Workers
    strict: Annotated[
        bool,
        Option("stop at the first image that cannot be read, instead of leaving it out", default=False),
    ]
    seed: Annotated[int, Option("random seed of the split, if the data is not split already", default=0)]
    settings: DataSettings
