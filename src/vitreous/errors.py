"""The one error that a user can cause and fix; what is installed, and where caches are."""

import errno
import os
import re
import sys
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from inspect import isfunction, signature
from pathlib import Path
from tempfile import gettempdir
from typing import Any, ClassVar, Self


class Param(str):
    """A parameter of the Python API in the message of an `InputError`: f"change {Param('batch_size')}" says
    `batch_size`, and --batch-size where a command is running. Whatever a user has written stays as it is."""

    on_command_line: ClassVar[bool] = False
    OPTIONS: ClassVar = {"settings": "--set", "source_format": "--from"}  # of other names
    MARKED: ClassVar = re.compile("\ue0f0(\\w+)\ue0f1")  # compiled here: memory may be short later

    def __new__(cls, name: str) -> Self:
        return super().__new__(cls, f"\ue0f0{name}\ue0f1")

    @classmethod
    def said(cls, sentence: str) -> str:
        """Return a sentence with its parameters as they are written here."""

        def written(found: re.Match[str]) -> str:
            if not cls.on_command_line:
                return f"`{found[1]}`"
            return cls.OPTIONS.get(found[1], "--" + found[1].replace("_", "-"))

        return cls.MARKED.sub(written, sentence)


class InputError(Exception):
    """The user's input is wrong: the message says what, where, and what to do; parameters are `Param`.

    The command line prints the message alone and exits with 2; it never shows a traceback for it.

    Example:
        >>> try:
        ...     vt.load("missing.pth")
        ... except vt.InputError as error:
        ...     print(error)
        there is no checkpoint at missing.pth; ...
    """

    def __str__(self) -> str:
        return Param.said(super().__str__())


@contextmanager
def writing_to(path: Path, advice: str = f"choose another {Param('out')}") -> Iterator[None]:
    """Raise InputError, with what to do, where `path` cannot be written or the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise InputError(f"a path is too long: {str(path)[:60]}...") from error
        reason = error.strerror or error
        if isinstance(error, FileExistsError):
            reason = f"{error.filename} is a file, not a folder"
        raise InputError(f"cannot write {path}: {reason}; {advice}") from error


def check_free(path: Path, advice: str = f"choose another {Param('out')}") -> None:
    """Raise InputError where something would be overwritten; an empty folder is free."""
    with writing_to(path, advice):
        # "new/.." exists as soon as "new" is made.
        meant = Path(os.path.realpath(path))
        taken = meant.exists() and (not meant.is_dir() or any(meant.iterdir()))
    if taken:
        raise InputError(f"{path} already exists, and is not overwritten: {advice}")


def is_out_of_memory(error: Exception) -> bool:
    """Return whether there was not enough memory, in the words of whatever library asked for it."""
    known = ("t allocate memory", "out of memory", "not enough memory", "can't start new thread")
    return isinstance(error, MemoryError) or any(words in str(error) for words in known)


# Characters that control a terminal, or turn the direction of what follows, and how they are written out. It
# is a table, since compiling a pattern needs memory, and one of the errors is that there is none.
CONTROLS = {
    code: f"\\u{code:04x}"
    for first, last in ((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0x202A, 0x202E), (0x2066, 0x2069))
    for code in range(first, last + 1)
}


def printable(text: str) -> str:
    """Return a text with its control characters written out, so that a terminal does not obey them, and those
    that turn the direction of what follows; line breaks and tabs stay. JSON stays JSON."""
    return text.translate(CONTROLS)


def utf8_name(path: object) -> str:
    """Return a path as text that any file and terminal takes: bytes of it that are not UTF-8 as \\xff."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def check_utf8(name: str, what: str) -> None:
    """Raise InputError for a name that files in UTF-8 cannot hold."""
    if (shown := utf8_name(name)) != name:
        try:
            korean = f" (in CP949 it is {os.fsencode(name).decode('cp949')})"
        except UnicodeError:
            korean = ""
        raise InputError(
            f"{what} {shown} is not UTF-8{korean}, and the files of a run cannot contain it: rename it"
        )


def nearest(name: str, known: Sequence[str]) -> str:
    """Return the end of a sentence about an unknown `name`: the nearest known one, or all of them."""
    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return f"did you mean {by_lower[close[0]]!r}?" if close else f"known are: {', '.join(known)}"


@contextmanager
def own_warnings() -> Iterator[None]:
    """Print the package's warnings as a sentence on stderr; those of libraries are not for users."""

    def one_line(message: object, category: object, filename: str, *_: object, **__: object) -> None:
        if category is UserWarning and "vitreous" in Path(filename).parts:
            print(printable(f"vitreous: {message}"), file=sys.stderr)

    before, warnings.showwarning = warnings.showwarning, one_line
    try:
        yield
    finally:
        warnings.showwarning = before


class UnknownParameter(InputError, TypeError):
    """A function has no parameter of this name; the message has the nearest."""


# What other libraries call parameters of ours, of which some are settings.
OTHER_PARAMETERS = {
    "lr": "settings={'training.peak_lr': 1e-3}",
    "learning_rate": "settings={'training.peak_lr': 1e-3}",
    "weight_decay": "settings={'training.optimizer.weight_decay': 0.05}",
    "pretrained": "vitreous.load('hf:...'), which opens trained weights",
    "imgsz": "image_size",
    "img_size": "image_size",
    "batch": "batch_size",
    "weights": "init",
}


# Of parameters by their annotation: the types that they take, and what these are called.
KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a text"),
    "str | Path": ((str, os.PathLike), "a path"),
    "ImageSize": ((int, tuple, list), "a size in pixels"),
    "Settings": ((Mapping,), "a dictionary of settings"),
}


def check_kind(name: str, value: object, annotation: str) -> None:
    """Raise InputError where a parameter is a path, a text or settings, and something else is given."""
    if annotation == "bool" and type(value).__name__ not in ("bool", "bool_"):  # bool_: of NumPy
        raise InputError(f"{Param(name)} {value!r:.60} is not True or False")
    kinds, what = KINDS.get(annotation.removesuffix(" | None"), ((object,), ""))
    if not (isinstance(value, kinds) or (value is None and annotation.endswith(" | None"))):
        raise InputError(f"{Param(name)} {value!r:.60} is not {what}")


def said_of(error: InputError, file: Path, settings: Mapping[str, object] | None) -> bool:
    """Return whether a sentence names a setting that comes from this TOML file."""

    def names(tree: Mapping[str, object], group: str = "") -> Iterator[str]:
        for name, value in tree.items():
            yield from names(value, f"{group}{name}.") if isinstance(value, Mapping) else (f"{group}{name}",)

    if not file.is_file():  # a pipe would be waited for
        return False
    try:
        known = set(names(tomllib.loads(file.read_text(encoding="utf-8-sig")))) - set(names(settings or {}))
    except (OSError, ValueError, RecursionError):
        return False
    mentioned = set(re.findall(r"[A-Za-z_]\w*(?:\.\w+)*", str(error)))
    return bool(known & mentioned) and str(file) not in str(error)


def with_checked_names(function: object) -> Any:
    """Return a public function that says which parameter is meant where one that it does not have is given;
    a class, and a function that takes any name, as it is."""
    if not isfunction(function):
        return function
    known = signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return function

    @wraps(function)
    def checked(*arguments: Any, **options: Any) -> Any:
        for name in options:
            if name not in known:
                other = OTHER_PARAMETERS.get(name)
                meant = f"did you mean {other}?" if other else nearest(name, list(known))
                raise UnknownParameter(f"vitreous.{function.__name__} has no parameter {name!r}: {meant}")
        for name, value in (*zip(known, arguments, strict=False), *options.items()):
            check_kind(name, value, str(known[name].annotation))
        try:
            return function(*arguments, **options)
        except InputError as error:
            if not (
                options.get("config") and said_of(error, Path(options["config"]), options.get("settings"))
            ):
                raise
            raise InputError(f"{options['config']}: {error}") from None

    checked.__module__ = "vitreous"  # where it is found again, by pickle too
    return checked


def require_packages(*modules: str, extra: str, what: str) -> None:
    """Refuse what needs packages that are not installed.

    Args:
        modules: names as they are imported; none of them is imported here.
        extra: which of the project's extras brings them.
        what: needs them; the subject of the sentence.

    Raises:
        InputError: one is missing; the message has the line that installs it.
    """
    if missing := [name for name in modules if not is_installed(name)]:
        raise InputError(f"{what} needs {', '.join(missing)}: pip install 'vitreous[{extra}]'")


def is_installed(module: str) -> bool:
    """Return whether a module could be imported, by its name alone."""
    try:
        return find_spec(module) is not None
    except ValueError:
        # It is imported and has no spec: a stand-in for the module.
        return True


class LazyModule:
    """A module that is imported when something of it is used for the first time."""

    __slots__ = ("name",)  # so that an assignment, which would not reach the module, raises AttributeError

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> object:
        return getattr(import_module(self.name), attribute)


def cache_folder() -> Path:
    """Return $VITREOUS_CACHE, or `vitreous` in $XDG_CACHE_HOME or ~/.cache: all that `vitreous cache`
    shows."""
    if own := os.environ.get("VITREOUS_CACHE"):
        return Path(own)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "vitreous"
    # A user without a home, as in some containers, leaves "~" as it is.
    home = os.path.expanduser("~")
    return Path(home if home != "~" else gettempdir(), ".cache", "vitreous")
