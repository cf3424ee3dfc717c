"""The attention explorer of a model's report: images and whole attention maps, as JSON."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vitreous.inspection.attention_metrics import readout_name
from vitreous.inspection.capture import capture_attention
from vitreous.inspection.images import INFERNO, Pixels, data_uri
from vitreous.inspection.survey import Survey
from vitreous.models.config import ViTConfig
from vitreous.models.vit import ViT

IMAGE_BYTES = 8 << 20  # of one image's maps before compression
PAGE_BYTES = 8 << 20  # of all images' maps after compression


def fitting_factor(config: ViTConfig, budget: int = IMAGE_BYTES) -> int:
    """Return how many patches per side to merge so that one image's maps fit the budget (bytes)."""
    factor = 1
    while config.depth * config.heads * tokens_at(config, factor) ** 2 > budget:
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
    """Average over the queries of a block and sum over its keys, so that rows still sum to one."""
    member = membership(config, factor).to(maps)
    return (member / member.sum(dim=1, keepdim=True)) @ maps @ member.T


def membership(config: ViTConfig, factor: int) -> Float[Tensor, "S T"]:
    """Return 1 where a token belongs to a coarse token; prefix tokens are not merged."""
    rows, columns = config.grid
    row, column = torch.meshgrid(torch.arange(rows) // factor, torch.arange(columns) // factor, indexing="ij")
    block = row * coarse_grid(config, factor)[1] + column + config.num_prefix_tokens
    owner = torch.cat([torch.arange(config.num_prefix_tokens), block.flatten()])
    return torch.nn.functional.one_hot(owner, tokens_at(config, factor)).T.float()


@torch.inference_mode()
def store_maps(model: ViT, image: Float[Tensor, "1 C H W"], factor: int) -> bytes:
    """Return the maps of all layers for one image, compressed (L, K, S, S)."""

    def coarse(maps: Tensor) -> Tensor:
        return coarsen(maps[0].float().cpu(), model.config, factor)

    with capture_attention(model, reduce=coarse) as attention:
        model(image.to(next(model.parameters()).device))
    return pack(torch.stack(attention.maps))


def pack(rows: Float[Tensor, "*B S"]) -> bytes:
    """Compress rows by gzip: one byte per entry, as a share of the row's maximum, followed by the maxima as
    little-endian float32."""
    largest = rows.amax(dim=-1)
    shares = (rows / largest.clamp_min(1e-30)[..., None] * 255).round().to(torch.uint8)
    raw = shares.numpy().tobytes() + largest.numpy().astype("<f4").tobytes()
    return gzip.compress(raw, compresslevel=6, mtime=0)


def unpack(packed: bytes, *shape: int) -> Float[np.ndarray, "*B S"]:
    """Return the packed rows, to within 1/510 of the maximum of each."""
    raw = gzip.decompress(packed)
    entries = int(np.prod(shape))
    shares = np.frombuffer(raw, np.uint8, count=entries).reshape(shape)
    largest = np.frombuffer(raw, "<f4", offset=entries).reshape(*shape[:-1], 1)
    return (shares / np.float32(255) * largest).astype(np.float32)


def store_for_page(model: ViT, images: Float[Tensor, "B C H W"], factor: int) -> list[bytes]:
    """Return the maps of the first images, as many as fit PAGE_BYTES; at least one."""
    packed: list[bytes] = []
    for image in torch.split(images, 1):
        stored = store_maps(model, image, factor)
        if packed and sum(map(len, packed)) + len(stored) > PAGE_BYTES:
            break
        packed.append(stored)
    return packed


def explorer_data(
    config: ViTConfig,
    images: Sequence[tuple[Pixels, str]],
    survey: Survey,
    relevance: Float[Tensor, "B rows columns"] | None,
    maps: Sequence[bytes],
    factor: int,
) -> dict[str, Any]:
    """Return the page's data for the first images of a survey.

    Args:
        images: with their captions.
        maps: attention maps of the first of them, packed, with `factor` patches per side merged.
    """
    return {
        "layers": config.depth,
        "heads": config.heads,
        "prefix": prefix_names(config),
        "grid": config.grid,
        "coarse": coarse_grid(config, factor),
        "factor": factor,
        "patch": config.patch_size,
        "reads": readout_name(config),
        "heat": encode(INFERNO.tobytes()),
        "images": [
            {
                "name": words,
                "src": data_uri(image),
                "reading": encode(pack(survey.reading[i])),
                "rollout": encode(pack(survey.rollout[i].flatten())),
                "relevance": None if relevance is None else encode(pack(relevance[i].flatten())),
                "maps": encode(maps[i]) if i < len(maps) else None,
            }
            for i, (image, words) in enumerate(images)
        ],
    }


def prefix_names(config: ViTConfig) -> list[str]:
    """Return the names of the tokens before the patches."""
    names = ["class token"] * config.class_token + ["distillation token"] * config.distillation_token
    return names + [f"register {number + 1}" for number in range(config.registers)]


def encode(data: bytes) -> str:
    """Return base64 text."""
    return base64.b64encode(data).decode("ascii")
