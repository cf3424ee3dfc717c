"""What a call of the Python API returns: attributes, JSON, a table, figures, and HTML for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import wraps
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from unicodedata import east_asian_width

from vitreous.errors import require_packages

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

SHOWN_ROWS = 30  # of a table in a notebook
FIRST_ROWS = 5  # of what is printed of a result
COLUMNS, LONGEST = 8, 30  # of a printed table; characters of a cell


ResultRow = Mapping[str, object]  # of a table: its columns and their values


class Table(list[ResultRow]):
    """Rows, which print as a table."""

    def __str__(self) -> str:
        if not self:
            return "(no rows)"
        columns: dict[str, None] = {}
        for row in self:
            columns.update(dict.fromkeys(row))
        shown = list(columns)[:COLUMNS]
        cells: list[list[str]] = []
        for row in self:
            cells.append([short_line(row.get(name, "")) for name in shown])
        more = f"\n... and {len(columns) - COLUMNS} more columns" if len(columns) > COLUMNS else ""
        return text_table(shown, cells) + more


def short_line(value: object) -> str:
    """Return a value as one short line."""
    text = " ".join(formatted_value(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


@runtime_checkable
class Answer(Protocol):
    """The answer to one image."""

    @property
    def path(self) -> str: ...
    def to_json(self) -> dict[str, object]: ...
    def line(self) -> str:
        """Return the answer for people, in a line."""
        ...


class Result:
    """A typed result, most often a dataclass, which overrides `to_json` and `table` if it has more to say."""

    def __init_subclass__(cls, **options: object) -> None:
        """Let every result print well: a dataclass would print all that it has, and a list of rows is one."""
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):
            cls.__repr__ = Result.__repr__  # type: ignore[method-assign]
        if rows := vars(cls).get("table"):

            @wraps(rows)
            def table(self: Result) -> Table:
                return Table(rows(self))

            cls.table = table  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """Return a few lines: the numbers and the first rows."""
        numbers, rows = scalars(self.to_json()), list(self.table())
        words = ", ".join(f"{name}={short_line(value)}" for name, value in numbers.items())
        if rows == [numbers] or not rows:
            return f"{type(self).__name__}({words})"
        lines = str(Table(rows[:FIRST_ROWS]))
        more = f"\n... {len(rows) - FIRST_ROWS} more rows: table()" if len(rows) > FIRST_ROWS else ""
        return f"{type(self).__name__}({words})\n{lines}{more}"

    def to_json(self) -> dict[str, object]:
        """Return the result as values that `json.dumps` takes: by default its fields, a path as text."""
        fields = asdict(self)  # type: ignore[call-overload]
        return {name: str(value) if isinstance(value, Path) else value for name, value in fields.items()}

    def table(self) -> Sequence[ResultRow]:
        """Return the rows of the result: for each the columns and their values."""
        return Table([scalars(self.to_json())])

    def figures(self) -> dict[str, Figure]:
        """Return the matplotlib figures of the result by their names; none unless a subclass has some."""
        return {}

    def to_dataframe(self) -> pandas.DataFrame:
        """Return `table` as a pandas data frame. Raises InputError: pandas is not installed."""
        require_packages("pandas", extra="data", what="to_dataframe")
        import pandas

        return pandas.DataFrame(list(self.table()))

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the numbers, then the table."""
        numbers, rows = scalars(self.to_json()), list(self.table())
        title = f"<b>{escape(type(self).__name__)}</b>"
        if rows == [numbers]:
            return title + table_html([{"": name, " ": value} for name, value in numbers.items()])
        words = ", ".join(f"{name} {formatted_value(value)}" for name, value in numbers.items())
        more = f"<p>... {len(rows) - SHOWN_ROWS} more rows</p>" if len(rows) > SHOWN_ROWS else ""
        return f"{title}<p>{escape(words)}</p>{table_html(rows[:SHOWN_ROWS])}{more}"


def percent(rate: float) -> str:
    """Return a rate as people write it, 99.7%; a dash for NaN."""
    return "-" if rate != rate else f"{100 * rate:.1f}%"


def failures(reasons: Mapping[str, str]) -> list[dict[str, str]]:
    """Return what could not be read, or is damaged, and why, for JSON."""
    return [{"path": path, "reason": reason} for path, reason in reasons.items()]


def scalars(values: Mapping[str, object]) -> dict[str, str | int | float]:
    """Return the entries that are one number or one text."""
    return {name: value for name, value in values.items() if isinstance(value, str | int | float)}


def table_html(rows: Sequence[ResultRow]) -> str:
    """Return rows of equal columns as an HTML table."""
    if not rows:
        return ""
    head = "".join(f"<th>{escape(str(name))}</th>" for name in rows[0])
    body = ""
    for row in rows:
        cells = "".join(f"<td>{escape(formatted_value(value))}</td>" for value in row.values())
        body += f"<tr>{cells}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def formatted_value(value: object) -> str:
    """Return a value as people read it: four significant digits of a fraction."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def text_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> str:
    """Return a table as plain text; its first `words` columns are words, the others numbers."""
    cells = [list(map(str, row)) for row in (headers, *rows)]
    widths = [max(map(text_width, column)) for column in zip(*cells, strict=True)]
    rule = ["-" * width for width in widths]
    lines = []
    for row in [cells[0], rule, *cells[1:]]:
        aligned: list[str] = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (width - text_width(cell))
            aligned.append(cell + blank if column < words else blank + cell)
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)


def text_width(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for a letter of Korean, Chinese or Japanese."""
    return sum(1 + (east_asian_width(letter) in "WF") for letter in text)


def si(number: float | int) -> str:
    """Return a number with three digits or more and a prefix: 86.57 M."""
    for factor, prefix in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(number) >= factor:
            return f"{number / factor:.2f}{prefix}"
    return f"{number:g} "


def byte_size(count: float | int) -> str:
    """Return a number of bytes in MB or GB of 1000."""
    return f"{si(count)}B"


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    for unit, size, least in (("hours", 3600, 7200), ("minutes", 60, 120), ("s", 1, 1)):
        if seconds >= least:
            return f"{seconds / size:.3g} {unit}"
    return f"{1000 * seconds:.3g} ms"
