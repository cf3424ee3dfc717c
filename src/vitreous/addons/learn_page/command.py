"""`vitreous learn [MODEL] [IMAGES...]`."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.inspecting import Shown
from vitreous.cli.options import MODEL_HELP, Json, options_of
from vitreous.cli.printing import print_failed, print_json


@options_of(vt.learn)
def learn(
    model: Annotated[str | None, Parameter(help=f"{MODEL_HELP}; by default the paper's, on digits")] = None,
    /,
    *images: Shown,
    json: Json = False,
    **options: Any,
) -> int:
    """A page in which a small model runs: draw an image, and follow it through every tensor, offline."""
    result = vt.learn(model, list(images) or None, **options)
    if json:
        print_json(result.to_json())
    else:
        print(result.page)
    return print_failed(result.failed)
