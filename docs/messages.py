"""The messages of the pages and their Korean: `make docs-messages` after a page has changed, then fill in
what is new in docs/locale/ko. Help, recipes, docstrings and results stay English."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

DOCS = Path(__file__).parent
KOREAN = DOCS / "locale" / "ko" / "LC_MESSAGES"
MOSTLY_GENERATED = ("commands", "recipes", "results", "api")


def written(page: str) -> set[str]:
    """The paragraphs and headings of a page's own file."""
    text = re.sub(r"```.*?```", "", (DOCS / f"{page}.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    return {" ".join(block.lstrip("# ").split()) for block in text.split("\n\n")}


def messages(page: str, template: Path) -> list[str]:
    """What is to be translated of a page."""
    with template.open("rb") as file:
        found = [str(message.id) for message in read_po(file) if message.id]
    if page not in MOSTLY_GENERATED:
        return found
    own = written(page)
    return [message for message in found if message in own]


def templates(folder: Path) -> dict[str, list[str]]:
    """The messages of every page, as Sphinx finds them."""
    subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "gettext", DOCS, folder, "-d", folder / "trees"],
        check=True,
    )
    pages = sorted(DOCS.glob("*.md"))
    return {page.stem: messages(page.stem, folder / f"{page.stem}.pot") for page in pages}


def update() -> None:
    """Give every page's file exactly the page's messages; translations that still fit are kept."""
    with tempfile.TemporaryDirectory() as folder:
        found = templates(Path(folder))
    for page, wanted in found.items():
        path = KOREAN / f"{page}.po"
        known = {}
        if path.exists():
            with path.open("rb") as file:
                known = {message.id: message.string for message in read_po(file) if message.id}
        catalog = Catalog(locale="ko", project="vitreous", fuzzy=False)
        for message in wanted:
            catalog.add(message, known.get(message, ""))
        buffer = io.BytesIO()
        write_po(buffer, catalog, width=0, omit_header=True)
        head = b'msgid ""\nmsgstr ""\n"Language: ko\\n"\n"Content-Type: text/plain; charset=utf-8\\n"\n\n'
        path.write_bytes(head + buffer.getvalue().strip() + b"\n")
        missing = [message for message in wanted if not known.get(message)]
        print(f"{page}: {len(wanted)} messages, {len(missing)} to translate")


if __name__ == "__main__":
    update()
