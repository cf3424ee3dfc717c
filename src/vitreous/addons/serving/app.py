"""The HTTP side of a served model: its addresses, and the way of a request through them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import starmap
from typing import NamedTuple, Never

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from pydantic import BaseModel, Field, create_model
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from vitreous import __version__
from vitreous.addons.serving.batching import Batcher
from vitreous.addons.serving.limits import Guard, Refused, ServerLimits
from vitreous.addons.serving.models import AnswerBody, Endpoint, Question, ServedModel, parse_parameters
from vitreous.models.config_parts import Config
from vitreous.models.stored import BadImage

# The page carries its styles and scripts in itself and asks only the server that it came from.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
}
FIELDS = 32  # of a form, beside its files
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        histogram = partial(Histogram, labelnames=["endpoint"], registry=registry)
        labels = ["endpoint", "status"]
        self.requests = Counter("vitreous_requests", "Answered requests", labels, registry=registry)
        arriving = "From a request's first byte to its answer"
        self.seconds = histogram("vitreous_request_seconds", arriving, buckets=SECONDS)
        self.sizes = histogram("vitreous_batch_size", "Images computed together", buckets=SIZES)
        self.computing = histogram("vitreous_batch_seconds", "Time of the model for a batch", buckets=SECONDS)
        self.queue = Gauge("vitreous_queue", "Images accepted and not yet answered", registry=registry)
        ProcessCollector(registry=registry)  # memory, CPU time, open files

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        self.requests.labels(endpoint, str(status)).inc()
        self.seconds.labels(endpoint).observe(seconds)

    def batch(self, endpoint: str, size: int, seconds: float) -> None:
        self.sizes.labels(endpoint).observe(size)
        self.computing.labels(endpoint).observe(seconds)


class Loaded(NamedTuple):
    """A model that is ready: what answers, what is known of it from outside, and its page."""

    model: ServedModel
    about: Mapping[str, object]
    page: str


Upload = tuple[str, bytes]  # what an image is called in the answer, and its file


class Failed(BaseModel):
    """An image, and what is wrong with it: why it has no answer, or what is missing of it."""

    path: str
    reason: str


# The answer to an image, and what is wrong with it: None and why it has no answer, or what is missing of it.
AnswerAndFailure = tuple[AnswerBody | None, Failed | None]


class Server:
    """What the requests share.

    Args:
        model_thread: one thread, which runs the model. It should be the one that loaded it: OpenMP's threads
            wait asleep instead of awake, and a small model takes a third longer, as soon as two of a
            process's threads have computed on all cores.
        decoders: threads that decode images.
    """

    def __init__(
        self, loaded: Loaded, limits: ServerLimits, model_thread: Executor, decoders: Executor
    ) -> None:
        self.model_thread, self.decoders = model_thread, decoders
        # A request with more images than the queue takes could never be admitted: it is too large.
        self.limits = limits._replace(images=min(limits.images, limits.queue))
        self.metrics = Metrics()
        self.inside = 0  # images that are accepted, and neither answered nor given up
        self.metrics.queue.set_function(lambda: self.inside)
        self.latest = 1.0  # seconds that the last request took: about what a full house needs to empty
        self.use(loaded)

    def use(self, loaded: Loaded) -> None:
        """Answer new requests with this model; those that were accepted keep the one before."""
        self.loaded = loaded
        self.batchers: dict[str, Batcher[Question, AnswerBody]] = {}
        for endpoint in loaded.model.endpoints:
            self.batchers[endpoint.name] = Batcher(
                endpoint.answer,
                executor=self.model_thread,
                max_batch=self.limits.max_batch if endpoint.together else 1,
                max_wait=self.limits.max_wait if endpoint.together else 0.0,
                observe=partial(self.metrics.batch, f"/v1/{endpoint.name}"),
            )

    async def answers(
        self, endpoint: str, uploads: Sequence[Upload], parameters: Config
    ) -> list[AnswerAndFailure]:
        """Return the answers to all images of a request, in order. Raises Refused: the queue is full, or it
        takes too long."""
        model, batcher, count = self.loaded.model, self.batchers[endpoint], len(uploads)
        loop = asyncio.get_running_loop()
        if self.inside + count > self.limits.queue:  # none of them is taken
            seconds = min(max(math.ceil(self.latest), 1), 60)
            raise Refused(503, f"the server is busy: ask again in {seconds} s", Retry_After=str(seconds))

        async def answer(name: str, data: bytes) -> AnswerAndFailure:
            try:
                pixels, damage = await loop.run_in_executor(self.decoders, model.prepare, data, name)
                found = await batcher.ask(Question(name, pixels, parameters))
                return found, None if damage is None else Failed(path=name, reason=damage)
            except BadImage as bad:
                return None, Failed(path=name, reason=bad.reason)

        began = time.monotonic()
        self.inside += count
        try:
            async with asyncio.timeout(self.limits.deadline):
                return await asyncio.gather(*starmap(answer, uploads))
        except TimeoutError:
            late = f"the answer took longer than {self.limits.deadline:g} s: send less at once"
            raise Refused(504, late) from None
        finally:
            self.inside -= count
            self.latest = time.monotonic() - began


def build_app(server: Server, *, hosts: Collection[str] | None, token: str | None) -> FastAPI:
    """Return the application of a server; of `hosts` and `token` see `Guard`."""
    app = FastAPI(
        title=f"vitreous serve {server.loaded.about['name']}",
        version=__version__,
        description="Every address, what it takes and what it answers.",
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
    )
    offered = []
    for endpoint in server.loaded.model.endpoints:
        add_endpoint(app, server, endpoint)
        offered.append(f"POST /v1/{endpoint.name}")
    add_facts(app, server)
    addresses = ", ".join([*offered, "GET /v1/model", "GET /openapi.json", "GET /"])

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> Never:
        sentence = str(error.detail)
        if error.status_code in (404, 405):
            sentence = f"{request.method} {request.url.path[:200]} does not exist; available are {addresses}"
        raise Refused(error.status_code, sentence, **dict(error.headers or {}))

    app.add_middleware(Guard, limits=server.limits, hosts=hosts, token=token, observe=server.metrics.request)
    return app


def add_endpoint(app: FastAPI, server: Server, endpoint: Endpoint) -> None:
    """Add POST /v1/NAME, and its documentation."""

    async def handle(request: Request) -> Response:
        images, given = await read_images(request, server.limits)
        parameters = parse_parameters(given, endpoint.parameters)
        png = getattr(parameters, "format", "json") == "png"
        if png and len(images) > 1:
            raise Refused(400, f"format=png answers one image, not {len(images)}: send one")
        answers = await server.answers(endpoint.name, images, parameters)
        return answers_response(endpoint.key, answers)

    envelope = create_model(
        f"{endpoint.name.title()}Answers",
        **{  # type: ignore[call-overload]
            endpoint.key: (list[endpoint.item], ...),
            "failed": (list[Failed], ...),
            "damaged": (list[Failed], ...),
        },
    )
    good: dict[str, object] = {"model": envelope}
    if "format" in endpoint.parameters.model_fields:
        good["content"] = {"image/png": {"schema": FILE}}
    path = f"/v1/{endpoint.name}"
    app.add_api_route(
        path,
        handle,
        methods=["POST"],
        name=endpoint.name,
        operation_id=f"post {path}",
        summary=endpoint.summary,
        response_class=JSONResponse,
        responses={
            200: good,
            **{status: {"model": ErrorResponse, "description": words} for status, words in REFUSALS.items()},
        },
        openapi_extra={"parameters": query_parameters(endpoint), "requestBody": IMAGES},
    )


async def read_images(request: Request, limits: ServerLimits) -> tuple[list[Upload], dict[str, str]]:
    """Return what a request brings: images, those of a form (every part with a file name, whatever its field
    is called) or the one that is the body itself; and the parameters in its query and in the other parts.
    Raises Refused."""
    images: list[Upload] = []
    parameters = dict(request.query_params)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        form = request.form(max_files=limits.images, max_fields=FIELDS, max_part_size=limits.body)
        try:
            async with form as parts:
                for field, value in parts.multi_items():
                    if isinstance(value, str):
                        parameters[field] = value
                    else:
                        images.append((value.filename or field, await value.read()))
        except HTTPException as error:
            if "Too many files" in error.detail:
                raise Refused(413, f"a request may bring {limits.images} images, no more") from None
            raise Refused(400, f"the form cannot be read: {error.detail}") from None
    elif kind.startswith("image/") or kind == "application/octet-stream":
        if data := await request.body():
            images.append(("image", data))
    else:
        wanted = "multipart/form-data (curl -F files=@photo.jpg), or one image as image/*"
        raise Refused(415, f"a body of type {kind or 'unknown'} cannot be read: send {wanted}")
    if not images:
        raise Refused(400, "the request brings no images: send at least one")
    return images, parameters


def answers_response(key: str, answers: Sequence[AnswerAndFailure]) -> Response:
    """Return the answers, the images without one, and what is missing of damaged ones; a refusal where not
    one has an answer, which says the name of the first."""
    failed = [wrong for answer, wrong in answers if answer is None and wrong]
    if len(failed) == len(answers):
        more = f"; {len(failed) - 1} more cannot be answered either" if len(failed) > 1 else ""
        raise Refused(422, f"{failed[0].path[:200]}: {failed[0].reason}{more}")
    good: list[dict[str, object]] = []
    damaged: list[Failed] = []
    for answer, damage in answers:
        if isinstance(answer, bytes):  # the only one
            about = {} if damage is None else {"Vitreous-Damaged": damage.reason}
            return Response(answer, media_type="image/png", headers=about)
        if answer is None:
            continue
        good.append(answer if damage is None else {**answer, "damaged": damage.reason})
        damaged += [damage] if damage else []
    found = {key: good, "failed": failed, "damaged": damaged}
    return Response(to_json(found), media_type="application/json")


def add_facts(app: FastAPI, server: Server) -> None:
    """Add what is answered without an image: the model, health, counters, the page."""

    @app.get("/v1/model", summary="The model that is served: task, labels, preprocessing, size")
    async def facts() -> dict[str, object]:
        model = server.loaded.model
        return {
            **server.loaded.about,
            **model.facts(),
            "endpoints": [f"/v1/{each.name}" for each in model.endpoints],
            "limits": server.limits._asdict(),
            "version": __version__,
        }

    @app.get("/healthz", summary="Whether the server is up")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", summary="Counters for Prometheus", response_class=Response)
    async def metrics() -> Response:
        text = generate_latest(server.metrics.registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(server.loaded.page, headers=PAGE_HEADERS)


# --- OpenAPI -----------------------------------------------------------------------------------------------


class ErrorResponse(BaseModel):
    """What every refusal looks like."""

    error: str = Field(description="one sentence: what is wrong, and what to do")


REFUSALS = {
    400: "the body of the request cannot be parsed",
    401: "the token is missing or wrong",
    403: "the request comes from a web page on another server",
    404: "the address does not exist",
    408: "the request takes too long to arrive",
    413: "the request is too large, or contains too many images",
    415: "the content type is not supported",
    421: "the Host header names a host that the server does not accept",
    422: "none of the images can be processed, or a parameter is invalid",
    503: "the queue is full (try again after Retry-After seconds), or the server is stopping",
    504: "the request could not be answered before the deadline",
}
FILE = {"type": "string", "format": "binary", "minLength": 1}
FILES = {"type": "array", "items": FILE, "minItems": 1}
IMAGES = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {"type": "object", "required": ["files"], "properties": {"files": FILES}}
        },
        "image/*": {"schema": FILE},
    },
}


def query_parameters(endpoint: Endpoint) -> list[dict[str, object]]:
    """Return the parameters of the query; the same names do in a form."""
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
