"""The core installs little; all else belongs to an extra, and a sentence names the extra that is missing."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from vitreous.errors import InputError, require_packages

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Names of distributions that differ from those of their modules, for what is not installed where tests run.
DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "pillow", "python_multipart": "python-multipart"}
FEATURES = ("train", "hub", "data", "science", "text", "serve", "export", "cpu", "track")
# torch itself needs these.
WITH_TORCH = {"jinja2", "markupsafe", "fsspec"}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(requirements: list[str]) -> set[str]:
    """Names of distributions, without versions."""
    return {normalized(re.split(r"[\[<>=; ]", each)[0]) for each in requirements}


INSTALLED = cache(packages_distributions)


def distribution(module: str) -> str:
    known = INSTALLED().get(module, [module])[0]
    return normalized(DISTRIBUTIONS.get(module, known))


@cache
def parsed() -> list[tuple[Path, ast.AST]]:
    """The imports and calls of every module."""
    return [
        (path, node)
        for path in sorted((ROOT / "src").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call)
    ]


@cache
def imported() -> dict[str, Path]:
    """Top-level modules outside the standard library, each with a file that imports it."""
    modules: dict[str, Path] = {}
    for path, node in parsed():
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        modules |= {name.split(".")[0]: path for name in names}
    return {
        name: path for name, path in modules.items() if name not in {*sys.stdlib_module_names, "vitreous"}
    }


def test_every_import_is_declared() -> None:
    everything = declared(PROJECT["dependencies"] + [each for name in FEATURES for each in EXTRAS[name]])
    assert {name: path for name, path in imported().items() if distribution(name) not in everything} == {}


def test_the_core_declares_nothing_that_is_not_imported() -> None:
    assert declared(PROJECT["dependencies"]) <= {distribution(name) for name in imported()}


def test_the_extra_that_a_message_names_brings_the_package() -> None:
    found = 0
    for path, node in parsed():
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "require_packages"):
            continue
        extra = next(each.value for each in node.keywords if each.arg == "extra")
        assert isinstance(extra, ast.Constant), path
        modules = [each.value for each in node.args if isinstance(each, ast.Constant)]
        assert {distribution(str(name)) for name in modules} <= declared(EXTRAS[str(extra.value)]), path
        found += 1
    assert found > 10


def test_a_missing_package_is_one_sentence() -> None:
    require_packages("json", "sys", extra="train", what="reading")
    with pytest.raises(
        InputError, match=r"^reading needs no_such, neither: pip install 'vitreous\[train\]'$"
    ):
        require_packages("no_such", "json", "neither", extra="train", what="reading")


CORE_ALONE = """
import contextlib, io, json, sys
for name in {hidden}:
    sys.modules[name] = None
import vitreous as vt
from vitreous.cli import run

model = vt.create("ViT-Ti/16", num_classes=3, image_size=32)
vt.save(model, "saved", format="timm")
assert vt.load("saved").config == model.config

results = []
for words in {commands}:
    error = io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        code = run(words)
    results.append([" ".join(words), code, error.getvalue()])
print(json.dumps(results))
"""
WORK = (
    ["describe", "ViT-Ti/16"],
    ["recipe", "deit"],
    ["convert", "saved", "converted", "--format", "huggingface"],
    ["export", "saved", "--out", "program.pt2"],
    ["data", "check", "images"],
    ["predict", "saved", "images"],
)
NEED_AN_EXTRA = {
    "train": (
        ["train"],
        ["train", "images"],
        ["train", "--task", "segmentation"],
        ["pretrain", "images"],
        ["translate", "train"],
        ["probe", "saved", "digits"],
        ["probe", "saved", "images", "--shots", "1"],
        ["inspect", "saved", "images"],
        ["study", "positions", "--quick"],
        ["study", "complexity", "--quick"],
    ),
    "serve": (["serve", "saved"],),
    "export": (["export", "saved", "--out", "program.onnx"],),
    "hub": (["describe", "hf:someone/something"],),
    "data": (["data", "check", "hf:someone/something"], ["data", "check", "images.parquet"]),
}


@pytest.mark.slow
def test_the_core_works_without_any_extra(tmp_path: Path, folder: Path) -> None:
    modules = {name for name in imported() if distribution(name) not in declared(PROJECT["dependencies"])}
    hidden = sorted(modules - WITH_TORCH | {"onnx", "onnxscript", "python_multipart", "tensorboard"})
    (tmp_path / "images").symlink_to(folder / "photos")
    (tmp_path / "images.parquet").touch()
    refused = [(extra, words) for extra, commands in NEED_AN_EXTRA.items() for words in commands]
    commands = [*WORK, *(words for _, words in refused)]
    code = CORE_ALONE.format(hidden=hidden, commands=commands)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    assert [(command, code, error) for command, code, error in results[: len(WORK)] if code] == []
    for (extra, _), (command, code, error) in zip(refused, results[len(WORK) :], strict=True):
        assert code == 2, (command, error)
        assert f"pip install 'vitreous[{extra}]'" in error.splitlines()[-1], (command, error)
        assert "Traceback" not in error, (command, error)
    assert not (tmp_path / "runs").exists()
