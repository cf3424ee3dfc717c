"""Who may ask, how much and how fast: checked around every request, before and while its body arrives."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vitreous.errors import InputError

log = logging.getLogger(__name__)
OPEN = frozenset({"/", "/healthz"})  # addresses that need no token
LEFT = 499  # nginx's status for a client that went away before its answer
AT_A_TIME = 32  # connections that are accepted before the next turn of the loop
FILES = 64 + 4 * AT_A_TIME  # that are open beside connections, with those that are accepted or closing
CROWDED = "the server's memory for requests is full: try again in 1 s"


class ServerLimits(NamedTuple):
    """How much clients may send, how long they may take, and how much is computed together."""

    body: int = 32 * 2**20  # bytes of a request
    memory: int = 256 * 2**20  # bytes of all bodies that are held at once
    images: int = 64  # of a request
    pixels: int = 64_000_000  # of one image
    connections: int = 1000  # at once
    header_seconds: float = 10.0  # until a request's headers are there
    stalled: float = 10.0  # seconds without a byte of a body that is not complete
    seconds: float = 120.0  # until the whole body is there
    deadline: float = 60.0  # seconds from the whole body to the answer
    max_batch: int = 32  # images that are computed together
    max_wait: float = 0.005  # seconds that an image waits for others
    queue: int = 256  # images that may be accepted and not yet answered


class Refused(Exception):
    """A request that is not answered: the status and one sentence."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(eq=False)
class Guard:
    """ASGI middleware: refuses who may not ask, and bodies that are too large or too slow while they arrive;
    answers all that goes wrong with one sentence (the traceback of an unforeseen error goes to the log).

    Attributes:
        hosts: the names in the Host header that are answered; None: any. Without it a page elsewhere could
            reach a server on this machine by binding a name of its own to its address (DNS rebinding).
        token: what `Authorization: Bearer` has to hold; None: nothing.
        observe: called after each request with its address, the status and the seconds.
        held: bytes of all bodies that have arrived and are not answered.
    """

    app: ASGIApp
    limits: ServerLimits
    hosts: Collection[str] | None
    token: str | None
    observe: Callable[[str, int, float], None]
    held: int = 0

    def __post_init__(self) -> None:
        self.large = f"the body exceeds the limit of {self.limits.body / 2**20:g} MiB"
        self.slow = (
            f"the body did not arrive within {self.limits.seconds:g} s, or stalled for "
            f"{self.limits.stalled:g} s: send less at once, or use a faster connection"
        )

    def check_access(self, scope: Scope, headers: Headers) -> None:
        """Raise Refused for a request that is not answered."""
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            name, page = urlsplit(f"//{host}").hostname or "", urlsplit(origin or "")
            page_host = page.hostname
        except ValueError:  # brackets without an address in them
            raise Refused(400, "the header Host or Origin is not a valid address") from None
        if self.hosts is not None and name not in self.hosts:
            raise Refused(421, f"the server does not accept the host {name[:100]!r}: see --allow-host")
        same = page.netloc == host or page_host in (self.hosts or ())
        if origin is not None and scope["method"] not in ("GET", "HEAD") and not same:
            raise Refused(403, "requests from pages of other servers are not allowed: see --allow-host")
        if self.token is None or scope["path"] in OPEN:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.token.encode()):
            sentence = "the server needs a token: send the header Authorization: Bearer TOKEN"
            raise Refused(401, sentence, WWW_Authenticate="Bearer")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), LEFT
        headers, body = Headers(scope=scope), LimitedBody(self, receive)

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        async def refuse(refused: Refused) -> None:
            if status == LEFT:  # nothing was sent yet
                problem = {"error": " ".join(str(refused).split())}  # the one form of every error
                await JSONResponse(problem, refused.status, refused.headers)(scope, receive, watched)

        try:
            self.check_access(scope, headers)
            length = headers.get("content-length", "")
            if length.isdecimal() and int(length[:20]) > self.limits.body:
                raise Refused(413, self.large, Connection="close")
            await self.app(scope, body.receive, watched)
        except Refused as refused:
            await refuse(refused)
        except InputError as error:
            await refuse(Refused(422, str(error)))
        except ClientDisconnect:
            pass  # there is none left to answer
        except asyncio.CancelledError:
            # A server that was asked to stop has waited long enough.
            await refuse(Refused(503, "the server stopped before it could answer"))
        except Exception:
            log.exception("%s %r failed", scope["method"], scope["path"])
            await refuse(Refused(500, "the server failed on this request; its log says why"))
        finally:
            self.held -= body.size
            address = getattr(scope.get("route"), "path", "other")
            self.observe(address, status, time.perf_counter() - began)


class LimitedBody:
    """The body of a request as it arrives: refused where it is too large or too slow.

    Attributes:
        size: bytes that have arrived.
    """

    def __init__(self, server: Guard, receive: Receive) -> None:
        self.server, self.next_message = server, receive
        self.now = asyncio.get_running_loop().time
        self.latest, self.size, self.complete = self.now() + server.limits.seconds, 0, False

    async def receive(self) -> Message:
        """Return the next message of the request, which is held in memory. Raises Refused."""
        # Only a disconnect can come now, and the answer may take its time.
        if self.complete:
            return await self.next_message()
        server, limits = self.server, self.server.limits
        try:
            async with asyncio.timeout_at(min(self.latest, self.now() + limits.stalled)):
                message = await self.next_message()
        except TimeoutError:
            raise Refused(408, server.slow, Connection="close") from None
        self.size += len(message.get("body", b""))
        server.held += len(message.get("body", b""))
        self.complete = not message.get("more_body", False)
        if self.size > limits.body:
            raise Refused(413, server.large, Connection="close")
        if server.held > limits.memory:
            raise Refused(503, CROWDED, Retry_After="1", Connection="close")
        return message


def most_connections(wanted: int) -> int:
    """Return how many connections there are files for, with some left for other files; as many as wanted at
    most."""
    try:
        import resource
    except ImportError:  # Windows
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(soft - FILES, 1)
    return wanted
