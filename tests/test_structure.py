"""The package has the structure of the architecture page: layers, light imports."""

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache, lru_cache
from graphlib import TopologicalSorter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

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


@pytest.mark.parametrize(
    "folder", ["benchmarks", "docs", "examples", "src", "tests", "README*.md", "CONTRIBUTING.md"]
)
def test_programs_import_names_that_exist(folder: str) -> None:
    """Those inside functions, too, those of lessons and pages, and those that a string holds for another
    process; nothing of the programs runs."""
    missing = set()
    roots = list(ROOT.glob(folder))
    files = [file for root in roots for file in ([root] if root.is_file() else root.rglob("*"))]
    for path in sorted(file for file in files if file.suffix in PROGRAMS):
        for program in PROGRAMS[path.suffix](path.read_text(encoding="utf-8")):
            for node in ast.walk(tree_of(program)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vitreous":
                    names = {f"{node.module}:{each.name}" for each in node.names}
                elif (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and node.value.id == "vt"
                ):
                    names = {f"vitreous:{node.attr}"}
                else:
                    continue
                missing |= {f"{path.relative_to(ROOT)}: {name}" for name in names if not exists(name)}
    refused = {"tests/api/test_types.py: vitreous:gone"}  # by type checkers, which that test asks
    assert missing - refused == set()


@lru_cache(maxsize=1)
def tree_of(program: str) -> ast.Module:
    """The program parsed: once, where its strings are looked at before its imports."""
    return ast.parse(program)


def programs_in_notebook(text: str) -> list[str]:
    cells = ["".join(each["source"]) for each in json.loads(text)["cells"] if each["cell_type"] == "code"]
    return [re.sub(r"(?m)^([ \t]*)[%!].*", r"\1pass", cell) for cell in cells]


def programs_in_page(text: str) -> list[str]:
    """Blocks of Python that are whole: some pages show signatures alone."""
    return [block for block in re.findall(r"(?ms)^```python\n(.*?)^```", text) if is_python(block)]


def programs_in_module(text: str) -> list[str]:
    strings = [each.value for each in ast.walk(tree_of(text)) if isinstance(each, ast.Constant)]
    held = [each for each in strings if isinstance(each, str) and "import" in each and "\n" in each]
    return [text, *(each for each in held if is_python(each))]


def is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


PROGRAMS = {".py": programs_in_module, ".ipynb": programs_in_notebook, ".md": programs_in_page}


@cache
def exists(name: str) -> bool:
    module, _, attribute = name.partition(":")
    try:
        return hasattr(import_module(module), attribute) or bool(find_spec(f"{module}.{attribute}"))
    except ModuleNotFoundError:
        return False


# The functions and classes of the package that a test replaces, and why it cannot ask for behavior.
REPLACED = {
    "tests/cli/test_moved.py": ["Classification.evaluate"],  # Ctrl-C comes while it runs
    "tests/training/test_trials.py": [
        "classical.methods_for",  # methods that would be as good are left out
        "trials.final_model",  # nothing is fitted, and no network answers, for what the table alone decides
        "trials.network_outputs",
    ],
}


def test_tests_replace_no_function_of_the_package() -> None:
    """They ask for what a call returns, writes or says. Constants, such as the size from which a dataset is
    large, may be others in a test, and so may what is of the machine, of the process or of a library."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "setattr" not in text:
            continue
        tree = ast.parse(text)
        imported = imported_names(tree)
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr == "setattr" and (name := replaced_name(node.args, imported)):
                found.setdefault(str(path.relative_to(ROOT)), []).append(name)
    assert {file: sorted(names) for file, names in found.items()} == REPLACED


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Return what the names of a test file stand for that it has imported from the package, "module:name"."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vitreous"):
            for each in node.names:
                found[each.asname or each.name] = f"{node.module}:{each.name}"
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.name.startswith("vitreous") and (each.asname or "." not in each.name):
                    found[each.asname or each.name] = each.name
    return found


def replaced_name(arguments: list[ast.expr], imported: dict[str, str]) -> str:
    """Return the function or the class of the package that a call of `setattr` replaces; "" for all else."""
    first = arguments[0]
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        place, _, name = first.value.rpartition(".")
        owner: object = resolve_name(place)
    elif isinstance(first, ast.Name) and first.id in imported and isinstance(arguments[1], ast.Constant):
        place, name = first.id, str(arguments[1].value)
        module, _, attribute = imported[first.id].partition(":")
        owner = resolve_name(f"{module}.{attribute}" if attribute else module)
    else:
        return ""
    replaced = getattr(owner, name)
    ours = str(getattr(replaced, "__module__", "")).startswith("vitreous")
    return f"{place}.{name}" if ours and callable(replaced) else ""


def test_each_class_and_type_alias_is_defined_once() -> None:
    """A name in capitals and small letters stands for one idea in the whole package; type variables apart."""
    defined = defaultdict(list)
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for name in names_of_types(node):
                defined[name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: places for name, places in defined.items() if len(places) > 1} == {}


def names_of_types(node: ast.stmt) -> list[str]:
    """Return the class or the type aliases that a statement of a module defines."""
    if isinstance(node, ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.If | ast.Try):
        return [name for each in (*node.body, *node.orelse) for name in names_of_types(each)]
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return []
    if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in ("TypeVar", "ParamSpec"):
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [each.id for each in targets if isinstance(each, ast.Name)]
    return [name for name in names if name.lstrip("_")[:1].isupper() and not name.isupper()]


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, vitreous; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_resolve() -> None:
    import vitreous

    for name in vitreous.__all__:
        assert getattr(vitreous, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'lood'"):
        _ = vitreous.lood


def test_each_folder_with_modules_is_a_package() -> None:
    """The layers and circles of modules in other folders would not be checked."""
    modules = (ROOT / "src" / "vitreous").rglob("*.py")
    assert {path.parent for path in modules if not (path.parent / "__init__.py").is_file()} == set()
