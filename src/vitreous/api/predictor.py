"""`vitreous.Predictor`: a model as a function from batches of images to columns, for other processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from vitreous.api.arguments import (
    ImageSize,
    ModelLike,
    Settings,
    check_batch_size,
    check_whole,
    model_fields,
    path_of_run,
    settings_tree,
    threshold_of,
)
from vitreous.api.model_use import ModelUse
from vitreous.data.decoding import BadImage
from vitreous.data.image_list import ImageList
from vitreous.deployment.answers import Columns
from vitreous.errors import InputError, LazyModule, nearest, utf8_name

if TYPE_CHECKING:
    from vitreous.api import engines
    from vitreous.data.dataset import ImageDataset
else:  # it imports PyTorch, without which an exported file answers
    engines = LazyModule("vitreous.api.engines")

OUTPUTS = ("labels", "features")
OPTIONS = ("top", "threshold", "tta")  # of the output "labels"


class Predictor:
    """A model as a function from images to columns.

    It can be pickled: what travels is its arguments, and each process opens the model with its first batch.
    So it serves as what Spark calls a UDF, and as a class for Ray Data's `map_batches`.

    Args:
        model: a run, a checkpoint in any format, hf:org/name, an exported program; or a model in memory,
            which travels as a whole.
        output: "labels": the columns label, probability and probabilities (of every class, in the order of
            `labels`) of a classifier, or what another task answers; "features": what the head sees.
        options: of "labels": `top`, `threshold` and `tta`; with `top` or `threshold` the columns are those of
            `vitreous predict --out answers.parquet`.

    Attributes:
        calibration: opens images on which precision "auto" compares bf16 with fp32; without any it is bf16
            only where they were compared before, and stored beside the weights.
    """

    calibration: Callable[[], ImageDataset] | None = None

    def __init__(
        self,
        model: ModelLike,
        output: str = "labels",
        *,
        batch_size: int | None = None,
        image_size: ImageSize | None = None,
        workers: int | None = None,
        device: str = "auto",
        precision: str = "auto",
        settings: Settings | None = None,
        config: str | Path | None = None,
        **options: Any,
    ) -> None:
        if output not in OUTPUTS:
            raise InputError(f"output {output!r} is not known: {nearest(output, OUTPUTS)}")
        if output != "labels" and options:
            raise InputError(
                f"output {output!r} has no option {next(iter(options))}: its options are those of "
                "output='labels'"
            )
        if unknown := [name for name in options if name not in OPTIONS]:
            why = nearest(unknown[0], OPTIONS)
            raise InputError(f"output {output!r} has no option {unknown[0]}: {why}")
        check_whole("top", top := options.get("top"))
        if top is not None and top < 1:
            raise InputError(f"`top` {top} names no label: use 1 or more")
        check_batch_size(batch_size)
        model, self.output = path_of_run(model), output
        if options.get("threshold") is not None:
            options["threshold"] = threshold_of(model, options["threshold"])
        fields = model_fields(settings_tree(settings, config), image_size)
        self.use = ModelUse(model, device, precision, batch_size, workers, fields, options)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "opened"}

    @cached_property
    def opened(self) -> engines.AnswerEngine | engines.FeatureEngine:
        """The model at work in this process."""
        return engines.ENGINES[self.output](self.use, self.calibration() if self.calibration else None)

    @property
    def labels(self) -> list[str] | None:
        """The classes that `probabilities` has, in their order; None where there is no such column."""
        return self.opened.labels

    def __call__(self, batch: Mapping[str, Any]) -> Columns:
        """Return a row for each image: its path, its answer, and what was wrong with it, or None.

        Args:
            batch: a column "path", or "bytes" (of files), or both.
        """
        if not hasattr(batch, "keys"):
            raise InputError(
                f"a batch is a mapping of columns, such as {{'path': [...]}}, not {type(batch).__name__}: "
                "vitreous.predict and vitreous.embed take a single image, a list or a folder"
            )
        if "bytes" in batch:
            images: ImageList = StoredImages(list(batch["bytes"]))
        elif "path" in batch:
            images = ImageList([str(path) for path in batch["path"]])
        else:
            raise InputError(f"a batch needs a column path or bytes; this one has {', '.join(batch)}")
        failed: dict[str, str] = {}
        found: list[Columns] = list(self.opened.columns(images, failed))
        found = found or [self.blank()]  # not one can be read, or there is none: the columns stay the same
        names = [images.name(index) for index in range(len(images))]
        rows: Columns = {"path": [utf8_name(path) for path in batch.get("path", names)]}
        known = dict[str, None]()  # the columns, in their order
        for columns in found:
            known.update(dict.fromkeys(columns))
        for column in known:
            if column != "path":
                values = chain.from_iterable(columns[column] for columns in found)
                rows[column] = [None if name in failed else next(values) for name in names]
        return {**rows, "error": [failed.get(name) for name in names]}

    def blank(self) -> Columns:
        """Return the columns that any image has."""
        return next(self.opened.columns(ImageList([Image.new("RGB", (64, 64))]), {}))


class StoredImages(ImageList):
    """Images as the bytes of files, named by their numbers: the paths of a batch may be equal."""

    def encoded(self, index: int) -> bytes:
        try:
            return bytes(memoryview(self.images[index]))  # type: ignore[arg-type]  # whatever was given
        except TypeError:  # None, or what a library has for it
            raise BadImage(self.name(index), "there are no bytes of a file") from None
