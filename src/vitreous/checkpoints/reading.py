"""What every reader of a foreign format gives back, and the questions that several of them must ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from vitreous.checkpoints.algebra import Row
from vitreous.checkpoints.source import Source
from vitreous.errors import InputError
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.names import build
from vitreous.models.preprocessing import Preprocessing

Told = Mapping[str, Any]  # what the user said by keyword

# Overrides that change the model behind the file, where every other one says what the file does not tell.
AFTERWARDS = ("image_size", "patch_size", "num_classes")


class Reading(NamedTuple):
    """A foreign checkpoint, understood: enough to build our model and fill it."""

    source: Source  # its tensors under the names that the rows use
    config: ViTConfig | BiTConfig
    rows: list[Row]
    preprocessing: Preprocessing
    labels: list[str] | None = None
    assumed: tuple[str, ...] = ()  # what the file did not say, in words
    ignored: tuple[str, ...] = ()  # tensors that are known and not needed
    task: str | None = "classification"  # what the head's outputs mean, where there is a head


def vit_config(fields: Mapping[str, Any], told: Told) -> ViTConfig:
    """The configuration that a file describes; what the user said wins."""
    return build(ViTConfig, fields, {k: v for k, v in told.items() if k not in AFTERWARDS})


# Where heads are not 64 wide: SigLIP's So400m, ViT-H, ViT-g, ViT-G.
USUAL_HEADS = {1152: 16, 1280: 16, 1408: 16, 1664: 16}


def usual_heads(width: int) -> int:
    """The number of heads that published models of this width have."""
    return USUAL_HEADS.get(width, max(width // 64, 1))


def asked_heads(source: Source, told: Told, width: int) -> int:
    """The number of heads, which no state dict tells.

    Raises:
        InputError: the user has not said it; the likely value is given.
    """
    if "heads" in told:
        return int(told["heads"])
    likely = usual_heads(width)
    raise InputError(
        f"{source.where}: a state dict does not tell the number of heads: pass heads={likely} "
        f"(width {width} / {width // likely}), or --set model.heads={likely} of a command, or what it was "
        "made with"
    )


def asked_image_size(source: Source, told: Told) -> Any:
    """The image size, where positions are computed and the file tells nothing of it."""
    if "image_size" not in told:
        raise InputError(
            f"{source.where}: positions are computed, so the file does not tell the image size: pass "
            f"image_size=224 or what the model was made with"
        )
    return told["image_size"]


def assumed_preprocessing(
    config: ViTConfig | BiTConfig, family: str, **fields: Any
) -> tuple[Preprocessing, tuple[str, ...]]:
    """The preprocessing that a family of models is used with, and the sentence that says it is assumed."""
    channels = config.channels
    if channels != 3:
        fields |= {"mean": (0.5,) * channels, "std": (0.5,) * channels}
    preprocessing = Preprocessing(size=config.image_size, channels=channels, **fields)
    return preprocessing, (
        f"preprocessing as {family}: {preprocessing.resize}, {preprocessing.interpolation}, mean "
        f"{preprocessing.mean}, std {preprocessing.std}",
    )
