"""Whole attention maps, small enough to travel inside a page: bytes instead of floats, compressed, and for
large models on a coarser grid of patches."""

from __future__ import annotations

import gzip

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vitreous.inspection.capture import capture_attention
from vitreous.models.config import ViTConfig
from vitreous.models.vit import ViT

IMAGE_BYTES = 8 << 20  # of one image's maps before compression
PAGE_BYTES = 8 << 20  # of all images' maps after compression


def fitting_factor(config: ViTConfig, budget: int = IMAGE_BYTES) -> int:
    """How many patches a side have to become one so that one image's maps fit the budget."""
    factor = 1
    while config.depth * config.heads * tokens_at(config, factor) ** 2 > budget:
        factor += 1
    return factor


def coarse_grid(config: ViTConfig, factor: int) -> tuple[int, int]:
    """Rows and columns when `factor` patches a side become one; the last may be smaller."""
    return -(-config.grid[0] // factor), -(-config.grid[1] // factor)


def tokens_at(config: ViTConfig, factor: int) -> int:
    rows, columns = coarse_grid(config, factor)
    return config.num_prefix_tokens + rows * columns


def coarsen(maps: Float[Tensor, "*B T T"], config: ViTConfig, factor: int) -> Float[Tensor, "*B S S"]:
    """Mean over the queries of a block, sum over its keys, so that rows still sum to one."""
    member = membership(config, factor).to(maps)
    return (member / member.sum(dim=1, keepdim=True)) @ maps @ member.T


def membership(config: ViTConfig, factor: int) -> Float[Tensor, "S T"]:
    """1 where a token belongs to a coarse token; prefix tokens stay by themselves."""
    rows, columns = config.grid
    row, column = torch.meshgrid(torch.arange(rows) // factor, torch.arange(columns) // factor, indexing="ij")
    block = row * coarse_grid(config, factor)[1] + column + config.num_prefix_tokens
    owner = torch.cat([torch.arange(config.num_prefix_tokens), block.flatten()])
    return torch.nn.functional.one_hot(owner, tokens_at(config, factor)).T.float()


@torch.inference_mode()
def store_maps(model: ViT, image: Float[Tensor, "1 C H W"], factor: int) -> bytes:
    """All layers' maps of one image, compressed (L, K, S, S)."""

    def coarse(maps: Tensor) -> Tensor:
        return coarsen(maps[0].float().cpu(), model.config, factor)

    with capture_attention(model, reduce=coarse) as attention:
        model(image.to(next(model.parameters()).device))
    return pack(torch.stack(attention.maps))


def pack(rows: Float[Tensor, "*B S"]) -> bytes:
    """gzip of one byte for each entry, its share of the row's largest in 255ths, and behind them the largest
    entries as little-endian float32."""
    largest = rows.amax(dim=-1)
    shares = (rows / largest.clamp_min(1e-30)[..., None] * 255).round().to(torch.uint8)
    raw = shares.numpy().tobytes() + largest.numpy().astype("<f4").tobytes()
    return gzip.compress(raw, compresslevel=6, mtime=0)


def unpack(packed: bytes, *shape: int) -> Float[np.ndarray, "*B S"]:
    """The rows as they were, to within 1/510 of the largest entry of each."""
    raw = gzip.decompress(packed)
    entries = int(np.prod(shape))
    shares = np.frombuffer(raw, np.uint8, count=entries).reshape(shape)
    largest = np.frombuffer(raw, "<f4", offset=entries).reshape(*shape[:-1], 1)
    return (shares / np.float32(255) * largest).astype(np.float32)


def store_for_page(model: ViT, images: Float[Tensor, "B C H W"], factor: int) -> list[bytes]:
    """The maps of the first images, as many as a page should carry; at least one."""
    kept: list[bytes] = []
    for image in torch.split(images, 1):
        stored = store_maps(model, image, factor)
        if kept and sum(map(len, kept)) + len(stored) > PAGE_BYTES:
            break
        kept.append(stored)
    return kept
