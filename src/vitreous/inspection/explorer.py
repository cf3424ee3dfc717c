"""What the interactive part of a model's report is made of: images and attention, as JSON."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float
from torch import Tensor

from vitreous.inspection.images import HEAT, Pixels, data_uri
from vitreous.inspection.readout import readout_name
from vitreous.inspection.stored_maps import coarse_grid, pack
from vitreous.inspection.survey import Survey
from vitreous.models.config import ViTConfig


def explorer_data(
    config: ViTConfig,
    images: Sequence[tuple[Pixels, str]],
    survey: Survey,
    relevance: Float[Tensor, "B rows columns"] | None,
    maps: Sequence[bytes],
    factor: int,
) -> dict[str, Any]:
    """The page's data for the first images of a survey.

    Args:
        images: what is shown, and the words for it.
        maps: whole maps of the first of them, packed on a grid that is coarser by `factor`.
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
        "heat": encode(heat_table().tobytes()),
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
    """What stands in front of the patches, for readers."""
    names = ["class token"] * config.class_token + ["distillation token"] * config.distillation_token
    return names + [f"register {number + 1}" for number in range(config.registers)]


def heat_table() -> np.ndarray:
    """The color of each of 256 steps, RGB."""
    return (matplotlib.colormaps[HEAT](np.linspace(0, 1, 256))[:, :3] * 255).round().astype(np.uint8)


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
