"""`vitreous learn [MODEL] [IMAGES...]`."""

from __future__ import annotations

from typing import Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.addons.learn_page.options import LearnOptions
from vitreous.cli.inspection import Shown
from vitreous.cli.options import MODEL_HELP, Json, with_parsed_options
from vitreous.cli.printing import print_json, print_wrong


@with_parsed_options()
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
