"""The options of `study`."""

from pathlib import Path
from typing import Annotated, TypedDict

from vitreous.training.options import ConfigFile, Device, Option, Settings


class StudyOptions(TypedDict, total=False):
    quick: Annotated[
        bool,
        Option(
            "a tenth of the steps and two seeds, to see how it works; its results are not of the ledger",
            default=False,
        ),
    ]
    seeds: Annotated[int | None, Option("how often each variant is trained; by default 5 times")]
    out: Annotated[
        str | Path | None,
        Option(
            "the folder for the table and the plot, by default studies/NAME, and studies-quick/NAME if "
            "quick; with all and ledger the folder of these folders"
        ),
    ]
    device: Device
    settings: Annotated[
        "Settings | None",
        Option(
            "what all variants have in common: steps, batch_size, rate, weight_decay, model.width ...; with "
            "DATA also image_size"
        ),
    ]
    config: ConfigFile
    progress: Annotated[bool, Option("print a line on stderr for each trial", default=True, in_python=True)]
    language: Annotated[
        str | None,
        Option("language of the table and the plot: en or ko; by default that of the locale"),
    ]
