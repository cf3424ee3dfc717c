"""The web page: complete without a browser; and in headless Chromium, what a visitor does with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from tests.browsers import box_of

from vitreous.addons.serving.models import Classifier, Regressor, ServedModel
from vitreous.addons.serving.page import page_of
from vitreous.languages import speaking

from .conftest import ABOUT, CPU, HOW, app_of, at_an_address, form, image, make_vit

PATIENCE = 300_000  # milliseconds: the machine may be busy


# --- without a browser -------------------------------------------------------------------------------------


def test_the_page_asks_nobody_else(classifier: Classifier, regressor: Regressor) -> None:
    for served in (classifier, regressor):
        page = page_of(served, ABOUT | {"name": "<b>mine</b>"})
        assert "&lt;b&gt;mine&lt;/b&gt;" in page
        assert "<b>mine" not in page
        addresses = set(re.findall(r"""(?:src|href)=["']([^"'{]*)""", page))
        assert {each for each in addresses if not each.startswith("data:")} == {"openapi.json", "v1/model"}


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_script_finds_its_elements_and_words(classifier: Classifier, language: str) -> None:
    with speaking(language):
        page = page_of(classifier, ABOUT)
    script = page[page.index('"use strict"') :]
    assert set(re.findall(r'byId\("([\w-]+)"\)', script)) <= set(re.findall(r'id="([\w-]+)"', page))
    words = set(re.findall(r'say\("([\w-]+)"', script))
    assert len(words) > 8
    for name in words:
        assert f'"{name}": ' in page
    assert ("이미지 선택" in page) == (language == "ko")


def test_a_fresh_model_is_said_to_be_fresh(classifier: Classifier) -> None:
    words = "It has learned nothing yet"
    assert words in page_of(classifier, ABOUT | {"trained": False})
    assert words not in page_of(classifier, ABOUT)


def test_a_model_without_a_head_has_a_page_of_features_and_attention() -> None:
    page = page_of(ServedModel(make_vit(classes=None), CPU, **HOW), ABOUT)
    assert '"main": "embed"' in page
    assert "relevance for the class</option>" not in page


# --- in a browser ------------------------------------------------------------------------------------------


@contextmanager
def visit(browser: Any, served: ServedModel) -> Iterator[Any]:
    """A tab with the page of a server, in which nothing went wrong and nobody else was asked."""
    with at_an_address(app_of(served, page_of(served, ABOUT))) as url:
        problems: list[str] = []
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request", lambda request: request.url.startswith((url, "blob:")) or problems.append(request.url)
        )
        page.goto(url)
        yield page
        # What the browser itself writes for an answer of 422 is no problem of the page.
        assert [each for each in problems if "422" not in each and "503" not in each] == []
        page.close()


def give(page: Any, name: str = "x.png", data: bytes | None = None) -> None:
    """Choose an image, and wait for what the page makes of it."""
    drawn = int(page.get_attribute("#bench", "data-drawn") or 0)
    content = image() if data is None else data
    page.set_input_files("#file", [{"name": name, "mimeType": "image/png", "buffer": content}])
    page.wait_for_selector(f"#bench[data-drawn='{drawn + 1}']")


def heat(page: Any) -> str:
    """What is drawn over the image."""
    return page.evaluate(
        """async () => {
            const found = document.getElementById("sight"), canvas = document.createElement("canvas");
            await found.decode();
            canvas.width = canvas.height = 64;
            canvas.getContext("2d").drawImage(found, 0, 0, 64, 64);
            return canvas.toDataURL();
        }"""
    )


def test_an_image_is_classified_and_looked_at(browser: Any, classifier: Classifier) -> None:
    with visit(browser, classifier) as page:
        assert page.is_visible("#empty")
        assert f"curl -F files=@image.png {page.url}v1/predict\n" in page.text_content("#api")
        give(page)
        assert page.inner_text("#answer") in {"ant", "bee", "cat"}
        assert page.locator("#bars li").count() == 3
        assert page.is_hidden("#empty")
        seen = [heat(page)]
        page.select_option("#kind", "attention")
        page.wait_for_selector("#sight-words:has-text('in this layer')")
        seen.append(heat(page))
        page.fill("#layer", "1")
        page.wait_for_selector("#layer-now:has-text('1 of 2')")
        page.wait_for_selector("#get[aria-busy=false]")
        page.select_option("#kind", "evidence")
        page.wait_for_selector("#sight-words:has-text('Relevance for')")
        seen.append(heat(page))
        box = box_of(page, "#sight")
        page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.4)
        page.wait_for_selector("#sight-words:has-text('the patch in row 2, column 3')")
        seen.append(heat(page))
        page.focus("#sight")
        page.keyboard.press("ArrowDown")
        page.wait_for_selector("#sight-words:has-text('row 3, column 3')")
        page.keyboard.press("Escape")
        page.wait_for_selector("#sight-words:has-text('class token')")
        assert len(set(seen)) == len(seen)


def test_classes_without_names_are_called_classes(browser: Any) -> None:
    with visit(browser, Classifier(make_vit(classes=4), CPU, **HOW)) as page:
        give(page)
        assert set(page.locator("#bars .name").all_inner_texts()) == {f"class {n}" for n in range(4)}


def test_a_number_and_features_are_shown_without_classes(browser: Any, regressor: Regressor) -> None:
    with visit(browser, regressor) as page:
        give(page)
        told = httpx.post(f"{page.url}v1/predict", **form(("x.png", image())), timeout=1000).json()
        (answer,) = told["predictions"]
        assert float(page.inner_text("#answer")) == pytest.approx(answer["value"], rel=1e-3)
        assert page.locator("#bars li").count() == 0
        assert page.locator("#kind option[value=evidence]").count() == 0
    with visit(browser, ServedModel(make_vit(classes=None), CPU, **HOW)) as page:
        give(page)
        assert page.inner_text("#answer").startswith("16 features: ")


def test_what_failed_is_told_in_words_and_asked_for_again(browser: Any, classifier: Classifier) -> None:
    with visit(browser, classifier) as page:
        give(page, "notes.png", b"hello")
        assert page.inner_text("#problem") == "notes.png: not an image of a known format"
        page.route("**/v1/*", lambda route: route.fulfill(status=503, json={"error": "too much to do"}))
        give(page)
        assert page.inner_text("#problem") == "too much to do"
        page.unroute("**/v1/*")
        give(page)
        assert page.is_hidden("#problem")
        assert page.is_visible("#answer")


def test_narrow_screens_are_not_scrolled_sideways(browser: Any, classifier: Classifier) -> None:
    with visit(browser, classifier) as page:
        page.set_viewport_size({"width": 360, "height": 700})
        give(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
