"""The options of `translate train`, beside those of every training."""

from typing import Annotated, TypedDict

from vitreous.training.options import Option, RunOptions

BEAMS, LENGTH_PENALTY = 4, 0.6


class OwnTranslatorOptions(TypedDict, total=False):
    steps: Annotated[int | None, Option("number of steps, instead of epochs; the total, when resuming")]
    beams: Annotated[int, Option("translations that the search follows; 1 is greedy", default=BEAMS)]
    length_penalty: Annotated[
        float,
        Option("higher favors longer translations (arXiv 1609.08144, section 7)", default=LENGTH_PENALTY),
    ]
    batch_size: Annotated[
        int | None,
        Option(
            "pairs of texts in each step; or texts that are translated together, by default 128",
            sets="training.batch_size",
        ),
    ]


class TranslatorOptions(OwnTranslatorOptions, RunOptions, total=False):
    """Options of `train_translator`."""
