"""The words of the pages that vitreous makes: a catalog for each language, with the same keys in all. The
folders of add-ons extend it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.errors import InputError, Param
from vitreous.extensions import addons, folder_of
from vitreous.results import percent

if TYPE_CHECKING:
    from jinja2 import Environment

LANGUAGES = ("en", "ko")
CatalogTree = dict[str, Any]  # texts, and trees of them
CURRENT: ContextVar[str] = ContextVar("language", default="en")


@contextmanager
def speaking(language: str | None) -> Iterator[None]:
    """Make pages in a language inside the block.

    Args:
        language: one of `LANGUAGES`; None: that of the locale, English where it is another.

    Raises:
        InputError: an unknown language.
    """
    if language is not None and language not in LANGUAGES:
        raise InputError(
            f"{Param('language')} {language!r} is unknown: pages are in {' or '.join(LANGUAGES)}"
        )
    before = CURRENT.set(language or language_of_locale(os.environ))
    try:
        yield
    finally:
        CURRENT.reset(before)


def language_of_locale(variables: Mapping[str, str]) -> str:
    """Return the language that the environment asks for, by the rules of POSIX."""
    named = next((variables[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if variables.get(name)), "")
    return next((language for language in LANGUAGES if re.match(rf"{language}\b|{language}_", named)), "en")


@cache
def catalog(language: str) -> CatalogTree:
    """Return the words of a language as a tree, each in one line."""
    folders = [Path(__file__).parent, *(folder_of(name) for name, addon in addons().items() if addon.words)]
    whole: CatalogTree = {}
    for folder in folders:
        text = (folder / f"{language}.toml").read_text(encoding="utf-8")
        extend_catalog(whole, tomllib.loads(text))
    return whole


def extend_catalog(tree: CatalogTree, entries: Mapping[str, Any]) -> None:
    """Put the entries into a tree, which has none of them yet, each text in one line."""
    for name, entry in entries.items():
        if isinstance(entry, str):
            assert name not in tree, f"{name} is in two catalogs"
            tree[name] = " ".join(entry.split())
        else:
            branch = tree.setdefault(name, {})
            assert isinstance(branch, dict), f"{name} is in two catalogs"
            extend_catalog(branch, entry)


def words(path: str) -> Any:
    """Return what the catalog has at a dotted path, such as "exhibits.curves": a tree of words, or a text."""
    found = catalog(CURRENT.get())
    for name in path.split("."):
        if name not in found:
            raise KeyError(
                f"no {CURRENT.get()}.toml has {path}: add it next to similar entries, in every language"
            )
        found = found[name]
    return found


def named_text(path: str, otherwise: str, /, **values: object) -> str:
    """Return the text at a dotted path of the catalog, with its values. A name that no catalog has, such as a
    metric of someone's own task, has the words `otherwise`."""
    group, _, name = path.partition(".")
    return phrase(path, **values) if name in words(group) else rendered_text(otherwise, values)


def in_language(texts: Mapping[str, str] | None) -> str:
    """Return the text that is spoken of a part that has its own, for each language; "" of None."""
    return texts[CURRENT.get()] if texts else ""


def phrase(path: str, /, **values: object) -> str:
    """Return the text at a dotted path of the catalog, with its values."""
    return rendered_text(words(path), values)


def rendered_text(text: str, values: Mapping[str, object]) -> str:
    """Render a text of the catalog, which is a Jinja template; the page escapes it."""
    return " ".join(environment().from_string(text).render(values).split())


@cache
def environment() -> Environment:
    from jinja2 import Environment, StrictUndefined

    made = Environment(undefined=StrictUndefined)
    made.filters |= {"percent": percent, "small": small_percentage, "number": "{:,}".format}
    made.filters["unreadable"] = unreadable_reason
    made.filters |= {"metric": metric_name, "baseline": baseline_name}
    return made


def metric_name(label: str) -> str:
    """Return the name of a metric in the language that is spoken."""
    return named_text(f"metrics.{label.replace(' ', '_')}", label)


def baseline_name(name: str) -> str:
    """Return the name of a method without a network in the language that is spoken."""
    return named_text(f"baselines.{name}", name)


def unreadable_reason(reason: str) -> str:
    """Return why an image cannot be read, which a run stores in English, in the language that is spoken; as
    it is where a library said it."""
    numbers = re.findall(r"\d+", reason)
    plain = re.sub(r"\d+", "#", reason)
    known = {english: key for key, english in catalog("en")["unreadable"].items()}
    return with_numbers(words("unreadable")[known[plain]], numbers) if plain in known else reason


def baseline_settings(stored: str) -> str:
    """Return the settings of a baseline, which a run stores in English, in the language that is spoken."""
    for key, english in catalog("en")["baseline-settings"].items():
        found = re.search(re.escape(english).replace(r"\#", r"(\d(?:[\d.,e-]*\d)?)"), stored)
        if found:
            spoken = with_numbers(words("baseline-settings")[key], found.groups())
            stored = stored.replace(found[0], spoken)
    return stored


def with_numbers(text: str, numbers: Iterable[str]) -> str:
    """Return a text with numbers in place of its number signs."""
    for number in numbers:
        text = text.replace("#", number, 1)
    return text


def small_percentage(rate: float) -> str:
    """Return a rate with one significant digit below one percent: 12.3%, 0.4%, 0.03%, < 0.01%."""
    if 0 < rate < 0.0001:
        return "< 0.01%"
    return f"{100 * rate:.1f}%" if rate >= 0.01 else f"{100 * rate:.1g}%"
