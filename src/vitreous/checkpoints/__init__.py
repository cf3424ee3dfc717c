"""Checkpoints of the formats that `list_formats` names: in, out, and proven equal.

load      a model from a file or folder of any format, from `https:` or `hf:`, a state dict or a live module
save      a model into any format that can hold it
open_model  what the command line calls MODEL: all of these, a run directory, or a model's name
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from vitreous.checkpoints.download import SUFFIXES, hub_hint
from vitreous.checkpoints.formats import formats
from vitreous.checkpoints.formats import list_families as list_families
from vitreous.checkpoints.loading import load as load
from vitreous.checkpoints.loading import load_image_model as load_image_model
from vitreous.checkpoints.saving import save as save
from vitreous.errors import InputError
from vitreous.models.names import Model, create


def open_model(spec: str | Path, *, format: str | None = None, **overrides: Any) -> Model:
    """The model that the command line's MODEL means: a run directory, a checkpoint in any format,
    `hf:org/name`, an `https:` address, `vitreous:small`, or a model name such as "ViT-B/16" (with fresh
    weights). Raises InputError: none of these; or what is there cannot be loaded."""
    text = str(spec)
    if re.match(r"(hf|https?|vitreous):", text) or Path(spec).exists():
        return load_image_model(spec, format=format, **overrides)
    if re.match(r"(?i)(r\d*\+)?(vit|bit|seg)-", text) and not text.endswith(SUFFIXES):
        return create(text, **overrides)
    raise InputError(
        f"{text!r} is not an existing file or folder, and not a model name such as ViT-B/16; {hub_hint(text)}"
    )


def list_formats() -> dict[str, str]:
    """Every format that is read, by name: what it is, and whether it is written too."""
    about: dict[str, str] = {}
    for each in formats().values():
        about[each.name] = each.about if each.write else f"{each.about} (only read)"
    return about
