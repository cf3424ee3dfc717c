"""From a name as the paper writes it, "ViT-B/16" or "R50+ViT-B/16", to a configuration, and to a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from vitreous.errors import InputError, nearest
from vitreous.models.bit import BiT, BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.segmenter import Segmenter, SegmenterConfig
from vitreous.models.settings import check_names, explain
from vitreous.models.vit import ViT

Model = ViT | BiT | Segmenter


class Size(NamedTuple):
    """A row of Table 1."""

    width: int
    depth: int
    mlp_dim: int
    heads: int


# Ti and S: DeiT (2012.12877). B, L, H: Table 1 of the paper. M: big_vision. g, G: 2106.04560, Table 2.
SIZES = {
    "Ti": Size(192, 12, 768, 3),
    "S": Size(384, 12, 1536, 6),
    "M": Size(512, 12, 2048, 8),
    "B": Size(768, 12, 3072, 12),
    "L": Size(1024, 24, 4096, 16),
    "H": Size(1280, 32, 5120, 16),
    "g": Size(1408, 40, 6144, 16),
    "G": Size(1664, 48, 8192, 16),
}

# Units in each stage. Hybrids named R50 have the paper's extended stage 3: stage 4's units moved there.
HYBRIDS = {"R": (), "R26": (2, 2, 2, 2), "R50": (3, 4, 9)}
BITS = {"R50": (3, 4, 6, 3), "R101": (3, 4, 23, 3), "R152": (3, 8, 36, 3)}

EXAMPLES = "ViT-B/16, ViT-S/8, R50+ViT-B/16, BiT-R50x1, Seg-B-Mask/16"


def config_of(name: str, **overrides: Any) -> ViTConfig | BiTConfig:
    """The configuration that `name` stands for, with any field changed.

    Raises:
        InputError: an unknown name (the nearest known one is given), or values that do not fit together.
    """
    if match := re.fullmatch(r"BiT-(R\d+)x(\d+)", name):
        if match[1] not in BITS:
            raise InputError(f"unknown ResNet {match[1]!r} in {name!r}: {nearest(match[1], list(BITS))}")
        fields: dict[str, Any] = {"layers": BITS[match[1]], "width_factor": float(match[2])}
        return build(BiTConfig, fields, overrides)
    if match := re.fullmatch(r"Seg-([A-Za-z]+?)(-Mask)?/(\d+)", name):
        return segmenter_config(*match.groups(), name=name, overrides=overrides)
    match = re.fullmatch(r"(?:(R\d*)\+)?ViT-([A-Za-z]+)/(\d+)(?:x(\d+))?", name)
    if not match:
        raise InputError(f"unknown model {name!r}: names look like {EXAMPLES}{suggestion(name)}")
    hybrid, size, rows, columns = match.groups()
    if size not in SIZES:
        raise InputError(f"unknown size {size!r} in {name!r}: {nearest(size, list(SIZES))}")
    patch = int(rows), int(columns or rows)
    fields = {**SIZES[size]._asdict(), "patch_size": patch}
    if hybrid:
        fields["stem"] = hybrid_stem(hybrid, name, patch)
    return build(ViTConfig, fields, overrides)


def segmenter_config(
    size: str, mask: str | None, patch: str, *, name: str, overrides: Mapping[str, Any]
) -> SegmenterConfig:
    """Segmenter's names (2105.05633, Table 3): "Seg-B/16" has the linear decoder, "Seg-B-Mask/16" the mask
    Transformer. The class token takes part in the attention, as in the authors' code."""
    if size not in SIZES:
        raise InputError(f"unknown size {size!r} in {name!r}: {nearest(size, list(SIZES))}")
    decoder = "mask-transformer" if mask else "linear"
    fields = {**SIZES[size]._asdict(), "patch_size": (int(patch), int(patch)), "decoder": decoder}
    config: SegmenterConfig = build(SegmenterConfig, fields, overrides)
    return config


def hybrid_stem(hybrid: str, name: str, patch: tuple[int, int]) -> dict[str, Any]:
    """The ResNet of a hybrid. "R+" is the root alone; R50 in front of /32 has the four stages of a plain
    ResNet-50, in front of /16 the paper's extended stage 3; R26 has two units in each stage it needs."""
    if hybrid not in HYBRIDS:
        raise InputError(f"unknown ResNet {hybrid!r} in {name!r}: {nearest(hybrid, list(HYBRIDS))}")
    layers: tuple[int, ...] = HYBRIDS[hybrid]
    if hybrid == "R50" and patch[0] >= 32:
        layers = BITS["R50"]
    return {"kind": "resnet", "layers": layers}


def build(kind: type[Any], fields: Mapping[str, Any], overrides: Mapping[str, Any]) -> Any:
    """A validated configuration, or one sentence that says what does not fit."""
    try:
        if problem := check_names(overrides, kind):
            raise InputError(problem)
        return kind(**{**fields, **overrides})
    except ValidationError as error:
        raise InputError(explain(error, "model")) from None


def suggestion(name: str) -> str:
    known = [f"ViT-{size}/{patch}" for size in SIZES for patch in (8, 14, 16, 32)]
    known += [f"BiT-{depth}x{width}" for depth in BITS for width in (1, 2, 3, 4)]
    hint = nearest(name, known)
    return f"; {hint}" if hint.startswith("did you mean") else ""


def create(name: str, *, seed: int = 0, **overrides: Any) -> Model:
    """Create a model with fresh weights.

        create("ViT-B/16", num_classes=10, image_size=224, seed=0)

    Args:
        name: "ViT-{Ti,S,M,B,L,H,g,G}/{patch}", a hybrid "R50+ViT-B/16", "BiT-R50x1", or a segmenter
            "Seg-B-Mask/16".
        seed: of the weights; the same seed draws the same numbers.
        overrides: any field of `ViTConfig` (or `BiTConfig`, `SegmenterConfig`).

    Raises:
        InputError: an unknown name or field, or values that do not fit together.
    """
    return build_model(config_of(name, **overrides), seed=seed)


def build_model(config: ViTConfig | BiTConfig, **attributes: Any) -> Model:
    """Build the model of a configuration with fresh weights.

    Args:
        attributes: its `preprocessing`, `labels`, `task` and `seed`. Without a task, that of a segmenter is
            segmentation and that of another model with a head classification.
    """
    if not isinstance(config, SegmenterConfig):
        attributes.setdefault("task", None if config.num_classes is None else "classification")
    if isinstance(config, BiTConfig):
        return BiT(config, **attributes)
    if isinstance(config, SegmenterConfig):
        return Segmenter(config, **attributes)
    return ViT(config, **attributes)
