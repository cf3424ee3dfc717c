"""A path on this machine for a checkpoint at an `https:` address, on the Hugging Face hub, or of the
package."""

from __future__ import annotations

import hashlib
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

from vitreous.checkpoints.pretrained_encoders import INSTALLED_ENCODERS, encoder_folder, installed_file
from vitreous.checkpoints.source import ADAPTER, CARD, DESCRIPTIONS
from vitreous.errors import InputError, cache_folder, is_installed, require_packages
from vitreous.outside import Bundled, Hub, Local, Location, Url, Web
from vitreous.whole_files import whole

DESCRIBING = [*DESCRIPTIONS, ADAPTER]
FILES = [*DESCRIBING, "generation_config.json", CARD, "*.safetensors", "*.safetensors.index.json"]
# Of files of weights.
SUFFIXES = (".npz", ".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".pth.tar")
OLDER_FILES = [*DESCRIBING, "generation_config.json", "*.bin", "*.bin.index.json", "*.npz", "*.pth", "*.pt"]


def local_copy(place: Location, patterns: Sequence[str] = ()) -> Path:
    """Return where a checkpoint is on this machine, downloaded if need be. Raises InputError: it cannot be
    had, or is at an address that is not read.

    Args:
        patterns: of the files of a model on the hub; by default its weights and what describes them.
    """
    match place:
        case Local(path):
            return path
        case Hub():
            return from_hub(place, patterns)
        case Web(address):
            return from_address(address)
        case Bundled(name):
            return installed_file(name) if name in INSTALLED_ENCODERS else encoder_folder(name)
        case Url(address):
            raise InputError(
                f"{address}: checkpoints come from a path, an https: address, hf:org/name or vitreous:small"
            )


def name_on_hub(text: str) -> str | None:
    """Return how a model of the hub is written, if `text`, which is not a file, could be the name of one:
    org/name, or an architecture or a tag of timm's. None where it could not."""
    if text.startswith("timm:"):
        return f"hf:timm/{text.removeprefix('timm:')}"
    if text.endswith(SUFFIXES) or re.match(r"(?i)(\w+\+)?(vit|bit|seg)-[\w-]+/", text):
        return None
    if re.fullmatch(r"timm/[\w-]+|\w+_patch\d+\w*", text):
        from vitreous.checkpoints.formats.timm_facts import tags_of

        architecture = text.removeprefix("timm/")
        tags = tags_of(architecture)
        return f"hf:timm/{architecture}{''.join(f'.{tag}' for tag in list(tags)[:1])}"
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        return f"hf:{text}"
    return f"hf:timm/{text}" if re.match(r"\w+_patch\d+\w*\.", text) else None


def hub_hint(text: str) -> str:
    """Return the end of a sentence about `text`, which is nothing that can be opened."""
    if re.fullmatch(r"(\w+\+)?(ViT|BiT|Seg)-[\w-]+(/\d+)?", text):
        return f"it is the name of an architecture: vt.create({text!r}) makes one with fresh weights"
    if name := name_on_hub(text):
        return f"did you mean {name}?"
    return "a model of the Hugging Face hub is written hf:org/name"


def from_hub(place: Hub, patterns: Sequence[str]) -> Path:
    """Return a model of the hub, a folder or a file in it, through huggingface_hub, its cache and its offline
    mode."""
    name, repository, inside, revision = place.text, place.repository, place.inside, place.revision
    require_packages("huggingface_hub", extra="hub", what=name)
    if inside.endswith((*SUFFIXES, ".json")):
        parent = inside.rpartition("/")[0]
        wanted = [*(patterns or DESCRIBING), CARD, Path(inside).name]
        root = snapshot(name, repository, revision, parent, wanted)
    else:
        root = snapshot(name, repository, revision, inside, patterns or FILES)
        if not patterns and not list((root / inside).glob("*.safetensors")):
            root = snapshot(name, repository, revision, inside, OLDER_FILES)
    if inside and not (root / inside).exists():
        raise InputError(f"{name}: there is no {inside} in {repository}")
    return root / inside


def cached(repository: str, revision: object = None) -> Path | None:
    """Return the copy on this machine of a model of the hub; None where there is none."""
    if not is_installed("huggingface_hub") or not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    revision = revision if isinstance(revision, str) else None
    try:
        return Path(snapshot_download(repository, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def snapshot(name: str, repository: str, revision: str | None, folder: str, patterns: Sequence[str]) -> Path:
    """Return the copy on this machine of a repository's files of one folder."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    within = f"{folder}/" if folder else ""
    wanted = [f"{within}{pattern}" for pattern in patterns]
    try:
        found = snapshot_download(
            repository, revision=revision, allow_patterns=wanted, ignore_patterns=[f"{within}*/*"]
        )
    except LocalEntryNotFoundError:
        raise InputError(
            f"{name} is not in the cache, and the hub cannot be reached (or is set offline)"
        ) from None
    except HFValidationError:
        raise InputError(f"{name} is not a name of the hub: write hf:org/name") from None
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"cannot get {name} from the hub: {reason}") from None
    return Path(found)


def from_address(address: str) -> Path:
    """Return a file at an `https:` address, cached."""
    name = re.sub(r"[^\w.-]", "_", address.split("?")[0].rsplit("/", 1)[-1]) or "checkpoint"
    target = cache_folder() / "downloads" / hashlib.sha256(address.encode()).hexdigest()[:16] / name
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            whole(target) as unfinished,
            urllib.request.urlopen(address, timeout=30) as response,
            unfinished.open("wb") as file,
        ):
            shutil.copyfileobj(response, file, 2**20)
            # urllib takes for the end of a response also where it ended before its Content-Length
            length, encoding = (response.headers.get(name) for name in ("Content-Length", "Content-Encoding"))
            if length is not None and encoding in (None, "identity") and file.tell() != int(length):
                raise OSError(
                    f"the connection broke off after {file.tell():,} of {int(length):,} bytes; try again"
                )
    except (OSError, ValueError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise InputError(f"cannot get {address}: {reason}") from None
    return target
