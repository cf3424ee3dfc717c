"""`vitreous learn [MODEL] [IMAGES...]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import Json, Language, ModelOptions
from vitreous.cli.printing import print_json


def learn(
    model: str | None = None,
    /,
    *images: str,
    out: Annotated[Path | None, Parameter(help="the HTML file; by default learn.html in the run")] = None,
    language: Language | None = None,
    json: Json = False,
    **options: Unpack[ModelOptions],
) -> int:
    """A page in which a small model runs: draw an image, and follow it through every tensor, offline.

    Parameters
    ----------
    model
        A run directory, a checkpoint in any format, or a model's name; by default the newest run in runs/.
    images
        Files, folders, globs to try; by default held-out images of the run, or handwritten digits.
    """
    result = vt.learn(model, list(images) or None, out=out, language=language, **options)
    if json:
        print_json(result.to_json())
    else:
        print(result.page)
    return 0
