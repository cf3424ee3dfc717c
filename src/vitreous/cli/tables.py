"""Results as plain text: columns of words to the left, of numbers to the right."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> None:
    """Print a table on stdout; its first `words` columns are words, the others numbers."""
    cells = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    rule = ["-" * width for width in widths]
    for row in [cells[0], rule, *cells[1:]]:
        aligned = (
            cell.ljust(width) if column < words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(aligned).rstrip(), file=sys.stdout)


def percent(rate: float) -> str:
    """A rate as people write it; a dash where there is none."""
    return "-" if rate != rate else f"{100 * rate:.2f} %"


def interval(low: float, high: float) -> str:
    return f"{100 * low:.2f}-{100 * high:.2f} %"


def si(number: float | int) -> str:
    """Three digits or more and a prefix: 86.57 M."""
    for factor, prefix in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(number) >= factor:
            return f"{number / factor:.2f}{prefix}"
    return f"{number:g} "


def size(count: float | int) -> str:
    """Bytes in MB or GB of 1000."""
    return f"{si(count)}B"
