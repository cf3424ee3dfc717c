"""Charts for light and dark pages.

They are plotted once, in light colors. Inside a page every color becomes a CSS variable, so that the page
decides; the files beside the page stay light.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from markupsafe import Markup

from vitreous.errors import InputError
from vitreous.languages.terminal import said

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.font_manager import findSystemFonts, fontManager
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import LogFormatter
except ModuleNotFoundError:
    raise InputError("reports and figures need matplotlib: pip install 'vitreous[train]'") from None

PAPER, INK, MUTED, HAIR, FIRST, SECOND = "#fdfcf9", "#1d2321", "#66706d", "#d9dcd8", "#0b7285", "#c2410c"
THIRD, FOURTH = "#6d3fc4", "#4d7c0f"
COLORS = (FIRST, SECOND, THIRD, FOURTH)  # of curves, in their order, with these lines
DASHES: Any = ("-", (0, (5, 2)), (0, (1.2, 1.6)), (0, (6, 2, 1.2, 2)))
VARIABLES = {
    PAPER: "var(--paper)",
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    HAIR: "var(--hair)",
    FIRST: "var(--first)",
    SECOND: "var(--second)",
    THIRD: "var(--third)",
    FOURTH: "var(--fourth)",
}
# Fallback fonts for characters that matplotlib's own font lacks, in order.
WIDE_FONTS = [
    *("Noto Sans CJK KR", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans KR", "NanumGothic"),
    *("Malgun Gothic", "Apple SD Gothic Neo", "AppleGothic", "Microsoft YaHei", "Yu Gothic"),
    *("Hiragino Sans", "PingFang SC", "WenQuanYi Zen Hei", "Arial Unicode MS"),
    *("Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans"),
]


def installed(names: Sequence[str]) -> list[str]:
    """Return the installed ones of these fonts: matplotlib warns about every missing one.

    Matplotlib remembers the fonts of its first start. Where it knows none of these, those that came later are
    read too: Korean labels would be boxes until its memory is cleared.
    """
    available = {font.name for font in fontManager.ttflist}
    if not available.intersection(names):
        known = {font.fname for font in fontManager.ttflist}
        for path in sorted({*findSystemFonts()} - known):
            with suppress(RuntimeError, OSError):  # not a font that matplotlib reads
                fontManager.addfont(path)
        available = {font.name for font in fontManager.ttflist}
    return [name for name in names if name in available]


MOST_POINTS = 60  # of a curve that say their value
ONE_CHART = 4.6  # inches: the width of a chart that is readable on a phone
LETTER = 0.085  # inches that a letter of a label takes
LONGEST_NAME = 24  # letters of a label
STYLE: Any = {
    "font.family": ["sans-serif", *installed(WIDE_FONTS)],
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": HAIR,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": HAIR,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "text.color": INK,
    "figure.facecolor": PAPER,
    "legend.frameon": False,
    "text.parse_math": False,  # names of classes and runs may have dollar signs
    "svg.fonttype": "none",  # text stays text: the page's font, searchable
    "svg.hashsalt": "vitreous",  # the same chart gives the same bytes
}


@contextmanager
def canvas(width: float, height: float, *, columns: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """Open an empty figure, in inches, with `columns` axes side by side."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, list(np.atleast_1d(figure.subplots(1, columns)))


class PlainDecades(LogFormatter):
    """Labels of a logarithmic axis without mathematical notation."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def label_decades(axis: Axis) -> None:
    """Label a logarithmic axis."""
    axis.set_major_formatter(PlainDecades())
    axis.set_minor_formatter(PlainDecades())


class Point(NamedTuple):
    """A point that says its value where the pointer is on it.

    Attributes:
        cells: its place, its curve and its value, as a row of the chart's table.
    """

    axes: Axes
    x: float
    y: float
    cells: tuple[str, str, str]

    def circle(self) -> str:
        """Return the point in a figure that has been drawn, as SVG; it is seen under the pointer."""
        figure = self.axes.figure
        scale, height = 72 / figure.dpi, figure.bbox.height
        x, y = self.axes.transData.transform((self.x, self.y))
        words = f"{self.axes.get_xlabel()} {self.cells[0]}, {self.cells[1]}: {self.cells[2]}"
        at = f'cx="{x * scale:.1f}" cy="{(height - y) * scale:.1f}"'
        circle = f'<circle {at} r="4" fill="{INK}" opacity="0"/>'
        return f'<g class="hover"><title>{escape(words)}</title>{circle}</g>'


class Chart:
    """A finished figure.

    Attributes:
        table: its numbers, for readers who do not see it: a header, and rows.
        points: that say their value.
        logarithmic: the same with a logarithmic axis, to switch to.
    """

    def __init__(
        self,
        figure: Figure,
        table: Sequence[Sequence[str]] = (),
        points: Sequence[Point] = (),
        logarithmic: Chart | None = None,
    ) -> None:
        self.figure = figure
        self.table = table
        self.points = points
        self.logarithmic = logarithmic

    @cached_property
    def svg(self) -> str:
        """The figure as SVG, in light colors."""
        buffer = io.StringIO()
        # Text stays text: the viewer has the fonts.
        with styled(boxes=False):
            self.figure.savefig(buffer, format="svg", metadata={"Date": None})
        drawn, closing, _ = buffer.getvalue().rpartition("</svg>")
        return drawn + "".join(point.circle() for point in self.points) + closing + "\n"

    def inline(self, alt: str, description: str) -> Markup:
        """Return an <svg> element for a page, its colors as CSS variables."""
        svg = self.svg[self.svg.index("<svg") :]
        for color, variable in VARIABLES.items():
            svg = svg.replace(color, variable)
        wide = round(96 * self.figure.get_figwidth())
        opening = Markup('<svg class="chart" role="img" aria-label="{}" style="--wide: {}px" ')
        words = Markup("<title>{}</title><desc>{}</desc>").format(alt, description)
        start = svg.index(">") + 1
        return Markup(svg[:start].replace("<svg ", opening.format(alt, wide), 1) + str(words) + svg[start:])

    def pixels(self) -> np.ndarray:
        """Return the figure as an image, (H, W, 4) bytes."""
        with styled(boxes=True):
            canvas = FigureCanvasAgg(self.figure)
            canvas.draw()  # type: ignore[no-untyped-call]
        return np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]

    def save(self, stem: Path) -> list[Path]:
        """Write `stem`.svg and `stem`.png."""
        paths = [stem.with_suffix(".svg"), stem.with_suffix(".png")]
        paths[0].write_text(self.svg, encoding="utf-8")
        with styled(boxes=True):
            self.figure.savefig(paths[1], dpi=160)
        return paths


@cache
def warn_of_boxes() -> None:
    """Say, once in a process, what to install where no font has the letters of a figure."""
    sentence = said(
        "some letters are boxes in PNG figures, since no installed font has them (pages and SVG figures are "
        "correct): install Noto Sans CJK or NanumGothic, on Ubuntu with apt-get install fonts-nanum"
    )
    warnings.warn(sentence, stacklevel=2)


@contextmanager
def styled(*, boxes: bool) -> Iterator[None]:
    """Draw in the style of pages. Matplotlib's warnings about missing glyphs, which it repeats at every draw,
    are left out; all others are passed on.

    Args:
        boxes: whether missing glyphs are drawn as boxes, which is said.
    """
    with matplotlib.rc_context(STYLE), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for each in caught:
        text = str(each.message)
        if not text.startswith("Glyph ") and "does not support" not in text:  # the latter of whole scripts
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        elif boxes:
            warn_of_boxes()


def lines(
    axes: Axes, series: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, title: str, x: str
) -> list[Point]:
    """Plot curves, with a legend where they have names; return at most `MOST_POINTS` of each."""
    points = []
    for number, (name, (xs, ys)) in enumerate(series.items()):
        color, dash = COLORS[number % len(COLORS)], DASHES[(number + number // 4) % len(DASHES)]
        # A line through one point is invisible.
        marker = "o" if len(xs) == 1 else "None"
        axes.plot(xs, ys, color=color, linestyle=dash, linewidth=1.6, label=name, marker=marker)
        curve = ": ".join(filter(None, (title, name)))
        shown = {round(each) for each in np.linspace(0, len(xs) - 1, min(len(xs), MOST_POINTS))}
        points += [Point(axes, xs[i], ys[i], (f"{xs[i]:g}", curve, f"{ys[i]:.4g}")) for i in sorted(shown)]
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.margins(x=0.02)
    if any(series):
        axes.legend(loc="best", labelcolor="linecolor", handlelength=2)
    return points


def matrix(
    values: Float[np.ndarray, "rows columns"],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    axes_names: tuple[str, str],
    numbers: Sequence[Sequence[str]] | None = None,
    marked: np.ndarray | None = None,
    title: str = "",
) -> Chart:
    """Plot squares whose depth of color is a value in 0 ... 1, with `numbers` in them; `marked` ones
    framed."""
    side = min(0.36, 7.2 / max(len(columns), 1))
    row_names, column_names = (
        [shortened_name(name) for name in rows],
        [shortened_name(name) for name in columns],
    )
    left = LETTER * max(map(len, row_names), default=0)
    below = LETTER * max(map(len, column_names), default=0)
    width = max(side * len(columns) + left + 0.9, 4.0)  # room for the title
    with canvas(width, side * len(rows) + below + 0.8) as (figure, (axes,)):
        for row, column in np.ndindex(values.shape):
            value = float(np.nan_to_num(np.clip(values[row, column], 0, 1)))
            corner, alpha = (column - 0.47, row - 0.47), 0.04 + 0.96 * value
            axes.add_patch(Rectangle(corner, 0.94, 0.94, facecolor=FIRST, alpha=alpha, linewidth=0))
            if marked is not None and marked[row, column]:
                corner = (column - 0.42, row - 0.42)
                axes.add_patch(Rectangle(corner, 0.84, 0.84, fill=False, edgecolor=SECOND, linewidth=1.4))
            if numbers is not None:
                axes.text(
                    column,
                    row,
                    numbers[row][column],
                    ha="center",
                    va="center",
                    fontsize=7,
                    color=PAPER if value > 0.5 else INK,
                )
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_aspect("equal", anchor="W")
        axes.grid(False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        every = max(1, -(-len(columns) // 30))  # where they would not fit
        axes.set_yticks(range(0, len(rows), every), row_names[::every])
        rotation = 90 if max(map(len, column_names), default=0) > 3 else 0
        axes.set_xticks(range(0, len(columns), every), column_names[::every], rotation=rotation)
        axes.set_title(title)
        axes.set_ylabel(axes_names[0])
        axes.set_xlabel(axes_names[1])
    if numbers is None or max(values.shape) > MOST_POINTS:
        return Chart(figure)
    named = [[row, *cells] for row, cells in zip(rows, numbers, strict=True)]
    return Chart(figure, [[f"{axes_names[0]} / {axes_names[1]}", *columns], *named])


def shortened_name(name: str) -> str:
    """Return a name as it fits beside a chart."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1].rstrip() + "…"
