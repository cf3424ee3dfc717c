"""Tiny models behind the application, and a way to talk to it without a network."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from fastapi import FastAPI
from PIL import Image
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from vitreous.addons.serving.app import Loaded, Server, build_app
from vitreous.addons.serving.limits import ServerLimits
from vitreous.addons.serving.models import Classifier, Regressor, ServedModel
from vitreous.addons.serving.run import address_of, bind, server_of
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT

THREAD, DECODERS = ThreadPoolExecutor(1), ThreadPoolExecutor(2)
HOW: dict[str, Any] = {"precision": "fp32", "most_pixels": 100_000}
CPU = torch.device("cpu")
ABOUT = {"name": "tiny", "trained": True, "parameters": 1, "device": "cpu", "precision": "fp32"}


def make_vit(classes: int | None = 3) -> ViT:
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=16, patch_size=4, width=16, depth=2, heads=2, mlp_dim=16, num_classes=classes
    )
    labels = ["ant", "bee", "cat"] if classes == 3 else None
    model = ViT(config, preprocessing=Preprocessing(size=(16, 16)), labels=labels)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


def make_classifier() -> Classifier:
    return Classifier(make_vit(), CPU, **HOW)


def with_answer(served: ServedModel, answer: Callable[[Any], Any]) -> ServedModel:
    """A model whose first endpoint answers otherwise."""
    served.endpoints = (served.endpoints[0]._replace(answer=answer), *served.endpoints[1:])
    return served


@pytest.fixture(scope="session")
def classifier() -> Classifier:
    return make_classifier()


@pytest.fixture(scope="session")
def regressor() -> Regressor:
    return Regressor(make_vit(classes=1), CPU, **HOW)


def app_of(
    served: ServedModel,
    page: str = "<p>page</p>",
    limits: ServerLimits = ServerLimits(),  # noqa: B008
    hosts: Collection[str] | None = None,
    token: str | None = None,
) -> FastAPI:
    server = Server(Loaded(served, ABOUT, page), limits, THREAD, DECODERS)
    app = build_app(server, hosts=hosts, token=token)
    app.state.server = server
    return app


@contextmanager
def at_an_address(
    app: FastAPI,
    limits: ServerLimits = ServerLimits(),  # noqa: B008
    protocol: type[asyncio.Protocol] = AutoHTTPProtocol,
) -> Iterator[str]:
    """A server of its own thread."""
    opened = bind("127.0.0.1", 0)
    opened.listen()
    server = server_of(app, limits, protocol)
    thread = threading.Thread(target=server.run, args=([opened],))
    thread.start()
    try:
        yield address_of(opened)
    finally:
        server.should_exit = True
        thread.join()


def talk(app: FastAPI, conversation: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    """Run the application, and a conversation with it."""

    async def run() -> Any:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://serve", timeout=1000) as client,
        ):
            return await conversation(client)

    return asyncio.run(run())


def post(app: FastAPI, path: str, **request: Any) -> httpx.Response:
    """One request."""
    return talk(app, lambda client: client.post(path, **request))


def get(app: FastAPI, path: str) -> httpx.Response:
    return talk(app, lambda client: client.get(path))


def image(seed: int = 0, size: tuple[int, int] = (40, 30), kind: str = "PNG") -> bytes:
    """A file of noise."""
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def form(*files: tuple[str, bytes]) -> dict[str, Any]:
    """A multipart request of named files."""
    return {"files": [("files", (name, data)) for name, data in files]}


def error_of(response: httpx.Response) -> str:
    """The one sentence of a refusal, which has no other shape."""
    told = response.json()
    assert list(told) == ["error"], told
    assert "\n" not in told["error"]
    assert "Traceback" not in told["error"]
    return str(told["error"])
