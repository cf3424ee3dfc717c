"""Figures of a segmenter: its classes' scores, and images beside true and found masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from PIL import Image

from vitreous.data.segmentation.masked import IGNORED, Mask, overlaid, palette
from vitreous.evaluation.segmentation import SegmentationEvaluation
from vitreous.inspection.charts import FIRST, SECOND, Chart, canvas
from vitreous.inspection.confusion import MOST_CLASSES, confusion_exhibit
from vitreous.inspection.images import Pixels
from vitreous.inspection.page import Exhibit, LeftOut, img, percent
from vitreous.models.preprocessing import upright

LARGEST = 320  # pixels of an image's longer side on the page
WRONG, LEFT_OUT = (0xE0, 0x2B, 0x20), (0x80, 0x80, 0x80)

CURVES = """
Loss: the mean cross-entropy of a pixel. Mean IoU in training is that of single batches, which is rough; where
a validation part was set aside, its mean IoU is over all of its images. Pixels right counts the background
too, which is easy.
"""
PANELS = {"loss": "Loss", "miou": "Mean IoU", "accuracy": "Pixels right"}
IOU = """
Intersection over union: of the pixels that are of a class or were called so, the share that are both. The
line is the mean, {mean}. {without}
"""
CONFUSION = """
A row for what a pixel is, a column for what it was called; each row sums to 100 %. Numbers in per cent, those
below half a per cent left out.
"""
MASKS = """
Held-out images, from the worst of {count} by their mean IoU to the best. From left to right: the image,
the true mask, what was found, and where it is wrong (red; gray is judged nowhere).
"""


class Judged(NamedTuple):
    """An image with its true and its found mask, and words for it."""

    image: Image.Image
    true: Mask | None
    found: Mask
    words: str


def iou_figure(evaluation: SegmentationEvaluation) -> Exhibit | LeftOut:
    """A bar for each class."""
    title = "Class by class"
    if len(evaluation.classes) > MOST_CLASSES:
        return LeftOut(title, f"{len(evaluation.classes)} classes are too many for a chart; see metrics")
    iou, names = evaluation.iou, evaluation.classes
    with canvas(6.4, 0.26 * len(names) + 0.8) as (figure, (axes,)):
        places = np.arange(len(names))
        axes.barh(places, 100 * np.nan_to_num(iou), height=0.62, color=FIRST)
        for place, value in zip(places, iou, strict=True):
            axes.text(102, float(place), percent(value), va="center")
        axes.axvline(100 * evaluation.miou, color=SECOND, linewidth=1.2)
        axes.set_yticks(places, list(names))
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0, 114)
        axes.set_xticks(range(0, 101, 20))
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("IoU, %")
    without = [name for name, value in zip(names, iou, strict=True) if np.isnan(value)]
    words = f"Nowhere to be found, and not in the mean: {', '.join(without)}." if without else ""
    return Exhibit(
        name="iou",
        title=title,
        caption=IOU.format(mean=percent(evaluation.miou), without=words),
        html=Chart(figure).inline(),
    )


def pixels_figure(evaluation: SegmentationEvaluation) -> Exhibit | LeftOut:
    """Which class is taken for which."""
    return confusion_exhibit(
        evaluation.confusion,
        evaluation.classes,
        number=lambda count, share: f"{100 * share:.0f}" if share >= 0.005 else "",
        caption=CONFUSION,
    )


def masks_figure(judged: Sequence[Judged], classes: Sequence[str], *, title: str, caption: str) -> Exhibit:
    """Each image in a row with its masks, below the legend."""
    rows = Markup("").join(row_of(each, classes) for each in judged)
    html = legend(classes, judged) + Markup('<div class="judged">{}</div>').format(rows)
    return Exhibit(name="masks", title=title, caption=caption, html=html)


def legend(classes: Sequence[str], judged: Sequence[Judged]) -> Markup:
    """The color of each class that is to be seen."""
    seen = {int(value) for each in judged for mask in (each.true, each.found) if mask is not None
            for value in np.unique(mask)}  # fmt: skip
    colors = palette(len(classes))
    swatches = Markup("").join(
        Markup('<span><i style="background:rgb({},{},{})"></i>{}</span>').format(*colors[number], name)
        for number, name in enumerate(classes)
        if number in seen
    )
    return Markup('<p class="colors">{}</p>').format(swatches)


def row_of(judged: Judged, classes: Sequence[str]) -> Markup:
    """Image, true mask, found mask, mistakes; or image and found mask where the truth is not known."""
    pixels = shown(upright(judged.image))
    found = small(judged.found)
    tiles: Mapping[str, Pixels] = {"image": pixels, "found": overlaid(pixels, found, len(classes))}
    if judged.true is not None:
        true = small(judged.true)
        tiles = {
            "image": pixels,
            "true mask": overlaid(pixels, true, len(classes)),
            "found": tiles["found"],
            "wrong": mistakes(pixels, true, found),
        }
    images = Markup("").join(img(tile, f"{name} of {judged.words}") for name, tile in tiles.items())
    return Markup("<figure><div>{}</div><figcaption>{}</figcaption></figure>").format(images, judged.words)


def mistakes(pixels: Pixels, true: Mask, found: Mask) -> Pixels:
    """The image, pale, with its wrong pixels in red and those that nobody judges in gray."""
    pale = (0.35 * pixels.mean(axis=2, keepdims=True) + 150).repeat(3, axis=2)
    pale[true != found] = WRONG
    pale[true == IGNORED] = LEFT_OUT
    return pale.round().astype(np.uint8)


def shown(image: Image.Image) -> Pixels:
    """The image, no larger than the page needs."""
    width, height = fitting(image.width, image.height)
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR), dtype=np.uint8)


def small(mask: Mask) -> Mask:
    """A mask at the same size."""
    size = fitting(mask.shape[1], mask.shape[0])
    return np.asarray(Image.fromarray(mask).resize(size, Image.Resampling.NEAREST))


def fitting(width: int, height: int) -> tuple[int, int]:
    scale = min(LARGEST / max(width, height), 1)
    return max(round(width * scale), 1), max(round(height * scale), 1)
