"""The web page of a served model: one file that asks nobody but its own server."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from vitreous import __version__
from vitreous.deployment.serving.endpoints import Served
from vitreous.deployment.serving.examples import DIGITS, Examples
from vitreous.deployment.serving.uploads import Limits
from vitreous.inspection.images import heat


class Words(NamedTuple):
    """What the page says of a task: its kind, what to do, what stands where the answer will be, and what the
    examples are."""

    kind: str
    lead: str
    empty: str
    examples: str


WORDS = {
    "classification": Words(
        "An image classifier",
        "Give it an image. It answers with its likeliest classes, and shows where it looked.",
        "The classes of your image will stand here, and where the model looked.",
        "Or try a held-out image",
    ),
    "reading": Words(
        "A reader of images",
        "Give it an image of text. It writes what it reads, and shows where it read each character.",
        "The text of your image will stand here.",
        "Or try a line that it has never seen",
    ),
    "translation": Words(
        "A translator",
        "Give it a text. It writes the translation, and shows which word came from where.",
        "The translation will stand here, and which word looked at which.",
        "",
    ),
    "segmentation": Words(
        "A segmenter",
        "Give it an image. It gives each pixel a class.",
        "Your image will stand here with its classes laid over it.",
        "Or try an image that it has never seen",
    ),
}
CURL_IMAGE = """curl -F files=@image.png ADDRESS/v1/{name}

import httpx
with open("image.png", "rb") as file:
    print(httpx.post("ADDRESS/v1/{name}", files={{"files": file}}).json())"""
CURL_TEXT = """curl --json '{{"texts": ["{text}"]}}' ADDRESS/v1/{name}

import httpx
print(httpx.post("ADDRESS/v1/{name}", json={{"texts": ["{text}"]}}).json())"""


def page_of(served: Served, about: Mapping[str, Any], examples: Examples, limits: Limits) -> str:
    """The page's HTML."""
    environment = Environment(
        loader=ChoiceLoader(
            [
                PackageLoader("vitreous.deployment.serving", "templates"),
                PackageLoader("vitreous.inspection", "templates"),  # the frame and the style of all pages
            ]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    facts = served.facts()
    main = served.endpoints[0]
    commands = CURL_TEXT if main.takes == "texts" else CURL_IMAGE
    return environment.get_template("serve.html.j2").render(
        title=about["name"],
        about=about,
        task=served.task,
        takes=main.takes,
        words=WORDS[served.task],
        facts=facts,
        offered=[each.name for each in served.endpoints],
        examples=examples,
        draws=examples.source == DIGITS and served.task == "classification",
        commands=commands.format(name=main.name, text=examples.texts[0] if examples.texts else "a text"),
        told=told(about, facts),
        settings={
            "predict": predict_parameters(main.name),
            "most": limits.images,
            "layers": facts.get("layers", 0),
            "labels": facts.get("labels", []),
            "palette": facts.get("palette", []),
            "size": facts["preprocessing"]["size"] if "preprocessing" in facts else [],
            "heat": base64.b64encode(heat(torch.linspace(0, 1, 256)[None]).tobytes()).decode("ascii"),
        },
        version=__version__,
    )


def predict_parameters(name: str) -> dict[str, Any] | None:
    """How the page asks for the answer itself; None where a model without a head has none."""
    return {} if name == "predict" else None


def told(about: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, str]:
    """The model in a few facts."""
    found = {"Parameters": f"{about['parameters']:,}"}
    if "preprocessing" in facts:
        height, width = facts["preprocessing"]["size"]
        found["Sees"] = f"{height}×{width} pixels"
    if facts.get("labels"):
        found["Classes"] = str(len(facts["labels"]))
    found["Computes"] = f"{about['precision']} on {about['device']}"
    found["License"] = about["license"] or "none named"
    return found
