"""Tables of relative position biases as BEiT and its descendants store them, one in each layer or one for
all; and their names in timm's Beit."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import TypedDict

from vitreous.checkpoints.format import as_pair, assumed_square
from vitreous.checkpoints.source import Source
from vitreous.checkpoints.weights import WeightRow, same
from vitreous.errors import InputError
from vitreous.models.config import ViTConfig

PREFIX_ROWS = 3  # of the class token, after those of the offsets


class BiasFields(TypedDict):
    """What tables of relative positions tell of a `ViTConfig`."""

    position: dict[str, object]
    image_size: tuple[int, int]


def bias_fields(
    source: Source, patch: tuple[int, int], own: str, shared: str, described: Sequence[object]
) -> BiasFields | None:
    """Return the positions of a file with such tables, and the image size; None where it has none.

    Args:
        own: their name of layer 0's table, with braces for the number; `shared`: of the table of all layers.
        described: image sizes that its descriptions tell.

    Raises:
        InputError: it has both, or its table is not of a grid that is known.
    """
    layers, everywhere = own.format(0) in source.tensors, shared in source.tensors
    if not (layers or everywhere):
        return None
    if layers and everywhere:
        raise InputError(
            f"{source.where}: tables of relative positions in each layer and for all are not known"
        )
    offsets = source.size(own.format(0) if layers else shared, 0, ndim=2) - PREFIX_ROWS
    return {
        "position": {"kind": "relative-bias", "shared": not layers},
        "image_size": size_of_offsets(source, patch, offsets, described),
    }


def size_of_offsets(
    source: Source, patch: tuple[int, int], offsets: int, described: Sequence[object]
) -> tuple[int, int]:
    """Return the size of the images that a file was made for, whose grid has so many offsets: as in
    `image_size_of`."""
    wished = source.specified.get("image_size")
    stored = source.specified.get("stored_image_size")
    for size in (stored, *source.facts.image_sizes, *described, wished):
        height, width = as_pair(size) or (0, 0)
        rows, columns = height // patch[0], width // patch[1]
        if rows and columns and (2 * rows - 1) * (2 * columns - 1) == offsets:
            return height, width
    span = isqrt(max(offsets, 0))
    if span**2 != offsets or not span % 2:
        raise InputError(
            f"{source.where}: {offsets} offsets of relative positions are not those of a square grid: pass "
            "stored_image_size=(height, width) of the images that it was made for"
        )
    return assumed_square(source, (span + 1) // 2, patch)


def bias_rows(config: ViTConfig, own: str, shared: str) -> list[WeightRow]:
    """Return the tables of a model; layers that share one keep it in the first."""
    if config.position.shared:
        return [same("blocks.0.attention.position.table", shared)]
    return [same("blocks.{}.attention.position.table", own)]


BEIT_BIAS = "blocks.{}.attn.relative_position_bias_table"
BEIT_SHARED_BIAS = "rel_pos_bias.relative_position_bias_table"
# Its arguments besides those of VisionTransformer, which the weights show.
BEIT_ARGUMENTS = ("use_abs_pos_emb", "use_rel_pos_bias", "use_shared_rel_pos_bias", "head_init_scale")
