"""Files that are there whole or not at all, even when the one who writes them is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name in the same folder to write to. What stands there becomes `path` when the block ends; when it
    fails, nothing is left of it.

    Of several in one `with`, all are complete before the first takes its name, and the last takes it first.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with whole(path) as beside:
        beside.write_text(text, encoding="utf-8")
