"""Every command explains itself, quickly, with two examples that run."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vitreous as vt
from vitreous import __version__
from vitreous.api.arguments import settings_tree
from vitreous.cli import COMMANDS, app
from vitreous.cli.options import OTHER_NAMES
from vitreous.tasks.pretraining.rules import find_recipe
from vitreous.training.settings import configure

# What trains, measures or waits for visitors: run with `make test-slow`, or by the tests of its own command.
LONG = {"train", "pretrain", "study", "translate", "serve", "export"}

IMPORT_NOTHING_HEAVY = """
import sys
from vitreous.cli import COMMANDS, run
for command in ["", "data", *COMMANDS]:
    assert run([*command.split(), "--help"]) == 0
assert run(["--version"]) == 0
assert run(["list-models"]) == 0
heavy = {"torch", "numpy", "sklearn", "matplotlib", "pydantic", "PIL"} & set(sys.modules)
assert not heavy, heavy
"""


def test_help_imports_nothing_heavy() -> None:
    """What keeps `vitreous --help` under 0.3 s."""
    done = subprocess.run([sys.executable, "-c", IMPORT_NOTHING_HEAVY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_the_two_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from vitreous.cli import run

    assert run([*name.split(), "--help"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[-3:] == ["Examples:", *COMMANDS[name].examples]


# Words of the Python API, or types, which mean nothing to a user of the shell.
OF_PYTHON = re.compile(
    r"`|\b(None|True|False|STR|INT|FLOAT|BOOL|CHOICE|callable|dict|tuple|PIL|in memory|result holds)\b"
)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_written_for_the_shell(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from vitreous.cli import run

    assert run([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert not OF_PYTHON.findall(shown)
    assert not {word for word in re.findall(r"[a-z]+_[a-z_]+", shown) if hasattr(vt, word)}
    for argument in arguments_of(*name.split()):
        if not argument.show:
            continue
        words = argument.parameter.help or ""
        assert words, argument.name
        assert not re.match(r"(of|that of|as|which) ", words), f"{argument.name}: {words}"


def test_convert_names_every_format_that_it_writes() -> None:
    writable = {name for name, about in vt.list_formats().items() if "(only read)" not in about}
    assert writable <= set(re.findall(r"[\w-]+", help_of("convert", "--format")))


EXAMPLES = [
    pytest.param(example, marks=[pytest.mark.slow] if name in LONG else [], id=example)
    for name, command in COMMANDS.items()
    for example in command.examples
    if name != "serve"
]


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run(
    example: str,
    command: Callable[..., tuple[int, str, str]],
    workplace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = shutil.copytree(workplace, tmp_path / "own", ignore=shutil.ignore_patterns("cache"))
    monkeypatch.chdir(own)  # what an example leaves in a run, as `optimize` does, is not for other tests
    program, *arguments = shlex.split(example)
    assert program == "vitreous"
    if "runs/numbers" in arguments and "--out" not in arguments:  # which an example before it makes
        short = ("--set", "training.length=60 steps")
        assert command("translate", "train", "--out", "runs/numbers", *short)[0] == 0
    code, out, err = command(*arguments)
    found = arguments[0] == "doctor" or arguments[:2] == ["data", "check"]  # 1: errors were found
    assert code == 0 or (found and code == 1), err
    assert out.strip()


SHARED = {"--config", "--set", "--precision", "--seed", "--workers", "--batch-size", "--device"}
NOT_RANDOM = "nothing is random"
NO_IMAGES = "no image is read"
# Why a command lacks some of the shared options.
LACKING = {
    "translate": {"--workers": "texts are not decoded"},
    "evaluate": {"--seed": NOT_RANDOM},
    "predict": {"--seed": NOT_RANDOM},
    "calibrate": {"--seed": NOT_RANDOM, "--precision": "the temperature is that of logits in fp32"},
    "embed": {"--seed": NOT_RANDOM},
    "inspect": {"--seed": NOT_RANDOM, "--workers --batch-size": "a few images, one after the other"},
    "learn": {
        "--seed": NOT_RANDOM,
        "--workers --batch-size": "a few images, one after the other",
        "--device --precision": "the browser computes",
    },
    "serve": {
        "--seed": NOT_RANDOM,
        "--batch-size": "it is --max-batch: batches are as large as requests make them",
        "--workers": "one process, whose threads are as many as there are cores",
        "--config --set": "vitreous convert makes a checkpoint that needs neither",
    },
    "study": {
        "--seed": "--seeds is how many",
        "--precision --workers --batch-size": "each trial is small and has its own",
    },
    "describe": {
        "--seed --workers": NO_IMAGES,
        "--device --precision": "the memory is that of fp32, on any device",
    },
    "convert": {
        "--seed --workers --batch-size": NO_IMAGES,
        "--device --precision": "both models are compared on the CPU in fp32",
    },
    "export": {
        "--seed --workers --batch-size": NO_IMAGES,
        "--device": "model and program are compared on the CPU",
    },
    "optimize": {"--seed": NOT_RANDOM, "--precision": "it tries them all"},
    "compare": {"--seed": NOT_RANDOM, "--config --set": "the runs have their own configurations"},
    "doctor": {" ".join(SHARED - {"--set"}): "a run has all of them in its config.toml"},
    "data check": {
        "--seed": NOT_RANDOM,
        "--config --precision --batch-size --device": "no model sees the images",
    },
    "data pack": {"--config --precision --batch-size --device": "no model sees the images"},
    "recipe": {" ".join(SHARED): "a list"},
    "list-models": {" ".join(SHARED): "a list"},
    "cache": {" ".join(SHARED): "a list"},
}


def arguments_of(*command: str) -> Any:
    """The arguments and options of a command, as its help has them."""
    found = app[command[0]] if len(command) == 1 else app[command[0]][command[1]]
    return found.assemble_argument_collection()


def help_of(command: str, option: str) -> str:
    (argument,) = [each for each in arguments_of(command) if option in each.names]
    return argument.parameter.help or ""


def options_of(*command: str) -> set[str]:
    return {name for argument in arguments_of(*command) for name in argument.names}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_shared_option_is_in_every_command_where_it_has_an_effect(name: str) -> None:
    lacking = {option for options in LACKING.get(name, {}) for option in options.split()}
    assert options_of(*name.split()) & SHARED == SHARED - lacking


PYTHON = {
    "embed": vt.embed,
    "compare": vt.compare,
    "evaluate": vt.evaluate,
    "predict": vt.predict,
    "probe": vt.probe,
    "inspect": vt.inspect,
    "serve": vt.serve,
}


@pytest.mark.parametrize("name", PYTHON)
def test_the_defaults_in_the_help_are_those_of_the_python_function(name: str) -> None:
    command, parameters = app[name], inspect.signature(PYTHON[name]).parameters
    told = 0
    for argument in command.assemble_argument_collection():
        option = next(iter(argument.names), "").removeprefix("--").replace("-", "_")
        parameter = parameters.get(option)
        if parameter and parameter.default not in (None, False, parameter.empty):
            own = argument.field_info.default
            assert own == parameter.default or str(parameter.default) in (argument.parameter.help or "")
            told += 1
    assert told >= 2


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from vitreous.cli import run

    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"vitreous {__version__}"


def test_the_module_runs_as_a_program(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vitreous", "--version"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.strip() == f"vitreous {__version__}"


@pytest.mark.slow
@pytest.mark.parametrize("words", [["recipe", "deit"], ["--help"]])
def test_a_closed_pipe_ends_quietly(words: list[str]) -> None:
    """Whatever reads stdout goes before a word is written, as `head` may."""
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [sys.executable, "-m", "vitreous", *words], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    _, said = process.communicate()
    assert said == ""
    assert process.returncode in (1, 141)


@pytest.mark.parametrize("advised", [said for said in OTHER_NAMES.values() if said.startswith("--set ")])
def test_what_is_advised_for_options_of_other_programs_is_a_setting(advised: str) -> None:
    name, _, value = advised.removeprefix("--set ").partition("=")
    configure(find_recipe("from-scratch").config, settings_tree({name: value}))
