"""What comes from outside: files, numbers and names, taken for no more than they are."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import re
import stat
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from io import FileIO
from pathlib import Path

from vitreous.errors import InputError

LARGEST_FILE = 2**31  # bytes of one image
PART = 1 << 16  # bytes that are read at once, at least
# Folders of systems, in small letters.
SYSTEM = ("__macosx", "@eadir", "$recycle.bin", "system volume information", "lost+found")


def open_regular(path: str | Path) -> FileIO:
    """Open a regular file to read it. What hangs or has no end (a pipe, a device, a socket) is not opened, or
    closed again if it took the file's place. Raises OSError."""
    check_regular(os.stat(path), path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        check_regular(os.fstat(descriptor), path)
        return os.fdopen(descriptor, "rb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise


def check_regular(info: os.stat_result, path: str | Path) -> None:
    """Raise OSError for anything but a regular file."""
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(info.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def read_regular(path: str | Path, largest: int = LARGEST_FILE) -> bytes:
    """Return the bytes of a regular file of at most `largest` bytes. Raises OSError."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = b""
        while size <= largest >= len(content):
            part = file.read(max(size + 1, PART))
            if part is None:  # a regular file of /proc that would wait
                raise OSError(errno.EINVAL, "not a regular file", str(path))
            content += part
            if not part or len(content) == size:  # most files are read by one call
                break
    if max(size, len(content)) > largest:
        raise OSError(errno.EFBIG, f"more than {largest} bytes", str(path))
    return content


def read_text(path: str | Path, encoding: str = "utf-8", *, errors: str = "strict") -> str:
    """Return the text of a regular file, its lines ended by \\n, without the mark that Windows puts before
    UTF-8. Raises OSError or UnicodeDecodeError."""
    text = read_regular(path).decode(encoding, errors).removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def identity(info: os.stat_result) -> tuple[int, int]:
    """Return what tells a folder from others, whatever link leads to it."""
    return info.st_dev, info.st_ino


def is_visible_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether this is a folder of the user's, and not a hidden one or the system's."""
    try:
        return entry.name[0] != "." and entry.name.lower() not in SYSTEM and entry.is_dir()
    except OSError:  # a link to itself
        return False


def local_path(path: str | Path) -> Path:
    """Return a path with the user's home for ~ (one of an unknown user is a name like any other), and the
    form of its name that is there. Raises InputError: there is no name, which would be
    the current folder."""
    if path == "":
        raise InputError("a path is empty: is a variable not set? Name a file or a folder")
    found = Path(os.path.expanduser(path))
    return found if str(found).isascii() else same_path(found) or found


@dataclass(frozen=True)
class Local:
    """A path on this machine."""

    path: Path


@dataclass(frozen=True)
class Hub:
    """A model of the Hugging Face hub, hf:org/name[/inside][@revision]."""

    text: str
    repository: str
    inside: str
    revision: str | None


@dataclass(frozen=True)
class Web:
    """A file at an https: address."""

    address: str


@dataclass(frozen=True)
class Bundled:
    """An encoder that comes with the package, vitreous:small."""

    name: str


@dataclass(frozen=True)
class Url:
    """An address of another scheme: of a bucket, say."""

    address: str


Location = Local | Hub | Web | Bundled | Url
HUB = "hf:"
BUNDLED = "vitreous:"
# A path drops the second slash of an address; one letter is a drive of Windows.
ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")


def scheme_of(text: str | Path) -> str:
    """Return by what protocol something is reached: what is before the :// of an address, "hf" for what is
    on the hub; "" for a path of this machine."""
    found = re.match(r"[A-Za-z][\w+.:-]*(?=://)|hf(?=:)", str(text))
    return found[0] if found else ""


def is_url(text: str | Path) -> bool:
    """Return whether it is the address of something that is reached by a protocol, which hf:NAME is not."""
    return re.match(r"[A-Za-z][\w+.:-]*://", str(text)) is not None


def parse_place(text: str | Path) -> Location:
    """Return what a name of a checkpoint means. Raises InputError: it is empty, or not a name of the hub."""
    written = str(text)
    if written.startswith(HUB):
        match = re.fullmatch(r"hf:([\w.-]+/[\w.-]+)((?:/[\w.+-]+)*)/?(?:@([\w./-]+))?", written)
        if not match:
            raise InputError(
                f"{written!r}: a model on the hub is written hf:org/name, hf:org/name/file or "
                "hf:org/name@revision"
            )
        return Hub(written, match[1], match[2].strip("/"), match[3])
    if written.startswith(BUNDLED):
        return Bundled(written)
    if written.startswith("https:"):
        return Web(ADDRESS.sub("https://", written, count=1))
    if found := ADDRESS.match(written):
        return Url(f"{found[1]}://{written[found.end() :]}")
    return Local(local_path(text))


def parse_digits(text: str | bytes, low: int = 0, high: int = 2**63 - 1, base: int = 10) -> int:
    """Return the number that plain digits write. Raises ValueError: there are others (a sign, a space, an
    underscore, digits of other scripts), or it is not in low ... high."""
    written = text.decode("ascii") if isinstance(text, bytes) else text
    digits = "0123456789"[:base]
    if not 0 < len(written) <= 20 or written.strip(digits):
        raise ValueError(f"{written[:20]!r} is not a whole number")
    number = int(written, base)
    if not low <= number <= high:
        raise ValueError(f"{number} is not in {low} ... {high}")
    return number


def number_of_launcher(variable: str, otherwise: int | None = None, low: int = 0) -> int:
    """Return the number that torchrun, or what starts processes in its way, has put into the environment.

    Args:
        otherwise: what it is where the variable is not set.

    Raises:
        InputError: it is not a number from `low` on, or not there and has to be.
    """
    text = os.environ.get(variable, "")
    if not text and otherwise is not None:
        return otherwise
    try:
        return parse_digits(text, low, 2**20)
    except ValueError:
        raise InputError(
            f"the environment variable {variable} is {text[:20]!r}, not a number of at least {low}: unset "
            "it, or start the processes with torchrun"
        ) from None


def finite_number(text: str, low: float = -math.inf, high: float = math.inf) -> float:
    """Return the finite number that a text writes. Raises ValueError: none, or one not in low ... high."""
    number = float(text)
    if "_" in text or not (math.isfinite(number) and low <= number <= high):
        raise ValueError(f"{text[:20]!r} is not a finite number in {low:g} ... {high:g}")
    return number


def same_name(name: str) -> str:
    """Return a name in the form in which names are compared and classes are named: Unicode's NFC, since a Mac
    stores Hangul and accents in pieces (NFD); bytes of UTF-8 that the locale does not know are text."""
    if name.isascii():
        return name
    with suppress(UnicodeError):
        name = os.fsencode(name).decode("utf-8")
    return unicodedata.normalize("NFC", name)


def same_path(path: str | Path) -> Path | None:
    """Return the path that is there under this name, perhaps in another form of Unicode, or with slashes for
    the backslashes of Windows; None where there is none."""
    for text in dict.fromkeys((str(path), str(path).replace("\\", "/"))):
        found = Path(text[:1] if text.startswith("/") else "")
        try:
            for part in Path(text).parts:
                if not os.path.lexists(found / part):
                    part = (
                        "" if part.isascii() else forms_in(found, os.stat(found).st_mtime_ns)[same_name(part)]
                    )
                    if not part:
                        raise FileNotFoundError
                found = found / part
            return found
        except (OSError, KeyError, ValueError):
            continue
    return None


def existing_path(path: str | Path) -> str | Path:
    """Return the path that is there, perhaps in another form of Unicode or without Windows' backslashes."""
    text = str(path)
    if (text.isascii() and "\\" not in text) or os.path.lexists(path):
        return path
    return same_path(path) or path


@lru_cache(maxsize=64)
def forms_in(folder: Path, changed: int) -> dict[str, str]:
    """Return the names in a folder, as it was changed last, by the form in which they are compared."""
    return {same_name(name): name for name in os.listdir(folder)}


def looks_of(name: str) -> str:
    """Return what is equal for names that a person takes for one: form, case, width and spaces aside."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def sha256_of(file: Path) -> str:
    """Return a hash of all of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
