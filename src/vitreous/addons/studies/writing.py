"""The table and the plot of a study, as files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from vitreous.addons.studies.study import Study, variant_label
from vitreous.addons.studies.verdicts import TableRow
from vitreous.errors import InputError, Param, writing_to
from vitreous.inspection.charts import FIRST, INK, MUTED, SECOND, Chart, canvas
from vitreous.languages import phrase, words
from vitreous.outside import read_text
from vitreous.whole_files import folder_for

RESULTS = ("table.md", "results.json", "plot.svg", "plot.png")
ADVICE = f"free some space, or choose another {Param('out')}"
TITLE = 56  # letters in a line; names of variants take the left of the plot
COLORS = (FIRST, SECOND, "#7c5cbf", "#8a7a14", INK, "#b5446e")  # of the most curves that a study has


@contextmanager
def results_folder(folder: Path) -> Iterator[Path]:
    """Make `folder` within this context, before the time of a study is spent. What was made here, parents
    too, and stays empty goes again. Raises InputError: it takes no files."""
    with ExitStack() as stack:
        with writing_to(folder, ADVICE):
            stack.enter_context(folder_for(folder))
        check_replaceable(folder)
        with atomic_files(folder):
            pass
        yield folder


def check_replaceable(folder: Path) -> None:
    """Raise InputError where the results of a study would replace files that are not."""
    there = [name for name in RESULTS if (folder / name).exists()]
    try:
        known = "study" in json.loads(read_text(folder / "results.json"))
    except (OSError, ValueError, TypeError):
        known = False
    if there and not known:
        raise InputError(
            f"{folder / there[0]} exists, and is not the result of a study: choose another {Param('out')}"
        )


@contextmanager
def atomic_files(folder: Path) -> Iterator[Path]:
    """Yield a place for files that come into `folder` together, when all are whole; when one cannot be
    written, nothing is left of them. Raises InputError: the disk is full, or the folder takes no files."""
    with writing_to(folder, ADVICE):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".unfinished-") as temporary:
            yield Path(temporary)
            for file in sorted(Path(temporary).iterdir()):
                os.replace(file, folder / file.name)


def write_results(folder: Path, table: str, numbers: Mapping[str, object], plot: Chart) -> tuple[Path, ...]:
    """Write table.md, results.json, plot.svg and plot.png into `folder`: all of them or none."""
    with atomic_files(folder) as temporary:
        check_replaceable(folder)
        written = [temporary / "table.md", temporary / "results.json"]
        written[0].write_text(table, encoding="utf-8")
        content = json.dumps(numbers, indent=2, ensure_ascii=False)
        written[1].write_text(content + "\n", encoding="utf-8")
        written += plot.save(temporary / "plot")
    return tuple(folder / file.name for file in written)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def study_cells(row: TableRow, study: Study) -> tuple[str, str, str, str]:
    """Return (variant, paper, ours, 95% interval)."""
    low, high = (study.number(each) for each in row.interval(study.measure))
    several = len(row.results) > 1
    return (
        variant_label(row.variant.name),
        row.variant.paper or "-",
        study.number(row.mean(study.measure)),
        phrase("study.interval", low=low, high=high) if several else "-",
    )


def study_plot(study: Study, rows: Sequence[TableRow], runs: str) -> Chart:
    """Draw curves where the study has an axis, else a dot for each variant; intervals over seeds."""
    about = study.words
    height = 3.6 if "axis" in about else 1.3 + 0.3 * len(rows)
    with canvas(6.4, height) as (figure, (axes,)):
        axes.set_title(f"{fill(about['title'], TITLE)}\n{runs}")
        if "axis" in about:
            curves(axes, rows, study.measure, 100 if study.points else 1)
            axes.set_xlabel(about["axis"])
        else:
            dots(axes, rows, study.measure, 100 if study.points else 1)
    return Chart(figure)


def error_bars(rows: Sequence[TableRow], measure: str, scale: int) -> list[list[float]]:
    """Return how far the interval reaches below and above the mean; none for a single seed."""
    if len(rows[0].results) < 2:
        return [[0.0] * len(rows)] * 2
    half = [scale * (row.interval(measure).high - row.mean(measure)) for row in rows]
    return [half, half]


def dots(axes: Axes, rows: Sequence[TableRow], measure: str, scale: int) -> None:
    places = range(len(rows))
    means = [scale * row.mean(measure) for row in rows]
    bars = error_bars(rows, measure, scale)
    axes.errorbar(means, places, xerr=bars, fmt="o", color=FIRST, ecolor=MUTED, ms=5, lw=1.2)
    for place, row in zip(places, rows, strict=True):
        axes.plot(
            [scale * each for each in row.values(measure)], [place] * len(row.results), "|", color=SECOND
        )
    axes.set_yticks(places, [variant_label(row.variant.name) for row in rows], color=INK)
    axes.invert_yaxis()
    axes.set_xlabel(phrase("study.dots", measure=words("study.axes")[measure]))


def curves(axes: Axes, rows: Sequence[TableRow], measure: str, scale: int) -> None:
    """Draw a curve for each group; a variant that is called as its group is a point of every curve."""
    groups: dict[str, list[TableRow]] = {}
    for row in rows:
        groups.setdefault(row.variant.group, []).append(row)
    shared = [row for row in rows if row.variant.name == row.variant.group]
    own = {row.variant.name for row in shared}
    several = {group: [*members, *shared] for group, members in groups.items() if group not in own}
    for (group, members), color in zip(several.items(), COLORS[: len(several)], strict=True):
        members.sort(key=lambda row: row.variant.x)
        places, means = [row.variant.x for row in members], [scale * row.mean(measure) for row in members]
        axes.plot(places, means, marker="o", ms=5, lw=1.4, color=color, label=variant_label(group))
        bars = error_bars(members, measure, scale)
        axes.errorbar(places, means, yerr=bars, fmt="none", ecolor=color, elinewidth=1, alpha=0.6)
    for row in shared:
        name, at = variant_label(row.variant.name), (row.variant.x, scale * row.mean(measure))
        axes.annotate(name, at, xytext=(5, -11), textcoords="offset points")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylabel(words("study.axes")[measure])
    axes.legend(labelcolor="linecolor", loc="upper left", bbox_to_anchor=(1, 1))  # beside the curves
