"""From a tree of settings (TOML, --set, a recipe) to a checked `RunConfig`, and back to TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

import tomlkit
from pydantic import BaseModel, ValidationError

from vitreous.errors import InputError, nearest
from vitreous.models.bit import BiTConfig
from vitreous.models.config import ViTConfig
from vitreous.models.names import config_of
from vitreous.models.segmenter import SegmenterConfig
from vitreous.models.settings import explain, known_fields
from vitreous.models.settings import merged as merged
from vitreous.training.config import CommandConfig, RunConfig

Tree = Mapping[str, Any]
AnyConfig = TypeVar("AnyConfig", bound=CommandConfig)
AnyRun = TypeVar("AnyRun", bound=RunConfig)


def configure(base: AnyConfig, *overrides: Tree) -> AnyConfig:
    """Return `base` with the leaves of each tree changed, later trees over earlier ones.

    What follows from a changed leaf (`CommandConfig.following`) changes with it.

    Raises:
        InputError: an unknown setting (with the nearest name), or values that do not fit together.
    """
    kind = type(base)
    tree: dict[str, Any] = base.model_dump()
    for override in overrides:
        override = by_epochs(override)
        if issubclass(kind, RunConfig):
            override = named_model(override, kind)
        check_known(override, kind)
        tree = merged(tree, override)
        if issubclass(kind, RunConfig):
            tree = with_model_of_its_kind(tree, override, kind)
        tree = merged(tree, kind.following(tree, override))
    return validated(tree, kind)


def by_epochs(tree: Tree) -> Tree:
    """Who asks for epochs does not want the steps of a recipe, which would win."""
    training = tree.get("training")
    if isinstance(training, Mapping) and "epochs" in training and "steps" not in training:
        return {**tree, "training": {**training, "steps": None}}
    return tree


def validated(tree: Tree, run: type[AnyConfig]) -> AnyConfig:
    """Return the configuration that a complete tree describes. Raises InputError for what is wrong in it."""
    try:
        if not issubclass(run, RunConfig):
            return run(**without_none_words(tree, run))
        if "model" not in tree:
            raise InputError("the configuration has no [model]: take config.toml as the run wrote it")
        kind = kind_of(tree["model"], run)
        model = kind(**without_none_words(tree["model"], kind))
    except ValidationError as error:
        group = "model" if issubclass(run, RunConfig) else ""
        raise InputError(explain(error, group).removeprefix(".")) from None
    try:
        return run(**{**without_none_words(tree, run), "model": model})
    except ValidationError as error:
        raise InputError(explain(error, "").removeprefix(".")) from None


def kind_of(model: Tree, run: type[RunConfig]) -> type[ViTConfig] | type[BiTConfig]:
    """Only a BiT has stages of layers at its top level; which ViT it else is, the kind of run says."""
    return BiTConfig if "layers" in model else run.vit


def named_model(tree: Tree, run: type[RunConfig]) -> Tree:
    """`model.name = "ViT-Ti/16"` replaced by everything that the name stands for."""
    model = tree.get("model")
    if not isinstance(model, Mapping) or "name" not in model:
        return tree
    # A name says nothing of the images: padded, so that the default size fits every patch.
    whole = config_of(str(model["name"]), **({} if str(model["name"]).startswith("BiT") else {"pad": True}))
    if isinstance(whole, SegmenterConfig) and not issubclass(run.vit, SegmenterConfig):
        raise InputError(f"{model['name']} gives each pixel a class: train it with --task segmentation")
    rest = {key: value for key, value in model.items() if key != "name"}
    said = set(type(whole).model_fields) - {"image_size", "channels", "num_classes", "pad"}
    kept = {key: value for key, value in whole.model_dump().items() if key in said}
    return {**tree, "model": merged(kept, rest)}


def with_model_of_its_kind(tree: dict[str, Any], override: Tree, run: type[RunConfig]) -> dict[str, Any]:
    """When a ViT is laid over a BiT, or the other way round, the fields of the old kind go."""
    wanted = override.get("model", {})
    decisive = wanted if "layers" in wanted or "depth" in wanted else tree["model"]
    kind = kind_of(decisive, run)
    model = {key: value for key, value in tree["model"].items() if key in kind.model_fields}
    return {**tree, "model": model}


def check_known(tree: Tree, run: type[BaseModel]) -> None:
    """Raise for the first leaf that the configuration of a run has not."""
    known = known_fields(run)
    branches = {name[:i] for name in known for i, letter in enumerate(name) if letter == "."}

    def walk(branch: Tree, prefix: str) -> None:
        for key, value in branch.items():
            name = prefix + key
            if name in branches and isinstance(value, Mapping):
                walk(value, name + ".")
            elif name in branches and value not in (None, "none"):
                inside = [each for each in known if each.startswith(name + ".")]
                raise InputError(f"{name} is a group of settings, not a value: set {inside[0]}, for example")
            elif name not in known and name not in branches:
                raise InputError(f"unknown setting {name}: {nearest_setting(name, known)}")

    walk(tree, "")


def nearest_setting(name: str, known: list[str]) -> str:
    """The nearest name; one in the same group, or with the same last part, is nearer than another."""
    branch, dot, leaf = name.rpartition(".")
    same_leaf = [each for each in known if each.rpartition(".")[2] == leaf]
    if same_leaf:
        return f"did you mean {same_leaf[0]!r}?"
    beside = {
        each.removeprefix(branch + dot).split(".")[0]: None for each in known if each.startswith(branch)
    }
    return nearest(name, [branch + dot + each for each in beside] or known)


def without_none_words(tree: Tree, kind: type[BaseModel]) -> dict[str, Any]:
    """TOML has no null: the word "none" stands for it, except where a field knows "none" as a choice."""
    result: dict[str, Any] = {}
    for key, value in tree.items():
        field = kind.model_fields.get(key)
        annotation = field.annotation if field else None
        if isinstance(value, Mapping):
            inner = branch_kind(annotation, value)
            result[key] = without_none_words(value, inner) if inner else dict(value)
        elif value is None or value == "none":
            result[key] = "none" if "none" in choices(annotation) else None
        else:
            result[key] = value
    return result


def branch_kind(annotation: Any, value: Tree) -> type[BaseModel] | None:
    """The configuration among the alternatives of a type that `value` describes, told by its `kind`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    kinds = [kind for part in get_args(annotation) if (kind := branch_kind(part, value))]
    for kind in kinds:
        if "kind" not in kind.model_fields or kind.model_fields["kind"].default == value.get("kind"):
            return kind
    return kinds[0] if kinds else None


def choices(annotation: Any) -> set[Any]:
    """The values of the Literal types inside a type."""
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    return {choice for part in get_args(annotation) for choice in choices(part)}


def to_toml(config: CommandConfig) -> str:
    """Every leaf, with what the field means behind it."""
    document = tomlkit.document()
    document.add(tomlkit.comment(f"Run this again with: vitreous {config.command} --config config.toml"))
    fill(document, config)
    return tomlkit.dumps(document)


def fill(table: Any, config: BaseModel) -> None:
    """The leaves first, then the groups, as TOML wants them."""
    groups = [name for name in type(config).model_fields if isinstance(getattr(config, name), BaseModel)]
    for name, field in type(config).model_fields.items():
        if name not in groups:
            item = tomlkit.item(plain(getattr(config, name)))
            if field.description:
                item.comment(field.description)
            table.add(name, item)
    for name in groups:
        inner = tomlkit.table()
        fill(inner, getattr(config, name))
        table.add(name, inner)


def plain(value: Any) -> Any:
    """What TOML can hold."""
    if value is None:
        return "none"
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value


def leaves(config: BaseModel, prefix: str = "") -> dict[str, Any]:
    """Every leaf by its dotted name: what `vitreous recipe --diff` compares."""
    found: dict[str, Any] = {}
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            found |= leaves(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def differences(one: BaseModel, other: BaseModel) -> dict[str, list[Any]]:
    """Every leaf on which two configurations differ, with both values; None where one has no such leaf."""
    left, right = leaves(one), leaves(other)
    names = list(dict.fromkeys([*left, *right]))
    pairs = {name: [left.get(name), right.get(name)] for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1] and name != "recipe"}
