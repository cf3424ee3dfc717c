"""What OpenAPI says of an endpoint: its parameters, what may be sent, and its answers."""

from __future__ import annotations

from typing import Any

from pydantic import create_model

from vitreous.deployment.serving.endpoints import Endpoint, Failed, Problem
from vitreous.deployment.serving.uploads import ImageBody, TextBody

DIGEST = {
    400: "the body cannot be understood",
    401: "a token is needed",
    403: "a page of another server asks",
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
    return {
        200: {"model": envelope, **imaged(endpoint)},
        **{status: {"model": Problem, "description": words} for status, words in DIGEST.items()},
    }


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
FILE = {"type": "string", "format": "binary"}
FILES = {"type": "object", "required": ["files"], "properties": {"files": {"type": "array", "items": FILE}}}
IMAGES = {
    "required": True,
    "content": {
        "multipart/form-data": {"schema": FILES},
        "application/json": {"schema": ImageBody.model_json_schema()},
        "image/*": {"schema": FILE},
    },
}
TEXTS = {"required": True, "content": {"application/json": {"schema": TextBody.model_json_schema()}}}
