"""The options of everything that is done with a model or with data but training it, each written once: see
`vitreous.training.options`, whose module also says what an option is.

Only types are imported: the help of a command is read before PyTorch is.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypedDict

from vitreous.training.options import ConfigFile, Device, ImageSize, Option, Settings

Threshold = int | float | str | Mapping[str, float]

# What means the same in several commands.
BatchSize = Annotated[
    int | None, Option("images that are computed together; by default 16 on a CPU, 64 on a GPU")
]
DataSettings = Annotated[
    "Settings | None", Option('settings of the data: {"data.form.label_column": "diagnosis"}')
]
InputSize = Annotated[
    "ImageSize | None",
    Option("pixels of the images that the model takes: 384, or (height, width); by default its own"),
]
ModelSettings = Annotated[
    "Settings | None", Option('fields of the model\'s configuration: {"model.heads": 12}')
]
PageLanguage = Annotated[str | None, Option("of the page, en or ko; by default the locale's")]
Patches = Annotated[
    int | None,
    Option(
        "take each image in its own aspect ratio, as at most so many patches (NaFlex), of a ViT with learned "
        "positions. By default every image is brought to the one size of the model"
    ),
]
Precision = Annotated[
    str,
    Option("fp32; bf16; auto: bf16 where that is faster and gives the same answers", default="auto"),
]
Progress = Annotated[bool, Option("show a progress bar on stderr", default=True, in_python=True)]
TestTimeAugmentation = Annotated[
    bool,
    Option(
        "test-time augmentation: the mean answer to an image, its corners and, if the model was trained with "
        "them, mirror images; five or ten times the work",
        default=False,
    ),
]
Workers = Annotated[int | None, Option("threads that decode images; by default one for each core")]


class PredictOptions(TypedDict, total=False):
    top: Annotated[int | None, Option("number of labels for each image, most probable first; by default 5")]
    threshold: Annotated[
        "Threshold | None",
        Option(
            "name all labels that are as probable as well, `labels`: several where an image can have "
            'several, or none where the model is unsure. {"cat": 0.3}: of some labels, 0.5 for the others. '
            '"best": of each label the one with the largest F1 on the validation set'
        ),
    ]
    tta: TestTimeAugmentation
    out: Annotated[
        str | Path | None,
        Option(
            "where to write the answers: a new .csv, .jsonl or .parquet file, which gets a row for each "
            "image as it is answered; or a folder, which gets a Parquet file for each part of the images, "
            "and is continued where it has some. Of a task that writes images: the folder for them, by "
            "default a new one"
        ),
    ]
    image_size: InputSize
    patches: Patches
    batch_size: BatchSize
    workers: Workers
    device: Device
    precision: Precision
    settings: ModelSettings
    config: ConfigFile
    progress: Progress


class EmbedOptions(TypedDict, total=False):
    out: Annotated[
        str | Path | None,
        Option(
            "the file for the features, .npz or .parquet; or a folder, which gets a Parquet file for each "
            "part of the images, and is continued where it has some"
        ),
    ]
    batch_size: BatchSize
    image_size: InputSize
    patches: Patches
    workers: Workers
    device: Device
    precision: Precision
    settings: ModelSettings
    config: ConfigFile
    progress: Progress


class ProbeOptions(TypedDict, total=False):
    shots: Annotated[
        Sequence[int] | None,
        Option("numbers of images of each class to learn from; by default 1, 5, 10 and 25"),
    ]
    draws: Annotated[int, Option("how often the shots are sampled, for the interval", default=3)]
    batch_size: BatchSize
    image_size: InputSize
    workers: Workers
    seed: Annotated[int, Option("random seed of the sampled shots", default=0)]
    device: Device
    precision: Precision
    settings: Annotated[
        "Settings | None", Option("fields of the model (model.heads) and of the data (data.test_fraction)")
    ]
    config: ConfigFile
    progress: Progress


class EvaluateOptions(TypedDict, total=False):
    tta: TestTimeAugmentation
    real_labels: Annotated[
        str | Path | None,
        Option(
            "a file as real.json of ImageNet ReaL, for the accuracy by labels of which any is right: for "
            "each validation image, in the order of their names, a list of class numbers; images without "
            "one are left out"
        ),
    ]
    image_size: InputSize
    batch_size: BatchSize
    workers: Workers
    device: Device
    precision: Precision
    settings: Annotated[
        "Settings | None",
        Option('settings of the data ({"data.test_fraction": 0.3}) and of the model\'s configuration'),
    ]
    config: ConfigFile
    progress: Progress
