"""Search in Korean. Sphinx has no stemmer for it, and a Korean noun seldom stands alone: particles follow it
without a space (손실은, 손실을, 손실에서).

Each run of Hangul is indexed as its pairs of syllables, in the pages (here) and in the query (the script
below), so that a page with 손실을 is found by 손실. A word of one syllable is indexed as it is.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx
from sphinx.search import SearchLanguage, languages

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


class Korean(SearchLanguage):
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
    return {"parallel_read_safe": True, "parallel_write_safe": True}
