"""`vitreous.serve`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from vitreous.addons.serving.options import ServeOptions
from vitreous.errors import InputError, Param, require_packages
from vitreous.languages.terminal import said
from vitreous.training.options import with_options


def print_address(url: str, about: dict[str, object]) -> None:
    """Print where a model is served."""
    print(said("{name} answers at {url}  (Ctrl-C stops it)", name=about["name"], url=url), flush=True)


@with_options(ServeOptions)
def serve(
    model: Any,
    *,
    ready: Callable[[str, dict[str, object]], None] = print_address,
    **options: Unpack[ServeOptions],
) -> None:
    """Serve a model over HTTP, with a web page, until Ctrl-C. SIGHUP reloads the model without losing a
    request.

    Example:
        >>> def ready(address, served):
        ...     print("answers at", address)
        >>> vt.serve("runs/photos", port=0, ready=ready)
        answers at http://127.0.0.1:...

    Args:
        model: a run that predicts classes or numbers, a checkpoint of such a model in any format, an encoder,
            an exported file, or a model name.
        options: of `ServeOptions`.
        ready: called with the address and what is served, once the server is up; by default, these are
            printed.

    Raises:
        InputError: the model cannot be served, the port is in use, or a package is missing.
    """
    least = {"max_batch": 1, "max_wait": 0, "queue": 1, "deadline": 1}
    for name, lowest in least.items():
        value: Any = options.get(name)
        if not lowest <= value < math.inf:
            raise InputError(f"{Param(name)} {value:g} is not a number of {lowest} or more")
    from vitreous.api.arguments import path_of_run  # the help of the command needs none of this

    path = path_of_run(model)
    if not isinstance(path, str | Path):
        raise InputError(
            f"a model of type {type(model).__name__} cannot be served from memory: save it with "
            "vitreous.save, and serve the folder"
        )
    packages = "fastapi", "uvicorn", "python_multipart", "prometheus_client", "matplotlib"
    require_packages(*packages, extra="serve", what="serving")
    from vitreous.addons.serving import run
    from vitreous.addons.serving.limits import ServerLimits

    limits = ServerLimits(
        max_batch=options["max_batch"],
        max_wait=options["max_wait"] / 1000,
        queue=options["queue"],
        deadline=options["deadline"],
    )
    file = options["token_file"]
    token = None if file is None else run.read_token(Path(file))
    hosts = run.hosts_of(options["host"], options["allow_host"] or ())
    load_model = partial(
        run.load_served,
        str(path),
        device=options["device"],
        precision=options["precision"],
        limits=limits,
        language=options["language"],
    )
    with run.bind(options["host"], options["port"]) as opened:
        run.serve_model(load_model, opened, limits=limits, hosts=hosts, token=token, ready=ready)
