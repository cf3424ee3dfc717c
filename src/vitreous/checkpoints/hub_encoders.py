"""Pre-trained encoders for images of any kind that can be had: one in the Hugging Face hub's cache on this
machine, a small open one of the hub, if it can be reached within a few seconds, and those that need no
download."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vitreous.checkpoints.installed_encoders import encoder_names, installed_encoder_names
from vitreous.errors import is_installed
from vitreous.outside import BUNDLED, read_text

# From the best features to the fewest bytes, each under Apache-2.0.
OPEN_ENCODERS = (
    "facebook/dinov2-small",
    "facebook/dinov2-with-registers-small",
    "WinKawaks/vit-tiny-patch16-224",
)
KINDS = {"dinov2", "dinov2_with_registers", "dinov3_vit", "vit", "deit", "ijepa", "siglip_vision_model"}
LARGEST = 400 * 10**6  # bytes: of a larger one, features would take longer than what they are for
PATIENCE = 3.0  # seconds, in which the hub must answer


BEST = f"{BUNDLED}best"  # the name of the first encoder at hand


class HubEncoder(NamedTuple):
    """A pre-trained encoder.

    Attributes:
        name: for `load` and --init.
        about: its size and license, as far as they are known, and where it is.
    """

    name: str
    about: str


def cached_encoders() -> Iterator[HubEncoder]:
    """Yield the encoders in the hub's cache that vitreous reads: the open ones above first, the smaller ones
    of others before the larger."""
    if not is_installed("huggingface_hub"):
        return
    from huggingface_hub import constants

    found = []
    for folder in sorted(Path(constants.HF_HUB_CACHE).glob("models--*--*")):
        name = folder.name.removeprefix("models--").replace("--", "/", 1)
        for snapshot in sorted(folder.glob("snapshots/*")):
            weights, config = snapshot / "model.safetensors", snapshot / "config.json"
            if not (weights.is_file() and config.is_file()) or weights.stat().st_size > LARGEST:
                continue
            try:
                described = json.loads(read_text(config))
            except (OSError, ValueError):
                continue
            if isinstance(described, dict) and described.get("model_type") in KINDS:
                found.append((name, weights.stat().st_size))
                break
    place = {name: number for number, name in enumerate(OPEN_ENCODERS)}
    found.sort(key=lambda each: (place.get(each[0], len(place)), each[1]))
    for name, size in found:
        yield HubEncoder(f"hf:{name}", f"{size / 1e6:.0f} MB, in the Hugging Face cache of this machine")


def reachable_encoder() -> HubEncoder | None:
    """Return the first open encoder that the hub describes within a few seconds; None where it cannot be
    reached, or is set offline."""
    if not is_installed("huggingface_hub"):
        return None
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        return None
    try:
        info = HfApi().model_info(OPEN_ENCODERS[0], timeout=PATIENCE, files_metadata=True)
    except Exception:  # of whatever library speaks to the hub: there is another encoder
        return None
    sizes = [file.size or 0 for file in info.siblings or () if file.rfilename == "model.safetensors"]
    license_of = getattr(info.card_data, "license", None) or "unknown"
    return HubEncoder(
        f"hf:{OPEN_ENCODERS[0]}",
        f"{sum(sizes) / 1e6:.0f} MB, license {license_of}, downloaded from the Hugging Face hub; --offline "
        "never asks it",
    )


def encoders_at_hand(*, offline: bool) -> Iterator[HubEncoder]:
    """Yield pre-trained encoders, the best first; the hub is asked where none before suited."""
    yield from cached_encoders()
    if not offline and (found := reachable_encoder()):
        yield found
    for name in installed_encoder_names():
        yield HubEncoder(name, "comes with a package that is installed")
    for name in encoder_names():
        yield HubEncoder(name, "comes with vitreous")


def best_encoder() -> HubEncoder:
    """Return the best encoder that needs no download: what `vitreous:best` means."""
    return next(encoders_at_hand(offline=True))
