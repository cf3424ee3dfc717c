"""The families of models whose checkpoints are read and written, and in which formats. The documentation's
table is made of these rows and of what `benchmarks/checkpoint_families.py` measured of each.
"""

from __future__ import annotations

from typing import NamedTuple


class CheckpointFamily(NamedTuple):
    """A family of models.

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
