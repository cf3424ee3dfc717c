"""Pages are usable by everyone, in both languages: axe-core finds nothing, phones do not scroll sideways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vitreous as vt
from vitreous.addons.serving.limits import Limits
from vitreous.addons.serving.run import load
from vitreous.addons.text.parallel import number_pairs

pytestmark = pytest.mark.slow

PHONE = {"width": 390, "height": 844}
SMALL = {"model.width": 16, "model.heads": 2, "model.mlp_dim": 16, "model.depth": 2}


NAMES = (
    "report",
    "inspection",
    "untrained",
    "two-models",
    "served",
    "captioning",
    "translation",
    "segmentation",
    "pretraining",
)
STEPS = {"training.steps": 2, "training.batch_size": 4}
TEXT = {"model.encoder.depth": 1, "model.decoder.depth": 1, "model.decoder.max_length": 24}
PAIRS = {"model.width": 64, "model.depth": 1, "model.encoder_depth": 1, "tokenizer.vocabulary": 300}


@pytest.fixture(scope="module", params=["en", "ko"])
def pages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The report of a run, the pages of an untrained model, of that run and of two models, those of the
    server, and the reports of runs of other tasks."""
    folder = tmp_path_factory.mktemp(request.param)
    options: Any = {"progress": False, "language": request.param}
    run = vt.train("digits", epochs=2, model="ViT-Ti/4", settings=SMALL, out=folder / "run", **options)
    pixels = np.random.default_rng(0).integers(0, 255, (5, 8, 8), dtype=np.uint8)
    trained = vt.inspect(run, pixels, out=folder / "trained", **options)
    fresh = vt.inspect("ViT-Ti/16", pixels, image_size=32, out=folder / "fresh", **options)
    both = vt.inspect(run, pixels, compare=run, out=folder / "both", **options)
    served = load(str(run.path), device="cpu", precision="fp32", limits=Limits(), language=request.param)
    (folder / "serve.html").write_text(served.page, encoding="utf-8")
    (folder / "lines").mkdir()
    for number in range(12):
        pixels = np.random.default_rng(number).integers(0, 255, (20, 60), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "lines" / f"{number}.png")
    rows = [f"lines/{number}.png,text {number}" for number in range(12)]
    (folder / "lines.csv").write_text("\n".join(["path,label", *rows]) + "\n", encoding="utf-8")
    captioning = vt.train(
        str(folder / "lines.csv"),
        task="captioning",
        settings={**STEPS, **TEXT},
        out=folder / "captioning",
        **options,
    )
    pairs = [f"{pair.source}\t{pair.target}" for pair in list(number_pairs(20))[:60]]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    translation = vt.train_translator(
        str(folder / "pairs.tsv"), settings={**STEPS, **PAIRS}, out=folder / "translation", **options
    )
    segmentation = vt.train(
        task="segmentation", settings={**SMALL, **STEPS}, out=folder / "segmentation", **options
    )
    pretraining = vt.pretrain("digits", settings={**SMALL, **STEPS}, out=folder / "pretraining", **options)
    found = {
        "report": run.report,
        "inspection": trained.report,
        "untrained": fresh.report,
        "two-models": both.report,
        "served": folder / "serve.html",
        "captioning": captioning.report,
        "translation": translation.report,
        "segmentation": segmentation.report,
        "pretraining": pretraining.report,
    }
    assert tuple(found) == NAMES
    return {name: path for name, path in found.items() if path is not None}


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_usable_by_everyone(browser: Any, pages: dict[str, Path], name: str) -> None:
    """axe finds nothing, in light and dark, on a screen and on a phone; a phone does not scroll sideways;
    charts and images have words; what is printed has neither controls nor a menu."""
    from axe_playwright_python.sync_playwright import Axe

    page = browser.new_page(color_scheme="light")
    page.goto(pages[name].as_uri(), timeout=1_000_000)
    page.wait_for_timeout(300)
    assert violations(Axe().run(page)) == []
    if name != "served":
        check_words(page)
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size(PHONE)
    page.wait_for_timeout(300)
    assert violations(Axe().run(page)) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    if name != "served":
        check_contents(page)
    page.emulate_media(media="print")
    controls = "nav.contents, .controls, .toolbar, .switch, .filters, .pages button, .pairs button"
    assert [each for each in page.locator(controls).all() if each.is_visible()] == []
    page.close()


def violations(found: Any) -> list[tuple[str, str]]:
    return [(each["id"], each["nodes"][0]["html"][:200]) for each in found.response["violations"]]


def check_words(page: Any) -> None:
    """Every chart has a role, a title and a description; every image an alternative text."""
    charts = page.locator("svg.chart").evaluate_all(
        "all => all.map((each) => [each.getAttribute('role'), each.querySelector('title')?.textContent,"
        "each.querySelector('desc')?.textContent])"
    )
    assert all(role == "img" and title and description for role, title, description in charts)
    assert page.locator("section > .scroll svg.chart").count() == len(charts)
    without = page.locator("img:visible").evaluate_all("all => all.filter((each) => !each.alt).length")
    assert without == 0


def check_contents(page: Any) -> None:
    """The table of contents stays in view."""
    page.mouse.wheel(0, 600)
    page.wait_for_timeout(200)
    nav = page.locator("nav.contents").bounding_box()
    page.mouse.wheel(0, 3000)
    page.wait_for_timeout(200)
    assert page.locator("nav.contents").bounding_box() == nav
