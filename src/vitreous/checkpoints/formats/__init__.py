"""A module for each foreign format, and here what is listed of them. A new format is a file and a row in
`vitreous.extensions.FORMATS`; or one of an add-on, and a row of its `formats`."""

from vitreous.checkpoints.format import checkpoint_formats
from vitreous.extensions import addons


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
    for name, format in sorted(checkpoint_formats().items()):
        for family in format.families:
            families.setdefault(family, {})[name] = "in, out" if format.write else "in"
    for family, name in added_families().items():
        families[family] = {name: "in"}
    return dict(sorted(families.items(), key=lambda row: row[0].casefold()))


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
