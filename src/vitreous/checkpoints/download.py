"""A path on this machine for a checkpoint at an `https:` address or on the Hugging Face hub."""

from __future__ import annotations

import hashlib
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from vitreous.checkpoints.whole_files import whole
from vitreous.errors import InputError, cache_folder, require_packages

DESCRIPTIONS = ["config.json", "preprocessor_config.json", "processor_config.json"]
FILES = [*DESCRIPTIONS, "README.md", "*.safetensors", "*.safetensors.index.json"]
SUFFIXES = (".npz", ".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".pth.tar")  # of files of weights
OLDER_FILES = [*DESCRIPTIONS, "*.bin", "*.bin.index.json", "*.npz", "*.pth", "*.pt"]


def local_copy(source: str, patterns: Sequence[str] = ()) -> Path:
    """A path on this machine for an address or a name on the hub.

    Args:
        patterns: of the files of a model on the hub; by default its weights and what describes them.
    """
    if source.startswith("hf:"):
        return from_hub(source, patterns)
    if source.startswith("https:"):
        return from_address(source)
    raise InputError(f"{source}: checkpoints come from a path, an https: address or hf:org/name")


def hub_hint(text: str) -> str:
    """How a model of the hub is written, if `text`, which is not a file, could be the name of one."""
    if text.endswith(SUFFIXES):
        return "hf:org/name"
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        return f"hf:{text}"
    return f"hf:timm/{text}" if re.match(r"\w+_patch\d+", text) else "hf:org/name"


def from_hub(name: str, patterns: Sequence[str] = ()) -> Path:
    """`hf:org/name` or `hf:org/name@revision`, through huggingface_hub, its cache and its offline mode."""
    match = re.fullmatch(r"hf:([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", name)
    if not match:
        raise InputError(f"{name!r}: a model on the hub is written hf:org/name or hf:org/name@revision")
    require_packages("huggingface_hub", extra="hub", what=name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(match[1], revision=match[2], allow_patterns=list(patterns) or FILES))
        if not patterns and not list(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(match[1], revision=match[2], allow_patterns=OLDER_FILES))
    except LocalEntryNotFoundError:
        raise InputError(
            f"{name} is not in the cache, and the hub cannot be reached (or is set offline)"
        ) from None
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"cannot get {name} from the hub: {reason}") from None
    return folder


def from_address(address: str) -> Path:
    """A file at an `https:` address, cached."""
    name = re.sub(r"[^\w.-]", "_", address.split("?")[0].rsplit("/", 1)[-1]) or "checkpoint"
    target = cache_folder() / hashlib.sha256(address.encode()).hexdigest()[:16] / name
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
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise InputError(f"cannot get {address}: {reason}") from None
    return target
