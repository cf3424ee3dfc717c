"""What the README says of a page is on its screen when it opens."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.browsers import box_of

ROOT = Path(__file__).parents[2]
# What each of the two says of its pages.
READMES = {
    "README.md": (
        *("draw a digit", "choose an image", "covers patches of a photograph, and the prediction changes"),
        *("offline", "on a phone", "follow it through every tensor"),
    ),
    "README.ko.md": (
        *("숫자를 그리", "이미지를 골라", "사진의 패치를 가리며, 그에 따라 예측이 바뀝니다"),
        *("인터넷 연결이 없어도", "휴대폰에서도", "텐서를 처음부터 끝까지 따라가"),
    ),
}
BASELINES = {"README.md": "3 baselines: an SVM, nearest neighbors and the majority class"}
BASELINES["README.ko.md"] = "기준 모델 3개(SVM, 최근접 이웃, 최다 클래스)"


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands_of(name: str, beginning: str) -> list[str]:
    """Return the commands of the block that begins with some words, without their comments."""
    found = re.search(rf"```sh\n({beginning}.*?)```", text_of(name), re.DOTALL)
    assert found
    return [line.partition("#")[0].strip() for line in found[1].splitlines()]


@pytest.fixture(scope="module")
def workplace(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where every command that writes a page was run as printed; the Korean README has the same."""
    where = tmp_path_factory.mktemp("readme")
    (where / "photos").symlink_to(folder / "photos")
    for beginning in ("vitreous learn", "vitreous inspect"):
        commands = commands_of("README.md", beginning)
        assert commands == commands_of("README.ko.md", beginning)
        for command in commands:
            words = [sys.executable, "-m", *command.split()]
            subprocess.run(words, cwd=where, check=True, capture_output=True)
    return where


@contextmanager
def opened(browser: Any, page: Path, **options: Any) -> Iterator[Any]:
    """A page that is opened without a network: it asks for nothing but itself."""
    tab, asked = browser.new_page(**options), []
    tab.on("request", lambda request: asked.append(request.url))
    tab.context.set_offline(True)
    tab.goto(page.as_uri())
    yield tab
    tab.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def logits_of(tab: Any) -> list[float]:
    return tab.evaluate("() => Array.from(trace.logits)")


def wait_for_another_answer(tab: Any, before: list[float]) -> None:
    tab.wait_for_function("before => Array.from(trace.logits).some((x, i) => x != before[i])", arg=before)


@pytest.mark.parametrize("name", READMES)
def test_the_sentences_that_are_shown_here_are_in_the_readme(name: str) -> None:
    text = text_of(name)
    assert [words for words in (*READMES[name], BASELINES[name]) if words not in text] == []


def test_a_digit_is_drawn_and_the_answer_follows(browser: Any, workplace: Path) -> None:
    with opened(browser, workplace / "learn.html") as tab:
        before = logits_of(tab)
        pad = box_of(tab, "#stage-pad")
        tab.mouse.move(pad["x"] + pad["width"] / 2, pad["y"] + pad["height"] / 5)
        tab.mouse.down()
        tab.mouse.move(pad["x"] + pad["width"] / 2, pad["y"] + 4 * pad["height"] / 5, steps=8)
        tab.mouse.up()
        wait_for_another_answer(tab, before)


def test_a_photograph_is_chosen_covered_and_taken_by_the_camera(browser: Any, workplace: Path) -> None:
    """`vitreous learn photo`: photographs to choose from, a file of one's own, the camera; patches that are
    covered change the answer."""
    with opened(browser, workplace / "photo.html") as tab:
        assert tab.locator("#stage-samples button").count() > 1
        assert tab.locator("#stage-open").is_visible()
        assert tab.locator("#camera").is_visible()
        before = logits_of(tab)
        tab.click("#touch-cover")
        box = box_of(tab, "#sight-canvas")
        tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        wait_for_another_answer(tab, before)
        before = logits_of(tab)
        tab.locator("#stage-samples button").nth(1).click()
        wait_for_another_answer(tab, before)


def test_an_image_of_ones_own_run_is_chosen(browser: Any, workplace: Path) -> None:
    with opened(browser, workplace / "runs" / "vit" / "learn.html") as tab:
        assert tab.locator("#stage-samples button").count() > 0
        assert {"apples", "pears"} <= set(tab.evaluate("() => DATA.labels"))


def places_of(tab: Any) -> dict[str, str]:
    """What every part of the map shows when it is opened: its words, and the cells of its tensors."""
    found = {}
    tab.locator(".place-button").first.wait_for()
    for place in tab.locator(".place-button").all():
        place.click()
        tab.wait_for_selector("#place[open]")
        panel = tab.locator("#panels .panel")
        drawn = panel.locator("canvas").evaluate_all("(all) => all.map((canvas) => canvas.toDataURL())")
        found[panel.get_attribute("id")] = ",".join([panel.inner_text(), *drawn])
        tab.click("#place-close")
    return found


@pytest.mark.parametrize("page", ["learn.html", "photo.html", "runs/vit/learn.html"])
def test_an_image_is_followed_through_every_tensor(browser: Any, workplace: Path, page: str) -> None:
    """Each part, from the pixels to the probabilities, is opened; and again for another image."""
    with opened(browser, workplace / page) as tab:
        tab.click("#how-open")
        before = places_of(tab)
        assert {"projection", "positions", "qkv", "softmax", "heads", "mlp", "answer"} <= set(before)
        tab.locator("#stage-samples button").last.click()  # of another class: the answer differs
        after = places_of(tab)
        assert [name for name in before if before[name] == after[name]] == ["shapes"]  # those of the weights


@pytest.mark.parametrize("page", ["learn.html", "photo.html", "runs/vit/learn.html"])
def test_the_pages_fit_a_phone(browser: Any, workplace: Path, page: str) -> None:
    with opened(browser, workplace / page, viewport={"width": 390, "height": 844}, has_touch=True) as tab:
        assert tab.evaluate("() => document.documentElement.scrollWidth") <= 390
        assert tab.locator("#guess-now").inner_text() != ""


def test_the_report_of_a_run_shows_the_interval_and_three_baselines(browser: Any, workplace: Path) -> None:
    with opened(browser, workplace / "runs" / "vit" / "report.html") as tab:
        text = tab.inner_text("body").lower()
        assert "95" in text
        assert [word for word in ("svm", "nearest", "most frequent") if word not in text] == []


def test_a_checkpoint_is_looked_into(browser: Any, workplace: Path) -> None:
    """`vitreous inspect`: its own page, on which the images of the folder are seen."""
    (page,) = (workplace / "looked").glob("*.html")
    with opened(browser, page) as tab:
        assert tab.locator("img:visible, canvas:visible, svg:visible").count() > 0
        assert "small" in tab.inner_text("body")
