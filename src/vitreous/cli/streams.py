"""The streams and the terminal of a command, whatever they are: closed, full, of another encoding, one column
wide."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, TextIO

from vitreous.errors import cache_folder, is_out_of_memory, printable
from vitreous.languages.terminal import CallError, said

NARROWEST = 40  # columns: in fewer, help is laid out for these


def prepare_streams() -> None:
    """Make streams that take any text: what their encoding lacks is written as \\uXXXX. A closed stdin is
    empty, and a closed stderr is nowhere. Raises InputError: stdout is closed."""
    closed = sys.stdout is None
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue  # files that are opened later must not take the place of a stream
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if closed:
        raise CallError("stdout is closed: send the results to a file, or to /dev/null")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def check_current_folder() -> None:
    """Raise InputError where it was removed: libraries that look for their files in it end the process."""
    try:
        os.getcwd()
    except OSError:
        raise CallError("the current folder is no longer there: change to another one (cd)") from None


def prepare_columns() -> None:
    """Lay out help for a few columns at least."""
    try:
        columns = shutil.get_terminal_size().columns
    except ValueError:
        columns = 0
    given = os.environ.get("COLUMNS")
    if columns < NARROWEST or (given is not None and not given.strip().isdecimal()) or given == "0":
        os.environ["COLUMNS"] = str(max(columns, NARROWEST))


def read_stdin() -> str:
    """Return all of stdin. Raises InputError: it is not UTF-8."""
    text = sys.stdin.read()
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise CallError("stdin is not UTF-8 text: convert it, for example with iconv -t utf-8") from None
    return text


def sentence_for(error: Exception) -> str | None:
    """Return a sentence about what the user can change, though no code has foreseen it; None for a defect."""
    if isinstance(error, OSError) and "temporary directory" in str(error):
        return said("no folder for temporary files is writable: set TMPDIR to one that is")
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return said("a path is too long: {path}...", path=str(error.filename)[:60])
    if isinstance(error, OSError):
        return about_system(error)
    if isinstance(error, ValueError) and "null byte" in str(error):
        return said("a path contains a null byte, which no file name can contain: correct it")
    if isinstance(error, RecursionError):
        return said("the input is nested too deeply to be read: flatten it")
    if isinstance(error, UnicodeError):
        return said(
            "a text is not UTF-8, or cannot be written ({error}): convert it, or rename the file", error=error
        )
    if is_out_of_memory(error):
        return said(
            "there is not enough memory for this: use smaller images, a smaller batch or a smaller model"
        )
    return None


def about_defect(error: Exception) -> str:
    """Return a sentence about an error of the program, and where its traceback is."""
    reason = printable(" ".join(str(error).split()))[:300]
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return said(
        "unexpected {kind}: {reason} ({place}): this is a bug in vitreous: please report it; {trace}",
        kind=type(error).__name__,
        reason=reason,
        place=f"{Path(frame.filename).name}:{frame.lineno}",
        trace=written_trace(error),
    )


def about_system(error: OSError) -> str:
    """Return a sentence about what the system refused."""
    names = [printable(str(each))[:200] for each in (error.filename, error.filename2) if each is not None]
    reason = error.strerror or " ".join(str(error).split()) or type(error).__name__
    if names:
        return said(
            "cannot use {names} ({reason}): check that it exists, that you have permission, and that there "
            "is space",
            names=said(" or ").join(names),
            reason=reason,
        )
    return said(
        "the system refuses ({reason}): check that it exists, that you have permission, and that there is "
        "space",
        reason=reason,
    )


def written_trace(error: Exception) -> str:
    """Write a traceback into the cache, or beside other temporary files, and return where it is."""
    for folder in (cache_folder(), Path(tempfile.gettempdir())):
        path = folder / f"vitreous-error-{os.getpid()}.txt"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            text = "".join(traceback.format_exception(error))
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError:
            continue
        return said("its traceback is in {path}", path=path)
    return said("--verbose prints its traceback")


def abandon(stream: TextIO | Any) -> None:
    """Send what a stream still holds nowhere, so that Python does not try again when it ends."""
    try:
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)
    except (OSError, ValueError, AttributeError):
        return
