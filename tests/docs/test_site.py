"""The built site: complete, searchable in Korean, without broken links, and usable by everyone."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

DOCS = Path(__file__).parents[2] / "docs"
LANGUAGES = ("en", "ko")
PAGES = sorted(
    path.relative_to(DOCS / "en").with_suffix("")
    for ending in ("md", "ipynb")
    for path in (DOCS / "en").rglob(f"*.{ending}")
)
LARGEST = 1_000_000  # bytes of a page
PHONE = {"width": 390, "height": 844}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: a warning is an error."""
    pytest.importorskip("sphinx", reason="sphinx: pip install '.[docs]'")
    sys.path.insert(0, str(DOCS))
    try:
        from build import build
    finally:
        sys.path.remove(str(DOCS))
    path = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:  # as on GitHub
        patch.delenv("READTHEDOCS_GIT_CLONE_URL", raising=False)
        patch.setenv("GITHUB_SERVER_URL", "https://github.com")
        patch.setenv("GITHUB_REPOSITORY", "someone/vitreous")
        patch.setenv("GITHUB_REF_NAME", "main")
        build(path)
    return path


class Anchors(HTMLParser):
    """What a page can be asked for and what it points to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.graph: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        self.links += [found[name] for name in ("href", "src") if name in found and tag != "base"]
        if tag == "meta" and found.get("property", "").startswith("og:"):
            self.graph[found["property"]] = found["content"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_page_is_built_small_and_describes_itself(site: Path, language: str) -> None:
    for page in PAGES:
        path = (site / language / page).with_suffix(".html")
        assert path.stat().st_size < LARGEST, page
        graph = Anchors(path.read_text("utf-8")).graph
        assert graph.keys() >= {"og:title", "og:type", "og:url", "og:image", "og:description"}, page
        assert f"/{language}/" in graph["og:url"]


def test_the_site_has_only_what_is_visited(site: Path) -> None:
    """A folder for any static host, without what Sphinx keeps for itself."""
    assert {path.name for path in site.iterdir()} == {"index.html", *LANGUAGES}
    assert [path for ending in ("doctree", "pickle") for path in site.rglob(f"*.{ending}")] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_site_begins_with_the_live_page(site: Path, language: str) -> None:
    """After the title and one sentence."""
    html = (site / language / "index.html").read_text("utf-8")
    before, frame, after = html[html.index("<article") :].partition("<iframe")
    assert re.findall(r"<(h\d|p|img|figure|ul|table)\b", before) == ["h1", "p"]
    assert frame
    page = re.findall(r'src="([^"]+)"', after.partition(">")[0])
    assert page == ["photo-in-the-browser.html"]
    assert (site / language / page[0]).is_file()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_page_can_be_edited(site: Path, language: str) -> None:
    start = f"https://github.com/someone/vitreous/edit/main/docs/{language}/"
    for page in PAGES:
        links = Anchors((site / language / page).with_suffix(".html").read_text("utf-8")).links
        (edited,) = {link.removeprefix(start) for link in links if link.startswith(start)}
        assert (DOCS / language / edited).is_file(), page
        assert Path(edited).with_suffix("") == page


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_lesson_can_be_downloaded_and_opened_in_colab(site: Path, language: str) -> None:
    """The notebook that is downloaded stands alone: its links are those of the site, and what its first cell
    installs is there."""
    lessons = [page for page in PAGES if (DOCS / "en" / page).with_suffix(".ipynb").exists()]
    assert len(lessons) == 12
    for lesson in lessons:
        page = (site / language / lesson).with_suffix(".html")
        links = Anchors(page.read_text("utf-8")).links
        colab = "https://colab.research.google.com/github/someone/vitreous/blob/main/docs"
        assert f"{colab}/{language}/{lesson}.ipynb" in links
        assert f"{lesson.name}.ipynb" in links
        cells = json.loads(page.with_suffix(".ipynb").read_text("utf-8"))["cells"]
        texts = ["".join(each["source"]) for each in cells if each["cell_type"] == "markdown"]
        for link in re.findall(r"\]\(([^)\s]+)\)", "".join(texts)):
            address = f"https://vitreous.readthedocs.io/{language}/"
            assert link.startswith("http"), link
            if link.startswith(address):
                assert (site / language / urlsplit(link.removeprefix(address)).path).is_file(), link


def test_korean_search_knows_every_noun_of_a_heading(site: Path) -> None:
    index = json.loads((site / "ko" / "searchindex.js").read_text("utf-8")[len("Search.setIndex(") : -1])
    known = index["terms"].keys() | index["titleterms"].keys()
    headings = index["alltitles"].keys()
    words = {word for line in headings for word in re.findall(r"[가-힣]{2,}", line)}
    assert len(words) > 30
    lost = {word for word in words if not {word[at : at + 2] for at in range(len(word) - 1)} <= known}
    assert not lost


def test_the_theme_speaks_korean_on_korean_pages(site: Path) -> None:
    words = r"Previous|Next|Home|On this page|Back to top|Skip to content|Edit this page|Link to this heading"
    for page in PAGES:
        assert not re.findall(
            rf'[>"]\s*({words})\s*[<"]', (site / "ko" / f"{page}.html").read_text("utf-8")
        ), page


def test_every_link_inside_the_site_leads_somewhere(site: Path) -> None:
    pages = {path: Anchors(path.read_text("utf-8")) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                assert address.scheme != "http" or address.hostname in ("localhost", "127.0.0.1"), link
                continue
            target = path if not address.path else (path.parent / unquote(address.path)).resolve()
            known = target in pages and unquote(address.fragment) in {"", *pages[target].ids}
            if not (known or (target not in pages and target.is_file())):
                broken.append((str(path.relative_to(site)), link))
    assert not broken


def violations(page: Any) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {node['html'][:120]}" for each in found for node in each["nodes"]]


@pytest.mark.peers  # the rules of axe change with its versions
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_phone_shows_every_page_and_axe_has_nothing_to_say(
    site: Path, browser: Any, language: str, scheme: str
) -> None:
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python: make test-slow installs it")
    with browser.new_page(viewport=PHONE, color_scheme=scheme) as page:
        wrong = {}
        for name in PAGES:
            page.goto((site / language / name).with_suffix(".html").as_uri())
            if found := violations(page):
                wrong[str(name)] = found
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= PHONE["width"], f"{name} scrolls to the side: {width} pixels"
    assert not wrong
