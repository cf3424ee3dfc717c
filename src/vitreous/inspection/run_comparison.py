"""The page of `vitreous compare`: scores on the same examples, curves, settings, classes, disagreements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vitreous.data.dataset import ImageDataset
from vitreous.evaluation.comparison import Comparison, difference_text
from vitreous.inspection.page import HTML, Exhibit, LeftOut, exhibit, left_out, write_page
from vitreous.inspection.run_figures import compared_curves, predictions_figure
from vitreous.languages import phrase
from vitreous.models.preprocessing import Preprocessing
from vitreous.results import percent
from vitreous.whole_files import whole

MOST_DIFFERING = 5000  # examples in the page
MOST_TEXTS = 200


def write_comparison(
    found: Comparison, path: Path, curves: str, shown: tuple[ImageDataset, Preprocessing] | None
) -> Comparison:
    """Write the page of a comparison; it replaces nothing.

    Args:
        curves: the kind of the runs' panels, in the catalog.
        shown: the images of the first run's evaluation, and how they are prepared; None of texts, and where
            there are none.
    """
    parts: list[Exhibit | LeftOut] = [
        exhibit("runs", HTML.rows(found.lines()), first=found.runs[0].name, several=len(found.runs) > 2),
        compared_curves({run.name: run.rows for run in found.runs}, curves),
        settings_table(found),
    ]
    if found.common and found.by_class:
        parts.append(classes_changes(found))
    if found.common:
        parts.append(disagreements(found, shown))
    names = [run.name for run in found.runs]
    with whole(path, new=True) as temporary:
        write_page(
            temporary,
            "comparison.html.j2",
            parts=parts,
            title=phrase("titles.comparison", names=", ".join(names)),
            names=names,
            notes=found.notes(),
            verdicts=found.verdicts(),
            command="vitreous compare " + " ".join(str(run.path) for run in found.runs),
        )
    return replace(found, report=path)


def settings_table(found: Comparison) -> Exhibit | LeftOut:
    """List the settings on which the runs differ."""
    if not found.settings:
        return left_out("settings", "same-settings")
    header = [phrase("compared.setting"), *(run.name for run in found.runs)]
    rows: list[list[str]] = []
    for name, row in found.settings.items():
        rows.append([name, *("–" if value is None else str(value) for value in row)])
    return exhibit("settings", HTML.rows([header, *rows]))


def classes_changes(found: Comparison) -> Exhibit:
    """List the score of each class in all runs."""
    header = [
        phrase("columns.class"),
        *(run.name for run in found.runs),
        phrase("compared.largest-difference"),
    ]
    rows: list[list[str]] = []
    for label, row in found.by_class.items():
        span = difference_text(max(row) - min(row), rate=True).lstrip("+")
        rows.append([label, *map(percent, row), span])
    return exhibit(f"changes.{found.task}", HTML.rows([header, *rows]))


def disagreements(found: Comparison, shown: tuple[ImageDataset, Preprocessing] | None) -> Exhibit | LeftOut:
    """Show the examples that the runs answer differently: images to filter and sort, texts in a table."""
    rows = found.differing
    if not len(rows):
        return left_out("disagreements", "no-disagreements", count=found.count)
    if shown:
        images, preprocessing = shown
        rows, first = rows[:MOST_DIFFERING], found.common[0]
        some = first.subset(rows)
        answers = {run.name: each.subset(rows) for run, each in zip(found.runs, found.answers, strict=True)}
        return predictions_figure(
            answers,
            some.names,
            images,
            some.indices,
            preprocessing,
            entry="disagreements",
            total=found.count,
            differing=len(found.differing),
        )
    header = [phrase("compared.example"), phrase("compared.true"), *(run.name for run in found.runs)]
    texts = [found.example(row) for row in rows[:MOST_TEXTS].tolist()]
    cells = [[each["name"], each["true"], *each["answers"]] for each in texts]
    return exhibit(
        "disagreements",
        HTML.rows([header, *cells]),
        total=found.count,
        differing=len(rows),
        shown=len(cells),
        count=len(rows),
    )
