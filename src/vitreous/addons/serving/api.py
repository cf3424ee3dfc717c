"""`vitreous.serve`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vitreous.errors import InputError, Param, require_packages
from vitreous.languages.terminal import said


def print_address(url: str, about: dict[str, object]) -> None:
    """Print where a model is served."""
    print(said("{name} answers at {url}  (Ctrl-C stops it)", name=about["name"], url=url), flush=True)


def serve(
    model: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    max_batch: int = 32,
    max_wait: int | float = 5.0,
    queue: int = 256,
    deadline: int | float = 60.0,
    allow_host: Sequence[str] | None = None,
    token_file: str | Path | None = None,
    precision: str = "auto",
    device: str = "auto",
    language: str | None = None,
    ready: Callable[[str, dict[str, object]], None] = print_address,
) -> None:
    """Answer over HTTP until Ctrl-C, with a web page. SIGHUP loads the model again, without losing a request.

    Args:
        model: a run that gives classes or numbers, a checkpoint of such a model in any format, an encoder,
            an exported file, or a model name.
        host: address to listen at: 127.0.0.1, or 0.0.0.0 to be reached from other machines.
        port: port to listen at; 0 for any that is free.
        max_batch: most images in a batch.
        max_wait: milliseconds that an image waits for others, to share a batch.
        queue: maximum queued images; beyond it the server answers 503 with Retry-After.
        deadline: seconds from a request's last byte to its answer; beyond it the server answers 504.
        allow_host: names in the Host header that are answered beside localhost; a server that other machines
            reach answers for any name unless some are given.
        token_file: a file with a token; requests then need the header Authorization: Bearer TOKEN.
        precision: fp32; bf16; auto: bf16 where that is faster and gives the same answers.
        device: auto, cpu, cuda, cuda:N or mps; auto is a GPU where there is one.
        language: of the page, en or ko; by default the locale's.
        ready: called with the address and what is served, once it answers; by default it is printed.

    Raises:
        InputError: a model that cannot be served, a port that is taken, or a package that is missing.
    """
    least = {"max_batch": 1, "max_wait": 0, "queue": 1, "deadline": 1}
    given = {"max_batch": max_batch, "max_wait": max_wait, "queue": queue, "deadline": deadline}
    for name, value in given.items():
        if not least[name] <= value < math.inf:
            raise InputError(f"{Param(name)} {value:g} is not a number of {least[name]} or more")
    from vitreous.api.arguments import named_path  # the help of the command needs none of this

    spec = named_path(model)
    packages = "fastapi", "uvicorn", "python_multipart", "prometheus_client", "matplotlib"
    require_packages(*packages, extra="serve", what="serving")
    from vitreous.addons.serving import run
    from vitreous.addons.serving.limits import Limits

    limits = Limits(max_batch=max_batch, max_wait=max_wait / 1000, queue=queue, deadline=deadline)
    token = None if token_file is None else run.read_token(Path(token_file))
    hosts = run.hosts_of(host, allow_host or ())
    load_model = partial(run.load, spec, device=device, precision=precision, limits=limits, language=language)
    with run.bind(host, port) as opened:
        run.serve_model(load_model, opened, limits=limits, hosts=hosts, token=token, ready=ready)
