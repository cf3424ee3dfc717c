"""The options of `study`."""

from pathlib import Path
from typing import Annotated, TypedDict

from vitreous.training.options import ConfigFile, DeviceOption, Option, Settings


class StudyOptions(TypedDict, total=False):
    quick: Annotated[
        bool,
        Option(
            "a tenth of the steps and two seeds, as a quick look; the results do not count for the ledger",
            default=False,
        ),
    ]
    seeds: Annotated[int | None, Option("number of times each variant is trained; by default 5")]
    out: Annotated[
        str | Path | None,
        Option(
            "the folder for the table and the plot, by default studies/NAME, or studies-quick/NAME if "
            "quick; for all and ledger, the folder that contains these folders"
        ),
    ]
    device: DeviceOption
    settings: Annotated[
        "Settings | None",
        Option(
            "settings that all variants share: steps, batch_size, rate, weight_decay, model.width ...; with "
            "DATA, also image_size"
        ),
    ]
    config: ConfigFile
    progress: Annotated[bool, Option("print a line on stderr for each trial", default=True, in_python=True)]
    language: Annotated[
        str | None,
        Option("language of the table and the plot: en or ko; by default that of the locale"),
    ]
