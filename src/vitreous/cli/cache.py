"""`vitreous cache`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from vitreous.cli.options import Json, print_json


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
    from vitreous.cli.tables import print_table
    from vitreous.errors import InputError
    from vitreous.results import byte_size

    if kind is not None and not clear:
        raise InputError(f"{kind} without --clear has no effect: vitreous cache shows all, --clear deletes")
    found = clear_cache(kind) if clear else cache_use()
    if json:
        print_json({"cleared": clear, **found.to_json()})
        return
    print(f"{'deleted from' if clear else 'cache'} {found.folder}\n")
    rows = [(name, KINDS[name], byte_size(count)) for name, count in found.bytes.items()]
    print_table(("kind", "what", "size"), rows, words=2)
