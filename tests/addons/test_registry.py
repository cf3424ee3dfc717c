"""What the table of add-ons says is there; and nothing else of them is in the core."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import vitreous
from vitreous.cli import ADDED, CORE
from vitreous.extensions import ADDONS, addons, imported

PACKAGE = Path(vitreous.__file__).parent


def test_every_folder_has_a_row_in_the_table() -> None:
    assert sorted(ADDONS) == sorted(path.parent.name for path in (PACKAGE / "addons").glob("*/__init__.py"))


@pytest.mark.parametrize("name", ADDONS)
def test_what_an_addon_contributes_exists(name: str) -> None:
    addon = addons()[name]
    for command, row in addon.commands.items():
        assert callable(imported(f"{row.module}:{command.split()[-1].replace('-', '_')}"))
    for public, module in addon.names.items():
        assert inspect.unwrap(getattr(vitreous, public)) is inspect.unwrap(imported(f"{module}:{public}"))
    for name, task in addon.tasks.items():
        assert name in {each.name for each in imported(f"{task.module}:DEFINED")}
        assert not task.check or callable(imported(task.check))
    opened = [kind.opened for kind in addon.sources.values()]
    for address in (*addon.formats, *opened, *addon.pages_of_runs):
        assert imported(address) is not None
    assert not ADDED.keys() & CORE.keys()


def test_type_checkers_know_the_same_public_names() -> None:
    """Those of the core in one file, those of add-ons in another."""
    for stub, names in (
        (PACKAGE / "__init__.pyi", vitreous._CORE),
        (
            PACKAGE / "addons" / "names.pyi",
            {n: m for each in addons().values() for n, m in each.names.items()},
        ),
    ):
        found = {
            each.name: node.module
            for node in ast.parse(stub.read_text("utf-8")).body
            if isinstance(node, ast.ImportFrom) and node.module != "vitreous"
            for each in node.names
            if each.name != "*"
        }
        assert found == names


def test_the_core_works_without_addons() -> None:
    """With an empty table: public names, help, tasks, formats and kinds of data are those of the core."""
    program = """
import vitreous.extensions
vitreous.extensions.ADDONS = ()
vitreous.extensions.addons.cache_clear()
import importlib
importlib.reload(vitreous)
from vitreous.cli import COMMANDS, CORE, run
assert COMMANDS == CORE and run(["--help"]) == 0
import vitreous as vt
for name in vt.__all__:
    assert getattr(vt, name) is not None, name
from vitreous.tasks import task_named
for name in vitreous.extensions.tasks():
    task_named(name)
assert vt.list_formats() and vt.list_models()
import sys
added = [name for name in sys.modules if name.startswith("vitreous.addons.")]
assert added == LOADED_BY_THE_TABLE, added
"""
    loaded = [f"vitreous.addons.{name}" for name in ADDONS]
    program = program.replace("LOADED_BY_THE_TABLE", repr(loaded))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_core_names_no_addon() -> None:
    """No file of the core writes the name of an add-on's folder, not even in a string."""
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        if place.parts[0] == "addons" or place.name == "extensions.py":
            continue
        found = re.findall(r"vitreous\.addons\.\w+|addons/\w+", path.read_text("utf-8"))
        assert not found, f"{place}: {found}"


# What only an add-on speaks of: in the core not a field, a branch, a comment or a word of help.
WORDS = {
    "learn_page": r"vitreous learn\b|learn\.html",
    "optimize": r"vitreous optimize\b|import openvino|token.merging",
    "segmentation": r"segmentation\b|segmenter|class of each pixel",
    "self_supervision": r"contrastive|simclr|self-distillation|multi-crop|pretraining\.d|ViewsConfig",
    "serving": r"vitreous serve\b|fastapi|uvicorn",
    "studies": r"vitreous study\b|formulas:|world:[a-z]",
    "text": r"translat(ion|or)\b|captioning|captioner|tokenizer|model of texts|their text|the text or",
}


def test_the_core_has_no_word_of_an_addon() -> None:
    assert WORDS.keys() == set(ADDONS)
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*"))
        if path.suffix in (".py", ".toml", ".j2", ".md", ".pyi") and "addons" not in path.parts
        if path.name != "extensions.py"
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if re.search("|".join(WORDS.values()), line, re.IGNORECASE)
    ]
    assert found == []


def test_addons_import_those_that_they_declare() -> None:
    """The exceptions of the contract are what the table says, and nothing else."""
    settings = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text("utf-8"))["tool"]
    contracts = settings["importlinter"]["contracts"]
    (allowed,) = (each["ignore_imports"] for each in contracts if each["type"] == "independence")
    assert sorted(allowed) == sorted(
        f"vitreous.addons.{name}.** -> vitreous.addons.{other}.**"
        for name, addon in addons().items()
        for other in addon.imports
    )
