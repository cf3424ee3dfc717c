"""What a training program saved of its model beside the weights: its arguments, its hyper-parameters, its
configuration."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from vitreous.checkpoints.pickles import Object
from vitreous.checkpoints.source import CONFIG, TRAINING, Documents, Facts, NamedSize, Source

# Names under which an architecture is saved, and a number of heads.
ARCHITECTURES = ("arch", "model_name", "architecture", "backbone", "model", "name", "encoder")
HEADS = ("num_heads", "n_heads", "nhead", "heads", "num_attention_heads")
# The sizes that DeiT, DINO, MAE, MoCo v3, OpenMMLab and timm call by these names: the width, and the heads.
SIZES = {
    "tiny": (192, 3),
    "small": (384, 6),
    "base": (768, 12),
    "large": (1024, 16),
    "huge": (1280, 16),
    "giant2": (1536, 24),
}
SIZE = re.compile(
    r"(?:(?:^|[_-])(?:vit|deit|dinov2)[_-]?|^)(tiny|small|base|large|huge|giant2|[tsblh])(?![a-z])",
    re.IGNORECASE,
)
OF_AN_OWNER = {"model_type", "architecture", "architectures", "pretrained_cfg", "format", "config"}
LETTERS = {"t": "tiny", "s": "small", "b": "base", "l": "large", "h": "huge"}
IMAGE_SIZES = ("img_size", "input_size", "image_size", "img_dim")
DEEPEST = 6


class TrainingFacts(NamedTuple):
    """What a training program says of its model.

    Attributes:
        names: of architectures, each with its place.
        values: everything else by its name, the outermost first.
    """

    names: Mapping[str, str]
    values: Mapping[str, object]


def training_statements(documents: Documents) -> TrainingFacts:
    """Return what is said in mappings beside the weights: `arch`, `args`, `hyper_parameters`, `config`, and
    mmengine's `meta`, whose `cfg` is a program of Python that is read and not run."""
    names: dict[str, str] = {}
    values: dict[str, object] = {}

    def visit(content: Mapping[Any, object], path: str, depth: int) -> None:
        inner: list[tuple[str, Mapping[Any, object]]] = []
        for key, value in content.items():
            place = f"{path}.{key}" if path else str(key)
            if key == "cfg" and isinstance(value, str):
                value = literals_of(value)
            mapping = attributes_in(value)
            if mapping is not None:
                inner.append((place, mapping))
                continue
            if key in ARCHITECTURES and isinstance(value, str):
                names.setdefault(value, place)
            if isinstance(key, str) and value is not None and key not in values:
                values[key] = value
        for place, mapping in inner if depth else ():
            visit(mapping, place, depth - 1)

    visit(documents.get(TRAINING, {}), "", DEEPEST)
    config = documents.get(CONFIG, {})
    if not config.keys() & OF_AN_OWNER:  # that of a training program, by the usual name
        visit(config, CONFIG, DEEPEST)
    return TrainingFacts(names, values)


def attributes_in(value: object) -> Mapping[Any, object] | None:
    """Return a mapping, or the attributes of an object such as a Namespace; None for anything else."""
    if isinstance(value, Object):
        return value.state if isinstance(value.state, dict) else dict(value)
    if isinstance(value, Mapping):
        return value
    kind = type(value)
    if kind.__name__ in ("Namespace", "SimpleNamespace") and hasattr(value, "__dict__"):
        return vars(value)
    return None


def literals_of(program: str) -> dict[str, object]:
    """Return the assignments of a configuration that is written as Python, `model = dict(...)`; what is more
    than literals is left out."""
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, object] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            found[statement.targets[0].id] = literal(statement.value)
    return found


def literal(node: ast.expr) -> object:
    """Return the value of dict(...) calls, lists and constants; None for anything else."""
    match node:
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            return {each.arg: literal(each.value) for each in keywords if each.arg}
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {literal(key): literal(value) for key, value in pairs if isinstance(key, ast.Constant)}
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [literal(each) for each in items]
        case ast.Constant(value=value):
            return value
    return None


def named_size(names: Mapping[str, str]) -> NamedSize | None:
    """Return what the first name of an architecture that says a size means; names with their places."""
    for name, place in names.items():
        if match := SIZE.search(name):
            found = match[1].lower()
            return NamedSize(f"{place}={name}", *SIZES[LETTERS.get(found, found)])
    return None


def plain_facts(documents: Documents, source: Source) -> Facts:
    """Return what a training program says of a state dict, in the words of our configuration; of the names of
    sizes the number of heads, which no weight tells."""
    names, values = training_statements(documents)
    stated = next((name for name in HEADS if type(values.get(name)) is int), None)
    fields = {} if stated is None else {"heads": values[stated]}
    sizes = [values[name] for name in IMAGE_SIZES if values.get(name)]  # of images, the likelier first
    sizes = [each[1:] if isinstance(each, list | tuple) and len(each) == 3 else each for each in sizes]
    size = named_size(names)
    if size and size.heads == 6 and re.search("base_encoder|momentum_encoder", source.inside):  # MoCo v3's
        size = size._replace(heads=12)
    return Facts(fields=fields, size=size, image_sizes=tuple(sizes))
