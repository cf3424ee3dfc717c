"""Opening models and serving them; and exported classifiers, which are served without PyTorch."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from socket import socket
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import BaseModel, Field

from vitreous.deployment.answering import Prediction, choices, prepared, probabilities
from vitreous.deployment.engines import PIECE, PIXELS, Exported
from vitreous.deployment.serving import running
from vitreous.deployment.serving.app import Hosted, build_app
from vitreous.deployment.serving.endpoints import (
    Answer,
    Endpoint,
    ImageHeader,
    Limits,
    NoParameters,
    Question,
    ServedImages,
    parse,
)
from vitreous.deployment.serving.page import Examples, page_of
from vitreous.errors import InputError
from vitreous.languages import speaking
from vitreous.models.config_parts import Config


class Top(Config):
    top: Annotated[int, Field(ge=1, description="how many of the most probable labels to return")] = 5


class FeaturesAnswer(BaseModel):
    path: str
    features: list[float] = Field(description="what the head sees")


class LabelTensors(BaseModel):
    path: str
    label: str
    probability: float
    probabilities: list[float] = Field(description="one for each label, in their order")


class Opened(NamedTuple):
    """A model that is ready to be served.

    Attributes:
        about: what is known of it from outside: name, size, device, license, whether it has learned anything.
        examples: to try it with.
    """

    served: Any
    about: dict[str, Any]
    examples: Examples


def serve_models(
    specs: Mapping[str, str],
    opened: socket,
    ready: Callable[[dict[str, Any]], None],
    *,
    open_one: Callable[..., Opened],
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
        open_one: opens a MODEL, given the limits and its number.
        metrics_at: host and port of the counters, beside the other addresses where the port is None; None:
            nowhere.

    Raises:
        InputError: no model, names that are one in an address, or what `open_one` refuses.
    """
    if not specs:
        raise InputError("there is no model to serve: give one")
    names: dict[str, str] = {}
    for name in specs:
        if (first := names.setdefault(address_name(name), name)) != name:
            raise InputError(
                f"the models {first!r} and {name!r} would both be at /models/{address_name(name)}: rename one"
            )
    hosted = []
    with speaking(language), running.one_thread() as thread:
        for number, (name, spec) in enumerate(specs.items()):
            found = thread.submit(open_one, spec, limits=limits, number=number).result()
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


class ExportedClassifier(ServedImages):
    """Answers for an exported classifier."""

    task = "classification"

    def __init__(self, found: Exported, *, most_pixels: int) -> None:
        about, labels = found.about, found.about["labels"]
        config = SimpleNamespace(**about["model"])
        model = SimpleNamespace(
            preprocessing=found.preprocessing, config=config, task=about["task"], labels=labels
        )
        super().__init__(model, most_pixels)
        self.found, self.labels = found, found.labels
        labels_of = "The most probable labels of images, as vitreous predict --json gives them"
        offered = [Endpoint("predict", "predictions", labels_of, Top, Prediction, self.predict)]
        if about["inputs"] != PIXELS:
            features = "What the head sees of images"
            offered.append(
                Endpoint("embed", "features", features, NoParameters, FeaturesAnswer, self.features)
            )
        self.endpoints = tuple(offered)

    @property
    def tensors(self) -> Endpoint:
        """Every label's probability."""
        return Endpoint("tensors", "tensors", "", NoParameters, LabelTensors, self.label_tensors)

    def prepare(self, opened: ImageHeader) -> Any:
        """What `vitreous predict` makes of an image."""
        image = self.encoded(opened).upright()
        raw = self.found.about["inputs"] == PIXELS
        return image if raw else prepared(image, self.model.preprocessing)

    def facts(self) -> dict[str, Any]:
        return {"labels": self.labels, **super().facts()}

    def probabilities(self, questions: Sequence[Question]) -> np.ndarray:
        return probabilities(self.found, [each.what for each in questions])

    def predict(self, questions: Sequence[Question]) -> list[Answer]:
        return [
            Prediction.of(each.name, choices(self.labels, row, each.parameters.top)).to_json()
            for each, row in zip(questions, self.probabilities(questions), strict=True)
        ]

    def label_tensors(self, questions: Sequence[Question]) -> list[Answer]:
        return [
            {"path": each.name, **choices(self.labels, row, 1)[0].__dict__, "probabilities": row.tolist()}
            for each, row in zip(questions, self.probabilities(questions), strict=True)
        ]

    def features(self, questions: Sequence[Question]) -> list[Answer]:
        rows = self.found.compute(np.stack([each.what for each in questions]))[1]
        flat = rows.reshape(len(questions), -1).tolist()
        return [{"path": each.name, "features": row} for each, row in zip(questions, flat, strict=True)]


def open_exported_classifier(found: Exported, spec: str, *, most_pixels: int) -> Opened:
    """Return an exported classifier that is ready to be served, warmed up.

    Args:
        spec: MODEL as the user names it.
    """
    served = ExportedClassifier(found, most_pixels=most_pixels)
    what = served.decode(served.sample(), "warm-up")
    for endpoint in reversed(served.endpoints):
        question = Question("warm-up", what, parse({}, endpoint.parameters))
        sizes = (1, 1, 1, PIECE) if endpoint is served.endpoints[0] else (1,)
        for size in sizes:  # OpenVINO compiles both for labels, once it is called again and again
            endpoint.answer([question] * size)
    about = {
        "name": Path(spec).resolve().name,
        "trained": True,
        "parameters": found.about["parameters"] or 0,
        "device": "cpu",
        "precision": found.about["precision"] or "fp32",
        "license": found.about["license"],
    }
    return Opened(served, about, Examples())
