"""The web page of a served model, which asks its own server only."""

from __future__ import annotations

from collections.abc import Mapping

from vitreous import __version__
from vitreous.addons.serving.models import Regressor, ServedModel
from vitreous.extensions import outputs_of
from vitreous.inspection.page import templates_of
from vitreous.languages import phrase, words
from vitreous.models.vit import ViT

EXAMPLE = """curl -F files=@image.png ADDRESS/v1/{name}

import httpx
with open("image.png", "rb") as file:
    print(httpx.post("ADDRESS/v1/{name}", files={{"files": file}}).json())"""


def page_of(served: ServedModel, about: Mapping[str, object]) -> str:
    """Return the page's HTML."""
    facts, model = served.facts(), served.model
    height, width = model.preprocessing.size
    shown = {
        "parameters": f"{about['parameters']:,}",
        "input": phrase("serve.facts.pixels", height=height, width=width),
        **({"classes": str(len(served.labels))} if served.labels else {}),
        "precision": phrase("serve.facts.on", precision=about["precision"], device=about["device"]),
    }
    offered = [each.name for each in served.endpoints]
    settings = {
        "words": words("serve.script"),
        "trained": about["trained"],
        "main": offered[0],  # predict; embed without a head
        "key": served.endpoints[0].key,
        "exclusive": outputs_of(model) != "sigmoid",  # probabilities add up to 1
        "classes": len(served.labels),
        "named": bool(model.labels),  # else the labels are numbers
    }
    if isinstance(model, ViT) and "attention" in offered:
        settings["readout"] = phrase(f"readouts.{model.config.pooling.kind}")
        settings["grid"] = model.config.grid
    return (
        templates_of("vitreous.addons.serving")
        .get_template("serve.html.j2")
        .render(
            title=about["name"],
            about=about,
            kind="regression" if isinstance(served, Regressor) else "classification",
            facts=facts,
            offered=offered,
            commands=EXAMPLE.format(name=offered[0]),
            facts_shown={phrase(f"serve.facts.{name}"): value for name, value in shown.items()},
            settings=settings,
            version=__version__,
        )
    )
