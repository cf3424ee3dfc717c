"""The attention explorer of a model's report: images and whole attention maps, as JSON."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vitreous.inspection.capture import capture_attention
from vitreous.inspection.images import Pixels, data_uri, inferno
from vitreous.inspection.measures import Survey
from vitreous.inspection.page import words_of
from vitreous.inspection.relevance import Relevance
from vitreous.languages import phrase, words
from vitreous.models.config import ViTConfig
from vitreous.models.vit import ViT

IMAGE_BYTES = 8 << 20  # of one image's maps before compression
PAGE_CHARACTERS = (8 << 20) * 4 // 3  # of all images' maps as text


class View(NamedTuple):
    """A model in the explorer, and what it sees.

    Attributes:
        name: of the model.
        images: as the model sees them.
        shown: the same, with their captions.
        seen: what was measured on them.
        evidence: what contributed to the class; None for a model without classes.
    """

    name: str
    model: ViT
    images: Float[Tensor, "B C H W"]
    shown: Sequence[tuple[Pixels, str]]
    seen: Survey
    evidence: Relevance | None


def explorer_data(views: Sequence[View], count: int) -> dict[str, object]:
    """Return the data and the words of the explorer for one model, or for two on the same images.

    Args:
        count: of the images that enter the averages; those of the views are shown.
    """
    models = [view_data(view, PAGE_CHARACTERS // len(views)) for view in views]
    first, shown = models[0], len(views[0].shown)
    values = {
        "readout": first["reads"],
        "count": count,
        "shown": shown,
        "stored": sum(image["maps"] is not None for image in first["images"]),
        "factor": first["factor"],
        "names": [view.name for view in views],
    }
    heat = base64.b64encode(inferno().tobytes()).decode()
    data = {"models": models, "words": words("explorer.script"), "heat": heat}
    return {"data": data, "words": words_of("explorer", values)}


def view_data(view: View, characters: int) -> dict[str, Any]:
    """Return the data of one model, whose maps take at most so many characters."""
    config, factor = view.model.config, fitting_factor(view.model.config)
    maps = store_for_page(view.model, view.images, factor, characters)
    seen, evidence = view.seen, view.evidence
    images: list[dict[str, object]] = []
    for number, (image, caption) in enumerate(view.shown):
        images.append(
            {
                "name": caption,
                "src": data_uri(image),
                "reading": pack_rows(seen.reading[number]),
                "rollout": pack_rows(seen.rollout[number].flatten()),
                "relevance": None if evidence is None else pack_rows(evidence.patches[number].flatten()),
                "maps": maps[number] if number < len(maps) else None,
            }
        )
    return {
        "name": view.name,
        "layers": config.depth,
        "heads": config.heads,
        "prefix": [
            *[phrase("explorer.class-token")] * config.class_token,
            *[phrase("explorer.distillation-token")] * config.distillation_token,
            *(phrase("explorer.register", number=number + 1) for number in range(config.registers)),
        ],
        "grid": config.grid,
        "coarse": coarse_grid(config, factor),
        "factor": factor,
        "patch": config.patch_size,
        "reads": phrase(f"readouts.{config.pooling.kind}"),
        "images": images,
    }


def fitting_factor(config: ViTConfig) -> int:
    """Return how many patches per side to merge so that one image's maps fit IMAGE_BYTES."""
    factor = 1
    while config.depth * config.heads * tokens_at(config, factor) ** 2 > IMAGE_BYTES:
        factor += 1
    return factor


def coarse_grid(config: ViTConfig, factor: int) -> tuple[int, int]:
    """Return rows and columns after merging `factor` patches per side; the last may be smaller."""
    return -(-config.grid[0] // factor), -(-config.grid[1] // factor)


def tokens_at(config: ViTConfig, factor: int) -> int:
    """Return the number of tokens after merging."""
    rows, columns = coarse_grid(config, factor)
    return config.num_prefix_tokens + rows * columns


def coarsen(maps: Float[Tensor, "*B T T"], config: ViTConfig, factor: int) -> Float[Tensor, "*B S S"]:
    """Average over the queries of a block and sum over its keys, so that rows still sum to one; prefix tokens
    are not merged."""
    rows, columns = config.grid
    row, column = torch.meshgrid(torch.arange(rows) // factor, torch.arange(columns) // factor, indexing="ij")
    block = row * coarse_grid(config, factor)[1] + column + config.num_prefix_tokens
    owner = torch.cat([torch.arange(config.num_prefix_tokens), block.flatten()])
    member = torch.nn.functional.one_hot(owner, tokens_at(config, factor)).T.to(maps)
    return (member / member.sum(dim=1, keepdim=True)) @ maps @ member.T


def store_for_page(model: ViT, images: Float[Tensor, "B C H W"], factor: int, characters: int) -> list[str]:
    """Return the packed maps of the first images, as many as fit so many characters; at least one."""
    packed: list[str] = []
    for image in torch.split(images, 1):
        stored = store_maps(model, image, factor)
        if packed and sum(map(len, packed)) + len(stored) > characters:
            break
        packed.append(stored)
    return packed


@torch.inference_mode()
def store_maps(model: ViT, image: Float[Tensor, "1 C H W"], factor: int) -> str:
    """Return the packed maps (L, K, S, S) of all layers for one image."""

    def coarse(maps: Tensor) -> Tensor:
        return coarsen(maps[0].float().cpu(), model.config, factor)

    with capture_attention(model, reduce=coarse) as attention:
        model(image.to(next(model.parameters()).device))
    return pack_rows(torch.stack(attention.maps))


def pack_rows(rows: Float[Tensor, "*B S"]) -> str:
    """Compress rows by gzip, as base64: one byte per entry, as a share of the row's maximum, followed by the
    maxima as little-endian float32."""
    largest = rows.amax(dim=-1)
    shares = (rows / largest.clamp_min(1e-30)[..., None] * 255).round().to(torch.uint8)
    raw = shares.numpy().tobytes() + largest.numpy().astype("<f4").tobytes()
    return base64.b64encode(gzip.compress(raw, compresslevel=6, mtime=0)).decode()
