"""What timm's registry says of its Vision Transformers, in a table that comes with the package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypedDict

from vitreous.errors import InputError, nearest


class TimmRegistry(TypedDict):
    """The table.

    Attributes:
        timm: the release that it is of.
        read: of each architecture what no weight shows.
        refused: by a part that is not supported, the architectures that have it.
        preprocessing: of tags.
    """

    timm: str
    read: dict[str, dict[str, object]]
    refused: dict[str, list[str]]
    preprocessing: list[dict[str, object]]


@cache
def registry() -> TimmRegistry:
    """Return what timm's registry says of its Vision Transformers."""
    table: TimmRegistry = json.loads(Path(__file__).with_name("timm_architectures.json").read_bytes())
    return table


def known_architecture(config: Mapping[str, object], where: str) -> str:
    """Return the architecture that a config.json names, without its tag; empty where it names none. Raises
    InputError: one that is not supported, or not a Vision Transformer."""
    name, table = str(config.get("architecture", "")).split(".")[0], registry()
    for part, refused in table["refused"].items():
        if name in refused:
            raise InputError(f"{where}: {name} of timm has a part that is not supported: {part}")
    if name and name not in table["read"]:
        hint = nearest(name, list(table["read"]))
        like = f": {hint}" if hint.startswith("did you mean") else ""
        raise InputError(
            f"{where}: {name} is not among the Vision Transformers of timm {table['timm']} that are known "
            f"here{like}"
        )
    return name


def tags_of(architecture: str) -> dict[str, int]:
    """Return the tags of an architecture, each with the number of its preprocessing in the table; none of one
    that is not supported."""
    tags = registry()["read"].get(architecture, {}).get("tags", {})
    assert isinstance(tags, dict)  # as the table of the package has them
    return tags


def description_of(name: str) -> dict[str, object]:
    """Return the config.json of a published model of timm, or of an architecture, by its name. Raises
    InputError: the registry has no such architecture or tag."""
    _, _, tag = name.partition(".")
    architecture = known_architecture({"architecture": name}, f"like='timm:{name}'")
    tags = tags_of(architecture)
    if tag and tags and tag not in tags:
        raise InputError(f"like='timm:{name}': {architecture} has no tag {tag!r}: {nearest(tag, list(tags))}")
    described: dict[str, object] = {"architecture": architecture}
    if tag in tags:
        described["pretrained_cfg"] = registry()["preprocessing"][tags[tag]]
    return described
