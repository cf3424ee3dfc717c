"""A report: one HTML file that carries everything in itself and asks the network for nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
        title: what it is.
        caption: how to read it.
        html: what is seen.
        files: the same as files beside the page, by their stem.
        arrays: the numbers behind it, for the .npz file.
    """

    name: str
    title: str
    caption: str
    html: Markup
    files: Mapping[str, Chart | Pixels] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class LeftOut:
    """A figure that this model cannot have, and why."""

    title: str
    reason: str


def write_page(path: Path, template: str, **contents: Any) -> Path:
    """Fill a template of this package and write it, beside first."""
    environment = Environment(
        loader=PackageLoader("vitreous.inspection", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    with whole(path) as beside:
        beside.write_text(environment.get_template(template).render(**contents), encoding="utf-8")
    return path


def write_run_report(
    run: Path, template: str, *, parts: Sequence[Exhibit | LeftOut], **contents: Any
) -> Path:
    """report.html in the directory of a run, with its config.toml on it.

    Args:
        parts: what is shown, in order, and what is left out.
        contents: what else the template asks for.
    """
    return write_page(
        run / "report.html",
        template,
        title=f"Report of {run.name}",
        run=run.name,
        exhibits=[part for part in parts if isinstance(part, Exhibit)],
        left_out=[part for part in parts if isinstance(part, LeftOut)],
        configuration=(run / "config.toml").read_text(encoding="utf-8"),
        version=__version__,
        **contents,
    )


def percent(share: float) -> str:
    """0.98765 as "98.8 %"; a dash for what is not a number."""
    return "–" if share != share else f"{100 * share:.1f} %"


def img(image: Pixels, words: str) -> Markup:
    """An image that the page carries in itself; small ones are enlarged with their pixels' edges."""
    hard = "pixelated" if max(image.shape[:2]) < SMALL else ""
    return Markup('<img class="{}" src="{}" alt="{}">').format(hard, data_uri(image), words)


def image_row(images: Sequence[tuple[Pixels, str]]) -> Markup:
    """Images with words below, in a row that wraps."""
    figures = Markup("").join(
        Markup("<figure>{}<figcaption>{}</figcaption></figure>").format(img(image, words), words)
        for image, words in images
    )
    return Markup('<div class="images">{}</div>').format(figures)


def sheet(pixels: Pixels, words: str) -> Markup:
    """A contact sheet, enlarged with hard pixel edges."""
    return Markup('<div class="sheet"><img class="pixelated" src="{}" alt="{}"></div>').format(
        data_uri(pixels), words
    )
