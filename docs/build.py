"""`make docs`: the site in both languages, into build/docs. A warning is an error.

Nothing is cached from an earlier build (-E): pages change with the program, not only with their own files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).parent
SITE = DOCS.parent / "build" / "docs"
ADDRESS = "https://vitreous.readthedocs.io"
LANGUAGES = {"en": "Code of the figure", "ko": "그림을 그리는 코드"}
START = """<!doctype html>
<meta charset="utf-8">
<title>vitreous</title>
<script>
  location.replace((navigator.language || "en").startsWith("ko") ? "ko/index.html" : "en/index.html");
</script>
<p><a href="en/index.html">English</a> <a href="ko/index.html" lang="ko">한국어</a></p>
"""


def edit_links(language: str, environment: Mapping[str, str]) -> list[str]:
    """Return the options for links that edit a page: where Read the Docs or GitHub builds the site, their
    variables say which repository it is."""
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
    return [part for name, value in options.items() for part in ("-D", f"html_theme_options.{name}={value}")]


def build(site: Path) -> None:
    for language, prompt in LANGUAGES.items():
        subprocess.run(
            [
                *(sys.executable, "-m", "sphinx", "-q", "-W", "-E", "--keep-going", "-b", "html"),
                *("-c", DOCS, "-D", f"language={language}", "-d", site / "trees" / language),
                *("-D", f"ogp_site_url={ADDRESS}/{language}/"),
                *edit_links(language, os.environ),
                *("-D", f"nb_code_prompt_show={prompt}", "-D", f"nb_code_prompt_hide={prompt}"),
                *(DOCS / language, site / language),
            ],
            check=True,
        )
        learn_page(site / language, language)
    (site / "index.html").write_text(START, encoding="utf-8")


def learn_page(folder: Path, language: str) -> None:
    """Write the landing page's model: the paper's, on the bundled digits. A link to it shows an image."""
    import vitreous as vt

    path = folder / "vit-in-the-browser.html"
    path.unlink(missing_ok=True)
    vt.learn(out=path, language=language)
    image = f'<meta property="og:image" content="{ADDRESS}/{language}/_static/learn.png">'
    page = path.read_text(encoding="utf-8")
    path.write_text(page.replace("</title>", f"</title>\n{image}", 1), encoding="utf-8")


if __name__ == "__main__":
    build(SITE)
    print(SITE / "index.html")
