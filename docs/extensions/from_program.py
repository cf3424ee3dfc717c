"""Parts of a page that are generated from the program: help of the commands, recipes, docstrings, results."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pygments.lexers.special import TextLexer
from rich.console import Console
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import vitreous
from vitreous.cli import COMMANDS, DATA_COMMANDS, app
from vitreous.training.recipes import NAMES, recipe

ROOT = Path(__file__).parents[2]


class CommandHelp(SphinxDirective):
    """A section for each command: what `vitreous COMMAND --help` prints."""

    def run(self) -> list[nodes.Node]:
        calls = [[name] for name in COMMANDS] + [["data", name] for name in DATA_COMMANDS]
        calls.append(["translate", "train"])
        return [section(" ".join(["vitreous", *call]), help_of(call)) for call in calls]


class Recipes(SphinxDirective):
    """A section for each recipe: its docstring."""

    def run(self) -> list[nodes.Node]:
        return [section(name, recipe(name).text) for name in NAMES]


class ConfigFields(SphinxDirective):
    """Every field of a configuration: its name, its default, what it is."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        items = nodes.bullet_list()
        for name, field in getattr(vitreous, self.arguments[0]).model_fields.items():
            text = nodes.paragraph("", "", nodes.strong("", name), nodes.Text(" = "))
            text += nodes.literal("", shown(field))
            if field.description:
                text += nodes.Text(f": {field.description}")
            items += nodes.list_item("", text)
        return [items]


def shown(field: FieldInfo) -> str:
    """A field's default; of a part with fields of its own, its name."""
    value = field.get_default(call_default_factory=True)
    return f"{type(value).__name__}()" if isinstance(value, BaseModel) else repr(value)


def section(title: str, text: str) -> nodes.section:
    """Without a source, so that nothing of it becomes a message to translate."""
    block = nodes.literal_block(text, text, language="none")
    return nodes.section("", nodes.title("", title), block, ids=[nodes.make_id(title)], names=[title])


def help_of(call: list[str]) -> str:
    console = Console(file=io.StringIO(), width=88, force_terminal=False)
    app.help_print(call, console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().strip()


def docstring(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """The project's docstrings are plain text with `names`: as reStructuredText, with blocks of code."""
    result: list[str] = []
    code = False
    for number, line in enumerate(lines):
        indented = line.startswith("    ")
        if line.strip() and not indented:
            code = False
        elif indented and number and not lines[number - 1].strip() and not code and not headed(lines, number):
            code = True
            result += ["::", ""]
        result.append(line if code else re.sub(r"`([^`]+)`", r"``\1``", line))
    lines[:] = result


def headed(lines: list[str], number: int) -> bool:
    """Whether an indented line belongs to a section such as `Args:`."""
    above = next(line for line in reversed(lines[:number]) if line.strip() and not line.startswith("    "))
    return above in ("Args:", "Raises:", "Returns:", "Attributes:")


def links(app: Sphinx, path: Path, parent: str, content: list[str]) -> None:
    """Files of the repository have no place in the site: in what is included, their links become names."""
    content[0] = re.sub(r"\[(`?[^\]]+`?)\]\((?!https?:)[^)]*\)", r"\1", content[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("command-help", CommandHelp)
    app.add_directive("recipes", Recipes)
    app.add_directive("config-fields", ConfigFields)
    app.connect("autodoc-process-docstring", docstring, priority=400)
    app.connect("include-read", links)
    app.add_lexer("csv", TextLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
