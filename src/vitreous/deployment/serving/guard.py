"""Around every request: who may ask, the limits of its body, its duration, metrics and log, and errors."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import operator
import os
import re
import time
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vitreous.deployment.serving.endpoints import Limits, Refused
from vitreous.errors import InputError

log = logging.getLogger(__name__)
access = logging.getLogger("vitreous.access")
LEFT = 499  # nginx's status for a client that went away before its answer
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # the folder of several processes for their counters
REQUEST_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)


class Metrics:
    """Counters of one server, in a registry of its own; of several processes, together with the others'."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        histogram = partial(Histogram, labelnames=["endpoint"], registry=registry)
        labels = ["endpoint", "status"]
        self.requests = Counter("vitreous_requests", "Answered requests", labels, registry=registry)
        arriving = "From a request's first byte to its answer"
        self.seconds = histogram("vitreous_request_seconds", arriving, buckets=SECONDS)
        self.sizes = histogram("vitreous_batch_size", "Images or texts computed together", buckets=SIZES)
        self.computing = histogram("vitreous_batch_seconds", "Time of the model for a batch", buckets=SECONDS)
        accepted = "Images or texts accepted and not yet answered"
        self.queue = Gauge("vitreous_queue", accepted, registry=registry, multiprocess_mode="livesum")
        ProcessCollector(registry=registry)  # memory, CPU time, open files

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        self.requests.labels(endpoint, str(status)).inc()
        self.seconds.labels(endpoint).observe(seconds)

    def batch(self, endpoint: str, size: int, seconds: float) -> None:
        self.sizes.labels(endpoint).observe(size)
        self.computing.labels(endpoint).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(together() if SHARED in os.environ else self.registry)


def together() -> CollectorRegistry:
    """Return the counters of all processes that share a folder for them."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    registry.register(WorkerProcesses())
    return registry


class WorkerProcesses(Collector):
    """Memory, CPU time and open files of the processes that share counters, added up."""

    def collect(self) -> Iterator[Metric]:
        files = Path(os.environ[SHARED]).glob("gauge_livesum_*.db")
        each = [
            ProcessCollector(pid=partial(str, file.stem.rpartition("_")[2]), registry=None) for file in files
        ]
        found: dict[str, Metric] = {}
        for metric in (metric for process in each for metric in process.collect()):
            first = found.setdefault(metric.name, metric)
            if first is not metric:
                (one,), (other,) = first.samples, metric.samples
                join = min if metric.name == "process_start_time_seconds" else operator.add
                first.samples = [one._replace(value=join(one.value, other.value))]
        return iter(found.values())


class Body:
    """The bytes of one request that have arrived."""

    def __init__(self) -> None:
        self.size = 0
        self.complete = False
        self.dropped = False
        self.patience: asyncio.Timeout | None = None  # of the chunk that is waited for


class Memory:
    """The bodies that are held at once, at most so many bytes.

    Where another one needs room, the largest that is still arriving gives way: a client that sends much and
    slowly does not keep others out.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.bodies: set[Body] = set()

    def grow(self, body: Body, size: int) -> None:
        """Hold `size` more bytes of a body. Raises Refused where there is no room for them."""
        body.size += size
        self.bodies.add(body)
        while sum(each.size for each in self.bodies) > self.most:
            arriving = (each for each in self.bodies if not each.complete)
            largest = max(arriving, key=lambda each: each.size, default=body)
            self.bodies.discard(largest)
            if largest is body:
                raise crowded()
            largest.dropped = True
            if largest.patience:
                largest.patience.reschedule(0)


def crowded() -> Refused:
    sentence = "the server holds as many bytes of requests as it may: ask again in 1 s"
    return Refused(503, sentence, {"Retry-After": "1", "Connection": "close"})


class Access:
    """Who may ask.

    Args:
        hosts: the names in the Host header that are answered; None: any. Without it a page elsewhere could
            reach a server on this machine by binding a name of its own to its address (DNS rebinding).
        token: what `Authorization: Bearer` has to hold; None: nothing.
        open_paths: addresses that need no token.
    """

    def __init__(
        self,
        hosts: Collection[str] | None = None,
        token: str | None = None,
        open_paths: Collection[str] = (),
    ) -> None:
        self.hosts, self.token, self.open_paths = hosts, token, open_paths

    def check(self, scope: Scope, headers: Headers) -> None:
        """Raises Refused for a request that is not answered."""
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            name, page = urlsplit(f"//{host}").hostname or "", urlsplit(origin or "")
            page_host = page.hostname
        except ValueError:  # brackets without an address in them
            raise Refused(400, "the header Host or Origin is not an address") from None
        if self.hosts is not None and name not in self.hosts:
            raise Refused(421, f"the server does not answer for the host {name[:100]!r}: see --allow-host")
        same = page.netloc == host or page_host in (self.hosts or ())
        if origin is not None and scope["method"] not in ("GET", "HEAD") and not same:
            raise Refused(403, "pages of other servers may not ask this one: see --allow-host")
        if self.token is None or scope["path"] in self.open_paths:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.token.encode()):
            needed = {"WWW-Authenticate": "Bearer"}
            raise Refused(
                401, "the server needs a token: send the header Authorization: Bearer TOKEN", needed
            )


class Guard:
    """ASGI middleware: refuses who may not ask, and bodies that are too large or too slow while they arrive;
    answers an unforeseen error with a sentence (the traceback goes to the log); counts what was answered, and
    logs it as a line of JSON where `vitreous.access` is heard."""

    def __init__(
        self, app: ASGIApp, *, limits: Limits, metrics: Metrics, access: Access | None = None
    ) -> None:
        self.app = app
        self.limits = limits
        self.metrics = metrics
        self.access = access or Access()
        self.memory = Memory(limits.memory)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, sent = time.perf_counter(), LEFT, 0
        headers, body, now = Headers(scope=scope), Body(), asyncio.get_running_loop().time
        latest = now() + self.limits.seconds
        given = headers.get("x-request-id", "")
        request_id = given if REQUEST_ID.fullmatch(given) else uuid4().hex

        async def limited() -> Message:
            # After the body only a disconnect can come, and the answer may take its time.
            until = None if body.complete else min(latest, now() + self.limits.stalled)
            try:
                async with asyncio.timeout_at(until) as body.patience:
                    message = await receive()
            except TimeoutError:
                raise crowded() if body.dropped else too_slow(self.limits) from None
            finally:
                body.patience = None
            if not body.complete:
                self.memory.grow(body, len(message.get("body", b"")))
                body.complete = not message.get("more_body", False)
            if body.size > self.limits.body:
                raise too_large(self.limits)
            return message

        async def watched(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {
                    **message,
                    "headers": [*message["headers"], (b"x-request-id", request_id.encode())],
                }
            sent += len(message.get("body", b""))
            await send(message)

        try:
            self.access.check(scope, headers)
            length = headers.get("content-length", "")
            if length.isdecimal() and int(length[:20]) > self.limits.body:
                raise too_large(self.limits)
            await self.app(scope, limited, watched)
        except Refused as refused:
            await refusal(refused.status, str(refused), refused.headers)(scope, receive, watched)
        except asyncio.CancelledError:  # a server that was asked to stop has waited long enough
            if status == LEFT:
                await refusal(503, "the server stops before it could answer")(scope, receive, watched)
        except Exception:
            log.exception("%s %r failed, request %s", scope["method"], scope["path"], request_id)
            if status == LEFT:  # nothing was sent yet
                sentence = "the server failed on this request; its log says why"
                await refusal(500, sentence)(scope, receive, watched)
        finally:
            self.memory.bodies.discard(body)
            seconds = time.perf_counter() - began
            self.metrics.request(getattr(scope.get("route"), "path", "other"), status, seconds)
            if access.isEnabledFor(logging.INFO):
                line = {
                    "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "id": request_id,
                    "client": (scope.get("client") or [""])[0],
                    "method": scope["method"],
                    "path": scope["path"][:500],
                    "status": status,
                    "seconds": round(seconds, 4),
                    "received": body.size,
                    "sent": sent,
                }
                access.info(json.dumps(line))


def too_slow(limits: Limits) -> Refused:
    """The connection ends with it: else the rest of the body could go on dripping in."""
    sentence = (
        f"the body did not arrive within {limits.seconds:g} s, or stood still for {limits.stalled:g} s: send "
        "less at once, or over a faster line"
    )
    return Refused(408, sentence, {"Connection": "close"})


def too_large(limits: Limits) -> Refused:
    sentence = f"the body is over the {limits.body / 2**20:g} MiB that are allowed"
    return Refused(413, sentence, {"Connection": "close"})


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
