"""Reports of a segmenter: IoU per class, true and predicted masks, attention of class embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitreous.addons.segmentation.decoders import MaskTransformer
from vitreous.addons.segmentation.evaluation import SegmentationEvaluation, masks_of
from vitreous.addons.segmentation.masked import IGNORED, Mask, MaskedDataset, overlaid, palette
from vitreous.addons.segmentation.model import Segmenter
from vitreous.data.findings import Finding
from vitreous.inspection import run_figures
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.charts import FIRST, INK, ONE_CHART, SECOND, Chart, canvas, shortened_name
from vitreous.inspection.images import Pixels, overlay, rgb
from vitreous.inspection.measures import map_words
from vitreous.inspection.model_figures import attention_figure, model_summary, positions_figure
from vitreous.inspection.model_report import InspectionRequest, write_model_report
from vitreous.inspection.page import HTML, Exhibit, Inspection, LeftOut, exhibit, left_out
from vitreous.inspection.run_figures import MOST_CLASSES
from vitreous.inspection.run_report import SAMPLES, write_run_report
from vitreous.languages import phrase
from vitreous.models.preprocessing import to_tensor
from vitreous.models.stored import BadImage, ImageLike, upright
from vitreous.results import percent

LARGEST = 320  # pixels of an image's longer side on the page
WRONG, LEFT_OUT = (0xE0, 0x2B, 0x20), (0x80, 0x80, 0x80)
SHOWN = 12  # images with their masks
ATTENDED = 4  # images with the attention of their classes
WORST = 3  # of the images with masks, those with the lowest IoU
CLASSES = 6  # of each, the largest ones


class MaskSample(NamedTuple):
    """An image with its true (if known) and its predicted mask, and a caption."""

    image: ImageLike
    true: Mask | None
    predicted: Mask
    caption: str


def iou_figure(evaluation: SegmentationEvaluation) -> Exhibit | LeftOut:
    """Plot a bar for each class."""
    iou, names = evaluation.iou, evaluation.classes
    if len(names) > MOST_CLASSES:
        return left_out("iou", "many-bars", count=len(names))
    with canvas(ONE_CHART, 0.26 * len(names) + 0.8) as (figure, (axes,)):
        places = np.arange(len(names))
        axes.barh(places, 100 * np.nan_to_num(iou), height=0.62, color=FIRST)
        for place, value, interval in zip(places, iou, evaluation.class_intervals, strict=True):
            axes.plot(100 * np.array(interval), [place, place], color=INK, linewidth=1.2)
            axes.text(102, float(place), percent(value), va="center")
        axes.axvline(100 * evaluation.miou, color=SECOND, linewidth=1.2)
        axes.set_yticks(places, [shortened_name(name) for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0, 114)
        axes.set_xticks(range(0, 101, 20))
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(phrase("charts.iou"))
    absent: list[str] = []
    table = [[phrase("columns.class"), phrase("charts.iou"), phrase("charts.low"), phrase("charts.high")]]
    for name, value, interval in zip(names, iou, evaluation.class_intervals, strict=True):
        table.append([name, *map(percent, (value, *interval))])
        if np.isnan(value):
            absent.append(name)
    chart = Chart(figure, table)
    return exhibit("iou", chart, mean=evaluation.miou, absent=absent)


def masks_figure(
    segmented: Sequence[MaskSample], classes: Sequence[str], *, count: int | None = None
) -> Exhibit:
    """Show each image in a row with its masks, below the colors of the classes that occur in them.

    Args:
        count: the number of images that they were chosen from, where they are compared with true masks.
    """
    values: set[int] = set()
    for each in segmented:
        for mask in (each.true, each.predicted):
            if mask is not None:
                values.update(np.unique(mask).tolist())
    seen = sorted(values & set(range(len(classes))))
    colors = palette(len(classes))
    html = HTML.masks(
        [(colors[number], classes[number]) for number in seen],
        [(mask_tiles(each, len(classes)), each.caption) for each in segmented],
    )
    return exhibit("masks" if count is None else "masks.compared", html, count=count)


def mask_tiles(segmented: MaskSample, classes: int) -> dict[str, Pixels]:
    """Return image, true mask, predicted mask and errors; without a true mask image and prediction alone."""
    image = upright(segmented.image)
    scale = min(LARGEST / max(image.size), 1)
    size = max(round(image.width * scale), 1), max(round(image.height * scale), 1)
    pixels = np.asarray(image.resize(size, Image.Resampling.BILINEAR), dtype=np.uint8)
    predicted = resized_mask(segmented.predicted, size)
    prediction = overlaid(pixels, predicted, classes)
    tiles = {"image": pixels, "predicted-mask": prediction}
    if segmented.true is not None:
        true = resized_mask(segmented.true, size)
        tiles = {
            "image": pixels,
            "true-mask": overlaid(pixels, true, classes),
            "predicted-mask": prediction,
            "errors": errors(pixels, true, predicted),
        }
    return {phrase(f"images.{name}"): tile for name, tile in tiles.items()}


def errors(pixels: Pixels, true: Mask, predicted: Mask) -> Pixels:
    """Return the image, pale, with its wrong pixels in red and the ignored ones in gray."""
    pale = (0.35 * pixels.mean(axis=2, keepdims=True) + 150).repeat(3, axis=2)
    stripes = np.add.outer(np.arange(len(pale)), np.arange(pale.shape[1])) % 4 < 2
    # Wrong pixels are striped, so that not only the color shows them.
    pale[(true != predicted) & stripes] = WRONG
    pale[true == IGNORED] = LEFT_OUT
    return pale.round().astype(np.uint8)


def resized_mask(mask: Mask, size: tuple[int, int]) -> Mask:
    """Return a mask at (width, height), resampled to the nearest."""
    return np.asarray(Image.fromarray(mask).resize(size, Image.Resampling.NEAREST))


def sample_masks(
    model: Segmenter, evaluation: SegmentationEvaluation, images: MaskedDataset
) -> list[MaskSample]:
    """Return the images with the lowest IoU, and others evenly up to the highest."""
    order = np.argsort(np.nan_to_num(evaluation.image_mious, nan=1.0), kind="stable")
    places = [*range(WORST), *np.linspace(WORST, len(order) - 1, SHOWN - WORST).astype(int).tolist()]
    found = []
    for place in dict.fromkeys(place for place in places if place < len(order)):
        which = int(order[place])
        try:
            image, true = images.pair(int(evaluation.indices[which]))
        except BadImage:
            # The image was readable during the evaluation, but the file may be gone since.
            continue
        name, iou = evaluation.names[which], float(evaluation.image_mious[which])
        caption = phrase("images.iou", name=name, iou=iou)
        found.append(MaskSample(image, true, masks_of(model, [image])[0], caption))
    return found


def write_segmenter_report(
    model: Segmenter, images: Sequence[tuple[ImageLike, str]], folder: Path, request: InspectionRequest
) -> Inspection:
    """Write the report of the encoder, after the predicted masks, and what the class embeddings attend to if
    the decoder has any."""
    model.eval()
    classes = model.labels or [str(number) for number in range(model.config.num_classes)]
    segmented = [MaskSample(image, None, masks_of(model, [image])[0], name) for image, name in images[:SHOWN]]
    figures = [masks_figure(segmented, classes)]
    if isinstance(model.head, MaskTransformer):
        figures.append(class_attention_figure(model, segmented[:ATTENDED], classes))
    about = f"{phrase('inspection.encoder-of-segmenter')} {request.about}".strip()
    request = replace(request, about=about)
    return write_model_report(
        model.encoder, images, folder, request, own_figures=figures, classes=len(classes)
    )


def class_attention_figure(
    model: Segmenter, segmented: Sequence[MaskSample], classes: Sequence[str]
) -> Exhibit:
    """Show a row of maps for each image."""
    images = model.preprocessing([each.image for each in segmented])
    maps = class_attention(model, images.to(next(model.parameters()).device))
    tiles, notes = [], []
    for each, image_maps in zip(segmented, maps, strict=True):
        shown = rgb(to_tensor(model.preprocessing.image(each.image)))
        counts = torch.bincount(torch.from_numpy(each.predicted).flatten().long(), minlength=len(classes))
        present = [int(number) for number in counts.argsort(descending=True)[:CLASSES] if counts[number]]
        tiles.append((shown, each.caption))
        tiles += [(overlay(shown, image_maps[number]), classes[number]) for number in present]
        notes += ["", *(map_words(image_maps[number]) for number in present)]
    arrays = {"class_attention": maps.numpy()}
    return exhibit("class-attention", HTML.image_row(tiles, notes), arrays=arrays, heat=True)


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


def write_segmentation_report(
    run: Path,
    *,
    model: Segmenter,
    evaluation: SegmentationEvaluation,
    images: MaskedDataset,
    findings: Sequence[Finding] = (),
) -> Path:
    """Write the report of a segmenter.

    Args:
        images: the held-out images of `evaluation`.
        findings: of `vitreous doctor`.
    """
    segmented = sample_masks(model, evaluation, images)
    encoder, some = model.encoder, segmented[-SAMPLES:]
    batch = model.preprocessing([each.image for each in some])
    parts = [
        masks_figure(segmented, evaluation.classes, count=evaluation.count),
        run_figures.results_table(evaluation),
        iou_figure(evaluation),
        run_figures.confusion_figure(evaluation.confusion, evaluation.classes, pixels=True),
        run_figures.curves_figure(run, "segmentation", ("miou", evaluation.miou)),
        attention_figure(encoder, batch, [each.caption.split(":")[0] for each in some]),
        positions_figure(encoder),
    ]
    lead = phrase("models.segmenter", encoder=model_summary(model), c=model.config)
    return write_run_report(
        run, model, parts, kind="segmentation", evaluation=evaluation, lead=lead, findings=findings
    )
