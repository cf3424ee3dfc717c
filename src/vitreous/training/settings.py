"""From a tree of settings (TOML, --set, a recipe) to a validated configuration, and back to TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import tomlkit
from pydantic import BaseModel, ValidationError
from tomlkit.items import Table

from vitreous.checkpoints.download import name_on_hub
from vitreous.errors import InputError, Param, check_utf8
from vitreous.extensions import kind_of as kind_of_addon
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.names import config_of
from vitreous.models.settings import check_names, explain
from vitreous.models.settings import merged as merged
from vitreous.training.config import CommandConfig, RunConfig
from vitreous.training.config import Tree as Tree

AnyConfig = TypeVar("AnyConfig", bound=CommandConfig)
AnyRun = TypeVar("AnyRun", bound=RunConfig)


def configure(base: AnyConfig, *overrides: Tree) -> AnyConfig:
    """Return `base` with the leaves of each tree changed, later trees over earlier ones.

    What follows from a changed leaf (`CommandConfig.following`) changes with it. Raises InputError: an
    unknown setting (with the nearest name), or values that do not fit together.
    """
    kind = type(base)
    tree: Tree = base.model_dump()
    for override in overrides:
        if issubclass(kind, RunConfig):
            override = named_model(override, kind)
        check_names(override, kind)
        tree = merged(tree, override)
        if issubclass(kind, RunConfig):
            tree = with_model_of_its_kind(tree, override, kind)
        tree = merged(tree, kind.following(tree, override))
    return validated(tree, kind)


def validated(tree: Tree, run: type[AnyConfig]) -> AnyConfig:
    """Return the configuration that a complete tree describes. Raises InputError for what is wrong in it."""
    tree, where = without_none_words(tree), ""
    kind: type[BaseModel] = run
    try:
        if issubclass(run, RunConfig):
            if "model" not in tree:
                raise InputError("the configuration has no [model]: use config.toml as the run wrote it")
            where, kind = "model", model_config_kind(tree["model"], run)
            tree["model"] = kind(**tree["model"])
            where, kind = "", run
        return run(**tree)
    except ValidationError as error:
        raise InputError(explain(error, where, kind)) from None


def model_config_kind(model: Tree, run: type[RunConfig]) -> type[ViTConfig] | type[BiTConfig]:
    """Return BiTConfig for a tree with stages of layers at its top level, else the run's kind of ViT."""
    return BiTConfig if "layers" in model else run.vit


def named_model(tree: Tree, run: type[RunConfig]) -> Tree:
    """Return the tree with `model.name = "ViT-Ti/16"` replaced by everything that the name stands for."""
    model = tree.get("model")
    if not isinstance(model, Mapping) or "name" not in model:
        return tree
    if found := name_on_hub(str(model["name"]).removeprefix("hf:")):
        raise InputError(
            f"{Param('model')} {model['name']}: a model has a name such as ViT-B/16, and fresh weights; for "
            f"pre-trained ones, did you mean {Param('init')} {found}?"
        )
    # A name does not set the image size: pad, so that the default size fits every patch.
    whole = config_of(str(model["name"]), **({} if str(model["name"]).startswith("BiT") else {"edge": "pad"}))
    if (kind := kind_of_addon(whole)) and not issubclass(run.vit, type(whole)):
        raise InputError(
            f"{model['name']} is a model for {kind.task}: train it with {Param('task')} {kind.task}"
        )
    rest = {key: value for key, value in model.items() if key != "name"}
    architecture = whole.model_dump(exclude={"image_size", "channels", "num_classes", "edge"})
    return {**tree, "model": merged(architecture, rest)}


def with_model_of_its_kind(tree: Tree, override: Tree, run: type[RunConfig]) -> Tree:
    """Return the tree without the fields of a BiT if its model is now a ViT, or the other way round."""
    wanted = override.get("model", {})
    decisive = wanted if "layers" in wanted or "depth" in wanted else tree["model"]
    kind = model_config_kind(decisive, run)
    model = {key: value for key, value in tree["model"].items() if key in kind.model_fields}
    return {**tree, "model": model}


def without_none_words(tree: Tree) -> dict[str, Any]:
    """Return a tree of TOML, which has no null, with None for the word "none"."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found[key] = without_none_words(value)
        else:
            found[key] = None if value == "none" else value
    return found


def to_toml(config: CommandConfig) -> str:
    """Return config.toml: every leaf, with a comment that says what it means. Raises InputError: a path is
    not UTF-8."""
    for name, value in leaves(config).items():
        if isinstance(value, str):
            check_utf8(value, name)
    document = tomlkit.document()
    document.add(tomlkit.comment(f"Run this again with: vitreous {config.command} --config config.toml"))
    fill_table(document, config)
    return tomlkit.dumps(document)


def fill_table(table: tomlkit.TOMLDocument | Table, config: BaseModel) -> None:
    """Add the leaves, then the groups: the order that TOML needs."""
    groups = [name for name in type(config).model_fields if isinstance(getattr(config, name), BaseModel)]
    for name, field in type(config).model_fields.items():
        if name == "source_from_run" and getattr(config, name) is None:
            continue  # data that have no path
        if name not in groups:
            item = tomlkit.item(toml_value(getattr(config, name)))
            if field.description:
                item.comment(field.description)
            table.add(name, item)
    for name in groups:
        inner = tomlkit.table()
        fill_table(inner, getattr(config, name))
        table.add(name, inner)


def toml_value(value: object) -> object:
    """Return a value as TOML can hold it."""
    if value is None:
        return "none"
    if isinstance(value, tuple | list):
        return [toml_value(each) for each in value]
    return value


def leaves(config: BaseModel | Tree, prefix: str = "") -> dict[str, Any]:
    """Return every leaf of a configuration, or of a tree of settings, by its dotted name."""
    found: dict[str, Any] = {}
    for name, value in dict(config).items():
        if isinstance(value, BaseModel | Mapping):
            found |= leaves(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def settings_differences(one: BaseModel, other: BaseModel) -> dict[str, list[object]]:
    """Return the leaves on which two configurations differ, with both values; None if one lacks it."""
    left, right = leaves(one), leaves(other)
    pairs = {name: [left.get(name), right.get(name)] for name in {**left, **right}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1] and name != "recipe"}
