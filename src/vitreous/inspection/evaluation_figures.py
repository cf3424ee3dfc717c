"""Figures of a training run: learning curves, baselines, confusion matrix, calibration, errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from vitreous.data.contact_sheet import ContactSheet
from vitreous.data.dataset import BadImage, ImageDataset
from vitreous.evaluation.baselines import Baseline
from vitreous.evaluation.classification import ClassificationEvaluation
from vitreous.evaluation.multilabel import MultiLabelEvaluation
from vitreous.evaluation.scores import Interval
from vitreous.inspection import captions
from vitreous.inspection.charts import FIRST, HAIR, MUTED, Chart, canvas, lines, matrix
from vitreous.inspection.images import rgb
from vitreous.inspection.page import Exhibit, LeftOut, image_row, percent, table
from vitreous.models.preprocessing import Preprocessing, to_tensor

PANELS = {"loss": "Loss", "accuracy": "Accuracy", "lr": "Learning rate"}
SERIES = {"": "training", "validation_": "validation"}
MOST_CLASSES = 40  # in a readable chart


def curves_figure(
    rows: Sequence[Mapping[str, Any]], *, shown: Mapping[str, str] = PANELS, caption: str = captions.CURVES
) -> Exhibit | LeftOut:
    """Plot loss, accuracy and learning rate over the epochs.

    Args:
        rows: of metrics.jsonl.
        shown: the title of each panel, by its key in metrics.jsonl.
    """
    title = "Learning curves"
    panels = {
        panel: {
            words: [(row["epoch"], row[prefix + key]) for row in rows if prefix + key in row]
            for prefix, words in SERIES.items()
        }
        for key, panel in shown.items()
    }
    panels = {name: {w: p for w, p in each.items() if p} for name, each in panels.items()}
    panels = {name: each for name, each in panels.items() if each}
    if not panels:
        return LeftOut(title, "metrics.jsonl holds no numbers yet")
    validated = any(SERIES["validation_"] in each for each in panels.values())
    with canvas(3.0 * len(panels), 2.5, columns=len(panels)) as (figure, all_axes):
        for axes, (name, series) in zip(all_axes, panels.items(), strict=True):
            lines(
                axes,
                {w: ([x for x, _ in p], [y for _, y in p]) for w, p in series.items()},
                title=name,
                x="epoch",
            )
    return Exhibit.of_chart(
        Chart(figure),
        name="curves",
        title=title,
        caption=caption.format(validation=captions.VALIDATION if validated else ""),
    )


def baselines_figure(
    name: str, evaluation: ClassificationEvaluation, baselines: Sequence[Baseline]
) -> Exhibit | LeftOut:
    """Plot the accuracy of the model and of simple methods on the same images."""
    title = "Baselines"
    if not baselines:
        return LeftOut(title, "no baseline was computed for this data")
    entries: list[tuple[str, float, Interval]] = [(name, evaluation.accuracy, evaluation.interval)]
    entries += [(each.name, each.accuracy, each.interval) for each in baselines]
    with canvas(6.4, 0.34 * len(entries) + 0.6) as (figure, (axes,)):
        for place, (_, accuracy, interval) in enumerate(entries):
            color = FIRST if place == 0 else MUTED
            axes.plot(np.array(interval) * 100, [place, place], color=color, linewidth=2, alpha=0.5)
            axes.plot([100 * accuracy], [place], "o", color=color, markersize=6)
            axes.annotate(
                percent(accuracy), (100 * accuracy, place), (0, 6), textcoords="offset points", ha="center"
            )
        axes.set_yticks(range(len(entries)), [each[0] for each in entries])
        axes.set_ylim(len(entries) - 0.5, -0.7)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("test accuracy, %")
    settings = "; ".join(f"{each.name} ({each.settings})" for each in baselines)
    return Exhibit.of_chart(
        Chart(figure),
        name="baselines",
        title=title,
        subtitle="compared with simpler methods",
        caption=captions.BASELINES.format(count=evaluation.count, settings=settings),
    )


def confusion_figure(
    counts: Int[np.ndarray, "classes classes"],
    classes: Sequence[str],
    *,
    number: Callable[[int, float], str] = lambda count, share: str(count) if count else "",
    caption: str = captions.CONFUSION,
) -> Exhibit | LeftOut:
    """Show a square for each pair of classes, as deep as its share of the row.

    Args:
        counts: of true class [row] and predicted class [column].
        number: the text in a square, from its count and its share.
    """
    title = "Confusion matrix"
    if len(classes) > MOST_CLASSES:
        return LeftOut(title, f"{len(classes)} classes are too many to read in a matrix")
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    chart = matrix(
        shares,
        rows=classes,
        columns=classes,
        axes_names=("true class", "predicted class"),
        numbers=[
            [number(int(count), float(share)) for count, share in zip(*row, strict=True)]
            for row in zip(counts, shares, strict=True)
        ],
    )
    return Exhibit.of_chart(
        chart, name="confusion", title=title, subtitle="what is taken for what", caption=caption
    )


def calibration_figure(evaluation: ClassificationEvaluation) -> Exhibit:
    """Plot the accuracy over the predicted probability (reliability diagram)."""
    bins = [each for each in evaluation.calibration.bins if each.count]
    with canvas(3.6, 3.4) as (figure, (axes,)):
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        width = evaluation.calibration.bins[0].high - evaluation.calibration.bins[0].low
        shares = np.array([each.count for each in evaluation.calibration.bins]) / evaluation.count
        edges = [each.low for each in evaluation.calibration.bins]
        axes.bar(edges, shares, width=width * 0.92, align="edge", color=HAIR, zorder=1)
        confidence, accuracy = [each.confidence for each in bins], [each.accuracy for each in bins]
        axes.plot(confidence, accuracy, "o-", color=FIRST, linewidth=1.4, markersize=5, zorder=3)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.03)
        axes.set_xlabel("predicted probability")
        axes.set_ylabel("accuracy")
    return Exhibit.of_chart(
        Chart(figure),
        name="calibration",
        title="Calibration",
        subtitle="can the probabilities be trusted?",
        caption=captions.CALIBRATION.format(ece=percent(evaluation.calibration.ece)),
    )


def mistakes_figure(
    evaluation: ClassificationEvaluation, images: ImageDataset, preprocessing: Preprocessing
) -> Exhibit | LeftOut:
    """Show the incorrect predictions with the highest probability."""
    title = "Most confident errors"
    shown = []
    for mistake in evaluation.surest_mistakes(12):
        try:
            image = preprocessing.image(images.image(mistake.index))
        except BadImage:
            continue  # it was readable during the evaluation; the file may be gone since
        words = f"predicted {mistake.predicted} ({percent(mistake.probability)}), is {mistake.actual}"
        shown.append((rgb(to_tensor(image)), f"{words} · {mistake.name}"))
    if not shown:
        return LeftOut(title, f"all {evaluation.count} images were classified correctly")
    return Exhibit(
        name="mistakes",
        title=title,
        caption=captions.MISTAKES.format(wrong=int((~evaluation.correct).sum())),
        html=image_row(shown),
    )


def classes_table(evaluation: ClassificationEvaluation | MultiLabelEvaluation) -> Exhibit:
    """List precision, recall and F1 of each class, or its average precision where images have several
    labels."""
    if isinstance(evaluation, ClassificationEvaluation):
        scores = evaluation.per_class
        caption = captions.PER_CLASS
        html = table(
            ("class", "images", "precision", "recall", "F1"),
            [
                (s.label, str(s.support), percent(s.precision), percent(s.recall), percent(s.f1))
                for s in scores
            ],
            [s.f1 for s in scores],
        )
    else:
        values = [float(value) for value in evaluation.average_precision]
        caption = captions.AVERAGE_PRECISION
        html = table(
            ("class", "average precision"),
            [(label, percent(value)) for label, value in zip(evaluation.classes, values, strict=True)],
            values,
        )
    return Exhibit(name="classes", title="Per-class metrics", caption=caption, html=html)


def augmented_figure(sheet: ContactSheet | None) -> Exhibit | LeftOut:
    """Show training images after augmentation."""
    title = "Augmented training images"
    if sheet is None:
        return LeftOut(title, "no sheet of augmented images was made")
    return Exhibit(
        name="augmented",
        title=title,
        subtitle="what training really sees",
        caption=captions.AUGMENTED.format(count=len(sheet.labels)),
        html=image_row(
            [(rgb(image), label) for image, label in zip(sheet.images, sheet.labels, strict=True)]
        ),
    )
