"""`vitreous learn [MODEL] [IMAGES...]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypedDict, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.inspection import Shown
from vitreous.cli.options import MODEL_HELP, ConfigFile, ImageSize, Json, Language, Settings
from vitreous.cli.printing import print_json, print_wrong


class LearnOptions(TypedDict, total=False):
    out: Annotated[
        Path,
        Parameter(
            help="the HTML file; by default learn.html: in the directory of the run, in this folder without "
            "a "
            "MODEL, and in a new folder in inspection/ for any other model"
        ),
    ]
    language: Annotated[
        Language,
        Parameter(
            help="language in which the page opens, en or ko, of which it has both; by default that of the "
            "locale"
        ),
    ]
    image_size: ImageSize
    settings: Settings
    config: ConfigFile


def learn(
    model: Annotated[
        str | None,
        Parameter(help=f"{MODEL_HELP}; by default the paper's, on digits; photo and emoji: others, in color"),
    ] = None,
    /,
    *images: Shown,
    json: Json = False,
    **options: Unpack[LearnOptions],
) -> int:
    """A page in which a small model runs: draw an image, and follow it through every tensor, offline."""
    result = vt.learn(model, list(images) or None, **options)
    if json:
        print_json(result.to_json())
    else:
        print(result.page)
    return print_wrong(result.failed)
