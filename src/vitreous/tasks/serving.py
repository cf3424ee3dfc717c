"""From MODEL, as the command line names it, to what is served."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitreous.checkpoints.weights import meta_model
from vitreous.deployment.serving.endpoints import Limits, Question, Served, parse
from vitreous.deployment.serving.exported import Opened
from vitreous.deployment.serving.page import Examples
from vitreous.deployment.serving.workers import share_weights
from vitreous.errors import InputError
from vitreous.evaluation.outputs import automatic_precision
from vitreous.inspection.images import data_uri
from vitreous.models.program import Program
from vitreous.tasks.answering import has_weights, open_answerer
from vitreous.tasks.task import Task, module_of
from vitreous.training.run import Run

log = logging.getLogger(__name__)
EXAMPLES = 6
CARD = re.compile(r"^\W*licen[cs]e\W+(?P<name>[^\n|]*[^\n|\s*`])", re.IGNORECASE | re.MULTILINE)


def open_served(
    spec: str,
    *,
    device: torch.device,
    precision: str = "fp32",
    say: Callable[[str], None] = lambda sentence: None,
    limits: Limits = Limits(),  # noqa: B008 - immutable
    number: int = 0,
    **overrides: Any,
) -> Opened:
    """Open the model that MODEL means, warmed up.

    Args:
        precision: of matrix products; "auto" is bf16 where that is faster, and was compared with fp32.
        say: is called with a sentence about it.
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
    path = Path(spec).expanduser()
    folder = path / "model" if (path / "model").is_dir() else path
    chosen = automatic_precision(module_of(answerer), None, precision, device, folder=folder, say=say)
    if chosen == "bf16":
        served.lower()
    warm_up(served)
    counted = meta_model(served.model.config) if isinstance(served.model, Program) else served.model
    return Opened(
        served,
        {
            "name": path.resolve().name if path.exists() else spec,
            "trained": has_weights(spec),
            "parameters": sum(each.numel() for each in counted.parameters()),
            "device": str(device),
            "precision": chosen,
            "license": license(path),
        },
        examples,
    )


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
