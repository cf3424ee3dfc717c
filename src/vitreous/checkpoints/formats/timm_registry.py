"""What timm's registry says of its Vision Transformers, in a table that comes with the package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from vitreous.errors import InputError, nearest


@cache
def registry() -> dict[str, Any]:
    """What timm's registry says of its Vision Transformers: of each architecture what no weight shows
    (`read`), those with a part that is not known here (`refused`), and the `preprocessing` of each tag."""
    table: dict[str, Any] = json.loads(Path(__file__).with_name("timm_architectures.json").read_bytes())
    return table


def known_architecture(config: Mapping[str, Any], where: str) -> str:
    """The architecture that a config.json names, without its tag; empty where it names none. Raises
    InputError: one that is not known here, or not a Vision Transformer."""
    name, table = str(config.get("architecture", "")).split(".")[0], registry()
    for part, refused in table["refused"].items():
        if name in refused:
            raise InputError(f"{where}: {name} of timm has a part that is not known here: {part}")
    if name and name not in table["read"]:
        hint = nearest(name, list(table["read"]))
        like = f": {hint}" if hint.startswith("did you mean") else ""
        raise InputError(
            f"{where}: {name} is not among the Vision Transformers of timm {table['timm']} that are known "
            f"here{like}"
        )
    return name


def description_of(name: str) -> dict[str, Any]:
    """The config.json of a published model of timm, or of an architecture, by its name. Raises InputError:
    the registry has no such architecture or tag."""
    _, _, tag = name.partition(".")
    architecture = known_architecture({"architecture": name}, f"like='timm:{name}'")
    tags = registry()["read"][architecture].get("tags", {})
    if tag and tags and tag not in tags:
        raise InputError(f"like='timm:{name}': {architecture} has no tag {tag!r}: {nearest(tag, list(tags))}")
    look = {"pretrained_cfg": registry()["preprocessing"][tags[tag]]} if tag in tags else {}
    return {"architecture": architecture, **look}
