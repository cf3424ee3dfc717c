"""The folder that a study's table and plots are written into."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from vitreous.errors import InputError


@contextmanager
def results_folder(folder: Path) -> Iterator[Path]:
    """`folder`, made before the time of a study is spent. What was made here, parents too, and stays
    empty goes again.

    Raises:
        InputError: it takes no files.
    """
    new = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    with written(folder):
        pass
    try:
        yield folder
    finally:
        for each in new:
            if not any(each.iterdir()):
                each.rmdir()


@contextmanager
def written(folder: Path) -> Iterator[Path]:
    """A place for files that come into `folder` together, when all are whole; when one cannot be written,
    nothing is left of them.

    Raises:
        InputError: the disk is full, or the folder takes no files.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".unfinished-") as beside:
            yield Path(beside)
            for file in sorted(Path(beside).iterdir()):
                os.replace(file, folder / file.name)
    except FileExistsError as error:
        raise InputError(f"{error.filename} is a file and no folder: choose another --out") from error
    except OSError as error:
        reason = f"{error.strerror}; make room, or choose another --out"
        raise InputError(f"cannot write to {folder}: {reason}") from error
