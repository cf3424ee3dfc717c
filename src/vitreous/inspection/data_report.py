"""The page of `vitreous data check --report`: what was found, image beside image; what the data are like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image, ImageOps

from vitreous.data.checks import Evidence
from vitreous.data.findings import DataReport
from vitreous.errors import utf8_name
from vitreous.inspection.charts import FIRST, ONE_CHART, Chart, canvas, shortened_name
from vitreous.inspection.images import Pixels
from vitreous.inspection.page import HTML, Exhibit, LeftOut, exhibit, left_out, write_page
from vitreous.inspection.run_figures import MOST_CLASSES
from vitreous.languages import phrase, unreadable_reason

SIDE = 160  # pixels of an image's longer side on the page
LONG = 4  # times as long as it is wide, from which on an image is shown on a square
SHOWN = 24  # pairs of each kind, and suspected labels
NEIGHBORS = 4  # shown beside an image
BARS = 24
KINDS = "leak", "near-leak", "conflict", "duplicate", "near-duplicate"


def write_data_report(path: Path, name: str, evidence: Evidence, report: DataReport, actions: Path) -> None:
    """Write the page.

    Args:
        name: of the data.
        actions: the CSV beside it.
    """
    seen = evidence.survey
    parts: list[Exhibit | LeftOut] = []
    for kind in KINDS:
        if pairs := evidence.pairs[kind]:
            rows = []
            for pair in pairs[:SHOWN]:
                images = [small_image(evidence, index) for index in pair]
                rows.append((images, [name_and_part(evidence, index) for index in pair]))
            shown = HTML.image_rows(rows)
            parts.append(exhibit(f"pairs.{kind}", shown, kind=kind, count=len(pairs), shown=len(rows)))
    if evidence.suspects:
        parts.append(suspects_figure(evidence))
    if report.unreadable:
        lines = []
        for file, reason in list(seen.bad.reasons.items())[: 4 * SHOWN]:
            lines.append((Path(file).name, unreadable_reason(reason)))
        parts.append(exhibit("unreadable", HTML.lines(lines), count=len(report.unreadable)))
    parts.append(classes_figure(report))
    if len(seen.images):
        shorter, ratio = seen.sizes.min(axis=1), seen.sizes[:, 1] / seen.sizes[:, 0]
        parts += [
            histogram("image-sizes", shorter.astype(float), "data.shorter-side", "{:.0f}"),
            histogram("aspect-ratios", ratio, "data.ratio", "{:.2f}"),
            histogram("brightness", brightness(evidence), "data.brightness", "{:.2f}"),
            extremes_figure(evidence),
        ]
    write_page(
        path,
        "data.html.j2",
        parts=parts,
        title=phrase("titles.data", name=utf8_name(name)),
        name=utf8_name(name),
        findings=report.findings,
        actions=utf8_name(actions.name),
        facts={"images": sum(report.images.values()), "classes": len(report.classes)},
        parts_of=report.images,
    )


def small_image(evidence: Evidence, index: int) -> Pixels:
    """Return an image at the size of the page."""
    _, part, place = evidence.survey.images.at(index)
    image = part.opened(place).preview().convert("RGB")
    image.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
    if max(image.size) > LONG * min(image.size):  # a line would fill the page
        image = ImageOps.pad(image, (SIDE, SIDE), color="white")
    return np.array(image)


def name_and_part(evidence: Evidence, index: int) -> str:
    """Return an image's name, and the part that it is in."""
    images = evidence.survey.images
    return f"{utf8_name(images.key(index))} ({phrase(f'data.parts.{images.at(index)[0]}')})"


def suspects_figure(evidence: Evidence) -> Exhibit:
    """Show each image whose label is doubtful beside those that it is most like."""
    classes, images, rows = evidence.splits.train.classes, evidence.survey.images, []
    labels_of = images.strata()
    for suspect in evidence.suspects[:SHOWN]:
        words = phrase(
            "data.suspect",
            name=utf8_name(images.key(suspect.image)),
            label=classes[labels_of[suspect.image]],
            answer=classes[suspect.answer],
        )
        shown, labels = [small_image(evidence, suspect.image)], [words]
        for neighbor in suspect.neighbors[:NEIGHBORS]:
            shown.append(small_image(evidence, neighbor))
            labels.append(classes[labels_of[neighbor]])
        rows.append((shown, labels))
    return exhibit("suspects", HTML.image_rows(rows), count=len(evidence.suspects), shown=len(rows))


def classes_figure(report: DataReport) -> Exhibit | LeftOut:
    """Plot how many images show each class."""
    names, counts = list(report.classes), list(report.classes.values())
    if not names or len(names) > MOST_CLASSES:
        return left_out("class-sizes", "many-bars", count=len(names))
    with canvas(ONE_CHART, 0.26 * len(names) + 0.8) as (figure, (axes,)):
        places = np.arange(len(names))
        axes.barh(places, counts, height=0.62, color=FIRST)
        axes.set_yticks(places, [shortened_name(name) for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(phrase("columns.images"))
    rows = [[name, str(count)] for name, count in report.classes.items()]
    chart = Chart(figure, [[phrase("columns.class"), phrase("columns.images")], *rows])
    return exhibit("class-sizes", chart, fewest=min(counts), most=max(counts))


def brightness(evidence: Evidence) -> NDArray[np.float64]:
    """Return the mean of each image's values, in 0 ... 1."""
    thumbs = evidence.survey.thumbs
    found: NDArray[np.float64] = thumbs.reshape(len(thumbs), -1).mean(axis=1) / 255
    return found


def histogram(name: str, values: NDArray[np.float64], axis: str, form: str) -> Exhibit:
    """Plot how many images have which value; where all have the same, the caption says all."""
    low, middle, high = (form.format(float(each)) for each in np.quantile(values, [0, 0.5, 1]))
    if low == high:
        return exhibit(name, Markup(), low=low, middle=middle, high=high)
    counts, edges = np.histogram(values, bins=min(BARS, len(np.unique(values))))
    with canvas(ONE_CHART, 2.2) as (figure, (axes,)):
        axes.bar(edges[:-1], counts, width=np.diff(edges) * 0.92, align="edge", color=FIRST)
        axes.set_xlabel(phrase(axis))
        axes.set_ylabel(phrase("columns.images"))
    table = [[phrase(axis), phrase("columns.images")]]
    for start, end, count in zip(edges[:-1], edges[1:], counts.tolist(), strict=True):
        if count:
            table.append([f"{form.format(start)} ... {form.format(end)}", str(count)])
    return exhibit(name, Chart(figure, table), low=low, middle=middle, high=high)


def extremes_figure(evidence: Evidence) -> Exhibit:
    """Show the smallest, the widest, the tallest, the darkest and the lightest image."""
    sizes, light = evidence.survey.sizes, brightness(evidence)
    ratio = sizes[:, 1] / sizes[:, 0]
    chosen = {
        "smallest": sizes.prod(axis=1).argmin(),
        "widest": ratio.argmax(),
        "tallest": ratio.argmin(),
        "darkest": light.argmin(),
        "lightest": light.argmax(),
    }
    images = []
    for kind, index in chosen.items():
        words = phrase(f"data.extremes.{kind}", name=name_and_part(evidence, int(index)))
        images.append((small_image(evidence, int(index)), words))
    return exhibit("extremes", HTML.image_row(images))
