"""`make docs`: the site in both languages, into build/docs. A warning is an error.

Nothing is cached from an earlier build (-E): pages change with the program, not only with their own files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urljoin

DOCS = Path(__file__).parent
SITE = DOCS.parent / "build" / "docs"
ADDRESS = "https://vitreous.readthedocs.io"
LANGUAGES = {"en": "Code of the figure", "ko": "그림을 그리는 코드"}
LIVE = {
    "photo": "photo-in-the-browser",
    "digits": "vit-in-the-browser",
    "emoji": "emoji-in-the-browser",
}
START = """<!doctype html>
<meta charset="utf-8">
<title>vitreous</title>
<script>
  location.replace((navigator.language || "en").startsWith("ko") ? "ko/index.html" : "en/index.html");
</script>
<p><a href="en/index.html">English</a> <a href="ko/index.html" lang="ko">한국어</a></p>
"""


def repository_links(language: str, environment: Mapping[str, str]) -> list[str]:
    """Return the options for links that edit a page and open it in Colab: where Read the Docs or GitHub
    builds the site, their variables say which repository it is."""
    repository = environment.get("READTHEDOCS_GIT_CLONE_URL", "").removesuffix(".git")
    if not repository and "GITHUB_REPOSITORY" in environment:
        repository = f"{environment['GITHUB_SERVER_URL']}/{environment['GITHUB_REPOSITORY']}"
    if not repository.startswith("https://"):
        return []
    options = {
        "source_repository": f"{repository}/",
        "source_branch": environment.get("READTHEDOCS_GIT_IDENTIFIER")
        or environment.get("GITHUB_REF_NAME", "main"),
        "source_directory": f"docs/{language}/",
    }
    owner = repository.removeprefix("https://github.com/")
    colab = (
        f"https://colab.research.google.com/github/{owner}/blob/{options['source_branch']}/docs/{language}/"
    )
    settings = {f"html_theme_options.{name}": value for name, value in options.items()}
    if owner != repository:
        settings["html_context.colab"] = colab
    return [part for name, value in settings.items() for part in ("-D", f"{name}={value}")]


def build(site: Path) -> None:
    trees = site.with_name(f"{site.name}-trees")  # Sphinx's own files, which are not pages
    for language, prompt in LANGUAGES.items():
        subprocess.run(
            [
                *(sys.executable, "-m", "sphinx", "-q", "-W", "-E", "--keep-going", "-b", "html"),
                *("-c", DOCS, "-D", f"language={language}", "-d", trees / language),
                *("-D", f"ogp_site_url={ADDRESS}/{language}/"),
                *repository_links(language, os.environ),
                *("-D", f"nb_code_prompt_show={prompt}", "-D", f"nb_code_prompt_hide={prompt}"),
                *(DOCS / language, site / language),
            ],
            check=True,
        )
        learn_page(site / language, language)
        notebooks(site, language)
    # The images of lessons, which their pages have under _images; and the trees of earlier versions.
    for left in ("jupyter_execute", "trees"):
        shutil.rmtree(site / left, ignore_errors=True)
    (site / "index.html").write_text(START, encoding="utf-8")


def learn_page(folder: Path, language: str) -> None:
    """Write the live pages: the landing page's on photographs, and those on digits and emoji, which link to
    each other. A link to them shows an image."""
    import vitreous as vt

    linked = " ".join(f"{model}={name}.html" for model, name in LIVE.items())
    metas = (
        f'<meta property="og:image" content="{ADDRESS}/{language}/_static/learn.png">\n'
        f'<meta name="vitreous-pages" content="{linked}">'
    )
    for model, name in LIVE.items():
        path = folder / f"{name}.html"
        path.unlink(missing_ok=True)
        vt.learn(model, out=path, language=language)
        page = path.read_text(encoding="utf-8")
        path.write_text(page.replace("</title>", f"</title>\n{metas}", 1), encoding="utf-8")


def notebooks(site: Path, language: str) -> None:
    """Copy the lessons for their download buttons. Their links lead to the site, wherever they are opened."""
    for lesson in sorted((DOCS / language / "learn").glob("*.ipynb")):
        notebook = json.loads(lesson.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = to_the_site("".join(cell["source"]), f"{ADDRESS}/{language}/learn/")
        (site / language / "learn" / lesson.name).write_text(json.dumps(notebook), encoding="utf-8")


def to_the_site(text: str, folder: str) -> str:
    """Return Markdown with its relative links as addresses of pages, seen from a folder of the site."""

    def address(found: re.Match[str]) -> str:
        return f"]({urljoin(folder, re.sub(r'[.](ipynb|md)(?=#|$)', '.html', found[1]))})"

    return re.sub(r"\]\((?!https?:|#|mailto:)([^)\s]+)\)", address, text)


if __name__ == "__main__":
    build(SITE)
    print(SITE / "index.html")
