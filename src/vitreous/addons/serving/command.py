"""`vitreous serve MODEL`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, TypedDict, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.addons.serving.api import print_address
from vitreous.cli.options import (
    EXPORTED,
    MODEL_HELP,
    Device,
    Int,
    Json,
    Language,
    Number,
    Precision,
    Text,
    Texts,
)
from vitreous.cli.printing import print_json
from vitreous.languages.terminal import said


class ServeOptions(TypedDict, total=False):
    host: Annotated[
        Text,
        Parameter(
            help="address to listen on: 127.0.0.1, or 0.0.0.0 to be reachable from other machines [default: "
            "127.0.0.1]"
        ),
    ]
    port: Annotated[Int, Parameter(help="port to listen on; 0 for any free port [default: 8000]")]
    max_batch: Annotated[Int, Parameter(help="maximum number of images in a batch [default: 32]")]
    max_wait: Annotated[
        Number,
        Parameter(help="milliseconds that an image waits for others, to share a batch [default: 5.0]"),
    ]
    queue: Annotated[
        Int,
        Parameter(
            help="maximum number of queued images; beyond it the server answers 503 with Retry-After "
            "[default: 256]"
        ),
    ]
    deadline: Annotated[
        Number,
        Parameter(
            help="seconds from a request's last byte to its answer; beyond it the server answers 504 "
            "[default: 60.0]"
        ),
    ]
    allow_host: Annotated[
        Texts,
        Parameter(
            help="names to accept in the Host header besides localhost; without this option, a server "
            "that other machines can reach accepts any name"
        ),
    ]
    token_file: Annotated[
        Path,
        Parameter(help="a file with a token; requests then need the header Authorization: Bearer TOKEN"),
    ]
    precision: Precision
    device: Device
    language: Language


def serve(
    model: Annotated[str, Parameter(help=f"{MODEL_HELP}{EXPORTED}")],
    *,
    json: Json = False,
    **options: Unpack[ServeOptions],
) -> int:
    """Answer over HTTP what a model says of images; with a web page."""

    def ready(url: str, about: dict[str, object]) -> None:
        if not about["trained"]:
            untrained = said("{model} has fresh weights: its answers mean nothing yet", model=model)
            print(f"vitreous: {untrained}", file=sys.stderr)
        if options.get("host", "127.0.0.1") in ("0.0.0.0", "::") and "token_file" not in options:
            print(
                "vitreous:",
                said(
                    "every machine that reaches this one can use the server: give --token-file, and "
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
