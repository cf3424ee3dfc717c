"""What 1.0 declares stable in Python: names, parameters, and what calls return, compared with a kept list.

Adding to it is a decision that a diff of python.txt shows; removing or renaming waits for the next major
version.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import vitreous as vt

KEPT = Path(__file__).with_name("python.txt")
# Of the classes that calls return or take, the members that are declared; the others may change.
MODEL = (
    "config",
    "features",
    "forward",
    "intermediates",
    "labels",
    "origin",
    "preprocessing",
    "task",
    "tokens",
)
MEMBERS = {
    "BiT": MODEL,
    "ViT": MODEL,
    "MAE": ("load", "reconstruct", "save"),
    "Predictor": ("__call__", "labels"),
    "Preprocessing": (
        "__call__",
        "crop_fraction",
        "interpolation",
        "mean",
        "normalize",
        "resize",
        "size",
        "std",
    ),
    "Run": ("evaluation", "metrics", "model", "path", "report", "resume", "table", "task", "to_json"),
}


def parameters(function: Any) -> Iterator[str]:
    """Each parameter as a caller sees it: `*` where it has to be named, `=` where it may be left out."""
    for each in inspect.signature(function).parameters.values():
        if each.name in ("self", "cls") or each.name.startswith("_"):
            continue
        named = "*" if each.kind is each.KEYWORD_ONLY else ""
        optional = "" if each.default is each.empty else "="
        stars = {each.VAR_POSITIONAL: "*args ", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        yield f"{named}{stars}{each.name}{optional}"


def listing() -> Iterator[str]:
    for name in sorted(vt.__all__):
        public = getattr(vt, name)
        if isinstance(public, type):
            yield f"class {name}"
            for member in MEMBERS.get(name, ()):
                found = getattr(public, member, None)  # None: an attribute of each object
                is_method = inspect.isfunction(found) or inspect.ismethod(found)
                called = f"({', '.join(parameters(found))})" if is_method else ""
                yield f"    {name}.{member}{called}"
        elif callable(public):
            yield f"{name}"
            yield from (f"    {name}: {parameter}" for parameter in parameters(public))
        else:
            yield f"{name}: {type(public).__name__}"


def test_names_and_parameters_are_those_that_were_declared() -> None:
    """`python tests/stability/test_api.py` writes a new list."""
    assert list(listing()) == KEPT.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    KEPT.write_text("\n".join(listing()) + "\n", encoding="utf-8")
