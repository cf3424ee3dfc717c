"""All measurements of a model report, in one pass over the images.

Attention is recomputed layer by layer and reduced at once, images go through in batches that suit the size
of a map, so that memory does not grow with the number of layers or images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vitreous.inspection.attention_metrics import (
    attention_distance,
    flow,
    head_entropy,
    readout_attention,
    readout_of,
    rollout,
    to_grid,
)
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.relevance import Relevance, relevance
from vitreous.inspection.representations import layer_tokens, logit_lens
from vitreous.models.config import ViTConfig
from vitreous.models.vit import ViT

MAP_BYTES = 1 << 25  # of one layer's maps for one batch; reducing them takes four times as much
FOLLOWED = 5  # classes followed through the layers
Progress = Callable[[int, int], None]


class LayerView(NamedTuple):
    """The reduced maps of one layer for one batch."""

    distance: Float[Tensor, "B K"]
    entropy: Float[Tensor, "B K"]
    reading: Float[Tensor, "B K T"]
    asked: Float[Tensor, "B T"]


@dataclass(frozen=True)
class Lens:
    """The logit lens: the head's prediction from every layer; layer 0 are the embedded patches.

    Attributes:
        classes: the most probable classes of each image, by the last layer.
        probabilities: of these classes, by each layer.
        agrees: whether the layer's prediction is already the last layer's.
    """

    classes: Int[Tensor, "B followed"]
    probabilities: Float[Tensor, "B layers followed"]
    agrees: Bool[Tensor, "B layers"]


@dataclass(frozen=True)
class Survey:
    """The measurements of a ViT on B images. Shapes: L layers, K heads, T tokens.

    Attributes:
        distance: mean attention distance in pixels.
        entropy: of attention, as a share of that of uniform attention.
        reading: what the tokens that the head reads attend to; of the first C images.
        asked: what one chosen patch attends to, mean of the heads.
        rollout: which patches reach the head through all layers.
        features: the mean of the patch tokens, of the embedding and after each layer.
        norms: of each token after the last layer, before the final norm.
        patches: the patch tokens after the final norm; of the first C images.
        lens: None where the model has no classes.
    """

    distance: Float[Tensor, "B L K"]
    entropy: Float[Tensor, "B L K"]
    reading: Float[Tensor, "C L K T"]
    asked: Float[Tensor, "B L T"]
    rollout: Float[Tensor, "B rows columns"]
    features: tuple[Float[Tensor, "B D"], ...]
    norms: Float[Tensor, "B T"]
    patches: Float[Tensor, "C N D"]
    lens: Lens | None


def survey(
    model: ViT,
    images: Float[Tensor, "B C H W"],
    *,
    patch: tuple[int, int],
    close: int = 8,
    progress: Progress | None = None,
) -> Survey:
    """Measure `model`, in evaluation mode, on `images`.

    Args:
        patch: (row, column) of the patch whose attention is `asked`.
        close: C, the number of images with `reading` and `patches`.
    """
    parts: list[Survey] = []
    done = 0
    for batch in torch.split(images, batch_size(model.config)):
        part, room = survey_batch(model, batch, patch), max(close - done, 0)
        parts.append(replace(part, reading=part.reading[:room].clone(), patches=part.patches[:room].clone()))
        done += len(batch)
        if progress:
            progress(done, len(images))
    lenses = [part.lens for part in parts if part.lens]
    return Survey(
        **{
            name: torch.cat([getattr(part, name) for part in parts])
            for name in ("distance", "entropy", "reading", "asked", "rollout", "norms", "patches")
        },
        features=tuple(torch.cat(layer) for layer in zip(*(part.features for part in parts), strict=True)),
        lens=Lens(
            **{
                name: torch.cat([getattr(lens, name) for lens in lenses])
                for name in ("classes", "probabilities", "agrees")
            }
        )
        if lenses
        else None,
    )


def batch_size(config: ViTConfig) -> int:
    """Images whose maps of one layer fit into `MAP_BYTES`."""
    return max(1, MAP_BYTES // (4 * config.heads * config.sequence_length**2))


@torch.inference_mode()
def survey_batch(model: ViT, images: Float[Tensor, "B C H W"], patch: tuple[int, int]) -> Survey:
    config = model.config
    token = config.num_prefix_tokens + patch[0] * config.grid[1] + patch[1]
    images = images.to(next(model.parameters()).device)
    features, said = [], []
    watcher = Watcher(config, token, readout_of(model, images))
    with capture_attention(model, reduce=watcher) as attention:
        for z in layer_tokens(model, images):
            features.append(z[:, config.num_prefix_tokens :].mean(dim=1).float().cpu())
            if config.num_classes is not None:
                said.append(logit_lens(model, z).float().cpu())
    views: list[LayerView] = attention.maps
    return Survey(
        distance=torch.stack([each.distance for each in views], dim=1),
        entropy=torch.stack([each.entropy for each in views], dim=1),
        reading=torch.stack([each.reading for each in views], dim=1),
        asked=torch.stack([each.asked for each in views], dim=1),
        rollout=watcher.rollout(),
        # As one block of memory: a small one from each layer, kept, would hold the gaps between them open.
        features=torch.stack(features).unbind(),
        norms=z.float().norm(dim=-1).cpu(),
        patches=model.norm(z)[:, config.num_prefix_tokens :].float().cpu(),
        lens=follow(torch.stack(said, dim=1)) if said else None,
    )


class Watcher:
    """Sees the maps of one layer after the other, keeps what a report needs, and rolls attention out."""

    def __init__(self, config: ViTConfig, token: int, weights: Float[Tensor, "B T"]) -> None:
        self.config, self.token, self.weights = config, token, weights
        self.flows: list[Tensor] = []  # of all layers so far, as one

    def __call__(self, maps: Float[Tensor, "B K T T"]) -> LayerView:
        maps = maps.float()
        self.flows = [rollout([*self.flows, flow(maps).cpu()])]
        return LayerView(
            distance=attention_distance(maps, grid=self.config.grid, patch=self.config.patch_size).cpu(),
            entropy=head_entropy(maps).cpu(),
            reading=readout_attention(maps, self.weights).cpu(),
            asked=maps[:, :, self.token].mean(dim=1).cpu(),
        )

    def rollout(self) -> Float[Tensor, "B rows columns"]:
        """Return which patches reach the head."""
        return to_grid(torch.einsum("bt,bts->bs", self.weights, self.flows[0]), self.config)


def follow(said: Float[Tensor, "B layers classes"]) -> Lens:
    """Follow the most probable classes of the last layer back to the first."""
    last = said[:, -1]
    classes = last.topk(min(FOLLOWED, last.shape[-1]), dim=-1).indices
    return Lens(
        classes=classes,
        probabilities=said.gather(2, classes[:, None].expand(-1, said.shape[1], -1)),
        agrees=said.argmax(dim=-1) == last.argmax(dim=-1, keepdim=True),
    )


@torch.inference_mode()
def layer_features(model: ViT, images: Float[Tensor, "B C H W"]) -> tuple[Float[Tensor, "B D"], ...]:
    """Return `Survey.features` alone."""
    prefix, device = model.config.num_prefix_tokens, next(model.parameters()).device
    parts = [
        [z[:, prefix:].mean(dim=1).float().cpu() for z in layer_tokens(model, batch.to(device))]
        for batch in torch.split(images, batch_size(model.config))
    ]
    return tuple(torch.cat(layer) for layer in zip(*parts, strict=True))


def relevances(model: ViT, images: Float[Tensor, "B C H W"], number: int | None) -> Relevance:
    """Return the relevance for class `number`, or for each image's prediction, one image at a time: a
    backward pass holds the activations of every layer."""
    device = next(model.parameters()).device
    wanted = None if number is None else torch.tensor([number])
    parts = [relevance(model, image.to(device), wanted) for image in torch.split(images, 1)]
    return Relevance(*(torch.cat(part).cpu() for part in zip(*parts, strict=True)))
