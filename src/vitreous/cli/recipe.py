"""`vitreous recipe [NAME]`."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from vitreous.cli.options import Json, print_json
from vitreous.errors import InputError


def recipe(
    name: str | None = None,
    /,
    *,
    diff: Annotated[str | None, Parameter(help="another recipe: only what differs")] = None,
    json: Json = False,
) -> int:
    """Show a recipe: what it is, what to expect, and every setting as `--config` takes it.

    Parameters
    ----------
    name
        the recipe; without one, all are listed
    """
    import vitreous as vt
    from vitreous.training.recipes import recipe as named
    from vitreous.training.settings import differences, leaves, to_toml

    if name is None:
        if diff is not None:
            raise InputError(f"--diff compares two recipes: vitreous recipe NAME --diff {diff}")
        lines = vt.list_recipes()
        print_json({"recipes": lines}) if json else show_names(lines)
        return 0
    shown = named(name)
    if diff is not None:
        rows = differences(shown.config, named(diff).config)
        print_json({"differences": rows}) if json else show_differences(name, diff, rows)
    elif json:
        print_json({"name": name, "text": shown.text, "settings": leaves(shown.config)})
    else:
        print("\n".join(f"# {line}".rstrip() for line in shown.text.splitlines()), end="\n\n")
        sys.stdout.write(to_toml(shown.config))
    return 0


def show_names(lines: dict[str, str]) -> None:
    width = max(map(len, lines))
    for name, line in lines.items():
        print(f"{name:{width}}  {line}")


def show_differences(one: str, other: str, rows: dict[str, list[object]]) -> None:
    """A line for each setting, one recipe beside the other."""
    from rich.console import Console
    from rich.table import Table

    table = Table("setting", one, other, box=None, pad_edge=False)
    for setting, values in rows.items():
        table.add_row(setting, *map(str, values))
    Console(soft_wrap=True).print(table)
