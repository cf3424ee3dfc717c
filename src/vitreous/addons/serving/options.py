"""The options of `serve`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypedDict

from vitreous.api.options import PageLanguage, PrecisionOption
from vitreous.training.options import DeviceOption, Option


class ServeOptions(TypedDict, total=False):
    host: Annotated[
        str,
        Option(
            "address to listen on: 127.0.0.1, or 0.0.0.0 to be reachable from other machines",
            default="127.0.0.1",
        ),
    ]
    port: Annotated[int, Option("port to listen on; 0 for any free port", default=8000)]
    max_batch: Annotated[int, Option("maximum number of images in a batch", default=32)]
    max_wait: Annotated[
        int | float,
        Option("milliseconds that an image waits for others to join its batch", default=5.0),
    ]
    queue: Annotated[
        int,
        Option(
            "maximum number of queued images; beyond it the server answers 503 with Retry-After", default=256
        ),
    ]
    deadline: Annotated[
        int | float,
        Option(
            "seconds from a request's last byte to its answer; beyond it the server answers 504", default=60.0
        ),
    ]
    allow_host: Annotated[
        Sequence[str] | None,
        Option(
            "names to accept in the Host header besides localhost; without this option, a server that other "
            "machines can reach accepts any name"
        ),
    ]
    token_file: Annotated[
        str | Path | None,
        Option("a file with a token; requests then need the header Authorization: Bearer TOKEN"),
    ]
    precision: PrecisionOption
    device: DeviceOption
    language: PageLanguage
