"""Checkpoints of every published format: in, out, and proven equal.

load      a model from a file or folder of any format, from `https:` or `hf:`, a state dict or a live module
save      a model into any format that can hold it
open_model  what the command line calls MODEL: all of these, a run directory, or a model's name
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from vitreous.checkpoints.download import SUFFIXES, hub_hint
from vitreous.checkpoints.formats import FORMATS
from vitreous.checkpoints.loading import load as load
from vitreous.checkpoints.loading import load_image_model as load_image_model
from vitreous.checkpoints.saving import save as save
from vitreous.errors import InputError
from vitreous.models.names import Model, create


def open_model(spec: str | Path, *, format: str | None = None, **overrides: Any) -> Model:
    """The model that the command line's MODEL means: a run directory, a checkpoint in any format,
    `hf:org/name`, an `https:` address, or a model name such as "ViT-B/16" (with fresh weights).

    Raises:
        InputError: none of these; or what is there cannot be loaded.
    """
    text = str(spec)
    if re.match(r"(hf|https?):", text) or Path(spec).exists():
        return load_image_model(spec, format=format, **overrides)
    if re.match(r"(?i)(r\d*\+)?(vit|bit|seg)-", text) and not text.endswith(SUFFIXES):
        return create(text, **overrides)
    raise InputError(
        f"{text!r} is not an existing file or folder, and not a model name such as ViT-B/16; {hub_hint(text)}"
    )


def list_formats() -> dict[str, str]:
    """Every format that is read, by name: what it is, and whether it is written too."""
    return {each.name: each.about if each.write else f"{each.about} (only read)" for each in FORMATS.values()}


class CheckpointFamily(NamedTuple):
    """A family of models whose checkpoints are read and written. The documentation's table is made of these
    and of what `benchmarks/checkpoint_families.py` measured of each.

    Attributes:
        read, written: names of formats, as `vitreous.list_formats` has them.
    """

    name: str
    read: tuple[str, ...]
    written: tuple[str, ...]


def both(name: str, *formats: str, read: tuple[str, ...] = ()) -> CheckpointFamily:
    """A family that is read and written in `formats`, and read in others."""
    return CheckpointFamily(name, (*formats, *read), formats)


FAMILIES = (
    both("ViT", "google", "timm", "huggingface", "torchvision", "vit-pytorch", "frankzvit"),
    both("Hybrid ViT", "google", "timm"),
    both("BiT", "bit"),
    both("DeiT", "timm", "huggingface"),
    both("MAE, with its decoder", read=("huggingface", "timm")),
    both("DINOv2", "dinov2", "huggingface", "timm"),
    both("DINOv3", "dinov3", "huggingface", "timm"),
    both("CLIP", "open-clip", "huggingface", "timm"),
    both("SigLIP", "huggingface", "timm"),
    both("SigLIP 2, NaFlex at one size", read=("huggingface",)),
    both("Perception Encoder", "timm"),
    both("EVA, EVA-02", "timm"),
    both("RoPE-ViT", "timm"),
    both("BEiT, BEiT v2", "huggingface", "timm"),
    both("data2vec", "huggingface"),
    both("AIMv2", "aimv2", "timm"),
    both("InternViT", read=("huggingface",)),
    both("MLCD", "huggingface"),
    both("TIPSv2", read=("huggingface",)),
    both("RADIO", read=("huggingface",)),
)


def list_families() -> dict[str, dict[str, str]]:
    """Every family of models whose checkpoints are read: in which formats, and whether it is written there.

    {"DINOv3": {"dinov3": "in, out", ...}, "RADIO": {"huggingface": "in"}, ...}
    """
    return {
        family.name: {
            format: "in, out" if format in family.written else "in" for format in dict.fromkeys(family.read)
        }
        for family in FAMILIES
    }
