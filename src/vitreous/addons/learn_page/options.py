"""The options of `learn`."""

from pathlib import Path
from typing import Annotated, TypedDict

from vitreous.api.options import InputSize, ModelSettings
from vitreous.training.options import ConfigFile, Option


class LearnOptions(TypedDict, total=False):
    out: Annotated[
        str | Path | None,
        Option(
            "the HTML file; by default learn.html in the run directory, in the current folder without a "
            "MODEL, or in a new folder in inspection/ for any other model"
        ),
    ]
    language: Annotated[
        str | None,
        Option("language in which the page opens: en or ko; by default that of the browser"),
    ]
    image_size: InputSize
    settings: ModelSettings
    config: ConfigFile
