"""From MODEL, as the command line names it, to what is served."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from socket import socket
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from vitreous.checkpoints.weights import meta_model
from vitreous.deployment.serving import running
from vitreous.deployment.serving.app import Hosted, build_app
from vitreous.deployment.serving.endpoints import Limits, Question, Served, parse
from vitreous.deployment.serving.page import Examples, page_of
from vitreous.deployment.serving.workers import share_weights
from vitreous.errors import InputError
from vitreous.inspection.images import data_uri
from vitreous.languages import speaking
from vitreous.models.program import Program
from vitreous.tasks.answering import has_weights, open_answerer
from vitreous.tasks.task import Task, module_of
from vitreous.training.precision import answering_precision
from vitreous.training.run import Run

log = logging.getLogger(__name__)
EXAMPLES = 6
CARD = re.compile(r"^\W*licen[cs]e\W+(?P<name>[^\n|]*[^\n|\s*`])", re.IGNORECASE | re.MULTILINE)


class Opened(NamedTuple):
    """A model that is ready to be served.

    Attributes:
        about: what is known of it from outside: name, size, device, license, whether it has learned anything.
        examples: to try it with.
    """

    served: Served
    about: dict[str, Any]
    examples: Examples


def serve_models(
    specs: Mapping[str, str],
    opened: socket,
    ready: Callable[[dict[str, Any]], None],
    *,
    overrides: Mapping[str, Any],
    device: torch.device,
    precision: str,
    limits: Limits,
    hosts: Collection[str] | None,
    token: str | None,
    tls: running.Tls | None,
    log_access: bool,
    language: str | None,
    metrics_at: tuple[str, int | None] | None,
) -> None:
    """Open models and serve them at a socket.

    Args:
        specs: a MODEL for each name; the name may be "" where there is only one.
        ready: called with what is served.
        metrics_at: host and port of the counters, beside the other addresses where the port is None; None:
            nowhere.
    """
    hosted = []
    with speaking(language), running.one_thread() as thread:
        for number, (name, spec) in enumerate(specs.items()):
            how: dict[str, Any] = {
                "device": device,
                "precision": precision,
                "limits": limits,
                "number": number,
            }
            found = thread.submit(open_served, spec, **how, **overrides).result()
            about = {"task": found.served.task, **found.about, **({"name": name} if name else {})}
            page = page_of(found.served, about, found.examples, limits)
            hosted.append(Hosted(address_name(about["name"]), found.served, about, page))
        beside = metrics_at is not None and metrics_at[1] is None
        app = build_app(
            hosted, model_thread=thread, limits=limits, hosts=hosts, token=token, metrics_here=beside
        )
        announced = dict(hosted[0].about) if len(hosted) == 1 else {"name": ", ".join(specs), "models": specs}
        registry = app.state.server.metrics.registry
        with running.metrics_at(*(metrics_at or ("", None)), registry), running.access_log(log_access):
            running.run(app, opened, ready=lambda url: ready(announced), limits=limits, tls=tls)


def address_name(name: str) -> str:
    """Return a model's name as an address has it: ViT-Ti-16 for ViT-Ti/16."""
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip("-") or "model"


def open_served(
    spec: str,
    *,
    device: torch.device,
    precision: str = "fp32",
    limits: Limits = Limits(),  # noqa: B008 - immutable
    number: int = 0,
    **overrides: Any,
) -> Opened:
    """Open the model that MODEL means, warmed up.

    Args:
        precision: of matrix products; "auto" is bf16 where that is clearly faster.
        number: of the model, where several processes share the weights of several models.
        overrides: of the configuration, such as `image_size`; for classifiers.

    Raises:
        InputError: nothing there, damaged, or a model of a kind that cannot be served.
    """
    task, answerer = open_answerer(spec, fresh=True, **overrides)
    model = module_of(answerer).to(device)
    if device.type == "cpu" and not isinstance(model, Program):
        share_weights(model, number)
    served, examples = task.serve(answerer, device, limits), examples_of(spec, task)
    chosen = answering_precision(precision, device)
    if chosen == "bf16":
        served.lower()
    warm_up(served)
    path = Path(spec).expanduser()
    return Opened(
        served,
        {
            "name": path.resolve().name if path.exists() else spec,
            "trained": has_weights(spec),
            "parameters": count_parameters(served.model),
            "device": str(device),
            "precision": chosen,
            "license": license(path),
        },
        examples,
    )


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters, of an exported program those of the model that it was written from."""
    counted = meta_model(model.config) if isinstance(model, Program) else model
    return sum(each.numel() for each in counted.parameters())


def examples_of(spec: str, task: Task) -> Examples:
    """Return held-out examples of a run on one of the bundled jobs, if its configuration can be read: that of
    an older version cannot always, and its model is served all the same."""
    path = Path(spec)
    if not (path / "config.toml").is_file():
        return Examples()
    try:
        config = Run.open(path, task.config).config
        found = task.examples(config, EXAMPLES)
    except InputError as error:
        log.warning("%s is served without examples: %s", spec, error)
        return Examples()
    images = tuple(data_uri(np.asarray(each.convert("RGB"))) for each in found if not isinstance(each, str))
    return Examples(config.source, images, tuple(each for each in found if isinstance(each, str)))


def warm_up(served: Served) -> None:
    """Ask everything once: kernels are chosen and memory is allocated before the first request."""
    what = served.decode(served.sample(), "warm-up")
    for endpoint in served.endpoints:
        endpoint.answer([Question("warm-up", what, parse({}, endpoint.parameters))])


def license(path: Path) -> str | None:
    """Return the license that the model card with the weights names, in its own words."""
    folder = path if path.is_dir() else path.parent
    for card in (folder / "README.md", folder / "model" / "README.md"):
        if path.exists() and card.is_file():
            named = CARD.search(card.read_text(encoding="utf-8", errors="replace"))
            return named["name"].strip(" :*`") if named else None
    return None
