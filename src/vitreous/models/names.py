"""From a name as the paper writes it, "ViT-B/16" or "R50+ViT-B/16", to a configuration, and to a model."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from vitreous.errors import InputError, nearest
from vitreous.extensions import imported, kinds
from vitreous.models.bit import BiTConfig
from vitreous.models.catalog import (
    BITS,
    EXAMPLES,
    HYBRIDS,
    LITE0,
    LITE0_DEPTHS,
    SIZES,
    SIZES_OF_VIT_5,
    list_models,
)
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config
from vitreous.models.model import Model, build_model
from vitreous.models.settings import merged

# What the sizes of ViT-5 (2602.08071) have in common.
TEMPERATURE, REGISTER_TEMPERATURE = 10_000.0, 100.0  # of ViT-5's rotary positions
VIT_5: Mapping[str, object] = {
    "norm_kind": "rms",
    "qk_norm": "head",
    "qkv_bias": False,
    "layer_scale": 1e-4,
    "registers": 4,
    "position": {
        "kind": "learned",
        "rotary": {
            "temperature": TEMPERATURE,
            "axes": "yx",
            "register_temperature": REGISTER_TEMPERATURE,
        },
    },
}


def config_of(name: str | ViTConfig | BiTConfig, **overrides: object) -> ViTConfig | BiTConfig:
    """Return the configuration that `name` stands for, or a given one, with any field changed. Raises
    InputError: an unknown name (the nearest known one is given), or values that do not fit together."""
    if isinstance(name, ViTConfig | BiTConfig):
        return changed_config(name, overrides)
    if not isinstance(name, str):
        raise InputError(f"a model is created from a name ({EXAMPLES}) or a configuration, not {name!r}")
    if match := re.fullmatch(r"BiT-(R\d+)x(\d+)", name):
        check_part("ResNet", match[1], BITS, name)
        return BiTConfig.checked({"layers": BITS[match[1]], "width_factor": float(match[2])}, overrides)
    if isinstance(config := config_of_kind(name, overrides), ViTConfig):
        return config
    fields: dict[str, object] = {"stem": {"kind": "patch"}}
    if match := re.fullmatch(r"(?:(R\d*|EfficientLite\d)\+)?ViT-(5-)?([A-Za-z]+)/(\d+)(?:x(\d+))?", name):
        hybrid, modern, size, rows, columns = match.groups()
        if hybrid and hybrid.startswith("E"):
            check_part("EfficientNet-Lite", hybrid, (LITE0,), name)
            depths = [blocks for stride, blocks in LITE0_DEPTHS.items() if int(rows) % stride == 0]
            fields["stem"] = {"kind": "efficientnet-lite", "blocks": next(iter(depths), 11)}
        elif hybrid:
            check_part("ResNet", hybrid, HYBRIDS, name)
            # With patches of 32 pixels, R50 has the four stages of a plain ResNet-50.
            layers = BITS["R50"] if hybrid == "R50" and int(rows) >= 32 else HYBRIDS[hybrid]
            fields["stem"] = {"kind": "resnet", "layers": layers}
    else:
        raise unknown_name(name)
    if modern:
        fields |= VIT_5
    known = SIZES_OF_VIT_5 if modern else SIZES
    fields |= sizes(size, name, known) | {"patch_size": (int(rows), int(columns or rows))}
    return ViTConfig.checked({}, merged(fields, overrides))


def config_of_kind(name: str, overrides: Mapping[str, object]) -> Config | None:
    """Return the configuration that a name of an add-on stands for, with any field changed; None where it is
    no such name. Raises InputError if `config_of` does."""
    for kind in kinds().values():
        if kind.prefix and name.startswith(kind.prefix):
            config: Config = imported(kind.config).checked({}, merged(imported(kind.named)(name), overrides))
            return config
    return None


def sizes(size: str, name: str, known: Mapping[str, tuple[int, int, int, int]] = SIZES) -> dict[str, int]:
    """Return the fields that a size in a name stands for. Raises InputError: there is no such size."""
    check_part("size", size, known, name)
    return dict(zip(("width", "depth", "mlp_dim", "heads"), known[size], strict=True))


# What timm and transformers call the sizes, and we.
OTHER_SIZES = {
    "tiny": "Ti",
    "small": "S",
    "medium": "M",
    "base": "B",
    "large": "L",
    "huge": "H",
    "giant": "g",
}


def unknown_name(name: str) -> InputError:
    other = re.search(r"(?i)vit[_-](\w+?)[_-]patch(\d+)", name)
    if other and (size := OTHER_SIZES.get(other[1].lower())):
        weights = name if "/" in name else f"timm/{name}"
        return InputError(
            f"{name!r} is a name of another library: vt.create('ViT-{size}/{other[2]}') gives fresh weights, "
            f"vt.load('hf:{weights}') the published ones"
        )
    hint = nearest(name, list_models())
    like = f"; {hint}" if hint.startswith("did you mean") else ""
    return InputError(f"unknown model {name!r}: names look like {EXAMPLES}{like}")


def check_part(what: str, part: str, known: Collection[str], name: str) -> None:
    if part not in known:
        raise InputError(f"unknown {what} {part!r} in {name!r}: {nearest(part, list(known))}")


def changed_config(config: ViTConfig | BiTConfig, settings: Mapping[str, object]) -> ViTConfig | BiTConfig:
    """Return a configuration with some fields changed: {"width": 3, "stem": {"norm_before": True}}. Raises
    InputError: an unknown name, or values that do not fit together."""
    return config.checked({}, merged(config.model_dump(), settings))


def create(name: str | ViTConfig | BiTConfig, *, seed: int = 0, **overrides: object) -> Model:
    """Create a model with fresh weights.

    Example:
        >>> model = vt.create("ViT-Ti/16", num_classes=10, image_size=32)
        >>> model(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
        >>> vt.create("ViT-Ti/16", registers=4).config.sequence_length
        201

    Args:
        name: "ViT-{Ti,S,M,B,L,H,g,G}/{patch}", "ViT-5-{S,B,L,XL}/{patch}", a hybrid "R50+ViT-B/16" or
            "EfficientLite0+ViT-Ti/16", "BiT-R50x1", a name of an add-on (see `list_models`), or a
            configuration.
        seed: random seed of the weights; the same seed gives the same weights.
        overrides: any field of `ViTConfig` (or `BiTConfig`).

    Raises:
        InputError: the name or a field is unknown, or values contradict each other.
    """
    if "pretrained" in overrides:
        raise InputError(
            "create makes fresh weights and has no pretrained=: load published ones, as in "
            "vt.load('hf:google/vit-base-patch16-224')"
        )
    if seed < 0:
        raise InputError(f"the seed is {seed}: pass 0 or more")
    return build_model(config_of(name, **overrides), seed=seed)
