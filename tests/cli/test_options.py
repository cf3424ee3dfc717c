"""Commands and options are a decision: what is added shows in options.txt, and is in the Python API."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import vitreous as vt
from vitreous.cli import COMMANDS, app

FROZEN = Path(__file__).with_name("options.txt")
# The functions of the Python API that each command calls.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    **{name: (getattr(vt, name),) for name in sorted(COMMANDS) if name in vt.__all__},
    "pretrain": (vt.pretrain, vt.train),
    "translate": (vt.train_translator, vt.train),
    "describe": (vt.describe, vt.draw),
    "data check": (vt.check_data,),
    "data pack": (vt.pack_data,),
}
PYTHON_ONLY = {"callbacks", "preprocessing", "progress", "ready"}  # parameters that are objects
CLI_ONLY = {"json", "resume", "moved_data", "draw"}


def names_of(command: str) -> list[str]:
    found: Any = app
    for word in command.split():
        found = found[word]
    named = [name for argument in found.assemble_argument_collection() for name in argument.names]
    # Negations, which the application refuses: it says so for all parameters, of which these do not know.
    return [name for name in named if not name.startswith(("--no-", "--empty-"))]


def listing() -> list[str]:
    return sorted(
        f"{command} {name}" for command in COMMANDS for name in ["", *names_of(command)] if name != "*"
    )


def test_commands_and_options_are_those_that_were_decided() -> None:
    """`python tests/cli/test_options.py` writes a new list."""
    assert [line.strip() for line in listing()] == FROZEN.read_text().splitlines()


@pytest.mark.parametrize("command", FUNCTIONS)
def test_options_are_the_parameters_of_the_python_function(command: str) -> None:
    found: Any = app
    for word in command.split():
        found = found[word]
    options = {
        argument.field_info.name
        for argument in found.assemble_argument_collection()
        if any(name.startswith("--") for name in argument.names)
    }
    first, *others = FUNCTIONS[command]
    keywords = {
        each.name for each in inspect.signature(first).parameters.values() if each.kind is each.KEYWORD_ONLY
    }
    more = {name for each in others for name in inspect.signature(each).parameters}
    assert keywords - PYTHON_ONLY <= options
    assert options - CLI_ONLY <= keywords | more | set(inspect.signature(first).parameters)


def test_the_help_does_not_need_docstrings() -> None:
    command = [sys.executable, "-OO", "-m", "vitreous", "predict", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "number of labels for each image" in " ".join(shown.split())


if __name__ == "__main__":
    FROZEN.write_text("\n".join(line.strip() for line in listing()) + "\n")
