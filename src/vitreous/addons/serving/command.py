"""`vitreous serve MODEL`."""

from __future__ import annotations

import sys
from typing import Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.addons.serving.api import print_address
from vitreous.addons.serving.options import ServeOptions
from vitreous.cli.options import EXPORTED, MODEL_HELP, Json, with_parsed_options
from vitreous.cli.printing import print_json
from vitreous.languages.terminal import said


@with_parsed_options()
def serve(
    model: Annotated[str, Parameter(help=f"{MODEL_HELP}{EXPORTED}")],
    *,
    json: Json = False,
    **options: Unpack[ServeOptions],
) -> int:
    """Answer over HTTP what a model says of images; with a web page."""

    def ready(url: str, about: dict[str, object]) -> None:
        if not about["trained"]:
            untrained = said("{model} has fresh weights: its predictions mean nothing yet", model=model)
            print(f"vitreous: {untrained}", file=sys.stderr)
        if options.get("host", "127.0.0.1") in ("0.0.0.0", "::") and "token_file" not in options:
            print(
                "vitreous:",
                said(
                    "every machine that can reach this one can use the server: set --token-file and "
                    "--allow-host"
                ),
                file=sys.stderr,
            )
        if json:
            print_json({"url": url, **about})
        else:
            print_address(url, about)

    vt.serve(model, ready=ready, **options)
    return 0
