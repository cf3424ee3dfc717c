"""Answers, and exported classifiers that give them without PyTorch: images are prepared by Pillow and NumPy,
and computed by ONNX Runtime or what an add-on has."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from vitreous.data.decoding import BadImage, EncodedImage
from vitreous.data.image_list import ImageList
from vitreous.data.workers import worker_count
from vitreous.deployment.programs import PIXELS, Exported, format_of, open_exported
from vitreous.extensions import contributed
from vitreous.models.preprocessing import Preprocessing, upright
from vitreous.results import Answer, Result, percent, scalars

TASKS = ("classification", "multilabel")
MANY = 400  # images: for more, PyTorch's and numba's decoding is worth their loading
BATCH = 8  # images: what a CPU computes fastest, or nearly so


@dataclass(frozen=True)
class Choice:
    """A label, and what probability the model gives it."""

    label: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The most probable labels of one image, in descending order, and the first of them.

    Attributes:
        labels: all that reach a threshold, where one was given.
    """

    path: str
    label: str
    probability: float
    top: tuple[Choice, ...]
    labels: tuple[str, ...] | None = None

    @classmethod
    def of(cls, path: str, top: tuple[Choice, ...], labels: tuple[str, ...] | None = None) -> Prediction:
        return cls(path, top[0].label, top[0].probability, top, labels)

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self)
        if self.labels is None:
            del fields["labels"]
        return fields

    def line(self) -> str:
        """Return the prediction for people, in a line."""
        some = self.top[1:] if self.labels is None else self.top
        others = ", ".join(f"{each.label} {percent(each.probability)}" for each in some)
        if self.labels is not None:
            said = f"{self.path}  {' | '.join(self.labels) or '-'}"
        else:
            said = f"{self.path}  {self.label}  {percent(self.probability)}"
        return f"{said}  ({others})" if others else said


@dataclass(frozen=True)
class Predictions(Result):
    """The answers to images, in order, and the images that could not be read, with the reason.

    Attributes:
        count: how many answers there are.
        out: the file that they are in; then `answers` is empty.
    """

    task: str
    answers: Sequence[Answer]
    failed: Mapping[str, str]
    count: int
    about: Mapping[str, Any] = field(default_factory=dict)
    out: Path | None = None

    def to_json(self) -> dict[str, Any]:
        answers = [each.to_json() for each in self.answers]
        given = {"count": self.count, "out": str(self.out)} if self.out else {"predictions": answers}
        failed = [{"path": path, "reason": reason} for path, reason in self.failed.items()]
        return {"task": self.task, **given, "failed": failed, **self.about}

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return iter(self.answers)

    def __getitem__(self, index: int) -> Any:
        return self.answers[index]

    def table(self) -> list[dict[str, Any]]:
        """Return one row for each image."""
        return [scalars(each.to_json()) for each in self.answers]


class Substitute(NamedTuple):
    """What computes a model in its place, as an add-on has chosen.

    Attributes:
        sentence: about it.
        file: an exported model; None where PyTorch computes.
        open: returns the model as PyTorch computes it then.
    """

    sentence: str
    file: Path | None
    open: Callable[[Any], Any]


def substitute(model: Any) -> Substitute | None:
    """Return what computes MODEL faster, in its place; None where nothing was chosen for it."""
    return next((found for choose in contributed("substitutes") if (found := choose(model))), None)


def sha256_of(file: Path) -> str:
    """Return a hash of all of a file: a calibration changes the head of a model alone."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def open_torchless(file: Path) -> Exported | None:
    """Open an exported classifier that is computed without PyTorch; None for any other file."""
    format = format_of(file)
    if format is None or format.package is None:
        return None
    found = open_exported(file)
    return found if found.about["task"] in TASKS and found.about["model"].get("num_classes") else None


def prepared(image: Any, how: Preprocessing) -> Float[np.ndarray, "C H W"]:
    """Return an upright image of Pillow as the model takes it: what `how` makes of it, in NumPy."""
    if isinstance(image, np.ndarray):
        pixels = how.pixels(image).permute(1, 2, 0).numpy().astype(np.float32)
    else:
        pixels = np.asarray(how.image(image), dtype=np.float32).reshape(*how.size, how.channels)
    mean, std = (np.array(each, dtype=np.float64) for each in (how.mean, how.std))
    factor, shift = (1 / (255 * std)).astype(np.float32), (-mean / std).astype(np.float32)
    return np.ascontiguousarray((pixels * factor + shift).transpose(2, 0, 1))


def probabilities(found: Exported, images: Sequence[Any]) -> Float[np.ndarray, "B classes"]:
    """Return the probability of each label of upright images."""
    if found.about["inputs"] == PIXELS:  # of its own size each
        how = found.preprocessing
        rows = (np.asarray(upright(each, how.channels)).reshape(1, *each.size[::-1], -1) for each in images)
        return np.concatenate([found.compute(np.ascontiguousarray(row), 1)[0] for row in rows])
    how = found.preprocessing
    batch = np.stack([each if isinstance(each, np.ndarray) else prepared(each, how) for each in images])
    logits = found.compute(batch, 1)[0].astype(np.float32)
    if found.about["task"] == "multilabel":
        return np.exp(-np.logaddexp(0, -logits))  # without an overflow
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def choices(labels: Sequence[str], row: NDArray[np.float32], top: int) -> tuple[Choice, ...]:
    """Return the most probable labels, in descending order."""
    order = np.argsort(-row, kind="stable")[:top]
    return tuple(Choice(labels[number], float(row[number])) for number in order.tolist())


def predict_exported(
    found: Exported,
    images: ImageList,
    *,
    top: int = 5,
    batch_size: int = BATCH,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Predictions:
    """Classify images; threads decode the next ones while the engine computes."""
    labels, how = found.labels, found.preprocessing
    answers: list[Prediction] = []
    failed: dict[str, str] = {}

    def read(index: int) -> Any:
        try:
            data = images.encoded(index)
            data = images.images[index] if data is None else data
            encoded = EncodedImage(data, images.name(index), how.channels, how.value_range)
            if encoded.bands is not None and found.about["inputs"] != PIXELS:
                encoded.scaled_bands()  # or it is a bad image
                return prepared(encoded.bands, how)
            image = encoded.upright()
            return image if found.about["inputs"] == PIXELS else prepared(image, how)
        except BadImage as bad:
            return bad

    with ThreadPoolExecutor(worker_count(workers) or 1) as threads:
        starts = range(0, len(images), batch_size)
        ahead = [list(range(start, min(start + batch_size, len(images)))) for start in starts]
        waiting = [[threads.submit(read, index) for index in rows] for rows in ahead[:2]]
        for number, rows in enumerate(ahead):
            some = [each.result() for each in waiting.pop(0)]
            if number + 2 < len(ahead):
                waiting.append([threads.submit(read, index) for index in ahead[number + 2]])
            good = [
                (row, each) for row, each in zip(rows, some, strict=True) if not isinstance(each, BadImage)
            ]
            failed |= {each.name: each.reason for each in some if isinstance(each, BadImage)}
            if good:
                for (index, _), row in zip(
                    good, probabilities(found, [each for _, each in good]), strict=True
                ):
                    answers.append(Prediction.of(images.name(index), choices(labels, row, top)))
            if progress:
                progress(len(answers) + len(failed), len(images))
    return Predictions(found.about["task"], answers, failed, len(answers))
