"""Starting a server on an address, and stopping it when it has answered what it accepted."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import uvicorn
from fastapi import FastAPI

from vitreous.errors import InputError

PATIENCE = 60  # seconds for what was accepted, once the server is asked to stop
BACKLOG = 2048


def one_thread() -> ThreadPoolExecutor:
    """The thread on which a model is loaded and run."""
    return ThreadPoolExecutor(1, thread_name_prefix="vitreous-model")


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address. It does not listen yet, so that no client waits for a model that still loads.

    Raises:
        InputError: no such address, or it is taken.
    """
    if not 0 <= port <= 65535:
        raise InputError(f"--port {port} is not a port: use 1 to 65535, or 0 for any that is free")
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


def refused(error: OSError, host: str, port: int) -> str:
    """Why an address cannot be had."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use: stop what runs there, or choose another with --port {port + 1}"
    if error.errno == errno.EACCES:
        return f"port {port} is for administrators: choose one above 1023, such as --port 8000"
    return f"cannot serve at {host}:{port}: {error.strerror or error}"


def address_of(opened: socket.socket) -> str:
    """http://HOST:PORT, with a host that a browser on this machine can open."""
    host, port = opened.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"


def run(app: FastAPI, opened: socket.socket, *, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM, which ends in a return, or Ctrl-C, which ends in KeyboardInterrupt; both after
    what was accepted has been answered.

    Data that is not HTTP never reaches `app`: uvicorn answers it with a line of text.

    Args:
        ready: called with the address once the server answers there.

    Raises:
        InputError: another process took the address meanwhile.
    """
    try:
        opened.listen(BACKLOG)
    except OSError as error:
        raise InputError(refused(error, *opened.getsockname()[:2])) from None
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=PATIENCE,
    )
    server = uvicorn.Server(config)
    # uvicorn stops gracefully and then raises the signal again, for the handler before it.
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        asyncio.run(serve(server, opened, ready))
    finally:
        signal.signal(signal.SIGTERM, before)


async def serve(server: uvicorn.Server, opened: socket.socket, ready: Callable[[str], None]) -> None:
    serving = asyncio.create_task(server.serve([opened]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        ready(address_of(opened))
    await serving
