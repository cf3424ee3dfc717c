"""The words of the pages that vitreous makes: a catalog for each language, with the same keys in all."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def catalog(language: str) -> dict[str, Any]:
    """Return the words of a language as a tree."""
    return tomllib.loads(Path(__file__).with_name(f"{language}.toml").read_text(encoding="utf-8"))


def words(path: str) -> dict[str, Any]:
    """Return the part of the catalog at a dotted path, such as "studies.head", without line breaks."""
    found: Any = catalog("en")
    for name in path.split("."):
        found = found[name]
    return unwrapped(found)


def unwrapped(entry: Any) -> Any:
    """Return a tree of words, each in one line."""
    if isinstance(entry, dict):
        return {name: unwrapped(each) for name, each in entry.items()}
    return " ".join(entry.split())
