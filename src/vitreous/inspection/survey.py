"""All measurements of a model report, in one pass over the images.

Attention is recomputed layer by layer and reduced at once, images go through in batches that suit the size
of a map, so that memory does not grow with the number of layers or images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vitreous.evaluation.outputs import ProgressCallback
from vitreous.extensions import CLASSES, outputs_of
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.measures import (
    attention_distance,
    flow,
    head_entropy,
    layer_tokens,
    logit_lens,
    readout_attention,
    readout_of,
    rollout,
    share_of_entropy,
    to_grid,
)
from vitreous.models.config import ViTConfig
from vitreous.models.preprocessing import Preprocessing
from vitreous.models.stored import ImageLike
from vitreous.models.vit import ViT

MAP_BYTES = 1 << 25  # of one layer's maps for one batch; reducing them takes four times as much
FOLLOWED = 5  # classes followed through the layers


class PreparedImages:
    """Images that are prepared when a slice of them is asked for, since all at once would fill the memory."""

    def __init__(self, preprocessing: Preprocessing, images: Sequence[ImageLike]) -> None:
        self.preprocessing, self.images = preprocessing, images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, part: slice) -> Float[Tensor, "B C H W"]:
        chosen = self.images[part]
        batch = torch.empty(len(chosen), self.preprocessing.channels, *self.preprocessing.size)
        for place, image in enumerate(chosen):
            batch[place] = self.preprocessing(image)
        return batch


@dataclass(frozen=True)
class Lens:
    """The logit lens: the head's prediction from every layer; layer 0 are the embedded patches.

    Attributes:
        classes: the most probable classes of each image, by the last layer.
        probabilities: of these classes, by each layer.
        agrees: whether the layer's prediction is already the last layer's.
        entropy: of the last layer's probabilities, as a share of that of equal ones; 0 for a single class.
    """

    classes: Int[Tensor, "B followed"]
    probabilities: Float[Tensor, "B layers followed"]
    agrees: Bool[Tensor, "B layers"]
    entropy: Float[Tensor, "B"]


@dataclass(frozen=True)
class Survey:
    """The measurements of a ViT on B images. Shapes: L layers, K heads, T tokens.

    Attributes:
        distance: mean attention distance in pixels.
        entropy: of attention, as a share of that of uniform attention.
        reading: what the tokens that the head reads attend to; of the first C images.
        asked: what one chosen patch attends to, mean of the heads.
        rollout: which patches reach the head through all layers.
        features: the mean of the patch tokens; layer 0 is the embedding.
        norms: of each token after the last layer, before the final norm.
        patches: the patch tokens after the final norm; of the first C images.
        lens: None where the model has no classes.
    """

    distance: Float[Tensor, "B L K"]
    entropy: Float[Tensor, "B L K"]
    reading: Float[Tensor, "C L K T"]
    asked: Float[Tensor, "B L T"]
    rollout: Float[Tensor, "B rows columns"]
    features: Float[Tensor, "B layers D"]
    norms: Float[Tensor, "B T"]
    patches: Float[Tensor, "C N D"]
    lens: Lens | None


def survey(
    model: ViT,
    images: Float[Tensor, "B C H W"] | PreparedImages,
    *,
    patch: tuple[int, int],
    close: int = 8,
    progress: ProgressCallback | None = None,
) -> Survey:
    """Measure `model`, in evaluation mode, on `images`.

    Args:
        images: as the model takes them; or such as are prepared batch by batch.
        patch: (row, column) of the patch whose attention is `asked`.
        close: C, the number of images with `reading` and `patches`.
    """
    parts: list[Survey] = []
    size = batch_size(model.config)
    for start in range(0, len(images), size):
        batch = images[start : start + size]
        part, room = survey_batch(model, batch, patch), max(close - start, 0)
        parts.append(replace(part, reading=part.reading[:room].clone(), patches=part.patches[:room].clone()))
        if progress:
            progress(start + len(batch), len(images))
    lenses = [part.lens for part in parts if part.lens is not None]
    fields = concatenated(parts, but="lens")
    return Survey(**fields, lens=Lens(**concatenated(lenses)) if lenses else None)


def concatenated(parts: Sequence[Survey] | Sequence[Lens], but: str = "") -> dict[str, Tensor]:
    """Return every field of some dataclasses of tensors, but for one, with the tensors of all of them."""
    fields = {}
    for name in vars(parts[0]):
        if name != but:
            fields[name] = torch.cat([getattr(part, name) for part in parts])
    return fields


def batch_size(config: ViTConfig) -> int:
    """Images whose maps of one layer fit into `MAP_BYTES`."""
    return max(1, MAP_BYTES // (4 * config.heads * config.sequence_length**2))


@torch.inference_mode()
def survey_batch(model: ViT, images: Float[Tensor, "B C H W"], patch: tuple[int, int]) -> Survey:
    config = model.config
    token = config.num_prefix_tokens + patch[0] * config.grid[1] + patch[1]
    images = images.to(next(model.parameters()).device)
    weights = readout_of(model, images)
    of_classes = config.num_classes is not None and outputs_of(model) in CLASSES
    flows: list[Tensor] = []  # of all layers so far, as one
    features, predictions = [], []

    def measures(maps: Float[Tensor, "B K T T"]) -> tuple[Tensor, ...]:
        maps = maps.float()
        flows[:] = [rollout([*flows, flow(maps).cpu()])]
        return (
            attention_distance(maps, grid=config.grid, patch=config.patch_size).cpu(),
            head_entropy(maps).cpu(),
            readout_attention(maps, weights).cpu(),
            maps[:, :, token].mean(dim=1).cpu(),
        )

    with capture_attention(model, reduce=measures) as attention:
        for z in layer_tokens(model, images):
            features.append(z[:, config.num_prefix_tokens :].mean(dim=1).float().cpu())
            if of_classes:
                predictions.append(logit_lens(model, z).float().cpu())
    measured = [torch.stack(layers, dim=1) for layers in zip(*attention.maps, strict=True)]
    distance, entropy, reading, asked = measured
    return Survey(
        distance=distance,
        entropy=entropy,
        reading=reading,
        asked=asked,
        rollout=to_grid(torch.einsum("bt,bts->bs", weights, flows[0]), config),
        # As one block of memory: a small one from each layer, kept, would hold the gaps between them open.
        features=torch.stack(features, dim=1),
        norms=z.float().norm(dim=-1).cpu(),
        patches=model.norm(z)[:, config.num_prefix_tokens :].float().cpu(),
        lens=follow(torch.stack(predictions, dim=1)) if predictions else None,
    )


def follow(predictions: Float[Tensor, "B layers classes"]) -> Lens:
    """Follow the most probable classes of the last layer back to the first."""
    last = predictions[:, -1]
    classes = last.topk(min(FOLLOWED, last.shape[-1]), dim=-1).indices
    return Lens(
        classes=classes,
        probabilities=predictions.gather(2, classes[:, None].expand(-1, predictions.shape[1], -1)),
        agrees=predictions.argmax(dim=-1) == last.argmax(dim=-1, keepdim=True),
        entropy=share_of_entropy(last),
    )


@torch.inference_mode()
def layer_features(
    model: ViT, images: Float[Tensor, "B C H W"] | PreparedImages
) -> Float[Tensor, "B layers D"]:
    """Return `Survey.features` alone."""
    prefix, device = model.config.num_prefix_tokens, next(model.parameters()).device
    size = batch_size(model.config)
    parts = []
    for start in range(0, len(images), size):
        layers = layer_tokens(model, images[start : start + size].to(device))
        parts.append(torch.stack([z[:, prefix:].mean(dim=1).float().cpu() for z in layers], dim=1))
    return torch.cat(parts)
