"""Around every request: the limits of its body, its duration and metrics, and errors of one shape."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vitreous.deployment.serving.endpoints import Limits, Refused
from vitreous.errors import InputError

log = logging.getLogger(__name__)
LEFT = 499  # nginx's status for a client that went away before its answer
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters of one server, in a registry of its own."""

    def __init__(self, waiting: Callable[[], float]) -> None:
        self.registry = registry = CollectorRegistry()
        histogram = partial(Histogram, labelnames=["endpoint"], registry=registry)
        labels = ["endpoint", "status"]
        self.requests = Counter("vitreous_requests", "Answered requests", labels, registry=registry)
        arriving = "From a request's first byte to its answer"
        self.seconds = histogram("vitreous_request_seconds", arriving, buckets=SECONDS)
        self.sizes = histogram("vitreous_batch_size", "Images or texts computed together", buckets=SIZES)
        self.computing = histogram("vitreous_batch_seconds", "Time of the model for a batch", buckets=SECONDS)
        queue = Gauge("vitreous_queue", "Images or texts accepted and not yet answered", registry=registry)
        queue.set_function(waiting)

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        self.requests.labels(endpoint, str(status)).inc()
        self.seconds.labels(endpoint).observe(seconds)

    def batch(self, endpoint: str, size: int, seconds: float) -> None:
        self.sizes.labels(endpoint).observe(size)
        self.computing.labels(endpoint).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class Guard:
    """ASGI middleware: refuses bodies that are too large or too slow while they arrive, answers an
    unforeseen error with a sentence (the traceback goes to the log), and counts what was answered."""

    def __init__(self, app: ASGIApp, *, limits: Limits, metrics: Metrics) -> None:
        self.app = app
        self.limits = limits
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, arrived, whole = time.perf_counter(), LEFT, 0, False
        latest = asyncio.get_running_loop().time() + self.limits.seconds

        async def limited() -> Message:
            nonlocal arrived, whole
            try:
                # After the body only a disconnect can come, and the answer may take its time.
                async with asyncio.timeout_at(None if whole else latest):
                    message = await receive()
            except TimeoutError:
                raise too_slow(self.limits.seconds) from None
            arrived += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if arrived > self.limits.body:
                raise Refused(413, f"the body is over the {megabytes(self.limits.body)} that are allowed")
            return message

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, limited, watched)
        except asyncio.CancelledError:  # a server that was asked to stop has waited long enough
            if status == LEFT:
                await refusal(503, "the server stops before it could answer")(scope, receive, watched)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if status == LEFT:  # nothing was sent yet
                sentence = "the server failed on this request; its log says why"
                await refusal(500, sentence)(scope, receive, watched)
        finally:
            route = scope.get("route")
            self.metrics.request(getattr(route, "path", "other"), status, time.perf_counter() - began)


def too_slow(seconds: float) -> Refused:
    """The connection ends with it: else the rest of the body could go on dripping in."""
    sentence = f"the body did not arrive within {seconds:g} s: send less at once, or over a faster line"
    return Refused(408, sentence, {"Connection": "close"})


def megabytes(count: int) -> str:
    return f"{count / 2**20:g} MiB"


def refusal(status: int, sentence: str, headers: Any = None) -> JSONResponse:
    """The one shape of every error."""
    return JSONResponse({"error": " ".join(sentence.split())}, status, headers)


def say_errors(app: FastAPI) -> None:
    """Answer everything that goes wrong with one sentence."""

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> JSONResponse:
        return refusal(error.status, error.sentence, error.headers)

    @app.exception_handler(InputError)
    async def wrong_input(request: Request, error: InputError) -> JSONResponse:
        return refusal(422, str(error))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        sentence = str(error.detail)
        if error.status_code in (404, 405):
            offered = ", ".join(app.state.offered)
            sentence = f"{request.method} {request.url.path[:200]} does not exist; available are {offered}"
        return refusal(error.status_code, sentence, error.headers)

    @app.exception_handler(ClientDisconnect)
    async def left(request: Request, error: ClientDisconnect) -> JSONResponse:
        return refusal(LEFT, "the client went away")
