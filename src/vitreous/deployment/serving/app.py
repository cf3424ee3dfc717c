"""The HTTP side of a served model: a FastAPI application on top of the batchers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import create_model
from pydantic_core import to_json

from vitreous import __version__
from vitreous.data.decoding import BadImage
from vitreous.data.loading import one_core, worker_count
from vitreous.deployment.serving.batching import Batcher, Room
from vitreous.deployment.serving.endpoints import (
    Answer,
    Endpoint,
    Failed,
    Limits,
    Problem,
    Question,
    Refused,
    Served,
    parse,
)
from vitreous.deployment.serving.guard import LEFT, Guard, Metrics, refusal, say_errors
from vitreous.deployment.serving.uploads import (
    Asked,
    ImageBody,
    TextBody,
    Upload,
    read_images,
    read_texts,
)
from vitreous.errors import InputError

# The page carries its styles and scripts in itself and asks only the server that it came from.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
}
DIGEST = {
    400: "the body cannot be understood",
    408: "the body takes too long to arrive",
    413: "too large, or too many",
    415: "a content type that cannot be read",
    422: "no image or text that can be answered, or a parameter that does not do",
    503: "too much to do: ask again after Retry-After seconds",
}


class Pace(NamedTuple):
    """Dynamic batching: the largest batch, seconds to wait for others, and how many images or texts may be
    queued."""

    max_batch: int = 32
    max_wait: float = 0.005
    queue: int = 256


class Server:
    """What the requests share while the application runs."""

    def __init__(self, served: Served, pace: Pace, limits: Limits, model_thread: Executor) -> None:
        self.served = served
        self.model_thread = model_thread
        self.pace = pace
        # A request with more images than the queue takes could never be admitted: it is too large.
        self.limits = limits._replace(images=min(limits.images, pace.queue))
        self.room = Room(pace.queue)
        self.metrics = Metrics(lambda: self.room.inside)
        self.batchers: dict[str, Batcher[Question, Answer]] = {}

    @asynccontextmanager
    async def running(self, app: FastAPI) -> AsyncIterator[None]:
        """The lifespan of the application."""
        with ThreadPoolExecutor(worker_count(None), "vitreous-decode", initializer=one_core) as self.decoders:
            self.batchers = {each.name: self.batcher(each) for each in self.served.endpoints}
            tasks = [asyncio.create_task(each.run()) for each in self.batchers.values()]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def batcher(self, endpoint: Endpoint) -> Batcher[Question, Answer]:
        return Batcher(
            endpoint.answer,
            executor=self.model_thread,
            max_batch=self.pace.max_batch if endpoint.together else 1,
            max_wait=self.pace.max_wait if endpoint.together else 0.0,
            observe=lambda size, seconds: self.metrics.batch(f"/v1/{endpoint.name}", size, seconds),
        )

    async def one(self, endpoint: Endpoint, upload: Upload, parameters: Any) -> Answer | Failed:
        """The answer for one image or text; what is wrong with it."""
        loop, decode = asyncio.get_running_loop(), self.served.decode
        try:
            what = await loop.run_in_executor(self.decoders, decode, upload.data, upload.name)
        except BadImage as bad:
            return Failed(path=upload.name, reason=bad.reason)
        except InputError as error:
            return Failed(path=upload.name, reason=str(error))
        return await self.batchers[endpoint.name].ask(Question(upload.name, what, parameters))

    async def every(self, endpoint: Endpoint, asked: Asked, parameters: Any) -> list[Answer | Failed]:
        """The answers, in order. Cancelled, or when one fails unforeseen, the others are given up."""
        tasks = [asyncio.create_task(self.one(endpoint, each, parameters)) for each in asked.uploads]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()


def build_app(
    served: Served,
    *,
    about: dict[str, Any],
    page: str,
    model_thread: Executor,
    pace: Pace = Pace(),  # noqa: B008 - immutable
    limits: Limits = Limits(),  # noqa: B008
) -> FastAPI:
    """The application of one model.

    Args:
        about: what GET /v1/model says beside the model's own facts.
        page: the web page.
        model_thread: one thread, which runs the model. It should be the one that loaded it: OpenMP's threads
            wait asleep instead of awake, and a small model takes a third longer, as soon as two of a
            process's threads have computed on all cores.
    """
    server = Server(served, pace, limits, model_thread)
    app = FastAPI(
        title=f"vitreous serve {about['name']}",
        version=__version__,
        description=f"A model for {served.task}. The web page is at /.",
        docs_url=None,  # they load scripts from elsewhere; the page and /openapi.json are here
        redoc_url=None,
        lifespan=server.running,
    )
    app.state.server = server
    app.state.offered = [*(f"POST /v1/{each.name}" for each in served.endpoints), "GET /v1/model", "GET /"]
    say_errors(app)
    app.add_middleware(Guard, limits=server.limits, metrics=server.metrics)
    for endpoint in served.endpoints:
        add_endpoint(app, server, endpoint)
    facts = {
        "task": served.task,
        **about,
        **served.facts(),
        "endpoints": [f"/v1/{each.name}" for each in served.endpoints],
        "limits": server.limits._asdict(),
        "version": __version__,
    }

    @app.get("/v1/model", summary="What is served: task, labels, preprocessing, size, license")
    async def model() -> dict[str, Any]:
        return facts

    @app.get("/healthz", summary="Whether the server is up")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", summary="Counters for Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(server.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/", include_in_schema=False)
    async def home() -> HTMLResponse:
        return HTMLResponse(page, headers=PAGE_HEADERS)

    return app


def add_endpoint(app: FastAPI, server: Server, endpoint: Endpoint) -> None:
    """POST /v1/NAME, and its documentation."""
    images = server.served.takes == "images"

    async def handle(request: Request) -> Response:
        asked = await (read_images if images else read_texts)(request, server.limits)
        parameters = parse({**request.query_params, **asked.parameters}, endpoint.parameters)
        png = getattr(parameters, "format", "json") == "png"
        if png and len(asked.uploads) > 1:
            raise Refused(400, f"format=png answers one image, not {len(asked.uploads)}: send one")
        with server.room.admit(len(asked.uploads)):
            outcomes = await while_connected(request, server.every(endpoint, asked, parameters))
        if outcomes is None:
            return refusal(LEFT, "the client went away")
        return answered(endpoint.key, outcomes, named=images)

    envelope = create_model(
        f"{endpoint.name.title()}Answers",
        **{endpoint.key: (list[endpoint.item], ...), "failed": (list[Failed], ...)},  # type: ignore[call-overload]
    )
    app.add_api_route(
        f"/v1/{endpoint.name}",
        handle,
        methods=["POST"],
        name=endpoint.name,
        summary=endpoint.summary,
        response_class=JSONResponse,
        responses={
            200: {"model": envelope, **imaged(endpoint)},
            **{status: {"model": Problem, "description": words} for status, words in DIGEST.items()},
        },
        openapi_extra={"parameters": query_parameters(endpoint), "requestBody": IMAGES if images else TEXTS},
    )


def answered(key: str, outcomes: Sequence[Answer | Failed], *, named: bool) -> Response:
    """The answers and the failures; a refusal where there are failures alone, which says the name of the
    first."""
    failed = [each for each in outcomes if isinstance(each, Failed)]
    if len(failed) == len(outcomes):
        more = f"; {len(failed) - 1} more cannot be answered either" if len(failed) > 1 else ""
        name = f"{failed[0].path[:200]}: " if named else ""
        return refusal(422, f"{name}{failed[0].reason}{more}")
    good = [each for each in outcomes if not isinstance(each, Failed)]
    if isinstance(good[0], bytes):
        return Response(good[0], media_type="image/png")
    # A model whose numbers are not finite gives null, as on the command line.
    content = to_json({key: good, "failed": failed}, inf_nan_mode="null")
    return Response(content, media_type="application/json")


async def while_connected(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """What `work` returns; None when the client left, and the work was given up."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(disconnected(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, leaving):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def disconnected(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


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
