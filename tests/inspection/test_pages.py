"""Every page that the package writes is usable by everyone, in both languages: on a phone nothing scrolls
sideways, and axe-core finds nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.browsers import box_of

import vitreous as vt
from vitreous.addons.serving.limits import ServerLimits
from vitreous.addons.serving.run import load_served
from vitreous.addons.text.text_pairs import number_pairs

from .foreign import TorchvisionViT

pytestmark = pytest.mark.slow

PHONE, SCREEN = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
SMALL = {"model.width": 16, "model.heads": 2, "model.mlp_dim": 16, "model.depth": 2}
STEPS = {"training.length": "2 steps", "training.batch_size": 4}
PAIRS = {"model.width": 64, "model.depth": 1, "model.encoder_depth": 1, "tokenizer.vocabulary": 300}
# Pages that have neither the contents of reports nor their charts.
WITHOUT_FRAME = {"served", "learn", "emoji"}
OBJECTIVES = ("masked-patch", "mae", "contrastive", "dino")
NAMES = (
    "classification",
    "photos",
    "multilabel",
    "regression",
    *OBJECTIVES,
    "segmentation",
    "translation",
    "inspection",
    "two-models",
    "untrained",
    "live-module",
    "convolutional",
    "inspected-segmenter",
    "inspected-translator",
    "data",
    "comparison",
    "learn",
    "emoji",
    "served",
)


def write_data(folder: Path) -> None:
    """Write images of two classes, one of them with a long name, some twice; with their numbers, several
    labels; and pairs of sentences."""
    rng = np.random.default_rng(0)
    rows: dict[str, list[str]] = {"numbers": [], "labels": []}
    for number in range(24):
        name = ("pears", "a rather long name of a class, with a comma")[number % 2]
        shade = int(rng.integers(0, 200))
        pixels = rng.integers(0, 50, (32, 48, 3), dtype=np.uint8) + shade
        path = folder / "photos" / name / f"a photograph with a long name {number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
        quoted = f'"{path.relative_to(folder)}"'
        rows["numbers"].append(f"{quoted},{shade / 10}")
        rows["labels"].append(f"{quoted},{'dark' if shade < 100 else 'light'}{'|odd' if number % 2 else ''}")
    for name, lines in rows.items():
        (folder / f"{name}.csv").write_text("\n".join(["path,label", *lines]) + "\n", encoding="utf-8")
    shutil.copytree(folder / "photos", folder / "dirty")
    first, *_ = sorted((folder / "dirty" / "pears").iterdir())
    shutil.copy(first, folder / "dirty" / "pears" / "again.png")
    (folder / "dirty" / "pears" / "broken.png").write_text("not an image")
    pairs = [f"{pair.source}\t{pair.target}" for pair in list(number_pairs(20))[:60]]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")


@pytest.fixture(scope="module", params=["en", "ko"])
def pages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every kind of page, of models that have hardly been trained."""
    folder = tmp_path_factory.mktemp(request.param)
    write_data(folder)
    options: Any = {"progress": False, "language": request.param}
    small: Any = {"model": "ViT-Ti/8", "image_size": 32, "settings": {**SMALL, **STEPS}, **options}
    run = vt.train("digits", epochs=1, model="ViT-Ti/4", settings=SMALL, out=folder / "run", **options)
    other = vt.train(
        "digits", epochs=1, model="ViT-Ti/4", settings=SMALL, seed=1, out=folder / "2", **options
    )
    photos = vt.train(str(folder / "photos"), out=folder / "photos-run", **small)
    several = vt.train(str(folder / "labels.csv"), out=folder / "multilabel", **small)
    numbers = vt.train(str(folder / "numbers.csv"), task="regression", out=folder / "regression", **small)
    pretrained = {
        name: vt.pretrain(
            "digits",
            objective=name,
            model="ViT-Ti/4",
            settings={**SMALL, **STEPS},
            out=folder / name,
            **options,
        )
        for name in OBJECTIVES
    }
    segmentation = vt.train(
        task="segmentation", settings={**SMALL, **STEPS}, out=folder / "segmentation", **options
    )
    translation = vt.train_translator(
        str(folder / "pairs.tsv"), settings={**STEPS, **PAIRS}, out=folder / "translation", **options
    )
    trained = {"photos": photos, "multilabel": several, "regression": numbers, "classification": run}
    trained |= {**pretrained, "segmentation": segmentation}
    reports: dict[str, Path | None] = {name: each.report for name, each in trained.items()}
    reports["translation"] = translation.report

    shown = sorted((folder / "photos").rglob("*.png"))[:5]

    def inspected(name: str, model: Any, images: Any = None, **more: Any) -> None:
        reports[name] = vt.inspect(model, images, out=folder / f"inspect-{name}", **more, **options).report

    inspected("inspection", run)
    inspected("two-models", run, compare=other)
    inspected("untrained", "ViT-Ti/16", shown, image_size=32)
    inspected("live-module", TorchvisionViT().eval(), shown)
    inspected("convolutional", vt.create("BiT-R50x1", num_classes=3, image_size=32), shown)
    inspected("inspected-segmenter", segmentation)
    inspected("inspected-translator", translation)

    checked = vt.check_data(
        str(folder / "dirty"), report=folder / "data" / "page.html", language=request.param
    )
    reports["data"] = Path(checked.page) if checked.page else None
    reports["comparison"] = vt.compare(run, other, out=folder / "comparison.html", **options).report
    reports["learn"] = vt.learn(run, out=folder / "learn.html", language=request.param).page
    reports["emoji"] = vt.learn("emoji", out=folder / "emoji.html", language=request.param).page
    served = load_served(
        str(photos.path), device="cpu", precision="fp32", limits=ServerLimits(), language=request.param
    )
    reports["served"] = folder / "serve.html"
    reports["served"].write_text(served.page, encoding="utf-8")
    assert {*reports} == {*NAMES}
    return {name: path for name, path in reports.items() if path is not None}


@pytest.mark.parametrize("name", NAMES)
def test_no_page_scrolls_sideways(browser: Any, pages: dict[str, Path], name: str) -> None:
    """On a phone and on a screen: what is wide scrolls in a box of its own."""
    for size in (PHONE, SCREEN):
        page = browser.new_page(viewport=size)
        problems: list[str] = []
        page.on("pageerror", lambda error, problems=problems: problems.append(str(error)))
        page.goto(pages[name].as_uri(), timeout=1_000_000)
        page.wait_for_timeout(300)
        scroll, shown = page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert scroll <= shown, f"{size['width']} pixels"
        assert problems == []
        page.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_usable_by_everyone(browser: Any, pages: dict[str, Path], name: str) -> None:
    """axe finds nothing, in light and dark, on a screen and on a phone; a phone does not scroll sideways;
    charts and images have words; what is printed has neither controls nor a menu."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="make test-slow installs it")
    page = browser.new_page(color_scheme="light")
    page.goto(pages[name].as_uri(), timeout=1_000_000)
    page.wait_for_timeout(300)
    assert violations(axe.Axe().run(page)) == []
    if name not in WITHOUT_FRAME:
        check_words(page)
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size(PHONE)
    page.wait_for_timeout(300)
    assert violations(axe.Axe().run(page)) == []
    if name not in WITHOUT_FRAME:
        check_contents(page)
    if name in ("learn", "emoji"):  # to play with, not to print
        page.close()
        return
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
    nav = box_of(page, "nav.contents")
    page.mouse.wheel(0, 3000)
    page.wait_for_timeout(200)
    assert box_of(page, "nav.contents") == nav
