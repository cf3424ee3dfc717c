"""Settings that a user wrote, checked: one sentence for each mistake, with the nearest right name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from vitreous.errors import InputError, nearest


def explain(error: ValidationError, where: str, model: type[BaseModel] | None = None) -> str:
    """Return the first mistake of a validation, as one sentence that begins with the setting's full name.

    Args:
        where: the name of what was validated.
        model: its type, where parts of it can be of several kinds.
    """
    first = error.errors(include_url=False)[0]
    names, kind = names_and_kind(first["loc"], model)
    path = ".".join(filter(None, [where, *names]))
    if first["type"] == "extra_forbidden" and kind:
        return f"{path} has no effect with {path.rpartition('.')[0]}.kind={kind}: leave it out"
    if first["type"] == "extra_forbidden":
        return f"unknown setting {path}"
    if first["type"] == "union_tag_invalid":
        return f"{path}: unknown kind {first['ctx']['tag']!r}: choose from {first['ctx']['expected_tags']}"
    message = sentence_of(first)
    if first["type"] in WANTED and (meaning := setting_description(names, model)):
        message += f" ({meaning})"
    return f"{path}: {message}" if first["loc"] else message


def setting_description(names: Sequence[str], model: type[BaseModel] | None) -> str | None:
    """Return what a setting means, as its declaration says it."""
    models, meaning = [model] if model else [], None
    for name in names:
        inside = [each.model_fields[name] for each in models if name in each.model_fields]
        meaning = inside[0].description if inside else None
        models = [kind for each in inside for kind in nested(each.annotation)]
    return meaning


# What a setting should be, by the types of mistakes that pydantic tells apart; and how a value is bounded.
WANTED = {
    "string_type": "a text",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list: write it in brackets, as in [0.3, 1.0]"),
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "a group of settings"),
}
BOUNDS = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
BOUND = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


def sentence_of(mistake: ErrorDetails) -> str:
    """Return what is wrong with a value, as this project says it."""
    kind, value, context = mistake["type"], mistake["input"], mistake.get("ctx", {})
    if kind == "string_type" and isinstance(value, Mapping):
        inside = next((name for name in value if name != "kind"), "kind")
        return f"it is one value, and has no setting {inside!r} inside: write what it means as one text"
    if kind == "tuple_type" and isinstance(value, str) and (texts := re.findall(r"\b[A-Za-z][\w-]*", value)):
        listed = ", ".join(f'"{text}"' for text in texts)
        return f"{value!r} is not a list: write it in brackets and quotes, as in [{listed}]"
    if kind in WANTED:
        return f"{value!r} is not {WANTED[kind]}"
    if kind in BOUNDS:
        return f"{value!r} is out of range: write a value {BOUND[BOUNDS[kind]]} {context[BOUNDS[kind]]:g}"
    if kind == "literal_error":
        return f"{value!r} is unknown: choose from {context['expected']}"
    if kind == "missing":
        return "it is missing: add it"
    return mistake["msg"].removeprefix("Value error, ")


def names_and_kind(
    location: tuple[int | str, ...], model: type[BaseModel] | None
) -> tuple[list[str], str | None]:
    """Return the names of the settings on the way to a mistake; and, where the last of them is in a part of
    which there are several kinds, its kind, which pydantic has among the names."""
    models = [model] if model else []
    names, kind = list[str](), None
    for part in location:
        inside = [each for each in models if part in each.model_fields]
        if part in kinds_of(models) and (len(models) > 1 or not inside):
            kind = str(part)
            models = [each for each in models if part in kinds_of([each])]
            continue
        names.append(str(part))
        if inside:
            kind = None
        models = []
        for each in inside:
            models += nested(each.model_fields[str(part)].annotation)
    return names, kind


def kinds_of(models: list[type[BaseModel]]) -> list[object]:
    """Return the kinds that parts of these types can be of."""
    kinds: list[object] = []
    for model in models:
        if "kind" in model.model_fields:
            kinds += get_args(model.model_fields["kind"].annotation)
    return kinds


def known_fields(kind: type[BaseModel]) -> list[str]:
    """Return every leaf of a configuration as a dotted name. What can be a number as well as a group is
    both."""
    names: list[str] = []
    for name, field in kind.model_fields.items():
        inner = nested(field.annotation)
        for kind_of_part in inner:
            names += [f"{name}.{leaf}" for leaf in known_fields(kind_of_part)]
        if not inner or {int, float} & kinds_in(field.annotation):
            names.append(name)
    return names


def kinds_in(annotation: object) -> set[object]:
    """Return the alternatives of a type, without what is said of each."""
    return {get_args(each)[0] if get_origin(each) is Annotated else each for each in get_args(annotation)}


def nested(annotation: object) -> list[type[BaseModel]]:
    """Return the configurations among the alternatives of a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    kinds: list[type[BaseModel]] = []
    for part in get_args(annotation):
        kinds += nested(part)
    return kinds


def merged(tree: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `tree` overlaid with `settings`, branch by branch. A part whose `kind` changes keeps none of its
    old fields."""
    if settings.get("kind", tree.get("kind")) != tree.get("kind"):
        return dict(settings)
    result = dict(tree)
    for key, value in settings.items():
        old = tree.get(key)
        if isinstance(value, Mapping) and isinstance(old, str):
            old = {"kind": old}  # a kind alone
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            value = merged(old, value)
        result[key] = value
    return result


def set_leaf(tree: dict[str, object], name: str, value: object) -> None:
    """Set tree["model"]["width"] = value for "model.width"; the branches on the way are made. Raises
    InputError: a branch on the way was set to a value before."""
    *branches, leaf = name.split(".")
    for depth, branch in enumerate(branches, start=1):
        inner = tree.setdefault(branch, {})
        if not isinstance(inner, dict):
            whole = ".".join(branches[:depth])
            raise InputError(f"{whole} is set to {inner!r} and {name} inside it as well: set one of them")
        tree = inner
    tree[leaf] = value


def parse_value(text: str) -> object:
    """Return a value as TOML writes it; a bare word is a string, "none" is None."""
    if text.lower() in ("none", "null"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def check_names(tree: Mapping[str, object], model: type[BaseModel]) -> None:
    """Raise InputError for the first setting of `tree` that `model` does not have."""
    known = known_fields(model)
    branches: set[str] = set()
    for name in known:
        while name := name.rpartition(".")[0]:
            branches.add(name)

    def walk(branch: Mapping[str, object], prefix: str) -> None:
        for key, value in branch.items():
            name = prefix + key
            kind_alone = isinstance(value, str) and (value == "none" or f"{name}.kind" in known)
            if name in branches and isinstance(value, Mapping):
                walk(value, name + ".")
            elif name in known:
                continue
            elif name in branches and not (kind_alone or value is None or isinstance(value, BaseModel)):
                inside = next(each for each in known if each.startswith(name + "."))
                raise InputError(f"{name} is a group of settings, not a value: set {inside}, for example")
            elif name not in branches:
                raise InputError(f"unknown setting {name}: {nearest_setting(name, known)}")

    walk(tree, "")


# What other libraries call settings of ours.
OTHER_NAMES = {
    "lr": "peak_lr",
    "learning_rate": "peak_lr",
    "wd": "weight_decay",
    "smoothing": "label_smoothing",
    "hidden_size": "width",
    "embed_dim": "width",
    "dim": "width",
    "num_heads": "heads",
    "layers": "depth",
    "num_layers": "depth",
    "imgsz": "image_size",
    "val": "validation_fraction",
    "epochs": "length",
    "steps": "length",
    "minutes": "length",
    "size": "image_size",
}


def nearest_setting(name: str, known: list[str]) -> str:
    """Return the nearest name; one in the same group, or with the same last part, is nearer than another."""
    branch, dot, leaf = name.rpartition(".")
    leaf = OTHER_NAMES.get(leaf, leaf)
    if same_leaf := [each for each in known if each.rpartition(".")[2] == leaf]:
        return f"did you mean {same_leaf[0]!r}?"
    group = [each.removeprefix(branch + dot).split(".")[0] for each in known if each.startswith(branch)]
    return nearest(name, [branch + dot + each for each in dict.fromkeys(group)] or known)
