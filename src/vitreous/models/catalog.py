"""The models that have names: their sizes, where these are from, how many parameters they have, and published
weights. It needs no PyTorch, so that a list of them is printed at once."""

from __future__ import annotations

import fnmatch

from vitreous.extensions import kinds

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

# ViT-5 (2602.08071): S, B and L as above, XL as its authors' code has it.
SIZES_OF_VIT_5 = {size: SIZES[size] for size in ("S", "B", "L")} | {"XL": (1152, 28, 4608, 16)}
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

TRAINING_STATES = 4  # weights, gradients and AdamW's two averages: of the same size each
EXAMPLES = "ViT-B/16, ViT-S/8, R50+ViT-B/16, BiT-R50x1"

# Parameters of each name that is listed, with a head of 1000 classes and images of 224 pixels. A test counts
# them again in the models themselves.
PARAMETERS = {
    "ViT-Ti/8": 5_719_720,
    "ViT-Ti/14": 5_694_376,
    "ViT-Ti/16": 5_717_416,
    "ViT-Ti/32": 6_131_560,
    "ViT-S/8": 22_055_272,
    "ViT-S/14": 22_004_584,
    "ViT-S/16": 22_050_664,
    "ViT-S/32": 22_878_952,
    "ViT-M/8": 38_843_880,
    "ViT-M/14": 38_776_296,
    "ViT-M/16": 38_837_736,
    "ViT-M/32": 39_942_120,
    "ViT-B/8": 86_576_872,
    "ViT-B/14": 86_475_496,
    "ViT-B/16": 86_567_656,
    "ViT-B/32": 88_224_232,
    "ViT-L/8": 304_338_920,
    "ViT-L/14": 304_203_752,
    "ViT-L/16": 304_326_632,
    "ViT-L/32": 306_535_400,
    "ViT-H/8": 632_214_760,
    "ViT-H/14": 632_045_800,
    "ViT-H/16": 632_199_400,
    "ViT-H/32": 634_960_360,
    "ViT-g/8": 1_012_797_288,
    "ViT-g/14": 1_012_611_432,
    "ViT-g/16": 1_012_780_392,
    "ViT-g/32": 1_015_817_448,
    "ViT-G/8": 1_844_660_328,
    "ViT-G/14": 1_844_440_680,
    "ViT-G/16": 1_844_640_360,
    "ViT-G/32": 1_848_229_608,
    "ViT-5-S/16": 22_039_528,
    "ViT-5-B/16": 86_543_848,
    "ViT-5-L/16": 304_259_048,
    "ViT-5-XL/16": 448_506_280,
    "R+ViT-Ti/16": 5_776_104,
    "R26+ViT-S/32": 36_431_912,
    "R50+ViT-B/16": 98_659_112,
    "R50+ViT-B/32": 110_945_832,
    "R50+ViT-L/16": 316_483_624,
    "R50+ViT-L/32": 328_994_856,
    "EfficientLite0+ViT-Ti/16": 6_284_152,
    "EfficientLite0+ViT-S/16": 22_491_448,
    "EfficientLite0+ViT-S/32": 24_761_304,
    "BiT-R50x1": 25_549_352,
    "BiT-R50x2": 97_988_712,
    "BiT-R50x3": 217_319_080,
    "BiT-R50x4": 383_540_456,
    "BiT-R101x1": 44_541_480,
    "BiT-R101x2": 173_852_776,
    "BiT-R101x3": 387_934_888,
    "BiT-R101x4": 686_787_816,
    "BiT-R152x1": 60_185_128,
    "BiT-R152x2": 236_335_208,
    "BiT-R152x3": 528_451_240,
    "BiT-R152x4": 936_533_224,
}


def list_models(pattern: str = "*") -> list[str]:
    """Return the names that `create` accepts: Vision Transformers, hybrids (of section 3.1 and of AugReg),
    BiT, and the models of add-ons. Names with other patch sizes and widths work, too.

    Example:
        >>> "ViT-B/16" in vt.list_models()
        True
        >>> [name for name in vt.list_models() if name.startswith("BiT")][:2]
        ['BiT-R50x1', 'BiT-R50x2']

    Args:
        pattern: with `*` for any characters and `?` for one: `ViT-*`.
    """
    return fnmatch.filter(parameters_of_names(), pattern)


def parameters_of_names() -> dict[str, int]:
    """Return the parameters of each listed name: of the core, then of add-ons."""
    return PARAMETERS | {name: count for kind in kinds().values() for name, count in kind.parameters.items()}


def source_of(name: str) -> str:
    """Return where the size that a name stands for is from."""
    known = {kind.prefix: kind.source for kind in kinds().values() if kind.parameters} | SOURCES
    return next(source for start, source in known.items() if name.startswith(start))
