"""Tiny models of every kind behind the application, and a way to talk to it without a network."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from fastapi import FastAPI
from PIL import Image

from vitreous.data.text.parallel import number_pairs
from vitreous.data.text.tokenizer import Tokenizer
from vitreous.deployment.serving.app import Hosted, build_app
from vitreous.deployment.serving.images import Classifier, ImageSegmenter
from vitreous.deployment.serving.running import one_thread
from vitreous.deployment.serving.writing import ImageReader, TextTranslator
from vitreous.evaluation.text_models import Reader, Translator
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.segmenter import Segmenter, SegmenterConfig
from vitreous.models.vit import ViT
from vitreous.tasks import task_named
from vitreous.tasks.choose import packaged_config
from vitreous.tasks.regression import Regressor
from vitreous.tasks.text.task import CaptioningConfig, TranslationConfig
from vitreous.training.settings import configure

THREAD = one_thread()
CPU = torch.device("cpu")
MOST_PIXELS = 100_000
ABOUT = {
    "name": "tiny",
    "trained": True,
    "parameters": 1,
    "device": "cpu",
    "precision": "fp32",
    "license": None,
}


def fresh_model(config: Any) -> Any:
    return task_named(config.task).build(config, None, steps=1)


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


@pytest.fixture(scope="session")
def classifier() -> Classifier:
    return Classifier(make_vit(), CPU, most_pixels=MOST_PIXELS)


@pytest.fixture(scope="session")
def regressor() -> Regressor:
    return Regressor(make_vit(classes=1), CPU, most_pixels=MOST_PIXELS)


@pytest.fixture(scope="session")
def reader() -> ImageReader:
    torch.manual_seed(0)
    tiny = {"encoder": {"depth": 1, "width": 32}, "decoder": {"depth": 2, "width": 32, "max_length": 8}}
    model = fresh_model(configure(packaged_config(CaptioningConfig, "digit-lines"), {"model": tiny})).eval()
    return ImageReader(Reader(model, Tokenizer.train(["0123456789"], 270)), most_pixels=MOST_PIXELS)


@pytest.fixture(scope="session")
def translator() -> TextTranslator:
    torch.manual_seed(0)
    tiny = {"model": {"depth": 1, "encoder_depth": 1, "width": 32, "mlp_dim": 32, "max_length": 40}}
    model = fresh_model(configure(packaged_config(TranslationConfig, "numbers"), tiny)).eval()
    texts = [text for pair in list(number_pairs(50)) for text in (pair.source, pair.target)]
    return TextTranslator(Translator(model, Tokenizer.train(texts, 380)))


@pytest.fixture(scope="session")
def segmenter() -> ImageSegmenter:
    torch.manual_seed(0)
    config = SegmenterConfig(
        image_size=16, patch_size=4, width=16, depth=1, heads=2, mlp_dim=16, num_classes=4, decoder="linear"
    )
    model = Segmenter(config, labels=["ground", "ant", "bee", "cat"])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    return ImageSegmenter(model, CPU, most_pixels=MOST_PIXELS)


def app_of(served: Any, **options: Any) -> FastAPI:
    hosted = [Hosted("tiny", served, ABOUT, "<p>page</p>")]
    return build_app(hosted, model_thread=THREAD, **options)


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
