"""What timm's registry says of its Vision Transformers, in a table that comes with the package."""

from __future__ import annotations

import json
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


def description_of(name: str) -> dict[str, Any]:
    """The config.json of a published model of timm, or of an architecture, by its name. Raises InputError:
    the registry has no such tag. An unknown architecture is refused when it is read."""
    architecture, _, tag = name.partition(".")
    tags = registry()["read"].get(architecture, {}).get("tags", {})
    if tag and tags and tag not in tags:
        raise InputError(f"like='timm:{name}': {architecture} has no tag {tag!r}: {nearest(tag, list(tags))}")
    look = {"pretrained_cfg": registry()["preprocessing"][tags[tag]]} if tag in tags else {}
    return {"architecture": architecture, **look}
