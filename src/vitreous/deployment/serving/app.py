"""The HTTP side of a served model: a FastAPI application on top of the batchers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic_core import to_json
from starlette.requests import ClientDisconnect

from vitreous import __version__
from vitreous.data.decoding import BadImage
from vitreous.data.workers import one_core, worker_count
from vitreous.deployment.serving.batching import Batcher, Room
from vitreous.deployment.serving.endpoints import (
    Answer,
    Endpoint,
    Failed,
    Limits,
    Question,
    Refused,
    Served,
    parse,
)
from vitreous.deployment.serving.guard import Access, Guard, Metrics, refusal, say_errors
from vitreous.deployment.serving.inference_protocol import add_protocol
from vitreous.deployment.serving.page import docs_page, models_page, request_of, responses_of
from vitreous.deployment.serving.uploads import (
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
OPEN = frozenset({"/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"})  # without a token
HEAVY = 2_000_000  # pixels of an image that takes long to decode


class Hosted(NamedTuple):
    """One of the models that are served: its name in addresses, what is known of it, and its page."""

    name: str
    served: Served
    about: Mapping[str, Any]
    page: str


class Server:
    """What the requests share while the application runs."""

    def __init__(self, hosted: Sequence[Hosted], limits: Limits, model_thread: Executor) -> None:
        self.hosted = {each.name: each for each in hosted}
        self.model_thread = model_thread
        # A request with more images than the queue takes could never be admitted: it is too large.
        self.limits = limits._replace(images=min(limits.images, limits.queue))
        self.metrics = Metrics()
        self.room = Room(limits.queue, changed=self.metrics.queue.set)
        self.batchers: dict[tuple[str, str], Batcher[Question, Answer]] = {}

    def prefix(self, hosted: Hosted) -> str:
        """What the addresses of a model begin with; nothing where it is the only one."""
        return f"/models/{hosted.name}" if len(self.hosted) > 1 else ""

    @asynccontextmanager
    async def running(self, app: FastAPI) -> AsyncIterator[None]:
        """The lifespan of the application."""
        workers = worker_count(None)
        # Large images are decoded by a part of the threads, so that small ones never wait for them.
        self.heavy = asyncio.Semaphore(max(workers - 1, 1))
        with (
            ThreadPoolExecutor(workers, "vitreous-decode", initializer=one_core) as self.decoders,
            ThreadPoolExecutor(max(workers - 1, 1), "vitreous-large", initializer=one_core) as self.large,
        ):
            self.batchers = {
                (each.name, endpoint.name): self.batcher(each, endpoint)
                for each in self.hosted.values()
                for endpoint in {*each.served.endpoints, each.served.tensors}
            }
            tasks = [asyncio.create_task(each.run()) for each in self.batchers.values()]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def batcher(self, hosted: Hosted, endpoint: Endpoint) -> Batcher[Question, Answer]:
        address = f"{self.prefix(hosted)}/v1/{endpoint.name}"
        return Batcher(
            endpoint.answer,
            executor=self.model_thread,
            max_batch=self.limits.max_batch if endpoint.together else 1,
            max_wait=self.limits.max_wait if endpoint.together else 0.0,
            observe=partial(self.metrics.batch, address),
        )

    def ready(self) -> bool:
        """Whether there is room for a request, and no batch has been computed for too long."""
        began = [each.began for each in self.batchers.values() if each.began is not None]
        stuck = began and time.monotonic() - min(began) > self.limits.deadline
        return not stuck and self.room.inside < self.room.most

    async def one(
        self, hosted: Hosted, endpoint: Endpoint, upload: Upload, parameters: Any, request: object
    ) -> Answer | Failed:
        """The answer for one image or text; what is wrong with it."""
        loop, served, batcher = (
            asyncio.get_running_loop(),
            hosted.served,
            self.batchers[hosted.name, endpoint.name],
        )

        def prepared() -> tuple[Any, bool]:
            opened = served.open(upload.data, upload.name)
            small = served.cost(opened) <= HEAVY
            return (served.prepare(opened) if small else opened), small

        async with AsyncExitStack() as stack:
            try:
                what, small = await loop.run_in_executor(self.decoders, prepared)
                if not small:  # until it is answered, since some models keep the whole image
                    await stack.enter_async_context(self.heavy)
                    what = await loop.run_in_executor(self.large, served.prepare, what)
            except BadImage as bad:
                return Failed(path=upload.name, reason=bad.reason)
            except InputError as error:
                return Failed(path=upload.name, reason=str(error))
            return await batcher.ask(Question(upload.name, what, parameters), request)

    async def every(
        self, hosted: Hosted, endpoint: Endpoint, uploads: Sequence[Upload], parameters: Any
    ) -> list[Answer | Failed]:
        """The answers, in order. Cancelled, or when one fails unforeseen, the others are given up."""
        request = object()
        work = (self.one(hosted, endpoint, each, parameters, request) for each in uploads)
        tasks = [asyncio.create_task(each) for each in work]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def answers(
        self, request: Request, hosted: Hosted, endpoint: Endpoint, uploads: Sequence[Upload], parameters: Any
    ) -> list[Answer | Failed]:
        """The answers to a request that is admitted.

        Raises:
            Refused: the queue is full, or it takes too long.
            ClientDisconnect: the client went away.
        """
        with self.room.admit(len(uploads)):
            try:
                async with asyncio.timeout(self.limits.deadline):
                    work = self.every(hosted, endpoint, uploads, parameters)
                    return await while_connected(request, work)
            except TimeoutError:
                seconds = f"{self.limits.deadline:g} s"
                raise Refused(504, f"the answer took longer than {seconds}: send less at once") from None


def build_app(
    hosted: Sequence[Hosted],
    *,
    model_thread: Executor,
    limits: Limits = Limits(),  # noqa: B008 - immutable
    hosts: Collection[str] | None = None,
    token: str | None = None,
    metrics_here: bool = True,
) -> FastAPI:
    """The application of one model, or of several.

    Args:
        hosted: the addresses of several models begin with /models/NAME.
        model_thread: one thread, which runs the models. It should be the one that loaded them: OpenMP's
            threads wait asleep instead of awake, and a small model takes a third longer, as soon as two of a
            process's threads have computed on all cores.
        hosts, token: see `Access`.
        metrics_here: whether GET /metrics is one of the addresses.
    """
    server = Server(hosted, limits, model_thread)
    names = ", ".join(server.hosted)
    app = FastAPI(
        title=f"vitreous serve {names}",
        version=__version__,
        description="Every address, what it takes and what it answers.",
        docs_url=None,  # they load scripts from elsewhere; /docs is a page of this server
        redoc_url=None,
        lifespan=server.running,
    )
    app.state.server = server
    say_errors(app)
    pages = {f"{server.prefix(each)}/" for each in hosted}
    access = Access(hosts, token, open_paths={"/", "/docs", *pages, *OPEN})
    app.add_middleware(Guard, limits=server.limits, metrics=server.metrics, access=access)
    offered = []
    for each in hosted:
        for endpoint in each.served.endpoints:
            add_endpoint(app, server, each, endpoint)
            offered.append(f"POST {server.prefix(each)}/v1/{endpoint.name}")
        add_facts(app, server, each)
        offered.append(f"GET {server.prefix(each)}/v1/model")
    add_protocol(app, server)
    app.state.offered = [*offered, "GET /docs", "GET /"]

    @get(app, "/healthz", summary="Whether the server is up")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @get(app, "/readyz", summary="Whether the server can take a request: 503 while its queue is full")
    async def readiness() -> JSONResponse:
        ready = server.ready()
        return JSONResponse({"status": "ready" if ready else "busy"}, 200 if ready else 503)

    if metrics_here:

        @get(app, "/metrics", summary="Counters for Prometheus", response_class=Response)
        async def metrics() -> Response:
            return Response(server.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @get(app, "/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()), headers=PAGE_HEADERS)

    if len(hosted) > 1:

        @get(app, "/", include_in_schema=False)
        async def home() -> HTMLResponse:
            return HTMLResponse(models_page(server.hosted), headers=PAGE_HEADERS)

    return app


def get(app: FastAPI, path: str, **about: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate the function that answers GET, and HEAD, which the documentation leaves out."""

    def decorate(answer: Callable[..., Any]) -> Callable[..., Any]:
        app.add_api_route(path, answer, methods=["GET"], operation_id=f"get {path}", **about)
        app.add_api_route(path, answer, methods=["HEAD"], include_in_schema=False)
        return answer

    return decorate


def add_facts(app: FastAPI, server: Server, hosted: Hosted) -> None:
    """GET /v1/model, and the page."""
    served, prefix = hosted.served, server.prefix(hosted)
    facts = {
        "task": served.task,
        **hosted.about,
        **served.facts(),
        "endpoints": [f"{prefix}/v1/{each.name}" for each in served.endpoints],
        "limits": server.limits._asdict(),
        "version": __version__,
    }

    @get(app, f"{prefix}/v1/model", summary="What is served: task, labels, preprocessing, size, license")
    async def model() -> dict[str, Any]:
        return facts

    @get(app, f"{prefix}/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(hosted.page, headers=PAGE_HEADERS)


def add_endpoint(app: FastAPI, server: Server, hosted: Hosted, endpoint: Endpoint) -> None:
    """POST /v1/NAME, and its documentation."""
    images = hosted.served.takes == "images"

    async def handle(request: Request) -> Response:
        asked = await (read_images if images else read_texts)(request, server.limits)
        parameters = parse({**request.query_params, **asked.parameters}, endpoint.parameters)
        png = getattr(parameters, "format", "json") == "png"
        if png and len(asked.uploads) > 1:
            raise Refused(400, f"format=png answers one image, not {len(asked.uploads)}: send one")
        outcomes = await server.answers(request, hosted, endpoint, asked.uploads, parameters)
        return answered(endpoint.key, outcomes, named=images)

    path = f"{server.prefix(hosted)}/v1/{endpoint.name}"
    app.add_api_route(
        path,
        handle,
        methods=["POST"],
        name=endpoint.name,
        operation_id=f"post {path}",
        summary=endpoint.summary,
        response_class=JSONResponse,
        responses=responses_of(endpoint),
        openapi_extra=request_of(endpoint, hosted.served.takes),
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
    """What `work` returns. Raises ClientDisconnect when the client left, and the work was given up."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(disconnected(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def disconnected(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
