"""Starting a server on an address, its connections, and stopping it when it has answered all it accepted."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, start_http_server
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from vitreous.deployment.serving.endpoints import Limits
from vitreous.deployment.serving.guard import access, together
from vitreous.errors import InputError

log = logging.getLogger(__name__)
PATIENCE = 60  # seconds for what was accepted, once the server is asked to stop
BACKLOG = 2048
FILES = 64  # that are open beside connections
SHORTEST = 16  # characters of a token
QUIET = 10.0  # seconds between two lines about the same trouble
TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def hosts_of(host: str, allowed: Sequence[str]) -> frozenset[str] | None:
    """The names that a server on `host` answers for, in lower case; None: any, where others can reach it and
    none is given."""
    if host not in LOOPBACK and not allowed:
        return None
    return frozenset(each.lower() for each in (host, *allowed, *LOOPBACK))


def read_token(path: Path) -> str:
    """The token in a file. Raises InputError for a file without one, or with a short one."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read --token-file {path}: {error}") from None
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable():
        raise InputError(
            f"the token in {path} is not {SHORTEST} or more printable ASCII characters: make one with "
            "openssl rand -hex 32"
        )
    return token


@contextmanager
def metrics_at(host: str, port: int | None, registry: CollectorRegistry | None = None) -> Iterator[None]:
    """Give the counters at a port of their own while the context lasts; by default those of all processes.
    Raises InputError for what is not a port, or one that is taken."""
    if port is None:
        yield
        return
    check_port(port, "--metrics-port")
    try:
        server, thread = start_http_server(port, host, registry or together())
    except OSError as error:
        raise InputError(refused(error, host, port)) from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def access_log(wanted: bool) -> Iterator[None]:
    """Write each request as a line of JSON on stderr while the context lasts."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    before = access.level, access.propagate
    if wanted:
        access.addHandler(handler)
        access.setLevel(logging.INFO)
        access.propagate = False
    try:
        yield
    finally:
        access.removeHandler(handler)
        access.level, access.propagate = before


def one_thread() -> ThreadPoolExecutor:
    """The thread on which a model is loaded and run."""
    return ThreadPoolExecutor(1, thread_name_prefix="vitreous-model")


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address. It does not listen yet, so that no client waits for a model that still loads.
    Raises InputError: no such address, or it is taken."""
    check_port(port)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise InputError(
            f"--host {host!r} is not an address of this machine: use 127.0.0.1 or 0.0.0.0"
        ) from None
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
    except OSError as error:
        opened.close()
        raise InputError(refused(error, host, port)) from None
    return opened


def check_port(port: int, option: str = "--port") -> None:
    """Raise InputError for a number that is not a port."""
    if not 0 <= port <= 65535:
        raise InputError(f"{option} {port} is not a port: use 1 to 65535, or 0 for any that is free")


def refused(error: OSError, host: str, port: int) -> str:
    """Why an address cannot be had."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use: stop what runs there, or choose another with --port {port + 1}"
    if error.errno == errno.EACCES:
        return f"port {port} is for administrators: choose one above 1023, such as --port 8000"
    return f"cannot serve at {host}:{port}: {error.strerror or error}"


def address_of(opened: socket.socket, scheme: str = "http") -> str:
    """http://HOST:PORT, with a host that a browser on this machine can open."""
    host, port = opened.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{scheme}://{host}:{port}"


class GuardedConnection(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
    """uvicorn's connection, with a deadline for a request's headers and a limit to how many there are.

    Where there are as many as there may be, one gives way: that for whose client the server has waited
    longest, for headers or for the rest of a body. A request that is being answered never does.
    """

    limits: ClassVar[Limits] = Limits()

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.since = self.loop.time()
        self.late: asyncio.TimerHandle | None = None
        self.expect_headers()
        if len(self.connections) > self.limits.connections:
            waited = (each for each in self.connections if each.waits())
            min(waited, key=lambda each: each.since, default=self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.headers_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self.expect_headers()
        else:
            self.headers_arrived()

    def waits(self) -> bool:
        """Whether it is the client's turn to send."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def expect_headers(self) -> None:
        """Give the client some seconds from its first byte on."""
        if self.late is None:
            self.since = self.loop.time()
            self.late = self.loop.call_later(self.limits.header_seconds, self.give_up)

    def headers_arrived(self) -> None:
        if self.late is not None:
            self.late.cancel()
            self.late = None

    def give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(TOO_LATE)
            self.transport.close()


def most_connections(wanted: int) -> int:
    """How many connections there are files for, with some left for other files; as many as wanted at most."""
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


class Tls(NamedTuple):
    """The files of an encrypted server: its certificate, with those it is signed by, and its key."""

    certificate: Path
    key: Path


def run(
    app: FastAPI,
    opened: socket.socket,
    *,
    ready: Callable[[str], None],
    limits: Limits = Limits(),  # noqa: B008 - immutable
    tls: Tls | None = None,
) -> None:
    """Serve until SIGTERM, which ends in a return, or Ctrl-C, which ends in KeyboardInterrupt; both after
    what was accepted has been answered.

    Data that is not HTTP never reaches `app`: uvicorn answers it with a line of text.

    Args:
        ready: called with the address once the server answers there.

    Raises:
        InputError: another process took the address meanwhile, or the files for TLS are not what they should
            be.
    """
    try:
        opened.listen(BACKLOG)
    except OSError as error:
        raise InputError(refused(error, *opened.getsockname()[:2])) from None
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # else a line for each form that is torn
    server = server_of(app, limits, tls)
    # uvicorn stops gracefully and then raises the signal again, for the handler before it.
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        asyncio.run(serve(server, opened, partial(ready, address_of(opened, "https" if tls else "http"))))
    finally:
        signal.signal(signal.SIGTERM, before)


def server_of(app: FastAPI, limits: Limits, tls: Tls | None = None) -> uvicorn.Server:
    """uvicorn's server with limited connections. Raises InputError for files that TLS cannot use."""
    limited = limits._replace(connections=most_connections(limits.connections))
    config = uvicorn.Config(
        app,
        http=type("Connection", (GuardedConnection,), {"limits": limited}),
        log_config=None,
        log_level=logging.ERROR,  # else each client that does not speak HTTP writes a line
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=PATIENCE,
        ssl_certfile=tls and tls.certificate,
        ssl_keyfile=tls and tls.key,
    )
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is one
        raise InputError(f"--tls-cert or --tls-key cannot be used: {error.strerror or error}") from None
    return uvicorn.Server(config)


async def serve(server: uvicorn.Server, opened: socket.socket, ready: Callable[[], None]) -> None:
    asyncio.get_running_loop().set_exception_handler(Complaints())
    serving = asyncio.create_task(server.serve([opened]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        ready()
    await serving


class Complaints:
    """The event loop's errors as one line every `QUIET` seconds each: where no file can be opened, asyncio
    reports each of thousands of attempts a second with a traceback, which fills the disk."""

    def __init__(self) -> None:
        self.latest: dict[str, float] = {}

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = str(context.get("message"))
        if loop.time() - self.latest.get(message, -QUIET) >= QUIET:
            self.latest[message] = loop.time()
            log.error("%s: %r", message, context.get("exception"))
