"""Files and folders that are there whole or not at all, even when the one who writes them is killed."""

from __future__ import annotations

import csv
import errno
import fcntl
import glob
import logging
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from secrets import token_hex
from typing import TextIO

from vitreous.errors import InputError

log = logging.getLogger(__name__)


@contextmanager
def unfinished(path: Path, ending: str = "") -> Iterator[Path]:
    """Yield a name in the same folder, to write a file or a folder to. When the block ends nothing is left of
    it. Other threads, and processes with the same number in other containers, have other names. For a folder
    that is there in one that takes no files, as where a volume is mounted, it is a name inside.

    Args:
        ending: of the name, for those who write by it.
    """
    inside = path.is_dir() and not os.access(path.parent, os.W_OK)
    name = f".{path.name}.{os.getpid()}-{token_hex(4)}.tmp{ending}"
    temporary = path / name if inside else path.with_name(name)
    try:
        yield temporary
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        elif temporary.exists():
            temporary.unlink()


@contextmanager
def whole(path: Path, ending: str = "", *, new: bool = False) -> Iterator[Path]:
    """Yield a name as `unfinished` does; what was written becomes `path`, or what a link of this name leads
    to, when the block ends, unless it fails.

    Of several in one `with`, all are complete before the first takes its name, and the last takes it first.

    Args:
        new: replace nothing, not even what another process has put there meanwhile, but raise InputError.
    """
    path = Path(os.path.realpath(path))
    with unfinished(path, ending) as temporary:
        yield temporary
        if new:
            take_new_name(temporary, path)
            return
        if temporary.is_dir() and path.is_dir():
            shutil.rmtree(path)
        os.replace(temporary, path)


def take_new_name(temporary: Path, path: Path) -> None:
    """Give a file or a folder a name that only an empty folder may have. Raises InputError: it is taken."""
    try:
        if temporary.is_dir():
            give_name_of_folder(temporary, path)
            return
        with suppress(OSError):
            path.rmdir()
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            if os.path.lexists(path):
                raise FileExistsError from None
            os.rename(temporary, path)
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError) or error.errno == errno.ENOTEMPTY:
            raise InputError(
                f"another process has written {path} in the meantime, and it is not overwritten: choose "
                "another name"
            ) from None
        raise


def give_name_of_folder(temporary: Path, path: Path) -> None:
    """Let a folder take the place of an empty one, or fill that where it cannot be replaced (a volume that is
    mounted there). Raises OSError: it is not empty."""
    try:
        if temporary.parent != path:
            os.rename(temporary, path)
            return
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM):
            raise
    others = [each for each in path.iterdir() if not each.match(f".{glob.escape(path.name)}.*.tmp*")]
    if others:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(others[0]))
    for each in list(temporary.iterdir()):
        shutil.move(each, path / each.name)


@contextmanager
def folder_for(path: Path) -> Iterator[None]:
    """Make a folder, with its parents. Those that are new and empty when the block ends go again."""
    new = [each for each in (path, *path.parents) if not os.path.lexists(each)]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for each in new:
            # The folder may have something in it, or another process may have removed it.
            with suppress(OSError):
                each.rmdir()


@contextmanager
def made_by_one(path: Path) -> Iterator[None]:
    """Let one process at a time make something, where the file system has locks."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str, *, new: bool = False) -> None:
    """Write a text. new: as in `whole`."""
    with whole(path, new=new) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]], *, new: bool = False) -> None:
    """Write a table whose texts may be names of files that are not UTF-8. new: as in `whole`."""
    with (
        whole(path, new=new) as temporary,
        temporary.open("w", newline="", encoding="utf-8", errors="surrogateescape") as text,
    ):
        write_csv_rows(text, chain([header], rows))


def write_csv_rows(file: TextIO, rows: Iterable[Sequence[object]]) -> None:
    """Write the rows of a CSV as they are, since they are read again; a notice says where a spreadsheet would
    compute a text as a formula."""
    table, found = csv.writer(file), list[str]()
    for row in rows:
        table.writerow(row)
        found += (cell for cell in row if isinstance(cell, str) and is_formula(cell))
    if found:
        log.warning(
            "%d texts in the table start like formulas, such as %r: import them into a spreadsheet as text",
            len(found),
            found[0],
        )


def is_formula(text: str) -> bool:
    """Return whether a spreadsheet computes a text; -1 is a number."""
    return text.startswith(("=", "@")) or (
        text.startswith(("+", "-")) and any(sign in text for sign in "(|!")
    )


def flush(path: Path) -> None:
    """Wait until a file or the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy_to_url(root: Path, files: Sequence[Path], url: str) -> None:
    """Copy files to the same places below a URL, in their order, unless they are there with this size and
    never change; then remove what is below the folders there and not among them. A failure is a warning.

    Args:
        files: those in folders of `root` are copied once.
    """
    import fsspec

    try:
        system, there = fsspec.url_to_fs(url)
        there = there.rstrip("/")
        wanted = {f"{there}/{file.relative_to(root).as_posix()}": file for file in files}
        known = {each["name"]: each["size"] for each in system.find(there, detail=True).values()}
        for target, file in wanted.items():
            if file.parent == root or known.get(target) != file.stat().st_size:
                system.makedirs(target.rpartition("/")[0], exist_ok=True)
                system.put_file(str(file), target)
        folders = {f"{there}/{file.relative_to(root).parts[0]}/" for file in files if file.parent != root}
        gone = [name for name in known.keys() - wanted.keys() if name.startswith(tuple(folders))]
        for name in sorted(gone, key=lambda name: not name.endswith(".json")):
            system.rm_file(name)
    except Exception as error:  # of whatever library talks to this store
        reason = " ".join(str(error).split()) or type(error).__name__
        warnings.warn(f"cannot copy the checkpoints to {url}: {reason}", stacklevel=2)
