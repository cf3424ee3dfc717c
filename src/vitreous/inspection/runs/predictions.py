"""The predictions explorer: every evaluated image as a thumbnail with its answers, to filter, sort, export.

Thumbnails are as small as their number demands, so that a page of 50,000 images stays below 20 MB.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image

from vitreous.data.dataset import ImageDataset
from vitreous.data.image_samples import evaluation_loader
from vitreous.data.workers import worker_count
from vitreous.evaluation.outputs import evaluating
from vitreous.evaluation.result import Answers
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.images import inferno, rgb, to_scale
from vitreous.inspection.measures import readout_attention, readout_of, to_grid
from vitreous.inspection.page import HTML, Exhibit, exhibit
from vitreous.languages import phrase, words
from vitreous.models.model import Model
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.vit import ViT

MOST_IMAGES = 50_000
SPRITE_BYTES = 9_000_000  # of all thumbnails; base64 makes them a third larger
SIDES = (96, 64, 48, 40, 32, 24, 16)  # of a thumbnail, in pixels
PIXELATED = 64  # pixels of the model's images, below which thumbnails are enlarged with hard edges
LOSSLESS = 32  # the largest side that is stored without loss where there is room
QUALITIES = (80, 50, 25)
COLUMNS, ROWS = 40, 25  # of thumbnails in one sheet
TRIED = 200  # thumbnails that the size of all is estimated from
ATTENDED = 400  # images whose attention is shown, at most
ATTENTION_WORK = 1e12  # parameters x tokens x images
ATTENTION_BATCH = 8


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
        values: that the words of the exhibit need besides.
    """
    first = next(iter(models.values()))
    order = np.argsort(-np.nan_to_num(first.loss), kind="stable")
    shown = np.sort(order[:MOST_IMAGES])  # of more images those with the largest losses
    some = images.subset(np.asarray(indices)[shown])
    size, sheets = thumbnails(some, preprocessing)
    place = {row: number for number, row in enumerate(shown.tolist())}
    attended = [place[row] for row in order[:MOST_IMAGES].tolist()]
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
        "attention": dict(attention_maps(vit, some, attended)) if vit else {},
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


def thumbnails(images: ImageDataset, preprocessing: Preprocessing) -> tuple[tuple[int, int], list[str]]:
    """Return all images as the model sees them, as large as all of them together may be: (H, W) of each, and
    the sheets that they are on, from left to right and from top to bottom."""
    tried = images.subset(np.array(images.sample(min(TRIED, len(images)))))
    for side, quality in thumbnail_sizes(max(preprocessing.size)):
        size = small_size(preprocessing.size, side)
        sheets = [webp(sheet, quality) for sheet in sheets_of(tried, preprocessing, size)]
        if sum(map(len, sheets)) * len(images) / len(tried) < SPRITE_BYTES:
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


def attention_maps(model: ViT, images: ImageDataset, rows: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield what the readout attends to in the last layer, mean of the heads, as bytes of the color scale:
    for as many of the first `rows` as do not take long."""
    work = sum(each.numel() for each in model.parameters()) * model.config.sequence_length
    chosen = list(rows[: max(min(ATTENDED, int(ATTENTION_WORK / work)), ATTENTION_BATCH)])
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
