"""Figures of a training run: learning curves, baselines, confusion matrix, calibration, errors; and the
predictions explorer: every evaluated image as a thumbnail with its answers, to filter, sort, export.

Thumbnails are as small as their number demands, so that a page of 50,000 images stays below 20 MB."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator
from PIL import Image

from vitreous.data.dataset import ImageDataset
from vitreous.data.image_samples import ContactSheet, evaluation_loader
from vitreous.data.workers import worker_count
from vitreous.evaluation.classical import Baseline
from vitreous.evaluation.classification import ClassificationEvaluation, MultiLabelEvaluation
from vitreous.evaluation.outputs import evaluating
from vitreous.evaluation.result import Answers, Evaluation
from vitreous.evaluation.scores import Interval, candidate_title
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.charts import (
    FIRST,
    HAIR,
    INK,
    MUTED,
    ONE_CHART,
    Chart,
    Point,
    canvas,
    label_decades,
    lines,
    matrix,
)
from vitreous.inspection.images import contact_sheet, inferno, rgb, to_scale
from vitreous.inspection.measures import readout_attention, readout_of, to_grid
from vitreous.inspection.page import HTML, Exhibit, LeftOut, exhibit, left_out
from vitreous.languages import baseline_settings, named_text, phrase, words
from vitreous.models.model import Model
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT
from vitreous.results import percent
from vitreous.training.callbacks import MetricsRow, read_metrics

SERIES = {"": "training", "validation_": "validation"}
MOST_CLASSES = 40  # in a readable chart
LEVEL = "-"  # the symbol of a horizontal line
EACH_EPOCH = 60  # epochs, up to which each has a tick
WIDE = 5  # times the lowest value: what spans more can be seen on a logarithmic axis
Curve = tuple[list[float], list[float]]  # epochs and values
SIDES = (96, 64, 48, 40, 32, 24, 16)  # of a thumbnail, in pixels
PIXELATED = 64  # pixels of the model's images, below which thumbnails are enlarged with hard edges
LOSSLESS = 32  # the largest side that is stored without loss where there is room
QUALITIES = (80, 50, 25)
COLUMNS, ROWS = 40, 25  # of thumbnails in one sheet
ATTENTION_BATCH = 8


class FigureLimits(NamedTuple):
    """How much a figure of predictions holds."""

    images: int = 50_000
    bytes: int = 9_000_000  # of all thumbnails; base64 makes them a third larger
    tried: int = 200  # thumbnails that the size of all is estimated from
    attended: int = 400  # images whose attention is shown, at most
    work: float = 1e12  # for their attention: parameters x tokens x images


LIMITS = FigureLimits()


class Mark(NamedTuple):
    """What happened in an epoch of a run: a vertical line; with a value a point of the panel or a level."""

    epoch: float
    words: str
    value: float | None = None
    symbol: str = "D"


def curves_figure(
    run: Path,
    kind: str = "images",
    test: tuple[str, float] | None = None,
    chance: Mapping[str, float] | None = None,
) -> Exhibit | LeftOut:
    """Plot the loss, accuracy and learning rate of a run's metrics.jsonl over the epochs.

    Args:
        kind: of run: its panels in the catalog, by keys of metrics.jsonl.
        test: the key of a panel, and what was measured on the test set at the end.
        chance: by the keys of panels, what a model reaches that has learned nothing.
    """
    rows = [row for row in read_metrics(run / "metrics.jsonl") if "epoch" in row]
    panels: dict[str, dict[str, Curve]] = {}
    for key in words(f"panels.{kind}"):
        for prefix, name in SERIES.items():
            if curve := curve_of(rows, prefix + key):
                panels.setdefault(key, {})["" if key == "lr" else series_name(name, kind)] = curve
    if not panels:
        return left_out("curves", "no-metrics")
    resumed: list[Mark] = []
    for row in rows:
        if row.get("resumed"):  # the step at which a run went on after it was stopped
            resumed.append(Mark(row["resumed"] * row["epoch"] / row["step"], phrase("charts.resumed")))
    validated, best = panels["loss"].get(phrase("charts.validation")) if "loss" in panels else None, None
    if validated and len(validated[1]) > 1:
        place = int(np.argmin(validated[1]))
        best = Mark(validated[0][place], phrase("charts.lowest"), validated[1][place], "v")
    charts = []
    for key, series in panels.items():
        marks = [*resumed, *([best] if best and key == "loss" else [])]
        if chance and key in chance:
            marks.append(Mark(rows[-1]["epoch"], phrase("charts.chance"), chance[key], LEVEL))
        if test is not None and key == test[0]:
            marks.append(Mark(rows[-1]["epoch"], phrase("charts.test"), test[1]))
        charts.append(curve_chart(words(f"panels.{kind}")[key], series, marks))
    measured = set[str]().union(*rows)
    return exhibit(
        f"curves.{kind}",
        charts,
        validated=any(name.startswith("validation_") for name in measured),
        neighbors="validation_knn" in measured,
        resumed=len(resumed),
        chance=bool(chance),
        best=best.epoch if best else None,
        risen=validated[1][-1] / best.value - 1 if validated and best and best.value else 0.0,
    )


def curve_of(rows: Sequence[MetricsRow], key: str) -> Curve | None:
    """Return the epochs and values of a number in rows; None where no row has it."""
    epochs, values = [], []
    for row in rows:
        if "epoch" in row and key in row:
            epochs.append(row["epoch"])
            values.append(row[key])
    return (epochs, values) if values else None


def series_name(name: str, kind: str) -> str:
    """Return what a curve is called; the kind of run can have a name of its own for it."""
    own = f"{name}-{kind}"
    return phrase(f"charts.{own if own in words('charts') else name}")


def curve_chart(title: str, series: Mapping[str, Curve], marks: Sequence[Mark] = ()) -> Chart:
    """Plot curves over the epochs; positive ones that span much with a logarithmic axis to switch to."""
    values: list[float] = []
    for _, ys in series.values():
        values += [value for value in ys if not math.isnan(value)]
    header = [phrase("charts.epoch"), phrase("charts.curve"), phrase("charts.value")]

    def plotted(scale: str) -> tuple[Figure, list[Point]]:
        with canvas(2.85, 2.5) as (figure, (axes,)):
            points = lines(axes, series, title=title, x=header[0])
            axes.set_yscale(scale)
            if scale == "log":
                label_decades(axes.yaxis)
            length = max(xs[-1] for xs, _ in series.values())
            axes.xaxis.set_major_locator(
                MaxNLocator(6 if length >= 1 else 2, integer=length >= 1, min_n_ticks=1)
            )
            if length <= EACH_EPOCH:
                axes.xaxis.set_minor_locator(MultipleLocator(1))
                axes.tick_params(which="minor", length=2, color=MUTED)
            top = axes.get_ylim()[1]
            line: Any = {"color": MUTED, "linewidth": 1, "zorder": 1}
            for mark in marks:
                if mark.value is None:
                    axes.axvline(mark.epoch, linestyle=(0, (1, 2)), **line)
                    height, value = top, "–"
                else:
                    height, value = mark.value, f"{mark.value:.4g}"
                    if mark.symbol == LEVEL:
                        axes.axhline(height, label=mark.words, linestyle=(0, (4, 3)), **line)
                    else:
                        dot: Any = {"color": INK, "markersize": 5, "linestyle": "None", "label": mark.words}
                        axes.plot([mark.epoch], [height], mark.symbol, **dot)
                    axes.legend(loc="best", handlelength=2, frameon=True, framealpha=0.8, edgecolor="none")
                cells = f"{mark.epoch:g}", f"{title}: {mark.words}", value
                points.append(Point(axes, mark.epoch, height, cells))
        return figure, points

    figure, points = plotted("linear")
    switched = None
    if values and 0 < WIDE * min(values) < max(values):
        again, shown = plotted("log")
        switched = Chart(again, points=shown)
    return Chart(figure, [header, *(point.cells for point in points)], points, switched)


def compared_curves(runs: Mapping[str, Sequence[MetricsRow]], kind: str) -> Exhibit | LeftOut:
    """Plot the curves of several runs, by their names, over each other."""
    charts = []
    for key, title in words(f"panels.{kind}").items():
        for prefix, name in SERIES.items():
            series = {}
            for run, rows in runs.items():
                if curve := curve_of(rows, prefix + key):
                    series[run] = curve
            if series:
                full = title if key == "lr" else f"{title}: {series_name(name, kind)}"
                charts.append(curve_chart(full, series))
    return exhibit("curves.compared", charts) if charts else left_out("curves", "no-metrics")


def baselines_figure(evaluation: Evaluation, baselines: Sequence[Baseline]) -> Exhibit | LeftOut:
    """Plot the first metric of the model, and that of simple methods on the same images."""
    if not baselines:
        return left_out("baselines", "no-baselines")
    metric = next(iter(evaluation.metrics.values()))
    scale, text = (100.0, percent) if metric.rate else (1.0, number_text)
    label = phrase("charts.test-accuracy") if metric.label == "accuracy" else metric.label
    own = metric.interval or Interval(metric.value, metric.value)
    entries: list[tuple[str, float, Interval]] = [(phrase("charts.this-model"), metric.value, own)]
    entries += [(phrase(f"baselines.{each.name}"), each.accuracy, each.interval) for each in baselines]
    with canvas(ONE_CHART, 0.34 * len(entries) + 0.6) as (figure, (axes,)):
        for place, (_, score, interval) in enumerate(entries):
            color = FIRST if place == 0 else MUTED
            axes.plot(np.array(interval) * scale, [place, place], color=color, linewidth=2, alpha=0.5)
            axes.plot([scale * score], [place], "o", color=color, markersize=6)
            at, above = (scale * score, place), (0, 6)
            axes.annotate(text(score), at, above, textcoords="offset points", ha="center")
        axes.set_yticks(range(len(entries)), [each[0] for each in entries])
        axes.set_ylim(len(entries) - 0.5, -0.7)
        # With this margin the numbers above the outer dots stay inside.
        axes.margins(x=0.1)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(label)
    table = [["", label, phrase("charts.low"), phrase("charts.high")]]
    for method, score, interval in entries:
        table.append([method, text(score), *map(text, interval)])
    settings: list[str] = []
    for each in baselines:
        if each.settings:
            settings.append(f"{phrase(f'baselines.{each.name}')} ({baseline_settings(each.settings)})")
    chart = Chart(figure, table)
    kind = "Wilson" if metric.label == "accuracy" else "bootstrap"
    return exhibit("baselines", chart, count=evaluation.count, interval=kind, settings="; ".join(settings))


def candidates_table(candidates: Sequence[Mapping[str, Any]]) -> Exhibit:
    """List what was compared on images that it did not learn from, as candidates.json has it. The caption
    speaks of networks where some were tried."""
    header = [phrase(f"columns.{name}") for name in ("method", "score", "interval", "images")]
    rows = []
    for row in candidates:
        text = number_text if row["measure"] == "r2" else percent
        interval = " … ".join(map(text, row["interval"]))
        rows.append((candidate_title(row), text(row["score"]), interval, row["count"]))
    measured = {row["measured_on"] for row in candidates}
    has_networks = any(row["speed"] > 0 for row in candidates)
    table = HTML.table(header, rows, [each["score"] for each in candidates])
    return exhibit(
        "candidates",
        table,
        estimated="difference" in measured,
        crossed=has_networks and measured == {"cross-fitted"},
        short=any(any(row.get("short", ())) for row in candidates),
        refitted=candidates[0]["speed"] == 0,
        passed_over=any(row.get("passed_over") for row in candidates),
    )


def number_text(value: float) -> str:
    """Return a number that is not a share."""
    return f"{value:.4g}"


def confusion_figure(
    counts: Int[np.ndarray, "classes classes"], classes: Sequence[str], *, pixels: bool = False
) -> Exhibit | LeftOut:
    """Show a square for each pair of classes, as deep as its share of the row.

    Args:
        counts: of true class [row] and predicted class [column].
        pixels: whether they count pixels, which are written as percent of the row.
    """
    if len(classes) > MOST_CLASSES:
        return left_out("confusion", "many-classes", count=len(classes))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    texts: list[list[str]] = []
    for row in 100 * shares if pixels else counts:
        texts.append([f"{number:.0f}" if number >= 0.5 else "" for number in row])
    chart = matrix(
        shares,
        rows=classes,
        columns=classes,
        axes_names=(phrase("charts.true-class"), phrase("charts.predicted-class")),
        numbers=texts,
    )
    return exhibit("confusion.pixels" if pixels else "confusion", chart)


def calibration_figure(evaluation: ClassificationEvaluation) -> Exhibit:
    """Plot the accuracy over the predicted probability (reliability diagram)."""
    every_bin = evaluation.calibration.bins
    bins = [each for each in every_bin if each.count]
    with canvas(3.6, 3.4) as (figure, (axes,)):
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        width = every_bin[0].high - every_bin[0].low
        shares = np.array([each.count for each in every_bin]) / evaluation.count
        edges = [each.low for each in every_bin]
        axes.bar(edges, shares, width=width * 0.92, align="edge", color=HAIR, zorder=1)
        confidence, accuracy = [each.confidence for each in bins], [each.accuracy for each in bins]
        axes.plot(confidence, accuracy, "o-", color=FIRST, linewidth=1.4, markersize=5, zorder=3)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.03)
        axes.set_xlabel(phrase("charts.predicted-probability"))
        axes.set_ylabel(phrase("charts.accuracy"))
    table = [[phrase("charts.predicted-probability"), phrase("charts.accuracy"), phrase("charts.images")]]
    table += [[f"{each.confidence:.3f}", f"{each.accuracy:.3f}", str(each.count)] for each in bins]
    return exhibit("calibration", Chart(figure, table), ece=evaluation.calibration.ece)


def classes_table(evaluation: ClassificationEvaluation | MultiLabelEvaluation) -> Exhibit:
    """List precision, recall and F1 of each class, or its average precision where images have several
    labels; of many classes the worst first."""
    rows: list[tuple[object, ...]]
    if isinstance(evaluation, MultiLabelEvaluation):
        values = [float(value) for value in evaluation.average_precision]
        names = ["class", "average-precision"]
        rows = [(label, percent(value)) for label, value in zip(evaluation.classes, values, strict=True)]
    else:
        names, rows, values = ["class", "images", "precision", "recall", "f1"], [], []
        for each in evaluation.per_class:
            rates = percent(each.precision), percent(each.recall), percent(each.f1)
            rows.append((each.label, each.support, *rates))
            values.append(each.f1)
    header, many = [phrase(f"columns.{name}") for name in names], len(rows) > MOST_CLASSES
    order = np.argsort(values, kind="stable") if many else range(len(rows))
    entry = "classes.ranked" if isinstance(evaluation, MultiLabelEvaluation) else "classes"
    tall = phrase("exhibits.classes.title") if many else ""
    table = HTML.table(header, [rows[i] for i in order], [values[i] for i in order], tall)
    return exhibit(entry, table, many=many)


def results_table(evaluation: Evaluation) -> Exhibit:
    """List every metric with its interval."""
    rows = []
    for name, metric in evaluation.metrics.items():
        written = percent if metric.rate else metric.text
        between = " … ".join(written(each) for each in metric.interval) if metric.interval else "–"
        rows.append((named_text(f"metrics.{name}", metric.label), written(metric.value), between))
    header = [phrase(f"columns.{name}") for name in ("metric", "value", "interval")]
    shares = [each.value if each.rate else float("nan") for each in evaluation.metrics.values()]
    return exhibit("results", HTML.table(header, rows, shares), count=evaluation.count)


def augmented_figure(sheet: ContactSheet | None) -> Exhibit | LeftOut:
    """Show training images after augmentation."""
    if sheet is None:
        return left_out("augmented", "no-sheet")
    images = [(rgb(image), label) for image, label in zip(sheet.images, sheet.labels, strict=True)]
    file = contact_sheet([pixels for pixels, _ in images], columns=6)
    return exhibit("augmented", HTML.image_row(images), file=file, count=len(images))


def predictions_figure(
    models: Mapping[str, Answers],
    names: Sequence[str],
    images: ImageDataset,
    indices: Sequence[int] | np.ndarray,
    preprocessing: Preprocessing,
    *,
    entry: str = "predictions",
    attending: Model | None = None,
    matrix: bool = True,
    limits: FigureLimits = LIMITS,
    **values: Any,
) -> Exhibit:
    """Show the answers of one or several models to the same images.

    Args:
        models: by name; of several the first decides how images are sorted.
        names: of the images.
        indices: their numbers in `images`.
        entry: of the exhibit in the catalog.
        attending: the model whose attention is shown on the images with the largest losses, where its layers
            have learned.
        matrix: whether it has the confusion matrix, where the rest of the page has none.
        limits: to how much is shown.
        values: that the words of the exhibit need besides.
    """
    first = next(iter(models.values()))
    order = np.argsort(-np.nan_to_num(first.loss), kind="stable")
    # Of more images, those with the largest losses are shown.
    shown = np.sort(order[: limits.images])
    some = images.subset(np.asarray(indices)[shown])
    size, sheets = thumbnails(some, preprocessing, limits)
    place = {row: number for number, row in enumerate(shown.tolist())}
    attended = [place[row] for row in order[: limits.images].tolist()]
    vit = attending if isinstance(attending, ViT) and not attending.has_untrained_layers else None
    data = {
        "classes": list(first.classes),
        "names": [names[row] for row in shown],
        "true": [first.true[row] for row in shown],
        "models": [packed_answers(name, each, shown) for name, each in models.items()],
        "size": size,
        "pixelated": max(preprocessing.size) < PIXELATED,
        "columns": COLUMNS,
        "perSheet": COLUMNS * ROWS,
        "sheets": sheets,
        "attention": dict(attention_maps(vit, some, attended, limits)) if vit else {},
        "grid": vit.config.grid if vit else None,
        "heat": base64.b64encode(inferno().tobytes()).decode(),
        "matrix": matrix,
        "lossName": phrase(f"scores.{first.loss_name}"),
        "words": words("explorer-of-predictions"),
    }
    return exhibit(
        entry,
        script="predictions",
        figure=HTML.predictions(data, words("explorer-of-predictions"), phrase("page.noscript-predictions")),
        count=len(names),
        shown=len(shown),
        attended=len(data["attention"]),
        classes=len(first.classes),
        graded=first.right is not None,
        **values,
    )


def packed_answers(name: str, answers: Answers, rows: np.ndarray) -> dict[str, object]:
    """Return the answers of a model to some images, for the page."""

    def rounded(values: Float[np.ndarray, " N"] | None) -> list[float | None] | None:
        return None if values is None else [float(f"{values[row]:.4g}") for row in rows]

    return {
        "name": name,
        "given": [answers.given[row] for row in rows],
        "loss": rounded(answers.loss),
        "confidence": rounded(answers.confidence),
        "right": None if answers.right is None else [int(answers.right[row]) for row in rows],
    }


def thumbnails(
    images: ImageDataset, preprocessing: Preprocessing, limits: FigureLimits
) -> tuple[tuple[int, int], list[str]]:
    """Return all images as the model sees them, as large as all of them together may be: (H, W) of each, and
    the sheets that they are on, from left to right and from top to bottom."""
    tried = images.subset(np.array(images.sample(min(limits.tried, len(images)))))
    for side, quality in thumbnail_sizes(max(preprocessing.size)):
        size = small_size(preprocessing.size, side)
        sheets = [webp(sheet, quality) for sheet in sheets_of(tried, preprocessing, size)]
        if sum(map(len, sheets)) * len(images) / len(tried) < limits.bytes:
            break
    if len(tried) < len(images):
        sheets = [webp(sheet, quality) for sheet in sheets_of(images, preprocessing, size)]
    return size, [f"data:image/webp;base64,{base64.b64encode(each).decode()}" for each in sheets]


def thumbnail_sizes(largest: int) -> Iterator[tuple[int, int | None]]:
    """Yield sides of thumbnails with qualities, the best first; a quality of None is without loss."""
    sides = [min(largest, SIDES[0]), *(side for side in SIDES[1:] if side < largest)]
    for side in sides:
        if side <= LOSSLESS:
            yield side, None
        yield side, QUALITIES[0]
        yield side, QUALITIES[1]
    yield sides[-1], QUALITIES[2]


def small_size(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Return (H, W) of the same shape whose longer side has at most `side` pixels."""
    scale = min(side / max(size), 1)
    return max(round(size[0] * scale), 1), max(round(size[1] * scale), 1)


def sheets_of(
    images: ImageDataset, preprocessing: Preprocessing, size: tuple[int, int]
) -> Iterator[UInt8[np.ndarray, "_ _ 3"]]:
    """Yield sheets of `ROWS` rows of thumbnails, the last one with fewer; gray where an image cannot be
    read."""
    small = preprocessing.model_copy(update={"size": size})
    height, width = size
    per_sheet = COLUMNS * ROWS
    loader = evaluation_loader(images, preprocessing=small, batch_size=200, workers=worker_count(None))
    current, sheet = 0, gray_sheet(len(images), size)
    for batch in loader:
        pixels = small.denormalize(batch.images).cpu()
        for index, image in zip(batch.indices.tolist(), pixels, strict=True):
            while index // per_sheet > current:
                yield sheet
                current += 1
                sheet = gray_sheet(len(images) - current * per_sheet, size)
            row, column = divmod(index % per_sheet, COLUMNS)
            top, left = row * height, column * width
            sheet[top : top + height, left : left + width] = rgb(image)
    yield sheet


def gray_sheet(left: int, size: tuple[int, int]) -> UInt8[np.ndarray, "_ _ 3"]:
    """Return a gray sheet for at most so many thumbnails."""
    rows = min(max(math.ceil(left / COLUMNS), 1), ROWS)
    return np.full((rows * size[0], min(left, COLUMNS) * size[1], 3), 128, dtype=np.uint8)


def webp(pixels: UInt8[np.ndarray, "_ _ 3"], quality: int | None) -> bytes:
    """Return the file of an image; without loss where `quality` is None."""
    buffer = io.BytesIO()
    options = {"lossless": True} if quality is None else {"quality": quality, "method": 4}
    Image.fromarray(pixels).save(buffer, format="WEBP", **options)
    return buffer.getvalue()


def attention_maps(
    model: ViT, images: ImageDataset, rows: Sequence[int], limits: FigureLimits
) -> Iterator[tuple[int, str]]:
    """Yield what the readout attends to in the last layer, mean of the heads, as bytes of the color scale:
    for as many of the first `rows` as do not take long."""
    work = sum(each.numel() for each in model.parameters()) * model.config.sequence_length
    chosen = list(rows[: max(min(limits.attended, int(limits.work / work)), ATTENTION_BATCH)])
    device = next(model.parameters()).device
    for start in range(0, len(chosen), ATTENTION_BATCH):
        if not (read := list(images.readable(chosen[start : start + ATTENTION_BATCH]))):
            continue
        batch = model.preprocessing([image for _, image in read]).to(device)
        with evaluating(model), capture_attention(model) as captured:
            model(batch)
            maps = readout_attention(captured.maps[-1].cpu(), readout_of(model, batch)).mean(dim=1)
        for (row, _), grid in zip(read, to_grid(maps, model.config), strict=True):
            shares = (to_scale(grid).float().clamp(0, 1) * 255).round().to(torch.uint8)
            yield row, base64.b64encode(shares.cpu().numpy().tobytes()).decode()
