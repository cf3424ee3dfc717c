"""Pages are usable by everyone, in both languages: axe-core finds nothing, phones do not scroll sideways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.deployment.serving.endpoints import Limits
from vitreous.deployment.serving.page import page_of
from vitreous.languages import speaking
from vitreous.tasks.serving import open_served

pytestmark = pytest.mark.slow

PHONE = {"width": 390, "height": 844}
SMALL = {"model.width": 16, "model.heads": 2, "model.mlp_dim": 16, "model.depth": 2}


@pytest.fixture(scope="module", params=["en", "ko"])
def pages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The report of a run, and the pages of an untrained model and of that run."""
    folder = tmp_path_factory.mktemp(request.param)
    run = vt.train(
        "digits",
        epochs=2,
        model="ViT-Ti/4",
        settings=SMALL,
        out=folder / "run",
        progress=False,
        language=request.param,
    )
    assert run.report is not None
    pixels = np.random.default_rng(0).integers(0, 255, (5, 8, 8), dtype=np.uint8)
    options: Any = {"progress": False, "language": request.param}
    trained = vt.inspect(run, pixels, out=folder / "trained", **options)
    fresh = vt.inspect("ViT-Ti/16", pixels, image_size=32, out=folder / "fresh", **options)
    served = open_served(str(run.path), device=torch.device("cpu"))
    with speaking(request.param):
        page = page_of(served.served, served.about, served.examples, Limits())
    (folder / "serve.html").write_text(page, encoding="utf-8")
    return {
        "report": run.report,
        "inspection": trained.report,
        "untrained": fresh.report,
        "served": folder / "serve.html",
    }


@pytest.mark.parametrize("name", ["report", "inspection", "untrained", "served"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Any, pages: dict[str, Path], name: str, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = browser.new_page(viewport=PHONE if scheme == "dark" else None, color_scheme=scheme)
    page.goto(pages[name].as_uri(), timeout=1_000_000)
    page.wait_for_timeout(500)
    found = Axe().run(page)
    page.close()
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found.response["violations"]] == []


@pytest.mark.parametrize("name", ["report", "inspection", "untrained"])
def test_phones_do_not_scroll_sideways(browser: Any, pages: dict[str, Path], name: str) -> None:
    page = browser.new_page(viewport=PHONE)
    page.goto(pages[name].as_uri(), timeout=1_000_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    nav = page.locator("nav.contents").bounding_box()
    page.mouse.wheel(0, 3000)
    page.wait_for_timeout(300)
    assert page.locator("nav.contents").bounding_box() == nav, "the table of contents stays in view"
    page.close()
