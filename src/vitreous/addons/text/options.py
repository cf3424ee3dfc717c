"""The options of `translate train`, beside those of every training."""

from typing import Annotated, TypedDict

from vitreous.api.options import FullPrecision
from vitreous.training.options import DeviceOption, Option, RunOptions

NumBeams = Annotated[int, Option("number of beams of the search; 1 is greedy", default=4)]
LengthPenalty = Annotated[
    float,
    Option(
        "length penalty: higher values favor longer translations (arXiv 1609.08144, section 7)", default=0.6
    ),
]


class TranslateOptions(TypedDict, total=False):
    """Options of `translate`."""

    beams: NumBeams
    length_penalty: LengthPenalty
    batch_size: Annotated[int, Option("number of texts in a batch", default=128)]
    device: DeviceOption
    precision: FullPrecision


class OwnTranslatorOptions(TypedDict, total=False):
    steps: Annotated[int | None, Option("number of steps, instead of epochs; the total, when resuming")]
    beams: NumBeams
    length_penalty: LengthPenalty
    batch_size: Annotated[
        int | None,
        Option(
            "number of text pairs in each step; or of texts in a batch to translate, by default 128",
            sets="training.batch_size",
        ),
    ]


class TranslatorOptions(OwnTranslatorOptions, RunOptions, total=False):
    """Options of `train_translator`."""
