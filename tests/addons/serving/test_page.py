"""The web page: complete without a browser; and in headless Chromium, what a visitor does with it."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import shlex
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from typing import Any

import httpx
import numpy as np
import pytest
import torch
import uvicorn
from vitreous.addons.serving.endpoints import Limits, Served
from vitreous.addons.serving.images import Classifier, ImageSegmenter
from vitreous.addons.serving.running import address_of, bind, serve
from vitreous.addons.serving.writing import ImageReader, TextTranslator

from vitreous.addons.serving.app import Hosted, build_app
from vitreous.addons.serving.page import Examples, page_of
from vitreous.inspection.images import data_uri
from vitreous.tasks.regression import Regressor

from .conftest import ABOUT, CPU, MOST_PIXELS, THREAD, form, image, make_vit

PATIENCE = 300_000  # milliseconds: the machine may be busy


def uri(height: int, width: int) -> str:
    return data_uri(np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8))


# --- without a browser -------------------------------------------------------------------------------------


def test_the_page_of_every_task_asks_nobody_else(
    classifier: Classifier,
    regressor: Regressor,
    reader: ImageReader,
    translator: TextTranslator,
    segmenter: ImageSegmenter,
) -> None:
    for served in (classifier, regressor, reader, translator, segmenter):
        page = page_of(served, ABOUT | {"name": "<b>mine</b>"}, Examples(texts=("<de> & co",)), Limits())
        assert "&lt;b&gt;mine&lt;/b&gt;" in page
        assert "<b>mine" not in page
        addresses = set(re.findall(r"""(?:src|href)=["']([^"'{]*)""", page))
        assert {each for each in addresses if not each.startswith("data:")} == {
            "/docs",
            "v1/model",
        }


def test_no_name_is_declared_twice(
    classifier: Classifier, reader: ImageReader, translator: TextTranslator, segmenter: ImageSegmenter
) -> None:
    """A browser runs nothing of a script that declares a name of another script of its page again."""
    for served in (classifier, reader, translator, segmenter):
        page = page_of(served, ABOUT, Examples("digits"), Limits())
        scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
        lines = [line for script in scripts for line in script.splitlines()]
        several = [line.removeprefix("let ") for line in lines if re.match(r"let [^;]*;", line)]
        names = [each.split("=")[0].strip(" ;") for line in several for each in line.split(",")]
        names += re.findall(r"^(?:const|(?:async )?function) (\w+)", "\n".join(lines), flags=re.MULTILINE)
        assert len(names) > 20
        assert {name for name, count in Counter(names).items() if count > 1} == set()


def test_the_command_of_a_translator_takes_every_text(translator: TextTranslator) -> None:
    text = """I don't "know" \\"""
    page = page_of(translator, ABOUT, Examples(texts=(text,)), Limits())
    shown = re.search(r'<pre id="api"[^>]*>(.*?)</pre>', page, flags=re.DOTALL)
    assert shown
    curl, *_, python = unescape(shown[1]).splitlines()
    assert json.loads(shlex.split(curl)[2]) == {"texts": [text]}
    assert ast.literal_eval(python.split("json=")[1].removesuffix(").json())")) == {"texts": [text]}


def test_a_fresh_model_is_said_to_be_fresh(classifier: Classifier) -> None:
    words = "It has learned nothing yet"
    assert words in page_of(classifier, ABOUT | {"trained": False}, Examples(), Limits())
    assert words not in page_of(classifier, ABOUT, Examples(), Limits())


def test_only_a_classifier_of_digits_is_drawn_for(classifier: Classifier, reader: ImageReader) -> None:
    assert 'id="pad"' in page_of(classifier, ABOUT, Examples("digits"), Limits())
    assert 'id="pad"' not in page_of(classifier, ABOUT, Examples("photos/"), Limits())
    assert 'id="pad"' not in page_of(reader, ABOUT, Examples("digits"), Limits())


def test_a_model_without_a_head_has_a_page_of_attention() -> None:
    bare = Classifier(make_vit(classes=None), CPU, most_pixels=MOST_PIXELS)
    page = page_of(bare, ABOUT, Examples(), Limits())
    assert '"predict": null' in page
    assert "relevance for the class</option>" not in page


# --- in a browser ------------------------------------------------------------------------------------------


@contextmanager
def at_an_address(served: Served, examples: Examples) -> Iterator[str]:
    """A server of one model."""
    page = page_of(served, ABOUT, examples, Limits())
    with running(build_app([Hosted("tiny", served, ABOUT, page)], model_thread=THREAD)) as url:
        yield url


@contextmanager
def running(app: Any) -> Iterator[str]:
    """A server of its own thread."""
    opened, up = bind("127.0.0.1", 0), threading.Event()
    opened.listen()
    url = address_of(opened)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    thread = threading.Thread(target=lambda: asyncio.run(serve(server, opened, ready=up.set)))
    thread.start()
    assert up.wait(60)
    try:
        yield url
    finally:
        server.should_exit = True
        thread.join()


class Visit:
    """A tab, and what went wrong in it."""

    def __init__(self, browser: Any, url: str) -> None:
        self.problems: list[str] = []
        self.strangers: list[str] = []
        self.page = browser.new_page(viewport={"width": 1000, "height": 900})
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.meet(request.url, url))
        self.page.goto(url)

    def meet(self, asked: str, url: str) -> None:
        if not asked.startswith((url, "data:", "blob:")):
            self.strangers.append(asked)

    def settled(self) -> None:
        """Until the latest question has been answered."""
        self.page.wait_for_selector("#bench[data-drawn] #get[aria-busy=false]")

    def pixels(self) -> str:
        return self.page.evaluate("document.getElementById('sight').toDataURL()")

    def slide(self, slider: str, value: int) -> None:
        self.page.fill(f"#{slider}", str(value))
        self.settled()


@contextmanager
def visit(browser: Any, served: Served, examples: Examples = Examples()) -> Iterator[Visit]:  # noqa: B008
    with at_an_address(served, examples) as url:
        visitor = Visit(browser, url)
        yield visitor
        assert visitor.problems == []
        assert visitor.strangers == []
        visitor.page.close()


def test_an_image_is_classified_and_looked_at(browser: Any, classifier: Classifier) -> None:
    with visit(browser, classifier) as visitor:
        page = visitor.page
        assert page.is_visible("#empty")
        page.set_input_files("#file", [{"name": "x.png", "mimeType": "image/png", "buffer": image()}])
        page.wait_for_selector("#bars li")
        assert page.inner_text("#answer") in {"ant", "bee", "cat"}
        assert page.locator("#bars li").count() == 3
        shares = [float(each.rstrip(" %")) for each in page.locator("#bars .value").all_inner_texts()]
        assert sum(shares) == pytest.approx(100, abs=1e-6)
        assert page.is_hidden("#empty")
        seen = [visitor.pixels()]
        visitor.slide("opacity", 0)
        seen.append(visitor.pixels())
        visitor.slide("opacity", 75)
        assert visitor.pixels() == seen[0]
        page.select_option("#kind", "attention")
        page.wait_for_selector("#sight-words:has-text('in this layer')")
        seen.append(visitor.pixels())
        visitor.slide("layer", 1)
        seen.append(visitor.pixels())
        assert page.inner_text("#layer-now") == "1 of 2"
        page.select_option("#kind", "evidence")
        page.wait_for_selector("#sight-words:has-text('Relevance for')")
        seen.append(visitor.pixels())
        assert len(set(seen)) == len(seen)


def test_a_clicked_patch_is_followed_and_the_commands_say_how(browser: Any, classifier: Classifier) -> None:
    with visit(browser, classifier) as visitor:
        page = visitor.page
        page.set_input_files("#file", [{"name": "it's.png", "mimeType": "image/png", "buffer": image()}])
        page.wait_for_selector("#bars li")
        assert re.fullmatch(
            r"(predict|attention): \d+ ms · (predict|attention): \d+ ms", page.inner_text("#took")
        )
        whole = visitor.pixels()
        box = page.locator("#sight").bounding_box()
        page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.4)
        page.wait_for_selector("#sight-words:has-text('the patch in row 2, column 3')")
        assert visitor.pixels() != whole
        command = page.text_content("#curl").splitlines()[-1]
        assert command.startswith("""curl -F 'files=@it'\\''s.png' 'http://""")
        assert command.endswith("/v1/attention?kind=rollout&patch=2x3'")
        page.focus("#sight")
        page.keyboard.press("ArrowDown")
        page.wait_for_selector("#sight-words:has-text('row 3, column 3')")
        page.select_option("#kind", "evidence")
        page.wait_for_selector("#sight-words:has-text('Relevance for')")
        page.select_option("#kind", "attention")
        page.wait_for_selector("#sight-words:has-text('row 3, column 3 attends to')")
        page.click("#reset")
        page.wait_for_selector("#sight-words:has-text('class token attends to')")
        assert page.is_hidden("#reset")


def test_what_failed_is_asked_for_again(browser: Any, classifier: Classifier) -> None:
    busy = {"status": 503, "json": {"error": "too much to do"}}
    with at_an_address(classifier, Examples()) as url:
        page = Visit(browser, url).page
        page.route("**/v1/*", lambda route: route.fulfill(**busy))
        given = [{"name": f"{n}.png", "mimeType": "image/png", "buffer": image()} for n in range(2)]
        page.set_input_files("#file", given)
        page.wait_for_selector("#problem:has-text('too much to do')")
        page.wait_for_selector("#strip .bad >> nth=1")
        page.unroute("**/v1/*")
        page.click("#strip button")
        page.wait_for_selector("#bars li")
        assert page.locator("#strip .bad").count() == 1
        page.close()


def test_each_of_several_models_is_asked_at_its_own_address(browser: Any, classifier: Classifier) -> None:
    pages = [page_of(classifier, ABOUT, Examples(), Limits())] * 2
    hosted = [Hosted(name, classifier, ABOUT, page) for name, page in zip("ab", pages, strict=True)]
    with running(build_app(hosted, model_thread=THREAD)) as url:
        visitor = Visit(browser, f"{url}/models/b/#token=x")
        assert f"curl -F files=@image.png {url}/models/b/v1/predict\n" in visitor.page.text_content("#api")
        visitor.page.close()


def test_classes_without_names_are_called_classes(browser: Any) -> None:
    unnamed = Classifier(make_vit(classes=4), CPU, most_pixels=MOST_PIXELS)
    with visit(browser, unnamed) as visitor:
        visitor.page.set_input_files("#file", [{"name": "x.png", "mimeType": "image/png", "buffer": image()}])
        visitor.page.wait_for_selector("#bars li")
        assert set(visitor.page.locator("#bars .name").all_inner_texts()) == {f"class {n}" for n in range(4)}


def test_a_model_that_is_undecided_gives_no_answer(browser: Any, classifier: Classifier) -> None:
    head, before = classifier.model.head, classifier.model.head.weight.detach().clone()
    torch.nn.init.zeros_(head.weight)
    try:
        with visit(browser, classifier) as visitor:
            page = visitor.page
            page.set_input_files("#file", [{"name": "x.png", "mimeType": "image/png", "buffer": image()}])
            page.wait_for_selector("#bars li")
            assert page.inner_text("#answer") == "Undecided: all classes are about equally probable"
            assert re.search(r"% per patch, even would be [\d.]+ %", page.inner_text("#sight-words"))
    finally:
        head.weight.data.copy_(before)


def test_a_number_is_shown_without_classes(browser: Any, regressor: Regressor) -> None:
    with visit(browser, regressor) as visitor:
        page = visitor.page
        page.set_input_files("#file", [{"name": "x.png", "mimeType": "image/png", "buffer": image()}])
        page.wait_for_selector("#answer:not(:empty)")
        told = httpx.post(f"{page.url}v1/predict", **form(("x.png", image())), timeout=1000).json()
        (answer,) = told["predictions"]
        assert float(page.inner_text("#answer")) == pytest.approx(answer["value"], rel=1e-3)
        assert page.locator("#bars li").count() == 0
        assert page.locator("#kind option[value=evidence]").count() == 0


def test_what_is_no_image_is_told_in_words(browser: Any, classifier: Classifier) -> None:
    with visit(browser, classifier) as visitor:
        page = visitor.page
        files = [
            {"name": "notes.png", "mimeType": "image/png", "buffer": b"hello"},
            {"name": "x.png", "mimeType": "image/png", "buffer": image()},
        ]
        page.set_input_files("#file", files)
        page.wait_for_selector("#problem:not([hidden])")
        assert page.inner_text("#problem") == "notes.png: no image of a known format"
        page.locator("#strip button").nth(1).click()
        page.wait_for_selector("#bars li")
        assert page.is_hidden("#problem")
        # What the browser itself writes for an answer of 422 is no problem of the page.
        assert all("422" in each for each in visitor.problems)
        visitor.problems.clear()


def test_a_drawing_is_read(browser: Any, classifier: Classifier) -> None:
    with visit(browser, classifier, Examples("digits")) as visitor:
        page = visitor.page
        box = page.locator("#pad").bounding_box()
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.2 * box["height"])
        page.mouse.down()
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.8 * box["height"], steps=4)
        page.mouse.up()
        page.wait_for_selector("#bars li")
        assert page.inner_text("#answer") in {"ant", "bee", "cat"}
        page.click("#clear")


def test_a_reader_shows_where_each_character_was_read(browser: Any, reader: ImageReader) -> None:
    with visit(browser, reader, Examples("digit-lines", (uri(12, 80),))) as visitor:
        page = visitor.page
        page.wait_for_selector("#letters button")  # the page begins with its first example
        first = visitor.pixels()
        page.locator("#letters button").last.hover()
        page.wait_for_selector("#letters button:last-child[aria-pressed=true]")
        assert visitor.pixels() != first


def test_a_translation_shows_its_attention(browser: Any, translator: TextTranslator) -> None:
    with visit(browser, translator) as visitor:
        page = visitor.page
        page.fill("#text", "<de> twenty-one")
        page.keyboard.press("Enter")
        page.wait_for_selector("#matrix tbody tr")
        columns = page.locator("#matrix thead th").all_inner_texts()
        assert "".join(columns).replace(" ", "") == "<de>twenty-one⟨end⟩"
        weights = page.eval_on_selector_all(
            "#matrix tbody tr:first-child td",
            "cells => cells.map(each => Number(each.style.getPropertyValue('--weight')))",
        )
        assert sum(weights) == pytest.approx(1, abs=0.01)


def test_a_segmenter_lays_its_mask_over_the_image(browser: Any, segmenter: ImageSegmenter) -> None:
    with visit(browser, segmenter) as visitor:
        page = visitor.page
        page.set_input_files("#file", [{"name": "x.png", "mimeType": "image/png", "buffer": image()}])
        page.wait_for_selector("#legend button")
        shares = [float(each.rstrip(" %")) for each in page.locator("#legend span").all_inner_texts()]
        assert sum(shares) == pytest.approx(100, abs=0.3)
        assert shares == sorted(shares, reverse=True)
        page.locator("#legend button").first.click()
        alone = visitor.pixels()
        visitor.slide("opacity", 0)
        assert visitor.pixels() != alone
        drawn = page.evaluate(
            "[document.getElementById('sight').width, document.getElementById('sight').height]"
        )
        assert drawn[0] / drawn[1] == pytest.approx(4 / 3)


def test_narrow_screens_are_not_scrolled_sideways(browser: Any, classifier: Classifier) -> None:
    with visit(browser, classifier, Examples("digits", (uri(8, 8),))) as visitor:
        page = visitor.page
        page.set_viewport_size({"width": 360, "height": 700})
        page.wait_for_selector("#bars li")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        unlabeled = page.eval_on_selector_all(
            "input, select, textarea",
            "all => all.filter(each => !each.labels?.length).map(each => each.id)",
        )
        assert unlabeled == []
