"""From a name as the paper writes it, "ViT-B/16" or "R50+ViT-B/16", to a configuration, and to a model."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Mapping

import torch

from vitreous.errors import InputError, nearest
from vitreous.extensions import imported, kinds
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.config_parts import Config
from vitreous.models.model import Model, build_model
from vitreous.models.settings import merged

# Width, depth, MLP dimension, heads. Ti and S: DeiT (2012.12877). B, L, H: Table 1 of the paper. M:
# big_vision. g, G: 2106.04560, Table 2.
SIZES = {
    "Ti": (192, 12, 768, 3),
    "S": (384, 12, 1536, 6),
    "M": (512, 12, 2048, 8),
    "B": (768, 12, 3072, 12),
    "L": (1024, 24, 4096, 16),
    "H": (1280, 32, 5120, 16),
    "g": (1408, 40, 6144, 16),
    "G": (1664, 48, 8192, 16),
}

# ViT-5 (2602.08071): S, B and L as above, XL as its authors' code has it; and what they have in common.
SIZES_OF_VIT_5 = {size: SIZES[size] for size in ("S", "B", "L")} | {"XL": (1152, 28, 4608, 16)}
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

# Units in each stage. R is the root alone; R50 has the paper's extended stage 3: stage 4's units moved there.
HYBRIDS: dict[str, tuple[int, ...]] = {"R": (), "R26": (2, 2, 2, 2), "R50": (3, 4, 9)}
# Blocks of EfficientNet-Lite0 by their stride: as many as patches of so many pixels can be made of.
LITE0 = "EfficientLite0"
LITE0_DEPTHS = {32: 16, 16: 11, 8: 5}
BITS: dict[str, tuple[int, ...]] = {"R50": (3, 4, 6, 3), "R101": (3, 4, 23, 3), "R152": (3, 8, 36, 3)}

# Where a size is from, by how a model's name begins.
SOURCES = {
    "ViT-Ti": "DeiT (2012.12877)",
    "ViT-S": "DeiT (2012.12877)",
    "ViT-M": "big_vision",
    "ViT-5-": "ViT-5 (2602.08071)",
    "ViT-g": "2106.04560, Table 2",
    "ViT-G": "2106.04560, Table 2",
    "ViT-": "2010.11929, Table 1",
    "R50+": "2010.11929, section 3.1",
    "EfficientLite0+": "1905.11946; 2010.11929, section 3.1",
    "R": "AugReg (2106.10270)",
    "BiT-": "BiT (1912.11370)",
}

# Published weights of a size, for --init. They are downloaded once, with the package huggingface_hub.
PUBLISHED = {
    "ViT-Ti/16": "hf:timm/vit_tiny_patch16_224.augreg_in21k",
    "ViT-S/8": "hf:timm/vit_small_patch8_224.dino",
    "ViT-S/14": "hf:timm/vit_small_patch14_dinov2.lvd142m",
    "ViT-S/16": "hf:timm/vit_small_patch16_224.augreg_in21k",
    "ViT-S/32": "hf:timm/vit_small_patch32_224.augreg_in21k",
    "ViT-B/8": "hf:timm/vit_base_patch8_224.augreg_in21k",
    "ViT-B/14": "hf:timm/vit_base_patch14_dinov2.lvd142m",
    "ViT-B/16": "hf:google/vit-base-patch16-224",
    "ViT-B/32": "hf:timm/vit_base_patch32_224.augreg_in21k",
    "ViT-L/14": "hf:timm/vit_large_patch14_dinov2.lvd142m",
    "ViT-L/16": "hf:timm/vit_large_patch16_224.augreg_in21k",
    "ViT-L/32": "hf:timm/vit_large_patch32_384.orig_in21k_ft_in1k",
    "ViT-H/14": "hf:timm/vit_huge_patch14_224.orig_in21k",
    "ViT-5-S/16": "hf:FengWang3211/ViT-5/vit5_small_patch16_224.pth",
    "ViT-5-B/16": "hf:FengWang3211/ViT-5/vit5_base_patch16_224.pth",
    "ViT-5-L/16": "hf:FengWang3211/ViT-5/vit5_large_patch16_224.pth",
    "R+ViT-Ti/16": "hf:timm/vit_tiny_r_s16_p8_224.augreg_in21k",
    "R26+ViT-S/32": "hf:timm/vit_small_r26_s32_224.augreg_in21k",
    "R50+ViT-B/16": "hf:timm/vit_base_r50_s16_384.orig_in21k_ft_in1k",
    "R50+ViT-L/32": "hf:timm/vit_large_r50_s32_224.augreg_in21k",
}

EXAMPLES = "ViT-B/16, ViT-S/8, R50+ViT-B/16, BiT-R50x1"


def config_of(name: str | ViTConfig | BiTConfig, **overrides: object) -> ViTConfig | BiTConfig:
    """The configuration that `name` stands for, or a given one, with any field changed. Raises InputError: an
    unknown name (the nearest known one is given), or values that do not fit together."""
    if isinstance(name, ViTConfig | BiTConfig):
        return change(name, overrides)
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
    no such name. Raises InputError: as `config_of`."""
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
            f"{name!r} is a name of another library: vt.create('ViT-{size}/{other[2]}') has fresh weights, "
            f"vt.load('hf:{weights}') the published ones"
        )
    hint = nearest(name, list_models())
    like = f"; {hint}" if hint.startswith("did you mean") else ""
    return InputError(f"unknown model {name!r}: names look like {EXAMPLES}{like}")


def check_part(what: str, part: str, known: Collection[str], name: str) -> None:
    if part not in known:
        raise InputError(f"unknown {what} {part!r} in {name!r}: {nearest(part, list(known))}")


def change(config: ViTConfig | BiTConfig, settings: Mapping[str, object]) -> ViTConfig | BiTConfig:
    """Return a configuration with some fields changed: {"width": 3, "stem": {"norm_before": True}}. Raises
    InputError: an unknown name, or values that do not fit together."""
    return config.checked({}, merged(config.model_dump(), settings))


def list_models(pattern: str = "*") -> list[str]:
    """Return the names that `create` takes: of Vision Transformers, of hybrids of section 3.1 and of AugReg,
    of BiT and of add-ons. Other patch sizes and widths are names as well.

    Args:
        pattern: with `*` for any characters and `?` for one: `ViT-*`.
    """
    names: list[str] = []
    for size in SIZES:
        names += [f"ViT-{size}/{patch}" for patch in (8, 14, 16, 32)]
    names += [f"ViT-5-{size}/16" for size in SIZES_OF_VIT_5]
    names += ["R+ViT-Ti/16", "R26+ViT-S/32", "R50+ViT-B/16", "R50+ViT-B/32", "R50+ViT-L/16", "R50+ViT-L/32"]
    names += [f"{LITE0}+ViT-Ti/16", f"{LITE0}+ViT-S/16", f"{LITE0}+ViT-S/32"]
    for depth in BITS:
        names += [f"BiT-{depth}x{width}" for width in (1, 2, 3, 4)]
    for kind in kinds().values():
        names += kind.names
    return fnmatch.filter(names, pattern)


def parameters_of(name: str) -> int:
    """The parameters with a head of 1000 classes, counted without memory. All encoder layers have the same
    size, which two models of different depth tell."""
    config = config_of(name)
    with torch.device("meta"):
        if isinstance(config, BiTConfig):
            return parameter_count(build_model(config))
        one = parameter_count(build_model(change(config, {"depth": 1})))
        two = parameter_count(build_model(change(config, {"depth": 2})))
    return one + (config.depth - 1) * (two - one)


def parameter_count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def source_of(name: str) -> str:
    """Where the size that a name stands for is from."""
    known = {kind.prefix: kind.source for kind in kinds().values() if kind.names} | SOURCES
    return next(source for start, source in known.items() if name.startswith(start))


def create(name: str | ViTConfig | BiTConfig, *, seed: int = 0, **overrides: object) -> Model:
    """Create a model with fresh weights.

        create("ViT-B/16", num_classes=10, image_size=224, seed=0)

    Args:
        name: "ViT-{Ti,S,M,B,L,H,g,G}/{patch}", "ViT-5-{S,B,L,XL}/{patch}", a hybrid "R50+ViT-B/16" or
            "EfficientLite0+ViT-Ti/16", "BiT-R50x1", a name of an add-on (see `list_models`), or a
            configuration.
        seed: of the weights; the same seed draws the same numbers.
        overrides: any field of `ViTConfig` (or `BiTConfig`).

    Raises:
        InputError: an unknown name or field, or values that do not fit together.
    """
    if "pretrained" in overrides:
        raise InputError(
            "create makes fresh weights and has no pretrained=: published ones are loaded, as with "
            "vt.load('hf:google/vit-base-patch16-224')"
        )
    if seed < 0:
        raise InputError(f"the seed is {seed}: give a number from 0")
    return build_model(config_of(name, **overrides), seed=seed)
