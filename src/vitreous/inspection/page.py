"""A report: one HTML file without external resources, built from exhibits.

The words of an exhibit (title, subtitle, caption, alternative text) are in the catalog of
`vitreous.languages`, its HTML in the macros of templates/parts.html.j2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template, pass_environment
from markupsafe import Markup

from vitreous import __version__
from vitreous.inspection.charts import Chart
from vitreous.inspection.images import Pixels, data_uri, enlarged, png
from vitreous.languages import CURRENT, named_text, phrase, rendered_text, words
from vitreous.results import Result, percent
from vitreous.whole_files import whole, write_text

if TYPE_CHECKING:
    from vitreous.data.image_list import Failure


def finite_json(values: object, **options: Any) -> str:
    """Return JSON as JSON.parse reads it: null in the place of a number that is not finite."""
    try:
        return json.dumps(values, allow_nan=False, **options)
    except ValueError:
        # Python would write NaN and Infinity, which are not JSON.
        return json.dumps(json.loads(json.dumps(values), parse_constant=lambda name: None), **options)


@pass_environment
def asset_text(environment: Environment, name: str) -> Markup:
    """Return a style sheet or a script beside the templates as it is, whatever braces are in it."""
    assert environment.loader is not None
    text, *_ = environment.loader.get_source(environment, name)
    return Markup(text.removesuffix("\n"))


# A page carries all that it needs in itself, and loads nothing.
POLICY = Markup(
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "worker-src blob:; base-uri 'none'; form-action 'none'"
)
OPTIONS: Any = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
LOADER = PackageLoader("vitreous.inspection", "templates")
TEMPLATES = Environment(loader=LOADER, autoescape=True, **OPTIONS)
TEMPLATES.policies["json.dumps_function"] = finite_json
TEMPLATES.filters |= {"data_uri": data_uri, "percent": percent}
TEMPLATES.globals |= {
    "phrase": phrase,
    "named": named_text,
    "words": words,
    "language": CURRENT.get,
    "text_of": asset_text,
    "policy": POLICY,
}
HTML: Any = TEMPLATES.get_template("parts.html.j2").module  # its macros are functions


def templates_of(package: str) -> Environment:
    """Return the templates in the folder of another package, which can extend those of this one."""
    return TEMPLATES.overlay(loader=ChoiceLoader([PackageLoader(package, ""), LOADER]))


WORDS = ("name", "title", "subtitle", "caption", "alt")


@dataclass(frozen=True)
class Exhibit:
    """A figure of a report.

    Attributes:
        name: its anchor.
        html: the figure itself.
        file: the same as a file next to the page.
        arrays: the numbers of the figure, for the .npz file.
        heat: whether it shows maps by color, and needs the legend of the colors.
        script: that its HTML needs, by the name of the template; it has a style of the same name.
    """

    name: str
    title: str
    subtitle: str
    caption: str
    html: Markup
    file: Chart | Pixels | None = None
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    heat: bool = False
    script: str = ""

    def save(self, folder: Path) -> list[Path]:
        """Write a chart as SVG and PNG, an image as PNG."""
        path = folder / f"{self.name.replace('-', '_')}.png"
        if self.file is None:
            return []
        if isinstance(self.file, Chart):
            return self.file.save(path.with_suffix(""))
        path.write_bytes(png(enlarged(self.file, 512)))
        return [path]


class LeftOut(NamedTuple):
    """An exhibit that there cannot be, and why: two places in the catalog, and the values of their words."""

    name: str
    because: str
    values: Mapping[str, object]

    @property
    def title(self) -> str:
        return phrase(self.name, **self.values)

    @property
    def reason(self) -> str:
        return phrase(f"reasons.{self.because}", **self.values)


@dataclass(frozen=True)
class Inspection(Result):
    """The page that `inspect` wrote, and the numbers in short.

    Attributes:
        report: the HTML page.
        arrays: the .npz file of the numbers.
        drawings: the figures as PNG and SVG files.
        summary: the numbers in short.
        failed: images that could not be read, and why.
        damaged: images of which a part is missing, and what that is.
    """

    report: Path
    arrays: Path
    drawings: tuple[Path, ...]
    summary: dict[str, object]
    failed: tuple[Failure, ...] = ()
    damaged: tuple[Failure, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            "report": str(self.report),
            "figures": [str(path) for path in self.drawings],
            "arrays": str(self.arrays),
            **self.summary,
            "failed": [asdict(each) for each in self.failed],
            "damaged": [asdict(each) for each in self.damaged],
        }

    def _repr_html_(self) -> str:
        return framed(self.report)


def framed(page: Path) -> str:
    """Return a page as a notebook shows it."""
    content = escape(page.read_text(encoding="utf-8"))
    return f'<iframe srcdoc="{content}" width="100%" height="720" style="border: 0"></iframe>'


def words_of(name: str, values: Mapping[str, object]) -> dict[str, str]:
    """Return the anchor, title, subtitle, caption and alternative text of an exhibit or a variant."""
    entry, _, variant = name.partition(".")
    found = words(f"exhibits.{entry}")
    found = {"name": entry, "subtitle": "", "alt": found["title"], **found, **found.get(variant, {})}
    return {key: rendered_text(found[key], dict(values)) for key in WORDS}


def exhibit(
    name: str,
    figure: Chart | Sequence[Chart] | Pixels | Markup,
    *,
    file: Pixels | None = None,
    arrays: Mapping[str, np.ndarray] | None = None,
    heat: bool = False,
    script: str = "",
    **values: object,
) -> Exhibit:
    """Return an exhibit with its words from the catalog.

    Args:
        name: of the exhibit in the catalog, or of a variant of it.
        figure: charts that are shown side by side, HTML, or one chart or contact sheet, which become files as
            well.
        file: of HTML.
        values: that the words need.
    """
    words = words_of(name, values)
    alt = words["alt"]
    saved: Chart | Pixels | None = file
    if isinstance(figure, Markup):
        html = figure
    elif isinstance(figure, np.ndarray):
        html, saved = HTML.sheet(figure, alt), figure
    elif isinstance(figure, Chart):
        html, saved = charts_html([figure], words), figure
    else:
        html = charts_html(figure, words)
    del words["alt"]
    return Exhibit(**words, html=html, file=saved, arrays=arrays or {}, heat=heat, script=script)


def charts_html(charts: Sequence[Chart], words: Mapping[str, str]) -> Markup:
    """Return charts side by side, or one below the other on a phone, and their numbers as one table."""
    numbers: list[Sequence[str]] = []
    drawn, switched = [], False
    for chart in charts:
        numbers += chart.table[1:] if numbers else chart.table  # with one header
        shown = chart.inline(words["alt"], words["caption"])
        if chart.logarithmic:
            switched = True
            shown = HTML.switched(shown, chart.logarithmic.inline(words["alt"], words["caption"]))
        drawn.append(shown)
    return Markup(HTML.charts(drawn, numbers, words["name"] if switched else ""))


def left_out(name: str, because: str, **values: object) -> LeftOut:
    """Say why there is no exhibit, or no group of them, called `name`."""
    return LeftOut(name if name.startswith("groups.") else f"exhibits.{name}.title", because, values)


def write_page(
    path: Path, template: str | Template, *, parts: Sequence[Exhibit | LeftOut] = (), **contents: object
) -> Path:
    """Render a template, by its name one of this package, and write it atomically.

    Args:
        parts: exhibits in their order, and what is left out.
        contents: what else the template asks for.
    """
    exhibits = [part for part in parts if isinstance(part, Exhibit)]
    page = TEMPLATES.get_template(template).render(
        exhibits=exhibits,
        sections=[(each.name, each.title) for each in exhibits],
        left_out=[part for part in parts if isinstance(part, LeftOut)],
        scripts=sorted({each.script for each in exhibits} - {""}),
        version=__version__,
        **contents,
    )
    write_text(path, page)
    return path


def save_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> Path:
    """Write `arrays` compressed to `path`, an .npz file, atomically."""
    with whole(path) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    return path
