"""Korean on the site: the theme's words that Sphinx does not translate, and search.

Sphinx has no stemmer for Korean, and a noun seldom stands alone: particles follow it without a space (손실은,
손실을, 손실에서). Each run of Hangul is indexed as its pairs of syllables, in the pages (here) and in the
query (the script below), so that a page with 손실을 is found by 손실. A word of one syllable is indexed as
it is.
"""

from __future__ import annotations

import re
from gettext import NullTranslations

from sphinx.application import Sphinx
from sphinx.search import SearchLanguage, languages

WORDS = {
    "Previous": "이전",
    "Next": "다음",
    "Home": "첫 페이지",
    "On this page": "이 페이지의 목차",
    "Back to top": "맨 위로",
    "Skip to content": "본문으로 이동",
    "Edit this page": "이 페이지 편집하기",
    "Link to this heading": "이 제목의 링크",
    "Link to this definition": "이 정의의 링크",
    "Made with ": "만든 도구: ",
}
RUNS = re.compile(r"[가-힣]+|(?:(?![가-힣])[\w.+-])+")
SCRIPT = """
const koreanPairs = (run) => run.length < 2 ? [run]
  : Array.from({ length: run.length - 1 }, (_, i) => run.slice(i, i + 2));
var splitQuery = (query) => (query.match(/[가-힣]+|(?:(?![가-힣])[\\p{Letter}\\p{Number}_.+-])+/gu) || [])
  .flatMap((run) => /[가-힣]/.test(run) ? koreanPairs(run) : [run]);
class Stemmer { stemWord(word) { return word.toLowerCase(); } }
"""


def pairs(run: str) -> list[str]:
    """Return the overlapping pairs of syllables of a run of Hangul; other words as they are."""
    if not "가" <= run[0] <= "힣" or len(run) < 2:
        return [run]
    return [run[at : at + 2] for at in range(len(run) - 1)]


class ThemeWords(NullTranslations):
    """What is asked where Sphinx's own catalog has nothing."""

    def gettext(self, message: str) -> str:
        return WORDS.get(message, message)


def add_words(app: Sphinx) -> None:
    if app.config.language == "ko":
        app.translator.add_fallback(ThemeWords())


class Korean(SearchLanguage):  # type: ignore[misc]
    """Pairs of syllables; words of other scripts in lower case, without stemming."""

    lang = "ko"
    language_name = "Korean"
    js_stemmer_code = SCRIPT
    stopwords: frozenset[str] = frozenset()

    def split(self, input: str) -> list[str]:
        return [piece for run in RUNS.findall(input) for piece in pairs(run)]

    def stem(self, word: str) -> str:
        return word.lower()

    def word_filter(self, word: str) -> bool:
        return bool(word)


def setup(app: Sphinx) -> dict[str, bool]:
    languages["ko"] = Korean
    app.connect("builder-inited", add_words)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
