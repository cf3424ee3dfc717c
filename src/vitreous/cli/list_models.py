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
    from vitreous.cli.tables import print_table
    from vitreous.errors import InputError
    from vitreous.models.names import known_names, parameters_of
    from vitreous.results import si

    models = {name: parameters_of(name) for name in known_names(pattern)}
    if not models:
        raise InputError(f"no model name is like {pattern!r}: try 'ViT-*', or '*' for all")
    if json:
        print_json({"models": [{"name": name, "parameters": count} for name, count in models.items()]})
        return
    print_table(("model", "parameters"), [(name, si(count)) for name, count in models.items()])
