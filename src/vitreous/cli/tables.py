"""Results as plain text: columns of words to the left, of numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence

from vitreous.results import text_table


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> None:
    """Print a table on stdout; its first `words` columns are words, the others numbers."""
    print(text_table(headers, rows, words=words))


def percent(rate: float) -> str:
    """A rate as people write it; a dash where there is none."""
    return "-" if rate != rate else f"{100 * rate:.2f} %"


def interval(low: float, high: float) -> str:
    return f"{100 * low:.2f}-{100 * high:.2f} %"
