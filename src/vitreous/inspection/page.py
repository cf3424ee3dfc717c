"""A report: one HTML file without external resources, built from exhibits.

The words of an exhibit (title, subtitle, caption, alternative text) are in the catalog of
`vitreous.languages`, its HTML in the macros of templates/parts.html.j2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vitreous import __version__
from vitreous.checkpoints.whole_files import whole
from vitreous.data.image_list import Failure
from vitreous.inspection.charts import Chart
from vitreous.inspection.images import Pixels, data_uri, enlarged, png
from vitreous.languages import words
from vitreous.results import Result

OPTIONS: Any = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
TEMPLATES = Environment(loader=PackageLoader("vitreous.inspection", "templates"), autoescape=True, **OPTIONS)
TEMPLATES.filters["data_uri"] = data_uri
HTML: Any = TEMPLATES.get_template("parts.html.j2").module  # its macros are functions
PLAIN_TEXT = Environment(**OPTIONS)  # the page escapes it
WORDS = ("name", "title", "subtitle", "caption", "alt")


@dataclass(frozen=True)
class Exhibit:
    """A figure of a report.

    Attributes:
        name: its anchor.
        html: the figure itself.
        file: the same as a file next to the page.
        arrays: the numbers of the figure, for the .npz file.
    """

    name: str
    title: str
    subtitle: str
    caption: str
    html: Markup
    file: Chart | Pixels | None = None
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

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
    """A figure that this model or run cannot have, and why."""

    title: str
    reason: str


@dataclass(frozen=True)
class Inspection(Result):
    """The page that `inspect` wrote, and the numbers in short.

    Attributes:
        report: the HTML page.
        arrays: the .npz file of the numbers.
        drawings: the figures as PNG and SVG files.
        summary: the numbers in short.
        failed: images that could not be read, and why.
        boxes: whether letters that no installed font has are boxes in the PNG figures.
    """

    report: Path
    arrays: Path
    drawings: tuple[Path, ...]
    summary: dict[str, Any]
    failed: tuple[Failure, ...] = ()
    boxes: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "report": str(self.report),
            "figures": [str(path) for path in self.drawings],
            "arrays": str(self.arrays),
            **self.summary,
            "failed": [asdict(each) for each in self.failed],
        }

    def _repr_html_(self) -> str:
        """Return the page itself, in a frame."""
        page = escape(self.report.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" width="100%" height="720" style="border: 0"></iframe>'


class Headline(NamedTuple):
    """The result that a report opens with: one number, and a sentence about it."""

    figure: str
    sentence: str


def words_of(name: str, values: Mapping[str, Any], keys: Sequence[str] = WORDS) -> dict[str, str]:
    """Return the anchor, title, subtitle, caption and alternative text of an exhibit or a variant."""
    entry, _, variant = name.partition(".")
    found = words(f"exhibits.{entry}")
    found = {"name": entry, "subtitle": "", "alt": found["title"], **found, **found.get(variant, {})}
    return {key: " ".join(PLAIN_TEXT.from_string(found[key]).render(values).split()) for key in keys}


def exhibit(
    name: str,
    figure: Chart | Pixels | Markup,
    *,
    file: Pixels | None = None,
    arrays: Mapping[str, np.ndarray] | None = None,
    **values: Any,
) -> Exhibit:
    """Return an exhibit with its words from the catalog.

    Args:
        name: of the exhibit in the catalog, or of a variant of it.
        figure: a chart or a contact sheet, which become files as well, or HTML.
        file: of HTML.
        values: that the words need.
    """
    words = words_of(name, values)
    alt = words.pop("alt")
    if isinstance(figure, Markup):
        html = figure
    else:
        html = figure.inline(alt) if isinstance(figure, Chart) else HTML.sheet(figure, alt)
    saved = file if isinstance(figure, Markup) else figure
    return Exhibit(**words, html=html, file=saved, arrays=arrays or {})


def left_out(name: str, reason: str, **values: Any) -> LeftOut:
    """Return why there is no exhibit called `name`."""
    return LeftOut(words_of(name, values, ["title"])["title"], reason)


def write_page(
    path: Path, template: str, *, parts: Sequence[Exhibit | LeftOut] = (), **contents: Any
) -> Path:
    """Render a template of this package and write it atomically.

    Args:
        parts: exhibits in their order, and what is left out.
        contents: what else the template asks for.
    """
    page = TEMPLATES.get_template(template).render(
        exhibits=[part for part in parts if isinstance(part, Exhibit)],
        left_out=[part for part in parts if isinstance(part, LeftOut)],
        version=__version__,
        **contents,
    )
    with whole(path) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return path


def save_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> Path:
    """Write `arrays` compressed to `path`, an .npz file, atomically."""
    with whole(path) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    return path
