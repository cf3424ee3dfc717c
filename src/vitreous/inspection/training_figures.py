"""Figures of a training run: its curves, and what it gets wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vitreous.data.contact_sheet import ContactSheet
from vitreous.data.dataset import BadImage, ImageDataset
from vitreous.evaluation.baselines import Baseline
from vitreous.evaluation.classification import Evaluation
from vitreous.evaluation.scores import Interval
from vitreous.inspection import captions
from vitreous.inspection.charts import FIRST, HAIR, MUTED, Chart, canvas, lines
from vitreous.inspection.confusion import confusion_exhibit
from vitreous.inspection.images import Pixels, rgb
from vitreous.inspection.page import Exhibit, LeftOut, image_row, percent
from vitreous.models.preprocessing import Preprocessing, to_tensor

PANELS = {"loss": "Loss", "accuracy": "Accuracy", "lr": "Learning rate"}
SERIES = {"": "training", "validation_": "validation"}


def curves_figure(
    rows: Sequence[Mapping[str, Any]], *, shown: Mapping[str, str] = PANELS, caption: str = captions.CURVES
) -> Exhibit | LeftOut:
    """Loss, accuracy and learning rate over the epochs, or what else is to be `shown`, by its name in
    metrics.jsonl."""
    title = "How it learned"
    panels = {
        title: {
            words: [(row["epoch"], row[prefix + key]) for row in rows if prefix + key in row]
            for prefix, words in SERIES.items()
        }
        for key, title in shown.items()
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
    return Exhibit(
        name="curves",
        title=title,
        caption=caption.format(validation=captions.VALIDATION if validated else ""),
        html=Chart(figure).inline(),
    )


def comparison_figure(name: str, evaluation: Evaluation, baselines: Sequence[Baseline]) -> Exhibit | LeftOut:
    """The model beside simple methods, on the same images."""
    title = "Beside simpler methods"
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
        axes.set_xlabel("held-out accuracy, %")
    return Exhibit(
        name="baselines",
        title=title,
        caption=captions.BASELINES.format(
            count=evaluation.count,
            settings="; ".join(f"{each.name} ({each.settings})" for each in baselines),
        ),
        html=Chart(figure).inline(),
    )


def confusion_figure(evaluation: Evaluation) -> Exhibit | LeftOut:
    return confusion_exhibit(
        evaluation.confusion,
        evaluation.classes,
        number=lambda count, share: str(count) if count else "",
        caption=captions.CONFUSION,
    )


def calibration_figure(evaluation: Evaluation) -> Exhibit:
    bins = [each for each in evaluation.calibration.bins if each.count]
    with canvas(3.6, 3.4) as (figure, (axes,)):
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        width = evaluation.calibration.bins[0].high - evaluation.calibration.bins[0].low
        shares = np.array([each.count for each in evaluation.calibration.bins]) / evaluation.count
        edges = [each.low for each in evaluation.calibration.bins]
        axes.bar(edges, shares, width=width * 0.92, align="edge", color=HAIR, zorder=1)
        axes.plot(
            [each.confidence for each in bins],
            [each.accuracy for each in bins],
            "o-",
            color=FIRST,
            linewidth=1.4,
            markersize=5,
            zorder=3,
        )
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.03)
        axes.set_xlabel("probability that the model gave its answer")
        axes.set_ylabel("share that was right")
    return Exhibit(
        name="calibration",
        title="Whether its probabilities can be believed",
        caption=captions.CALIBRATION.format(ece=percent(evaluation.calibration.ece)),
        html=Chart(figure).inline(),
    )


def mistakes_figure(
    evaluation: Evaluation, images: ImageDataset, preprocessing: Preprocessing
) -> Exhibit | LeftOut:
    title = "Its surest mistakes"
    shown: list[tuple[Pixels, str]] = []
    for mistake in evaluation.surest_mistakes(12):
        try:
            image = preprocessing.image(images.image(mistake.index))
        except BadImage:
            continue  # it could be read when it was judged; the file may have gone since
        words = f"called {mistake.predicted} ({percent(mistake.probability)}), is {mistake.actual}"
        shown.append((rgb(to_tensor(image)), f"{words} · {mistake.name}"))
    if not shown:
        return LeftOut(title, f"all {evaluation.count} images were classified rightly")
    return Exhibit(
        name="mistakes",
        title=title,
        caption=captions.MISTAKES.format(wrong=int((~evaluation.correct).sum())),
        html=image_row(shown),
    )


def augmented_figure(sheet: ContactSheet | None) -> Exhibit | LeftOut:
    """What training really sees."""
    title = "The images it learned from"
    if sheet is None:
        return LeftOut(title, "no sheet of augmented images was made")
    return Exhibit(
        name="augmented",
        title=title,
        caption=captions.AUGMENTED.format(count=len(sheet.labels)),
        html=image_row(
            [(rgb(image), label) for image, label in zip(sheet.images, sheet.labels, strict=True)]
        ),
    )
