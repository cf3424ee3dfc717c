"""The one error that a user can cause and mend."""

from collections.abc import Sequence
from difflib import get_close_matches


class InputError(Exception):
    """The user's input is wrong: the message says what, where, and what to do.

    The command line prints the message alone and exits with 2; it never shows a traceback for it.
    """


def nearest(name: str, known: Sequence[str]) -> str:
    """The end of a sentence about an unknown `name`: the nearest known one, or all of them."""
    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return f"did you mean {by_lower[close[0]]!r}?" if close else f"known are: {', '.join(known)}"
