"""A report: one HTML file without external resources, built from exhibits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vitreous import __version__
from vitreous.checkpoints.whole_files import whole
from vitreous.inspection.charts import Chart
from vitreous.inspection.images import Pixels, data_uri

SMALL = 64  # images with fewer pixels a side are shown with hard edges


@dataclass(frozen=True)
class Exhibit:
    """A figure of a report.

    Attributes:
        name: of its files and its anchor.
        title: the standard term for what it shows.
        caption: how to read it.
        html: the figure itself.
        subtitle: the question that it answers, in plain words.
        files: the same as files beside the page, by their stem.
        arrays: the numbers of the figure, for the .npz file.
    """

    name: str
    title: str
    caption: str
    html: Markup
    subtitle: str = ""
    files: Mapping[str, Chart | Pixels] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of_chart(cls, chart: Chart, *, name: str, **words: Any) -> Exhibit:
        """Return the exhibit of a chart, which is also saved as files called `name`."""
        return cls(name=name, html=chart.inline(), files={name.replace("-", "_"): chart}, **words)


@dataclass(frozen=True)
class LeftOut:
    """A figure that this model or run cannot have, and why."""

    title: str
    reason: str


class Headline(NamedTuple):
    """The result that a report opens with: one number, and a sentence about it."""

    figure: str
    sentence: str


def write_page(
    path: Path, template: str, *, parts: Sequence[Exhibit | LeftOut] = (), **contents: Any
) -> Path:
    """Render a template of this package and write it atomically.

    Args:
        parts: exhibits in their order, and what is left out.
        contents: what else the template asks for.
    """
    environment = Environment(
        loader=PackageLoader("vitreous.inspection", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template(template).render(
        exhibits=[part for part in parts if isinstance(part, Exhibit)],
        left_out=[part for part in parts if isinstance(part, LeftOut)],
        version=__version__,
        **contents,
    )
    with whole(path) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return path


def write_run_page(
    run: Path,
    *,
    eyebrow: str,
    lead: str,
    facts: Mapping[str, str],
    parts: Sequence[Exhibit | LeftOut],
    command: str,
    headline: Headline | None = None,
) -> Path:
    """Write report.html into the directory of a run, with its config.toml on it.

    Args:
        eyebrow: the kind of report, above the name of the run.
        lead: a sentence on what was trained.
        facts: numbers below it, by their names.
        parts: exhibits in their order, and what is left out.
        command: the command line that reproduces the run.
        headline: the result, if there is one.
    """
    return write_page(
        run / "report.html",
        "run.html.j2",
        parts=parts,
        title=f"Report of {run.name}",
        run=run.name,
        eyebrow=eyebrow,
        lead=lead,
        facts=facts,
        headline=headline,
        command=command,
        configuration=(run / "config.toml").read_text(encoding="utf-8"),
    )


def save_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> Path:
    """Write `arrays` compressed to `path`, an .npz file, atomically."""
    with whole(path) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    return path


def percent(share: float) -> str:
    """Return 0.98765 as "98.8 %"; a dash for NaN."""
    return "–" if share != share else f"{100 * share:.1f} %"


def img(image: Pixels, words: str) -> Markup:
    """Return an image element with its data inside; small images are enlarged with hard pixel edges."""
    hard = "pixelated" if max(image.shape[:2]) < SMALL else ""
    return Markup('<img class="{}" src="{}" alt="{}">').format(hard, data_uri(image), words)


def image_row(images: Sequence[tuple[Pixels, str]]) -> Markup:
    """Return images with words below, in a row that wraps."""
    figures = Markup("").join(
        Markup("<figure>{}<figcaption>{}</figcaption></figure>").format(img(image, words), words)
        for image, words in images
    )
    return Markup('<div class="images">{}</div>').format(figures)


def image_triples(rows: Iterable[tuple[Sequence[Pixels], str]], alternatives: tuple[str, str, str]) -> Markup:
    """Return rows of three images each, with words below each row.

    Args:
        alternatives: what the first, second and third image of a row show, for the alternative text.
    """
    figures = Markup("").join(
        Markup('<figure class="triple">{}<figcaption>{}</figcaption></figure>').format(
            Markup("").join(
                img(image, f"{words}: {kind}") for image, kind in zip(images, alternatives, strict=True)
            ),
            words,
        )
        for images, words in rows
    )
    return Markup('<div class="triples">{}</div>').format(figures)


def sheet(pixels: Pixels, words: str) -> Markup:
    """Return a contact sheet, enlarged with hard pixel edges."""
    return Markup('<div class="sheet"><img class="pixelated" src="{}" alt="{}"></div>').format(
        data_uri(pixels), words
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]], shares: Sequence[float]) -> Markup:
    """Return a table whose first column is text, the others numbers, with a bar for each row's share."""
    head = Markup("").join(
        Markup("<th{}>{}</th>").format(Markup(' class="number"' if place else ""), name)
        for place, name in enumerate(header)
    )
    body = Markup("\n").join(
        Markup("<tr>{}<td>{}</td></tr>").format(
            Markup("").join(
                Markup("<td{}>{}</td>").format(Markup(' class="number"' if place else ""), cell)
                for place, cell in enumerate(row)
            ),
            Markup('<span class="bar" style="width: {}rem"></span>').format(f"{8 * share:.2f}")
            if share == share
            else "",
        )
        for row, share in zip(rows, shares, strict=True)
    )
    return Markup("<table>\n<thead><tr>{}<th></th></tr></thead>\n<tbody>\n{}\n</tbody>\n</table>").format(
        head, body
    )
