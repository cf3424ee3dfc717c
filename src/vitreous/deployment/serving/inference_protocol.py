"""The Open Inference Protocol, version 2 (KServe, Triton), over REST: /v2.

A model has one input, "images" or "texts", of type BYTES: files in base64 or, after the JSON, as they are
(the binary extension). Its outputs are the fields of its answers, a tensor each.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core import to_json
from starlette.responses import Response

from vitreous import __version__
from vitreous.deployment.serving.endpoints import Endpoint, Failed, Limits, Refused, parse
from vitreous.deployment.serving.page import refusals
from vitreous.deployment.serving.uploads import Upload, check_count, from_base64, parse_object
from vitreous.models.settings import explain

if TYPE_CHECKING:
    from vitreous.deployment.serving.app import Hosted, Server

LENGTH = "inference-header-content-length"  # of the JSON before binary data
OWN = frozenset({"binary_data_output", "binary_data_size"})  # parameters of the protocol, not of the model


class InferInput(BaseModel):
    """The images or texts of a request."""

    model_config = ConfigDict(extra="forbid")
    name: str
    datatype: Literal["BYTES"]
    shape: list[int] = Field(max_length=2)
    parameters: dict[str, Any] = Field(default_factory=dict)
    data: list[Any] | None = None


class InferRequest(BaseModel):
    """A request of the protocol."""

    model_config = ConfigDict(extra="ignore")
    id: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    inputs: list[Annotated[InferInput, WithJsonSchema(InferInput.model_json_schema())]] = Field(
        min_length=1, max_length=1
    )


def add_protocol(app: FastAPI, server: Server) -> None:
    """Add the addresses below /v2."""

    def hosted_named(name: str) -> Hosted:
        if name not in server.hosted:
            raise Refused(404, f"there is no model {name[:100]!r}; the models are {', '.join(server.hosted)}")
        return server.hosted[name]

    async def about_server() -> dict[str, Any]:
        return {"name": "vitreous", "version": __version__, "extensions": ["binary_tensor_data"]}

    async def live() -> dict[str, bool]:
        return {"live": True}

    async def ready() -> JSONResponse:
        return JSONResponse({"ready": server.ready()}, 200 if server.ready() else 503)

    async def model_ready(name: str) -> JSONResponse:
        hosted_named(name)
        return await ready()

    async def about_model(name: str) -> dict[str, Any]:
        hosted = hosted_named(name)
        inputs = [{"name": hosted.served.takes, "datatype": "BYTES", "shape": [-1]}]
        outputs = [
            {"name": key, "datatype": kind, "shape": shape}
            for key, (kind, shape) in output_types(hosted.served.tensors).items()
        ]
        return {"name": name, "versions": ["1"], "platform": "vitreous", "inputs": inputs, "outputs": outputs}

    async def infer(name: str, request: Request) -> Response:
        hosted = hosted_named(name)
        endpoint = hosted.served.tensors
        body, length = await request.body(), request.headers.get(LENGTH)
        wanted, uploads = await asyncio.to_thread(
            read_inputs, body, length, hosted.served.takes, server.limits
        )
        given = {key: value for key, value in wanted.parameters.items() if key not in OWN}
        parameters = parse(given, endpoint.parameters)
        outcomes = await server.answers(request, hosted, endpoint, uploads, parameters)
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                raise Refused(422, f"{outcome.path[:200]}: {outcome.reason}")
        answer = {
            "model_name": name,
            "model_version": "1",
            **({} if wanted.id is None else {"id": wanted.id}),
            "outputs": outputs_of(outcomes, output_types(endpoint)),
        }
        return Response(to_json(answer, inf_nan_mode="null"), media_type="application/json")

    schema = {"required": True, "content": {"application/json": {"schema": InferRequest.model_json_schema()}}}
    routes = (
        ("", about_server, "The Open Inference Protocol: what serves"),
        ("/health/live", live, "Whether the server is up"),
        ("/health/ready", ready, "Whether the server can take a request"),
        ("/models/{name}", about_model, "Inputs and outputs of a model"),
        ("/models/{name}/ready", model_ready, "Whether a model can take a request"),
    )
    for path, answer, summary in routes:
        app.add_api_route(f"/v2{path}", answer, methods=["GET"], summary=summary, responses=refusals())
    app.add_api_route(
        "/v2/models/{name}/infer",
        infer,
        methods=["POST"],
        summary="Answers as tensors",
        response_class=JSONResponse,
        responses=refusals(),
        openapi_extra={"requestBody": schema},
    )


def read_inputs(
    body: bytes, length: str | None, takes: str, limits: Limits
) -> tuple[InferRequest, list[Upload]]:
    """The request, and its images or texts. Raises Refused."""
    if length is not None and not (length.isdecimal() and len(length) <= 20 and int(length) <= len(body)):
        raise Refused(400, f"the header {LENGTH} is not the length of the JSON")
    end = len(body) if length is None else int(length)
    try:
        request = InferRequest.model_validate(parse_object(body[:end]))
    except ValidationError as error:
        raise Refused(400, explain(error, "body")) from None
    given = request.inputs[0]
    if given.name != takes:
        raise Refused(400, f"the model has no input {given.name[:100]!r}: it is {takes!r}")
    elements = binary_elements(body[end:], limits) if given.data is None else given.data
    check_count(len(elements), limits, takes)
    if not elements or any(size not in (1, len(elements)) for size in given.shape):
        raise Refused(400, f"{len(elements)} {takes} are not of shape {given.shape}")
    uploads = []
    for number, element in enumerate(elements):
        name = f"{takes}[{number}]"
        if isinstance(element, str):
            element = element.encode("utf-8", "replace") if takes == "texts" else from_base64(element, name)
        if not isinstance(element, bytes):
            raise Refused(400, f"{name} is not text: BYTES are strings, of images in base64")
        if takes == "texts" and len(element) > limits.characters:
            raise Refused(413, f"{name} is over the {limits.characters} bytes allowed")
        uploads.append(Upload(name, element))
    return request, uploads


def binary_elements(data: bytes, limits: Limits) -> list[bytes]:
    """The elements of binary BYTES, each after its length in four bytes, the lowest first. Raises Refused."""
    elements: list[bytes] = []
    place = 0
    while place < len(data) and len(elements) <= limits.images:
        start = place + 4
        place = start + int.from_bytes(data[place:start], "little")
        if place > len(data):
            raise Refused(400, "the binary data end within an element")
        elements.append(data[start:place])
    return elements


def output_types(endpoint: Endpoint) -> dict[str, tuple[str, list[int]]]:
    """The type and the shape of each output: of text BYTES, of a number FP32, of numbers a matrix, and of
    anything else its JSON."""
    types = {}
    for name, field in TypeAdapter(endpoint.item).json_schema()["properties"].items():
        if name in ("path", "source"):
            continue
        if field.get("type") == "number":
            types[name] = ("FP32", [-1])
        elif field.get("type") == "array" and field.get("items", {}).get("type") == "number":
            types[name] = ("FP32", [-1, -1])
        else:
            types[name] = ("BYTES", [-1])
    return types


def outputs_of(answers: Sequence[Any], types: Mapping[str, tuple[str, list[int]]]) -> list[dict[str, Any]]:
    """The outputs of a response."""
    outputs = []
    for name, (kind, shape) in types.items():
        column = [answer.get(name) for answer in answers]
        sizes = [len(column)]
        if len(shape) == 2:
            sizes.append(len(column[0]))
            column = [number for row in column for number in row]
        elif kind == "BYTES":
            column = [each if isinstance(each, str) else json.dumps(each) for each in column]
        outputs.append({"name": name, "datatype": kind, "shape": sizes, "data": column})
    return outputs
