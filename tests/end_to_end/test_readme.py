"""The README's two commands are what the Makefile does. Its other commands and programs are run as printed by
tests/docs, like those of every page."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READMES = ("README.md", "README.ko.md")


def blocks(name: str) -> list[tuple[str, str]]:
    """(language, text) of every block, in order."""
    return re.findall(r"```(\w+)\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("name", READMES)
def test_the_demo_is_training_without_arguments(name: str) -> None:
    printed = [[line.split("  #")[0].strip() for line in text.splitlines()] for _, text in blocks(name)]
    assert ["make demo", "make test"] in printed
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    plan = subprocess.run(
        ["make", "-n", "demo"], cwd=ROOT, env=alone, capture_output=True, text=True, check=True
    )
    assert plan.stdout.splitlines()[-1] == ".venv/bin/vitreous train"


@pytest.mark.parametrize("name", READMES)
def test_the_readme_is_short(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").count("\n") <= 140


def test_both_languages_print_the_same() -> None:
    def code(name: str) -> list[tuple[str, str]]:
        return [(kind, re.sub(r"\s*#.*", "", text)) for kind, text in blocks(name)]

    assert code("README.md") == code("README.ko.md")
