"""A module for each foreign format, and here the families of models in them. A new format is a file and a row
in `vitreous.extensions.FORMATS`; or one of an add-on, and a row of its `formats`."""

from vitreous.checkpoints.format import checkpoint_formats
from vitreous.extensions import addons

# Of each family the formats that it is read and written in; those of add-ons are only read. The table of the
# documentation is made of these rows and of what `benchmarks/checkpoint_families.py` measured of each.
IMAGE_FAMILIES: dict[str, tuple[str, ...]] = {
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
    "SigLIP 2, NaFlex": ("huggingface",),
    "NaFlexViT": ("timm",),
    "Perception Encoder": ("timm",),
    "EVA, EVA-02": ("timm",),
    "RoPE-ViT": ("timm",),
    "ViT-5": ("vit-5",),
    "BEiT, BEiT v2": ("huggingface", "timm"),
    "data2vec": ("huggingface",),
    "AIMv2": ("aimv2", "timm"),
    "InternViT": ("huggingface",),
    "MLCD": ("huggingface",),
    "TIPSv2": ("huggingface",),
}


# Families that are only read, in these formats.
READ_FAMILIES: dict[str, tuple[str, ...]] = {
    "ViT": ("pytorch-pretrained-vit", "jeonsworld", "monai", "openmmlab"),
    "DeiT": ("openmmlab",),
    "BEiT, BEiT v2": ("openmmlab",),
    "Perception Encoder": ("perception-encoder",),
    "PE-Lang, PE-Spatial": ("perception-encoder",),
}


def added_families() -> dict[str, str]:
    """Return the families of add-ons, each with its format."""
    families: dict[str, str] = {}
    for addon in addons().values():
        families |= addon.families
    return families


def list_families() -> dict[str, dict[str, str]]:
    """Return every family of models whose checkpoints can be read: in which formats, and whether each can
    also be written.

    {"DINOv3": {"dinov3": "in, out", ...}, "Marian": {"marian": "in"}, ...}

    Example:
        >>> vt.list_families()["DINOv3"]
        {'dinov3': 'in, out', 'huggingface': 'in, out', 'timm': 'in, out'}
    """
    families: dict[str, dict[str, str]] = {}
    for name in IMAGE_FAMILIES | READ_FAMILIES:
        families[name] = dict.fromkeys(IMAGE_FAMILIES.get(name, ()), "in, out")
        families[name] |= dict.fromkeys(READ_FAMILIES.get(name, ()), "in")
    for name, format in added_families().items():
        families[name] = {format: "in"}
    return families


def list_formats() -> dict[str, str]:
    """Return a description of every format that can be read, by name, and whether it can also be written.

    Example:
        >>> vt.list_formats()["timm"]
        "timm's VisionTransformer, DeiT and hybrids: a folder (config.json) or a state dict"
    """
    about: dict[str, str] = {}
    for each in checkpoint_formats().values():
        about[each.name] = each.about if each.write else f"{each.about} (only read)"
    return about
