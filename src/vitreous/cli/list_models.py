"""`vitreous list-models [PATTERN]`."""

from __future__ import annotations

from vitreous.cli.options import Json, print_json


def list_models(pattern: str = "*", /, *, json: Json = False) -> None:
    """List the names that --model, describe and vitreous.create take, with their parameters.

    Parameters
    ----------
    pattern
        with * for any characters: 'ViT-*'
    """
    from vitreous.cli.tables import print_table, si
    from vitreous.errors import InputError
    from vitreous.models.names import list_models as known_models

    models = known_models(pattern)
    if not models:
        raise InputError(f"no model name is like {pattern!r}: try 'ViT-*', or '*' for all")
    if json:
        print_json({"models": [{"name": each.name, "parameters": each.parameters} for each in models]})
        return
    print_table(("model", "parameters"), [(each.name, si(each.parameters)) for each in models])
