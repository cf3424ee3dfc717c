"""The families of models whose checkpoints are read and written, and in which formats. The documentation's
table is made of these rows and of what `benchmarks/checkpoint_families.py` measured of each.
"""

from __future__ import annotations

# Of each family the formats that it is read and written in; the text models are only read.
FAMILIES: dict[str, tuple[str, ...]] = {
    "ViT": ("google", "timm", "huggingface", "torchvision", "vit-pytorch", "frankzvit"),
    "Hybrid ViT": ("google", "timm"),
    "BiT": ("bit",),
    "DeiT": ("timm", "huggingface"),
    "MAE, with its decoder": ("huggingface", "timm"),
    "I-JEPA": ("huggingface",),
    "DINOv2": ("dinov2", "huggingface", "timm"),
    "DINOv3": ("dinov3", "huggingface", "timm"),
    "CLIP": ("open-clip", "huggingface", "timm"),
    "SigLIP": ("huggingface", "timm"),
    "SigLIP 2, NaFlex at one size": ("huggingface",),
    "Perception Encoder": ("timm",),
    "EVA, EVA-02": ("timm",),
    "RoPE-ViT": ("timm",),
    "BEiT, BEiT v2": ("huggingface", "timm"),
    "data2vec": ("huggingface",),
    "AIMv2": ("aimv2", "timm"),
    "InternViT": ("huggingface",),
    "MLCD": ("huggingface",),
    "TIPSv2": ("huggingface",),
    "RADIO": ("radio",),
}
TEXT_MODELS = {"Marian": "marian", "TrOCR": "trocr", "torch.nn.Transformer": "torch-transformer"}


def list_families() -> dict[str, dict[str, str]]:
    """Every family of models whose checkpoints are read: in which formats, and whether it is written there.

    {"DINOv3": {"dinov3": "in, out", ...}, "Marian": {"marian": "in"}, ...}
    """
    image_models = {name: dict.fromkeys(formats, "in, out") for name, formats in FAMILIES.items()}
    return image_models | {name: {format: "in"} for name, format in TEXT_MODELS.items()}
