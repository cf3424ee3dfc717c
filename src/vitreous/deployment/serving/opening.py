"""From MODEL, as the command line names it, to what is served."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from vitreous.checkpoints import open_model
from vitreous.checkpoints.files import read_json
from vitreous.deployment.serving.classifying import Classifier
from vitreous.deployment.serving.endpoints import Answer, Endpoint, Question, Served, parse
from vitreous.deployment.serving.examples import (
    Examples,
    examples_of,
    image_examples,
    line_examples,
    page_examples,
    text_examples,
)
from vitreous.deployment.serving.segmenting import ImageSegmenter
from vitreous.deployment.serving.uploads import Limits
from vitreous.deployment.serving.writing import ImageReader, TextTranslator
from vitreous.errors import InputError
from vitreous.evaluation.trained import check_has_classes, has_weights
from vitreous.models.segmenter import Segmenter
from vitreous.training.precision import pick_precision
from vitreous.training.sequence.reader import Reader
from vitreous.training.sequence.translator import Translator

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


def open_served(
    spec: str,
    *,
    device: torch.device,
    precision: Literal["auto", "fp32", "bf16"] = "fp32",
    limits: Limits = Limits(),  # noqa: B008 - immutable
    **overrides: Any,
) -> Opened:
    """The model that MODEL means, warmed up.

    Args:
        precision: of matrix products; "auto" is bf16 where that is clearly faster.
        overrides: of the configuration, such as `image_size`; for classifiers.

    Raises:
        InputError: nothing there, damaged, or a model of a kind that cannot be served.
    """
    served, examples = served_model(spec, device, limits, overrides)
    chosen = pick_precision(precision, device)
    if chosen == "bf16":
        served.endpoints = tuple(in_bf16(each, device) for each in served.endpoints)
    warm_up(served)
    path = Path(spec).expanduser()
    return Opened(
        served,
        {
            "name": path.resolve().name if path.exists() else spec,
            "trained": has_weights(spec),
            "parameters": sum(each.numel() for each in served.model.parameters()),
            "device": str(device),
            "precision": chosen,
            "license": license(path),
        },
        examples,
    )


def served_model(
    spec: str, device: torch.device, limits: Limits, overrides: dict[str, Any]
) -> tuple[Served, Examples]:
    """The one of the four kinds that lies there."""
    path = Path(spec).expanduser()
    kind = kind_of(path)
    if kind in ("Captioner", "Transformer") and overrides:
        raise InputError(f"{spec} writes text: its image size cannot be changed")
    if kind == "Captioner":
        reader = Reader.load(path)
        reader.model.to(device)
        return ImageReader(reader, most_pixels=limits.pixels), examples_of(spec, line_examples)
    if kind == "Transformer":
        translator = Translator.load(path)
        translator.model.to(device)
        return TextTranslator(translator), examples_of(spec, text_examples)
    model = open_model(spec, **overrides)
    if isinstance(model, Segmenter):
        segmenter = ImageSegmenter(model, device, most_pixels=limits.pixels)
        return segmenter, examples_of(spec, page_examples)
    check_has_classes(model, spec)
    classifier = Classifier(model, device, most_pixels=limits.pixels)
    return classifier, examples_of(spec, image_examples)


def kind_of(path: Path) -> str | None:
    """What a folder of the project's own says that its model is; None for everything else."""
    for config in (path / "model" / "config.json", path / "config.json"):
        if config.is_file():
            kind = read_json(config).get("kind")
            return kind if isinstance(kind, str) else None
    return None


def in_bf16(endpoint: Endpoint, device: torch.device) -> Endpoint:
    """The same, its matrix products in bfloat16. What is looked at stays in float32."""
    if not endpoint.together:
        return endpoint
    return endpoint._replace(answer=autocast(endpoint.answer, device))


def autocast(
    answer: Callable[[Sequence[Question]], list[Answer]], device: torch.device
) -> Callable[[Sequence[Question]], list[Answer]]:
    def lowered(questions: Sequence[Question]) -> list[Answer]:
        with torch.autocast(device.type, torch.bfloat16):
            return answer(questions)

    return lowered


def warm_up(served: Served) -> None:
    """Ask everything once: kernels are chosen and memory is found before the first user comes."""
    what = served.decode(served.sample(), "warm-up")
    for endpoint in served.endpoints:
        endpoint.answer([Question("warm-up", what, parse({}, endpoint.parameters))])


def license(path: Path) -> str | None:
    """The license that the model card beside the weights names, in its own words."""
    folder = path if path.is_dir() else path.parent
    for card in (folder / "README.md", folder / "model" / "README.md"):
        if path.exists() and card.is_file():
            named = CARD.search(card.read_text(encoding="utf-8", errors="replace"))
            return named["name"].strip(" :*`") if named else None
    return None
