"""The web page of a served model, which asks its own server only, and what OpenAPI says of an endpoint."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from shlex import quote
from typing import Any, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from pydantic import create_model

from vitreous import __version__
from vitreous.deployment.serving.endpoints import Endpoint, Failed, Limits, Problem, Served
from vitreous.deployment.serving.uploads import ImageBody, TextBody
from vitreous.inspection.images import inferno
from vitreous.languages import CURRENT, percentage, phrase, words

DIGITS = "digits"


class Examples(NamedTuple):
    """What a visitor can try. source: the run's data, or "". images: data URIs. texts: to be translated."""

    source: str = ""
    images: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


CURL_IMAGE = """curl -F files=@image.png ADDRESS/v1/{name}

import httpx
with open("image.png", "rb") as file:
    print(httpx.post("ADDRESS/v1/{name}", files={{"files": file}}).json())"""
CURL_TEXT = """curl --json {quoted} ADDRESS/v1/{name}

import httpx
print(httpx.post("ADDRESS/v1/{name}", json={body}).json())"""


@cache
def templates() -> Environment:
    """The templates of all pages."""
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
    environment.filters["percent"] = percentage
    environment.globals |= {"phrase": phrase, "language": CURRENT.get}
    return environment


def docs_page(schema: Mapping[str, Any]) -> str:
    """The addresses of an OpenAPI description, as a page that loads nothing from elsewhere."""
    operations = [
        {
            "anchor": f"{method}{path.replace('/', '-').translate(str.maketrans('', '', '{}'))}",
            "title": f"{method.upper()} {path}",
            "answers": list(answer_fields(schema, operation["responses"]["200"])),
            **operation,
        }
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
        if method != "head"
    ]
    page = templates().get_template("serve_docs.html.j2")
    return page.render(schema=schema, operations=operations, version=__version__)


def answer_fields(schema: Mapping[str, Any], part: Any, name: str = "") -> Iterator[tuple[str, str, str]]:
    """The fields of a JSON answer, as a path, a type and a description; those of lists and objects below
    them."""
    part = part.get("content", {}).get("application/json", {}).get("schema", part)
    if "$ref" in part:
        part = schema["components"]["schemas"][part["$ref"].rpartition("/")[2]]
    for each in part.get("anyOf", ()):
        if each.get("type") != "null":
            part = {**each, **part}
            break
    kind = part.get("type", "")
    if name and kind:
        yield name, kind, part.get("description", "")
    if isinstance(part.get("items"), dict):
        inner = part["items"]
        if "$ref" in inner:
            yield from list(answer_fields(schema, inner, name + "[]"))[1:]
    for key, inner in part.get("properties", {}).items():
        yield from answer_fields(schema, inner, f"{name}.{key}".strip("."))


def models_page(names: Iterable[str]) -> str:
    """The list of the models that are served."""
    return templates().get_template("serve_models.html.j2").render(names=names, version=__version__)


def page_of(served: Served, about: Mapping[str, Any], examples: Examples, limits: Limits) -> str:
    """The page's HTML."""
    facts = served.facts()
    main = served.endpoints[0]
    commands = CURL_TEXT if served.takes == "texts" else CURL_IMAGE
    texts = examples.texts[:1] or [phrase("serve.any-text")]
    body = json.dumps({"texts": texts}, ensure_ascii=False)
    pooling = getattr(served.model.config, "pooling", None)
    return (
        templates()
        .get_template("serve.html.j2")
        .render(
            title=about["name"],
            about=about,
            task=served.task,
            takes=served.takes,
            facts=facts,
            offered=[each.name for each in served.endpoints],
            examples=examples,
            draws=examples.source == DIGITS and served.task == "classification",
            commands=commands.format(name=main.name, body=body, quoted=quote(body)),
            facts_shown=model_facts(about, facts),
            settings={
                "words": words("serve.script"),
                "trained": about["trained"],
                "exclusive": getattr(served.model, "task", None) != "multilabel",  # probabilities add up to 1
                "readout": pooling and phrase(f"readouts.{pooling}"),
                "predict": {}
                if main.name == "predict"
                else None,  # parameters; a model without a head has none
                "most": limits.images,
                "layers": facts.get("layers", 0),
                "labels": facts.get("labels", []),
                "named": bool(getattr(served.model, "labels", None)),  # else the labels are numbers
                "grid": getattr(served.model.config, "grid", []),
                "palette": facts.get("palette", []),
                "size": facts["preprocessing"]["size"] if "preprocessing" in facts else [],
                "heat": base64.b64encode(inferno().tobytes()).decode("ascii"),
            },
            version=__version__,
        )
    )


def model_facts(about: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, str]:
    """The model in a few facts."""
    found = {"parameters": f"{about['parameters']:,}"}
    if "preprocessing" in facts:
        height, width = facts["preprocessing"]["size"]
        found["input"] = phrase("serve.facts.pixels", height=height, width=width)
    if facts.get("labels"):
        found["classes"] = str(len(facts["labels"]))
    found["precision"] = phrase("serve.facts.on", precision=about["precision"], device=about["device"])
    found["license"] = about["license"] or phrase("serve.facts.no-license")
    return {phrase(f"serve.facts.{name}"): value for name, value in found.items()}


# --- OpenAPI ---

DIGEST = {
    400: "the body cannot be understood",
    401: "a token is needed",
    403: "a page of another server asks",
    404: "no such address, or no such model",
    408: "the body takes too long to arrive",
    413: "too large, or too many",
    415: "a content type that cannot be read",
    421: "a host that the server does not answer for",
    422: "no image or text that can be answered, or a parameter that does not do",
    504: "no answer within the time that a request may take",
    503: "too much to do: ask again after Retry-After seconds",
}


def responses_of(endpoint: Endpoint) -> dict[int | str, dict[str, Any]]:
    """The answers and the refusals."""
    envelope = create_model(
        f"{endpoint.name.title()}Answers",
        **{endpoint.key: (list[endpoint.item], ...), "failed": (list[Failed], ...)},  # type: ignore[call-overload]
    )
    return {200: {"model": envelope, **imaged(endpoint)}, **refusals()}


def refusals() -> dict[int | str, dict[str, Any]]:
    """What may be answered instead."""
    return {status: {"model": Problem, "description": words} for status, words in DIGEST.items()}


def request_of(endpoint: Endpoint, takes: str) -> dict[str, Any]:
    """The parameters and the body."""
    return {"parameters": query_parameters(endpoint), "requestBody": IMAGES if takes == "images" else TEXTS}


def query_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    """For the documentation; the same names do in a form and in JSON."""
    schema = endpoint.parameters.model_json_schema()
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": field.pop("description", ""),
            "schema": field,
        }
        for name, field in schema.get("properties", {}).items()
    ]


def imaged(endpoint: Endpoint) -> dict[str, Any]:
    """That an answer may be a PNG."""
    if "format" not in endpoint.parameters.model_fields:
        return {}
    return {"content": {"image/png": {"schema": FILE}}}


# For the documentation: what may be sent.
FILE = {"type": "string", "format": "binary", "minLength": 1}
SOME = {"type": "array", "items": FILE, "minItems": 1}
FILES = {"type": "object", "required": ["files"], "properties": {"files": SOME}}
IMAGES = {
    "required": True,
    "content": {
        "multipart/form-data": {"schema": FILES},
        "application/json": {"schema": ImageBody.model_json_schema()},
        "image/*": {"schema": FILE},
    },
}
TEXTS = {"required": True, "content": {"application/json": {"schema": TextBody.model_json_schema()}}}
