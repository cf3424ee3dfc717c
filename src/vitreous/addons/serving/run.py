"""Opening the model and serving it at an address: its connections, loading the model again, and stopping when
all that was accepted has been answered."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import signal
import socket
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from vitreous.addons.serving.app import Loaded, Server, build_app
from vitreous.addons.serving.limits import AT_A_TIME, ServerLimits, most_connections
from vitreous.addons.serving.models import KINDS, ServedModel
from vitreous.addons.serving.page import page_of
from vitreous.api.arguments import say
from vitreous.api.model_source import fastest
from vitreous.checkpoints.weights import meta_model
from vitreous.data.workers import one_core, worker_count
from vitreous.errors import InputError, Param
from vitreous.evaluation.outputs import automatic_precision
from vitreous.extensions import outputs_of, outputs_of_task
from vitreous.languages import speaking
from vitreous.models.model import Program
from vitreous.outside import local_path
from vitreous.tasks.answerer import has_weights, open_answerer
from vitreous.training.machine import pick_device

log = logging.getLogger(__name__)
PATIENCE = 60  # seconds for what was accepted, once the server is asked to stop
BACKLOG = 2048
SILENCE = 10.0  # seconds between two lines about one trouble
SHORTEST = 16  # characters of a token
TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def load_served(
    spec: str, *, device: str, precision: str, limits: ServerLimits, language: str | None
) -> Loaded:
    """Open the model that MODEL means, and make its page. Raises InputError: nothing there, damaged, or a
    model of a kind that is not served."""
    place = pick_device(device)
    fast = fastest(spec, precision, device, {})
    task, model = open_answerer(fast, fresh=True)
    if outputs_of_task(task.name) not in KINDS:
        raise InputError(f"{task.info.noun} cannot be served: use vitreous predict on files")
    path = local_path(spec)
    folder = path / "model" if (path / "model").is_dir() else path
    if isinstance(model, Program) and precision == "bf16":
        raise InputError(f"{model.path} runs in the precision it was exported in: use fp32")
    chosen = automatic_precision(model, None, precision, place, folder=folder, say=say)
    kind = ServedModel if model.config.num_classes is None else KINDS[outputs_of(model)]
    served = kind(model, place, precision=chosen, most_pixels=limits.pixels)
    counted = meta_model(model.config) if isinstance(model, Program) else model
    about = {
        "task": task.name,
        "name": path.resolve().name if path.exists() else spec,
        "trained": has_weights(spec),
        "parameters": sum(each.numel() for each in counted.parameters()),
        "device": str(place),
        "precision": chosen,
    }
    with speaking(language):
        return Loaded(served, about, page_of(served, about))


def serve_model(
    load_model: Callable[[], Loaded],
    opened: socket.socket,
    *,
    limits: ServerLimits,
    hosts: Collection[str] | None,
    token: str | None,
    ready: Callable[[str, dict[str, object]], None],
) -> None:
    """Serve until SIGTERM, which ends in a return, or Ctrl-C, which ends in KeyboardInterrupt; both after
    what was accepted has been answered.

    Data that is not HTTP never reaches `app`: uvicorn answers it with a line of text.

    Args:
        load_model: opens the model; on SIGHUP again.
        hosts, token: see `Guard`.
        ready: called with the address and what is served, once it answers.

    Raises:
        InputError: another process took the address meanwhile.
    """
    with (
        ThreadPoolExecutor(1, "vitreous-model") as model_thread,
        ThreadPoolExecutor(worker_count(None), "vitreous-decode", initializer=one_core) as decoders,
    ):
        loaded = model_thread.submit(load_model).result()
        model_thread.submit(loaded.model.warm_up).result()
        server = Server(loaded, limits, model_thread, decoders)
        app = build_app(server, hosts=hosts, token=token)
        try:
            opened.listen(BACKLOG)
        except OSError as error:
            raise InputError(refused(error, *opened.getsockname()[:2])) from None
        logging.getLogger("python_multipart").setLevel(logging.ERROR)  # else a line for each torn form

        async def answer() -> None:
            again = asyncio.Event()
            if hasattr(signal, "SIGHUP"):  # not on Windows
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, again.set)
            loading = asyncio.create_task(load_again(server, load_model, again))
            ready(address_of(opened), dict(loaded.about))
            await server_of(app, limits).serve([opened])
            loading.cancel()

        # uvicorn stops gracefully and then raises the signal again, for the handler before it.
        before = signal.signal(signal.SIGTERM, lambda number, frame: None)
        try:
            asyncio.run(answer())
        finally:
            signal.signal(signal.SIGTERM, before)


async def load_again(server: Server, load_model: Callable[[], Loaded], asked: asyncio.Event) -> None:
    """Load the model beside the one that answers, whenever it is asked for, and let it take its place; that
    one is kept where the new one cannot be served."""
    loop = asyncio.get_running_loop()
    while await asked.wait():
        asked.clear()
        try:
            with ThreadPoolExecutor(1, "vitreous-load", initializer=one_core) as thread:
                loaded = await loop.run_in_executor(thread, load_model)
            await loop.run_in_executor(server.model_thread, loaded.model.warm_up)
            before = {each.name: each.item for each in server.loaded.model.endpoints}
            if before != {each.name: each.item for each in loaded.model.endpoints}:
                raise InputError("the new model has different endpoints: start another server for it")
            server.use(loaded)
        except Exception as error:
            log.error("%s; the current model is kept", error, exc_info=not isinstance(error, InputError))
        else:
            log.warning("the model has been reloaded")


# --- the address -------------------------------------------------------------------------------------------


def hosts_of(host: str, allowed: Sequence[str]) -> frozenset[str] | None:
    """Return the names that a server on `host` answers for, in lower case; None: any, where others can reach
    it and none is given."""
    if host not in LOOPBACK and not allowed:
        return None
    return frozenset(each.lower() for each in (host, *allowed, *LOOPBACK))


def read_token(path: Path) -> str:
    """Return the token in a file. Raises InputError for a file without one, or with a short one."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {Param('token_file')} {path}: {error}") from None
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable():
        raise InputError(
            f"the token in {path} is not {SHORTEST} or more printable ASCII characters: make one with "
            "openssl rand -hex 32"
        )
    return token


def bind(host: str, port: int) -> socket.socket:
    """Return a socket at an address. It does not listen yet, so that no client waits for a model that still
    loads. Raises InputError: no such address, or it is taken."""
    if not 0 <= port <= 65535:
        raise InputError(f"{Param('port')} {port} is not a port: use 1 to 65535, or 0 for any free port")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise InputError(
            f"{Param('host')} {host!r} is not an address of this machine: use 127.0.0.1 or 0.0.0.0"
        ) from None
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
    except OSError as error:
        opened.close()
        raise InputError(refused(error, host, port)) from None
    return opened


def refused(error: OSError, host: str, port: int) -> str:
    """Return why an address cannot be had."""
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} is in use: stop what runs there, or choose another with {Param('port')} {port + 1}"
        )
    other = f"choose another {Param('port')} or {Param('host')}"
    return f"cannot serve at {host}:{port} ({error.strerror or error}): {other}"


def address_of(opened: socket.socket) -> str:
    """Return http://HOST:PORT, with a host that a browser on this machine can open."""
    host, port = opened.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"


# --- connections -------------------------------------------------------------------------------------------


class GuardedConnection:
    """What a connection of uvicorn has besides, whichever library parses HTTP for it: a deadline for a
    request's headers, a limit to how many connections there are, and manners towards odd clients.

    Where there are as many as there may be, one gives way: that for whose client the server has waited
    longest, for headers or for the rest of a body. A request that is being answered never does.
    """

    limits: ClassVar[ServerLimits] = ServerLimits()
    loop: asyncio.AbstractEventLoop
    connections: set[GuardedConnection]
    transport: asyncio.Transport
    cycle: Any  # the request that is being answered, and its answer

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)  # type: ignore[misc]
        self.late: asyncio.TimerHandle | None = None
        self.expect_headers()
        if len(self.connections) > self.limits.connections:
            self.make_room()

    def make_room(self) -> None:
        """Close as many connections as there are too many. One that is closing keeps its file until the loop
        comes to it, and is not counted."""
        opened = [each for each in self.connections if not each.transport.is_closing()]
        waiting = sorted((each for each in opened if each.waits()), key=lambda each: each.since)
        for each in waiting[: max(len(opened) - self.limits.connections, 0)]:
            each.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.headers_arrived()
        super().connection_lost(exc)  # type: ignore[misc]

    def data_received(self, data: bytes) -> None:
        super().data_received(data)  # type: ignore[misc]
        if self.cycle is None or self.cycle.response_complete:
            self.expect_headers()
        else:
            self.headers_arrived()

    def eof_received(self) -> bool:
        """Return whether the connection stays open: a client that has sent a whole request may close its
        sending side, as `nc -N` does, and wait for the answer, which is then the last one."""
        unanswered = self.cycle is not None and not self.cycle.response_complete
        if unanswered and not self.cycle.more_body:
            self.cycle.keep_alive = False
            return True
        return False

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP. The request that it belongs to, if its headers were understood, has this
        answer, and the application must not send another."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.close()
                return
        super().send_400_response(msg)  # type: ignore[misc]

    def waits(self) -> bool:
        """Return whether it is the client's turn to send."""
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


class LimitedServer(uvicorn.Server):
    """uvicorn's server, which accepts a few connections at a time, so that those that are too many are closed
    before there is no file left for the next one."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or ():
            # asyncio has set the backlog to the number of connections that it accepts at a time.
            each.listen(BACKLOG)
        asyncio.get_running_loop().set_exception_handler(self.without_files)

    def without_files(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Say once in a while, and not for each connection, that there are no files for connections, which
        others of this process may have taken; asyncio tries again after a second."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif loop.time() - self.said > SILENCE:
            self.said = loop.time()
            log.error("no connection can be accepted: %s", error.strerror)

    said = -math.inf  # when the last such line was written, in seconds of the loop


def server_of(
    app: FastAPI, limits: ServerLimits, protocol: type[asyncio.Protocol] = AutoHTTPProtocol
) -> uvicorn.Server:
    """Return uvicorn's server with limited connections.

    Args:
        protocol: uvicorn's connection, which parses HTTP; by default with the faster library that is there.
    """
    limited = limits._replace(connections=most_connections(limits.connections))
    config = uvicorn.Config(
        app,
        http=type("Connection", (GuardedConnection, protocol), {"limits": limited}),
        log_config=None,
        log_level=logging.ERROR,  # else each client that does not speak HTTP writes a line
        access_log=False,
        server_header=False,
        backlog=AT_A_TIME,
        timeout_graceful_shutdown=PATIENCE,
    )
    return LimitedServer(config)
