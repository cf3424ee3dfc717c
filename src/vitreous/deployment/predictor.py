"""Files in, labels out: a trained model on images that nobody has labeled."""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from vitreous.data.dataset import BadImage
from vitreous.data.decoding import EXTENSIONS, decode
from vitreous.data.loading import EvaluationLoader
from vitreous.errors import InputError
from vitreous.models.names import Model
from vitreous.models.segmenter import Segmenter

NO_SUCH = "no such file or folder"


@dataclass(frozen=True)
class Choice:
    """A label, and what probability the model gives it."""

    label: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """What the model says about one file: the likeliest labels, likeliest first."""

    path: str
    top: tuple[Choice, ...]

    @property
    def label(self) -> str:
        return self.top[0].label

    @property
    def probability(self) -> float:
        return self.top[0].probability

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "label": self.label,
            "probability": self.probability,
            "top": [asdict(choice) for choice in self.top],
        }


@dataclass(frozen=True)
class Failure:
    """A file that could not be classified, and why."""

    path: str
    reason: str


class Predictor:
    """A model ready to classify.

    Args:
        model: with a head. Its own preprocessing is used, so an image is seen as in training. Where its task
            is "multilabel", each class is a question of its own, and the probabilities need not sum to one.
        device: where to compute.

    Raises:
        InputError: the model has no head.
    """

    def __init__(self, model: Model, device: str | torch.device = "cpu") -> None:
        classes = model.config.num_classes
        if isinstance(model, Segmenter):
            raise InputError("the model gives each pixel a class, not the image: use SegmentPredictor")
        if classes is None:
            raise InputError("the model has no head, so it cannot classify: train one with vitreous train")
        self.model = model.to(device).eval()
        self.device = device
        self.labels = model.labels or [str(number) for number in range(classes)]

    def predict(
        self,
        paths: Sequence[str | Path],
        *,
        top: int = 5,
        batch_size: int = 64,
        workers: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[list[Prediction], list[Failure]]:
        """Classify files; those that cannot be decoded are failures, and do not keep the others waiting.

        Args:
            top: how many of the likeliest labels to name.
            progress: called behind each batch with the files done and the files in all.
        """
        files = Files(paths)
        loader = EvaluationLoader(
            files, preprocessing=self.model.preprocessing, batch_size=batch_size, workers=workers
        )
        predictions: list[Prediction] = []
        for batch in loader:
            choices = self.choices(batch.images, top=top)
            names = (files.name(index) for index in batch.indices.tolist())
            predictions += [Prediction(name, best) for name, best in zip(names, choices, strict=True)]
            if progress:
                progress(len(predictions) + len(loader.bad), len(files))
        reasons = dict(loader.bad)
        return predictions, [Failure(path, reasons[path]) for path in files.paths if path in reasons]

    @torch.inference_mode()
    def choices(self, images: Float[Tensor, "B C H W"], *, top: int = 5) -> list[tuple[Choice, ...]]:
        """The likeliest labels of every image of a batch, likeliest first."""
        logits = self.model(images.to(self.device)).float()
        probabilities = logits.sigmoid() if self.model.task == "multilabel" else logits.softmax(dim=-1)
        values, classes = probabilities.topk(min(top, probabilities.shape[-1]), dim=-1)
        return [
            tuple(Choice(self.labels[number], value) for value, number in zip(*row, strict=True))
            for row in zip(values.tolist(), classes.tolist(), strict=True)
        ]


class Files:
    """Images of a list of paths, without targets."""

    classes: tuple[str, ...] = ("",)

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self.paths = [str(path) for path in paths]
        self.targets = np.zeros(len(paths), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, index: int) -> str:
        return self.paths[index]

    def encoded(self, index: int) -> bytes:
        try:
            return Path(self.paths[index]).read_bytes()
        except OSError as error:
            raise BadImage(self.paths[index], error.strerror or str(error)) from error

    def image(self, index: int) -> Image.Image:
        return decode(self.encoded(index), self.name(index))


def find_images(wanted: Sequence[str]) -> tuple[list[str], list[Failure]]:
    """The files that are meant by files, folders (with everything below them) and globs, each once; and what
    was asked for in vain.

    A file is taken whatever its name; in folders those that are named like images are.

    Raises:
        InputError: nothing was found at all.
    """
    found: dict[str, None] = {}
    missing: list[Failure] = []
    for each in wanted:
        files = matches(each)
        found.update(dict.fromkeys(files))
        if not files:
            missing.append(Failure(each, "a folder without images" if Path(each).is_dir() else NO_SUCH))
    if not found:
        tried = "; ".join(f"{failure.path}: {failure.reason}" for failure in missing)
        raise InputError(f"no image found ({tried}): give files, folders or globs such as 'photos/*.jpg'")
    return list(found), missing


def matches(wanted: str) -> list[str]:
    """The files of one argument, in order."""
    path = Path(wanted).expanduser()
    if path.is_dir():
        return [str(file) for file in sorted(path.rglob("*")) if is_image(file)]
    if path.exists():
        return [wanted]
    below = (Path(file) for file in sorted(glob.glob(str(path), recursive=True)))
    return [str(file) for file in below if file.is_file()]


def is_image(path: Path) -> bool:
    """Named like an image, and not hidden."""
    return path.suffix.lower() in EXTENSIONS and not path.name.startswith(".") and path.is_file()
