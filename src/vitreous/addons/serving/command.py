"""`vitreous serve MODEL`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import EXPORTED, MODEL_HELP, Json, options_of
from vitreous.cli.printing import print_json


@options_of(vt.serve)
def serve(
    model: Annotated[str, Parameter(help=f"{MODEL_HELP}{EXPORTED}")],
    *,
    json: Json = False,
    **options: Any,
) -> int:
    """Answer over HTTP what a model says of images; with a web page."""

    def ready(url: str, about: dict[str, Any]) -> None:
        if not about["trained"]:
            print(f"vitreous: {model} has fresh weights: its answers mean nothing yet", file=sys.stderr)
        if options.get("host", "127.0.0.1") in ("0.0.0.0", "::") and "token_file" not in options:
            print(
                "vitreous: every machine that reaches this one can use the server: give --token-file, and "
                "--allow-host",
                file=sys.stderr,
            )
        if json:
            print_json({"url": url, **about})
        else:
            print(f"{about['name']} answers at {url}  (Ctrl-C stops it)", flush=True)

    vt.serve(model, ready=ready, **options)
    return 0
