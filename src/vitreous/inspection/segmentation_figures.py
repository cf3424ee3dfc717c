"""Figures of a segmenter: IoU per class, true and predicted masks, attention of class embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from markupsafe import Markup
from PIL import Image
from torch import Tensor

from vitreous.data.dataset import BadImage
from vitreous.data.segmentation.masked import IGNORED, Mask, MaskedDataset, overlaid, palette
from vitreous.evaluation.segmentation import SegmentationEvaluation, masks_of
from vitreous.inspection import captions
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.charts import FIRST, SECOND, Chart, canvas
from vitreous.inspection.evaluation_figures import MOST_CLASSES, confusion_figure
from vitreous.inspection.images import Pixels, overlay, rgb
from vitreous.inspection.page import Exhibit, LeftOut, image_row, img, percent
from vitreous.layers.segmentation import MaskTransformer
from vitreous.models.preprocessing import to_tensor, upright
from vitreous.models.segmenter import Segmenter

LARGEST = 320  # pixels of an image's longer side on the page
WRONG, LEFT_OUT = (0xE0, 0x2B, 0x20), (0x80, 0x80, 0x80)
SHOWN = 12  # images with their masks
ATTENDED = 4  # images with the attention of their classes
WORST = 3  # of the images with masks, those with the lowest IoU
CLASSES = 6  # of each, the largest ones


class Segmented(NamedTuple):
    """An image with its true (if known) and its predicted mask, and words for it."""

    image: Image.Image
    true: Mask | None
    predicted: Mask
    words: str


def iou_figure(evaluation: SegmentationEvaluation) -> Exhibit | LeftOut:
    """Plot a bar for each class."""
    title = "IoU per class"
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
    absent = [name for name, value in zip(names, iou, strict=True) if np.isnan(value)]
    without = f"Neither present nor predicted, and not in the mean: {', '.join(absent)}." if absent else ""
    caption = captions.IOU.format(mean=percent(evaluation.miou), without=without)
    return Exhibit.of_chart(Chart(figure), name="iou", title=title, caption=caption)


def pixel_confusion_figure(evaluation: SegmentationEvaluation) -> Exhibit | LeftOut:
    """Show which class is taken for which, in percent of the true class's pixels."""
    return confusion_figure(
        evaluation.confusion,
        evaluation.classes,
        number=lambda count, share: f"{100 * share:.0f}" if share >= 0.005 else "",
        caption=captions.PIXEL_CONFUSION,
    )


def masks_figure(
    segmented: Sequence[Segmented], classes: Sequence[str], *, subtitle: str, caption: str
) -> Exhibit:
    """Show each image in a row with its masks, below the legend."""
    rows = Markup("").join(masks_row(each, classes) for each in segmented)
    html = legend(classes, segmented) + Markup('<div class="segmented">{}</div>').format(rows)
    return Exhibit(name="masks", title="Predicted masks", subtitle=subtitle, caption=caption, html=html)


def legend(classes: Sequence[str], segmented: Sequence[Segmented]) -> Markup:
    """Return the color of each class that occurs in a mask."""
    masks = [mask for each in segmented for mask in (each.true, each.predicted) if mask is not None]
    seen = {int(value) for mask in masks for value in np.unique(mask)}
    colors = palette(len(classes))
    swatches = Markup("").join(
        Markup('<span><i style="background:rgb({},{},{})"></i>{}</span>').format(*colors[number], name)
        for number, name in enumerate(classes)
        if number in seen
    )
    return Markup('<p class="colors">{}</p>').format(swatches)


def masks_row(segmented: Segmented, classes: Sequence[str]) -> Markup:
    """Return image, true mask, predicted mask and errors; without the true mask image and prediction
    alone."""
    upright_image = upright(segmented.image)
    size = fitting(upright_image.width, upright_image.height)
    pixels = np.asarray(upright_image.resize(size, Image.Resampling.BILINEAR), dtype=np.uint8)
    predicted = resized_mask(segmented.predicted, size)
    prediction = overlaid(pixels, predicted, len(classes))
    tiles: dict[str, Pixels] = {"image": pixels, "predicted mask": prediction}
    if segmented.true is not None:
        true = resized_mask(segmented.true, size)
        tiles = {
            "image": pixels,
            "true mask": overlaid(pixels, true, len(classes)),
            "predicted mask": prediction,
            "errors": errors(pixels, true, predicted),
        }
    images = Markup("").join(img(tile, f"{name} of {segmented.words}") for name, tile in tiles.items())
    return Markup("<figure><div>{}</div><figcaption>{}</figcaption></figure>").format(images, segmented.words)


def errors(pixels: Pixels, true: Mask, predicted: Mask) -> Pixels:
    """Return the image, pale, with its wrong pixels in red and the ignored ones in gray."""
    pale = (0.35 * pixels.mean(axis=2, keepdims=True) + 150).repeat(3, axis=2)
    pale[true != predicted] = WRONG
    pale[true == IGNORED] = LEFT_OUT
    return pale.round().astype(np.uint8)


def resized_mask(mask: Mask, size: tuple[int, int]) -> Mask:
    """Return a mask at (width, height), resampled to the nearest."""
    return np.asarray(Image.fromarray(mask).resize(size, Image.Resampling.NEAREST))


def fitting(width: int, height: int) -> tuple[int, int]:
    """Return (width, height) no larger than the page needs."""
    scale = min(LARGEST / max(width, height), 1)
    return max(round(width * scale), 1), max(round(height * scale), 1)


def sample_masks(
    model: Segmenter, evaluation: SegmentationEvaluation, images: MaskedDataset
) -> list[Segmented]:
    """Return the images with the lowest IoU, and others evenly up to the highest."""
    order = np.argsort(np.nan_to_num(evaluation.image_mious, nan=1.0), kind="stable")
    places = [*range(WORST), *np.linspace(WORST, len(order) - 1, SHOWN - WORST).astype(int).tolist()]
    found = []
    for place in dict.fromkeys(place for place in places if place < len(order)):
        which = int(order[place])
        try:
            image, true = images.pair(evaluation.numbers[which])
        except BadImage:
            continue  # it was readable during the evaluation; the file may be gone since
        words = f"{evaluation.names[which]}: mean IoU {percent(float(evaluation.image_mious[which]))}"
        found.append(Segmented(image, true, masks_of(model, [image])[0], words))
    return found


def segmenter_figures(model: Segmenter, images: Sequence[tuple[Image.Image, str]]) -> list[Exhibit]:
    """Show the predicted masks, and what the class embeddings attend to if the decoder has any."""
    model.eval()
    classes = model.labels or [str(number) for number in range(model.config.num_classes)]
    segmented = [Segmented(image, None, masks_of(model, [image])[0], name) for image, name in images[:SHOWN]]
    figures = [
        masks_figure(segmented, classes, subtitle="the class of each pixel", caption=captions.PREDICTED_MASKS)
    ]
    if isinstance(model.head, MaskTransformer):
        figures.append(class_attention_figure(model, segmented[:ATTENDED], classes))
    return figures


def class_attention_figure(
    model: Segmenter, segmented: Sequence[Segmented], classes: Sequence[str]
) -> Exhibit:
    """Show a row of maps for each image."""
    images = model.preprocessing([each.image for each in segmented])
    maps = class_attention(model, images.to(next(model.parameters()).device))
    tiles = []
    for each, image_maps in zip(segmented, maps, strict=True):
        shown = rgb(to_tensor(model.preprocessing.image(each.image)))
        counts = torch.bincount(torch.from_numpy(each.predicted).flatten().long(), minlength=len(classes))
        present = [int(number) for number in counts.argsort(descending=True)[:CLASSES] if counts[number]]
        tiles.append((shown, each.words))
        tiles += [(overlay(shown, image_maps[number]), classes[number]) for number in present]
    return Exhibit(
        name="classes",
        title="Class-embedding attention",
        subtitle="where each class looks",
        caption=captions.CLASS_ATTENTION,
        html=image_row(tiles),
        arrays={"class_attention": maps.numpy()},
    )


@torch.inference_mode()
def class_attention(model: Segmenter, images: Tensor) -> Tensor:
    """Return the attention of each class embedding to the patches in the decoder's last layer, mean of its
    heads.

    Shape:
        (B, classes, rows, columns); the rest of a row's attention goes to the class embeddings.
    """
    with capture_attention(model.head, reduce=lambda maps: maps.mean(dim=1).cpu()) as attention:
        model(images)
    count = model.config.num_classes
    return attention.maps[-1][:, :count, count:].reshape(len(images), count, *model.config.grid)
