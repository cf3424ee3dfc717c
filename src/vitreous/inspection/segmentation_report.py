"""report.html of a segmenter's run: how it learned, how good it is, where it is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vitreous.data.dataset import BadImage
from vitreous.data.segmentation.masked import MaskedDataset
from vitreous.evaluation.segmentation import SegmentationEvaluation, masks_of
from vitreous.inspection.model_figures import attention_figure, positions_figure
from vitreous.inspection.page import Exhibit, LeftOut, percent, write_run_report
from vitreous.inspection.segmentation_figures import (
    CURVES,
    MASKS,
    PANELS,
    Judged,
    iou_figure,
    masks_figure,
    pixels_figure,
)
from vitreous.inspection.training_figures import curves_figure
from vitreous.inspection.training_report import describe, facts
from vitreous.models.segmenter import Segmenter
from vitreous.training.journal import read_metrics

SHOWN = 12  # images with their masks
WORST = 3  # of them, the worst of all
SAMPLES = 8  # images whose attention is shown


def write_segmentation_report(
    run: Path, *, model: Segmenter, evaluation: SegmentationEvaluation, images: MaskedDataset
) -> Path:
    """Write report.html into the run's directory: one file, which needs no network.

    Args:
        images: the held-out images that `evaluation` judged.
    """
    rows = read_metrics(run / "metrics.jsonl")
    judged = samples(model, evaluation, images)
    parts: list[Exhibit | LeftOut] = [
        masks_figure(
            judged,
            evaluation.classes,
            title="Where it is right, and where not",
            caption=MASKS.format(count=len(evaluation.names)),
        ),
        iou_figure(evaluation),
        pixels_figure(evaluation),
        curves_figure(rows, shown=PANELS, caption=CURVES),
        *encoder_figures(model, judged),
    ]
    return write_run_report(
        run,
        "segmentation.html.j2",
        parts=parts,
        kind=kind(model),
        facts=facts(model, evaluation.classes, rows),
        evaluation=evaluation,
    )


def kind(model: Segmenter) -> str:
    """The model in a line."""
    depth = model.config.decoder_depth
    decoder = (
        f"a mask Transformer of {depth} layer{'s' if depth > 1 else ''}"
        if model.config.decoder == "mask-transformer"
        else "one linear layer"
    )
    return f"Segmenter: {describe(model)}, and {decoder} that gives each pixel a class"


def samples(model: Segmenter, evaluation: SegmentationEvaluation, images: MaskedDataset) -> list[Judged]:
    """The worst images, and others evenly up to the best."""
    order = np.argsort(np.nan_to_num(evaluation.image_mious, nan=1.0), kind="stable")
    places = [*range(WORST), *np.linspace(WORST, len(order) - 1, SHOWN - WORST).astype(int).tolist()]
    found = []
    for place in dict.fromkeys(place for place in places if place < len(order)):
        which = int(order[place])
        number = evaluation.numbers[which]
        try:
            image, true = images.pair(number)
        except BadImage:
            continue  # it could be read when it was judged; the file may have gone since
        words = f"{evaluation.names[which]}: mean IoU {percent(float(evaluation.image_mious[which]))}"
        found.append(Judged(image, true, masks_of(model, [image])[0], words))
    return found


def encoder_figures(model: Segmenter, judged: list[Judged]) -> list[Exhibit | LeftOut]:
    """What the encoder looks at."""
    encoder = model.encoder
    images = model.preprocessing([each.image for each in judged[-SAMPLES:]])
    device = next(model.parameters()).device
    names = [each.words.split(":")[0] for each in judged[-SAMPLES:]]
    return [attention_figure(encoder, images.to(device), names), positions_figure(encoder)]
