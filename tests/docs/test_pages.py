"""The documentation holds: its commands and programs run, its files exist, its Korean is whole."""

from __future__ import annotations

import importlib.util
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from vitreous.cli import COMMANDS, DATA_COMMANDS, app

DOCS = Path(__file__).parents[2] / "docs"
KOREAN = DOCS / "locale" / "ko" / "LC_MESSAGES"
PAGES = sorted(path.stem for path in DOCS.glob("*.md"))
JOURNEY = ("start", "index", "figures", "paper")  # one folder and one run, in this order
ALONE = ("checkpoints", "recipes", "api")
SNIPPETS = (*JOURNEY, *ALONE)


def text_of(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def blocks(page: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(sh|python)\n(.*?)^```", text_of(page), re.DOTALL | re.MULTILINE)


def commands_of(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in text.splitlines() if line.strip()]


def commands(page: str) -> list[list[str]]:
    return [words for language, text in blocks(page) if language == "sh" for words in commands_of(text)]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_snippet_of_the_journey_runs(folder: Path) -> None:
    ran: set[str] = set()
    for page in JOURNEY:
        run_page(page, folder, ran)
    assert len(ran) > 8


@pytest.mark.parametrize("page", ALONE)
def test_every_snippet_runs(page: str, tmp_path: Path) -> None:
    ran: set[str] = set()
    run_page(page, tmp_path, ran)
    assert ran


def run_page(page: str, folder: Path, ran: set[str]) -> None:
    """Every block in its order; what `ran` before does not run again."""
    for language, text in blocks(page):
        calls = commands_of(text) if language == "sh" else [[text]]
        for words in calls:
            said = " ".join(words)
            if said in ran or words[:2] == ["vitreous", "serve"]:  # serving is tested with the README
                continue
            ran.add(said)
            call = [sys.executable, "-m", *words] if language == "sh" else [sys.executable, "-c", text]
            if words[:2] == ["vitreous", "train"] and "--resume" not in words:
                call += ["--set", "training.epochs=2"]
            done = subprocess.run(call, cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0, f"{page}: {said}\n{done.stderr}"


def test_no_page_with_commands_is_left_out() -> None:
    known = {" ".join(words) for page in SNIPPETS for words in commands(page)}
    for page in PAGES:
        assert page in SNIPPETS or {" ".join(words) for words in commands(page)} <= known, page


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist_with_their_options(page: str) -> None:
    """Every option that a page names, in a block or in a sentence, is one of the command's help."""
    named = [" ".join(words) for words in commands(page)]
    named += re.findall(r"`(vitreous [^`]*)`", " ".join(text_of(page).split()))
    for call in named:
        words = call.split()
        if words[1] in ("COMMAND", "--help"):
            continue
        assert words[1] in COMMANDS, call
        path = words[1:3] if words[1] == "data" or words[1:3] == ["translate", "train"] else words[1:2]
        if path[0] == "data":
            assert path[1] in DATA_COMMANDS, call
        for option in (word for word in words if word.startswith("--") and word != "--help"):
            assert option in help_of(tuple(path)), f"{page}: {call}"


def help_of(path: tuple[str, ...]) -> str:
    console = Console(file=io.StringIO(), width=200)
    app.help_print(list(path), console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_points_to_exist(page: str) -> None:
    text = text_of(page)
    pointed = re.findall(r"\]\((?!https?:|#)([^)#]+)", text) + re.findall(r"<(\.\./[^>]+)>", text)
    pointed += re.findall(r"^```\{(?:literalinclude|include)\} (\S+)", text, re.MULTILINE)
    missing = [path for path in pointed if not (DOCS / path).exists()]
    assert not missing


def test_every_page_has_its_place_in_the_site() -> None:
    trees = re.findall(r"```\{toctree\}\n(.*?)```", text_of("index"), re.DOTALL)
    listed = {line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")}
    assert listed == {*PAGES} - {"index"}


def translations(page: str) -> dict[str, str]:
    """Message and translation of each entry of a .po file that is in force."""
    text = (KOREAN / f"{page}.po").read_text(encoding="utf-8")
    assert "#, fuzzy" not in text, page
    assert "\n#~" not in text, f"{page}: obsolete messages"
    entries = re.findall(r'^msgid ((?:".*"\n)+)msgstr ((?:".*"\n?)+)', text, re.MULTILINE)
    pairs = [
        tuple("".join(re.findall(r'"(.*)"', part)).replace(r"\"", '"') for part in each) for each in entries
    ]
    return {message: translation for message, translation in pairs if message}


@pytest.mark.parametrize("page", PAGES)
def test_korean_is_whole(page: str) -> None:
    known = translations(page)
    assert known
    assert not [message for message, translation in known.items() if not translation]
    for message, translation in known.items():
        names = set(re.findall(r"`[^`]*`", message))
        lost = names - set(re.findall(r"`[^`]*`", translation)) - {'`{"error": "one sentence"}`'}
        assert not lost, f"{page}: {message}"


@pytest.mark.parametrize("page", PAGES)
def test_korean_is_of_what_the_page_says_today(page: str) -> None:
    """What was translated is still in the page; that nothing new is missing is for the build to find."""
    text = " ".join(re.sub(r"^#+ |^- |^\d\. ", "", text_of(page), flags=re.MULTILINE).split())
    captions = {"Use", "Understand", "Reference"}
    stale = [message for message in translations(page) if message not in text and message not in captions]
    assert not stale, f"{page} has changed: make docs-messages, then translate {stale}"


@pytest.mark.slow
@pytest.mark.skipif(
    not importlib.util.find_spec("sphinx"), reason="sphinx is not installed: pip install '.[docs]'"
)
def test_the_site_builds_without_a_warning_and_korean_has_every_message(tmp_path: Path) -> None:
    sys.path.insert(0, str(DOCS))
    try:
        from build import build
        from messages import templates
    finally:
        sys.path.remove(str(DOCS))
    build(tmp_path / "site")
    for language in ("en", "ko"):
        for page in PAGES:
            assert (tmp_path / "site" / language / f"{page}.html").exists()
    for page, wanted in templates(tmp_path / "messages").items():
        stale = set(wanted) ^ set(translations(page))
        assert not stale, f"{page}: make docs-messages, then translate {stale}"
