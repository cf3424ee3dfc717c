"""`vitreous describe`, `list-models`, `recipe` and `cache`: what there is."""

from __future__ import annotations

import sys
from typing import Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import BatchSize, Json, ModelOptions
from vitreous.cli.printing import print_json, print_names, print_table
from vitreous.errors import InputError
from vitreous.results import byte_size, si


def describe(
    model: str,
    /,
    *,
    batch_size: Annotated[BatchSize, Parameter(help="images in memory at once")] = 1,
    json: Json = False,
    **options: Unpack[ModelOptions],
) -> None:
    """Print every stage of the forward pass of a model: shape, parameters, operations, equation, and memory.

    Parameters
    ----------
    model
        A name such as ViT-B/16 or R50+ViT-B/16, a checkpoint of any format, or a run directory.
    """
    description = vt.describe(model, batch_size=batch_size, **options)
    if json:
        print_json({"model": model, **description.to_json()})
    else:
        print(f"{model}: the forward pass of one image\n\n{description}")


def list_models(pattern: str = "*", /, *, json: Json = False) -> None:
    """List the names that --model, describe and vitreous.create take, with their parameters.

    Parameters
    ----------
    pattern
        with * for any characters: 'ViT-*'
    """
    from vitreous.models.names import parameters_of

    models = {name: parameters_of(name) for name in vt.list_models(pattern)}
    if not models:
        raise InputError(f"no model name is like {pattern!r}: try 'ViT-*', or '*' for all")
    if json:
        print_json({"models": [{"name": name, "parameters": count} for name, count in models.items()]})
    else:
        print_table(("model", "parameters"), [(name, si(count)) for name, count in models.items()])


def recipe(
    name: str | None = None,
    /,
    *,
    diff: Annotated[str | None, Parameter(help="another recipe: only what differs")] = None,
    json: Json = False,
) -> None:
    """Show a recipe: what it is, what to expect, and every setting as `--config` takes it.

    Parameters
    ----------
    name
        the recipe; without one, all are listed
    """
    from vitreous.training.recipes import recipe as named
    from vitreous.training.settings import differences, leaves, to_toml

    if name is None:
        if diff is not None:
            raise InputError(f"--diff compares two recipes: vitreous recipe NAME --diff {diff}")
        recipes = vt.list_recipes()
        if json:
            print_json({"recipes": recipes})
        else:
            print_names(recipes)
        return
    shown = named(name)
    if diff is not None:
        rows = differences(shown.config, named(diff).config)
        if json:
            print_json({"differences": rows})
        else:
            print_table(
                ("setting", name, diff), [(key, *map(str, both)) for key, both in rows.items()], words=3
            )
    elif json:
        print_json({"name": name, "text": shown.text, "settings": leaves(shown.config)})
    else:
        print("\n".join(f"# {line}".rstrip() for line in shown.text.splitlines()), end="\n\n")
        sys.stdout.write(to_toml(shown.config))


def cache(
    kind: str | None = None,
    /,
    *,
    clear: Annotated[bool, Parameter(help="delete it")] = False,
    json: Json = False,
) -> None:
    """Show the size of the cache ($VITREOUS_CACHE, or ~/.cache/vitreous), or clear it.

    Parameters
    ----------
    kind
        with --clear: features, studies or data; by default all of them
    """
    from vitreous.api.catalog import KINDS, cache_use, clear_cache

    if kind is not None and not clear:
        raise InputError(f"{kind} without --clear has no effect: vitreous cache shows all, --clear deletes")
    found = clear_cache(kind) if clear else cache_use()
    if json:
        print_json({"cleared": clear, **found.to_json()})
        return
    print(f"{'deleted from' if clear else 'cache'} {found.folder}\n")
    rows = [(name, KINDS[name], byte_size(count)) for name, count in found.bytes.items()]
    print_table(("kind", "what", "size"), rows, words=2)
