"""A closer look at a segmenter: what it finds in images, and where each class embedding looks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor

from vitreous.evaluation.segmentation import masks_of
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.images import overlay, rgb
from vitreous.inspection.page import Exhibit, image_row
from vitreous.inspection.segmentation_figures import Judged, masks_figure
from vitreous.layers.segmentation import MaskTransformer
from vitreous.models.preprocessing import to_tensor
from vitreous.models.segmenter import Segmenter

SHOWN = 12  # images with what was found in them
ASKED = 4  # images whose classes' attention is shown
CLASSES = 6  # of each, the largest ones

FOUND = "What the model finds in each image: the image, and the classes of its pixels."
LOOKS = """
The mask Transformer carries an embedding of each class through its layers, beside the patches. Each map is
the attention of one class's embedding to the patches in the last of these layers, the mean of its heads:
where the class is looked for. Shown are the classes that the model finds most of.
"""


def segmenter_figures(model: Segmenter, images: Sequence[tuple[Image.Image, str]]) -> list[Exhibit]:
    """What is found, and where the classes look, if the decoder has embeddings of them."""
    model.eval()
    classes = model.labels or [str(number) for number in range(model.config.num_classes)]
    judged = [Judged(image, None, masks_of(model, [image])[0], name) for image, name in images[:SHOWN]]
    figures = [masks_figure(judged, classes, title="What it finds", caption=FOUND)]
    if isinstance(model.head, MaskTransformer):
        figures.append(classes_figure(model, judged[:ASKED], classes))
    return figures


def classes_figure(model: Segmenter, judged: Sequence[Judged], classes: Sequence[str]) -> Exhibit:
    """A row of maps for each image."""
    images = model.preprocessing([each.image for each in judged])
    maps = class_attention(model, images.to(next(model.parameters()).device))
    tiles = []
    for each, image_maps in zip(judged, maps, strict=True):
        shown = rgb(to_tensor(model.preprocessing.image(each.image)))
        counts = torch.bincount(torch.from_numpy(each.found).flatten().long(), minlength=len(classes))
        present = [int(number) for number in counts.argsort(descending=True)[:CLASSES] if counts[number]]
        tiles.append((shown, each.words))
        tiles += [(overlay(shown, image_maps[number]), classes[number]) for number in present]
    return Exhibit(
        name="classes",
        title="Where each class looks",
        caption=LOOKS,
        html=image_row(tiles),
        arrays={"class_attention": maps.numpy()},
    )


@torch.inference_mode()
def class_attention(model: Segmenter, images: Tensor) -> Tensor:
    """(B, classes, rows, columns): the attention of each class's embedding to the patches in the decoder's
    last layer, the mean of its heads; the rest of a row goes to the embeddings."""
    with capture_attention(model.head, reduce=lambda maps: maps.mean(dim=1).cpu()) as attention:
        model(images)
    count = model.config.num_classes
    return attention.maps[-1][:, :count, count:].unflatten(-1, model.config.grid)
