"""The package has the structure of the architecture page: layers, light imports."""

import ast
import json
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from grimp import build_graph

ROOT = Path(__file__).parents[1]


def test_every_name_is_defined() -> None:
    """ruff and mypy ignore undefined names, for jaxtyping's axes: here only those in strings are ignored."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821"]
    places = ["--output-format", "json", "src", "tests", "benchmarks", "docs", "examples"]
    found = subprocess.run([*command, *places], cwd=ROOT, capture_output=True, check=False)
    undefined = []
    for each in json.loads(found.stdout):
        path = Path(each["filename"])
        place = each["location"]["row"], each["location"]["column"] - 1
        strings = [
            ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        if not any(start <= place < end for start, end in strings):
            undefined.append(f"{path}:{place[0]}: {each['message']}")
    assert undefined == []


def test_each_layer_imports_only_from_those_below() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for types count, too. A circle is a CycleError, which names it."""
    graph = build_graph("vitreous", exclude_type_checking_imports=False, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in sorted(graph.modules)}
    assert len(list(TopologicalSorter(imported).static_order())) > 200


@pytest.mark.parametrize("folder", ["benchmarks", "docs", "examples", "tests"])
def test_programs_import_names_that_exist(folder: str) -> None:
    """Those inside functions, too; nothing of the programs runs."""
    missing = set()
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vitreous":
                names = {f"{node.module}:{each.name}" for each in node.names}
                missing |= {f"{path.relative_to(ROOT)}: {name}" for name in names if not exists(name)}
    assert missing == set()


@cache
def exists(name: str) -> bool:
    module, _, attribute = name.partition(":")
    try:
        return hasattr(import_module(module), attribute) or bool(find_spec(f"{module}.{attribute}"))
    except ModuleNotFoundError:
        return False


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, vitreous; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_resolve() -> None:
    import vitreous

    for name in vitreous.__all__:
        assert getattr(vitreous, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'lood'"):
        _ = vitreous.lood
