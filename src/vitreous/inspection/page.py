"""A report: one HTML file that carries everything in itself and asks the network for nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@dataclass(frozen=True)
class Exhibit:
    """A figure of a report.

    Attributes:
        name: of its files and its anchor.
        title: what it is.
        caption: how to read it.
        html: what is seen.
        arrays: the numbers behind it, for the .npz file.
    """

    name: str
    title: str
    caption: str
    html: Markup
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


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
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(environment.get_template(template).render(**contents), encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def percent(share: float) -> str:
    """0.98765 as "98.8 %"; a dash for what is not a number."""
    return "–" if share != share else f"{100 * share:.1f} %"


def picture_row(pictures: Sequence[tuple[str, str]], *, pixelated: bool) -> Markup:
    """Pictures (data URI, words below) in a row that wraps."""
    style = "pictures pixelated" if pixelated else "pictures"
    figures = Markup("").join(
        Markup('<figure><img src="{}" alt="{}"><figcaption>{}</figcaption></figure>').format(
            source, words, words
        )
        for source, words in pictures
    )
    return Markup('<div class="{}">{}</div>').format(style, figures)
