"""`vitreous.Predictor`: a model as a function from batches of images to columns, for other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from vitreous.api.arguments import (
    changed_fields,
    check_batch_size,
    check_whole,
    model_fields,
    path_of_run,
    say,
    settings_tree,
    threshold_of,
    weights_folder,
)
from vitreous.api.model_use import ModelUse
from vitreous.api.options import PredictOptions
from vitreous.data.image_list import ImageList, ImageRows, is_blank
from vitreous.deployment.answers import WRONG, AnswerColumns, with_failed_rows, with_unreadable
from vitreous.deployment.programs import is_program, substitute
from vitreous.deployment.torchless import TorchlessClassifier, open_torchless
from vitreous.errors import InputError, LazyModule, Param, nearest, utf8_name
from vitreous.models.stored import BadImage
from vitreous.outside import local_path
from vitreous.training.options import ImageSize, ModelLike, Settings, options_of

if TYPE_CHECKING:
    from vitreous.api import engines, model_source
    from vitreous.data.dataset import ImageDataset
    from vitreous.results import Answer

    Engine = engines.ModelEngine | TorchlessClassifier
else:  # they import PyTorch, without which an exported file answers
    engines = LazyModule("vitreous.api.engines")
    model_source = LazyModule("vitreous.api.model_source")

OUTPUTS = ("labels", "features")
OPTIONS = tuple(name for name, each in options_of(PredictOptions).items() if each.of == "labels")
NO_ANSWER = ("path", *WRONG)  # the columns that an image has without an answer


class Predictor:
    """A model as a function from images to columns.

    It can be pickled: only its arguments are sent, and each process opens the model with its first batch.
    It therefore works as a Spark UDF and as a class for Ray Data's `map_batches`.

    Example:
        >>> predictor = vt.Predictor("runs/photos")
        >>> columns = predictor({"path": ["photo.jpg", "photos/pears/0.jpg"]})
        >>> sorted(columns)
        ['damaged', 'error', 'label', 'path', 'probabilities', 'probability']

    Args:
        model: a run, a checkpoint in any format, hf:org/name or an exported program; or a model in memory,
            which is pickled as a whole.
        output: "labels": for a classifier, the columns label, probability and probabilities (of every class,
            in the order of `labels`), or the predictions of another task; "features": the input of the head.
        batch_size: number of images in a batch; by default 16 on a CPU, 64 on a GPU.
        image_size: input size of the model in pixels: 384, or (height, width); by default its own.
        workers: number of threads that decode images; by default one per core.
        device: auto, cpu, cuda, cuda:N or mps; auto is a GPU if there is one.
        precision: fp32; bf16; auto: bf16 if it is faster and gives the same answers.
        settings, config: fields of the model's configuration, {"model.heads": 12}; and a TOML file of them.
        options: for "labels": `top`, `threshold` and `tta`; with `top` or `threshold`, the columns are those
            of `vitreous predict --out answers.parquet`.

    Attributes:
        calibration: opens the images on which precision "auto" compares bf16 with fp32. Without images, it is
            bf16 only if an earlier comparison is stored next to the weights.
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
            raise InputError(f"unknown output {output!r}: {nearest(output, OUTPUTS)}")
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
            raise InputError(f"{Param('top')} {top} gives no label: use 1 or more")
        check_batch_size(batch_size)
        model, self.output = path_of_run(model), output
        if options.get("threshold") is not None:
            options["threshold"] = threshold_of(model, options["threshold"])
        fields = model_fields(settings_tree(settings, config), image_size)
        self.use = ModelUse(model, device, precision, batch_size, workers, fields, options)

    def __getstate__(self) -> dict[str, object]:
        of_process = ("engine", "light", "opened")
        return {name: value for name, value in vars(self).items() if name not in of_process}

    @cached_property
    def opened(self) -> engines.ModelEngine:
        """The model, open in this process and computed by PyTorch."""
        return (engines.AnswerEngine if self.output == "labels" else engines.FeatureEngine)(self.use)

    @cached_property
    def engine(self) -> Engine:
        """The model at work in this process, for any images that come."""
        self.opened.begin(self.calibration() if self.calibration else None)
        return self.opened

    @cached_property
    def light(self) -> TorchlessClassifier | None:
        """What classifies a few images without PyTorch: an exported file that the model is, or that was
        chosen for it; None where PyTorch computes."""
        use, options = self.use, self.use.options
        if self.output != "labels" or use.fields:
            return None
        if options.get("tta") or options.get("threshold") is not None:
            return None
        if not isinstance(use.model, str | Path) or use.device not in ("auto", "cpu"):
            return None
        if use.precision not in ("auto", "fp32"):
            return None
        file, sentence = Path(use.model), ""
        if not is_program(use.model):
            chosen = substitute(use.model) if use.precision == "auto" else None
            if chosen is None or chosen.file is None:
                return None
            file, sentence = chosen.file, chosen.sentence
        exported = open_torchless(file)
        if exported is None:
            return None
        if sentence:
            say(sentence)
        return TorchlessClassifier(exported, options.get("top") or 5, use.batch_size, use.workers)

    def begin(self, images: ImageDataset, folder: Path | None = None) -> Engine:
        """Open the model for these images: without PyTorch where that can be, and they are not so many that
        PyTorch's way of reading them is worth its loading.

        Args:
            folder: for the files of a task whose answers are files.
        """
        if folder is None and self.light and not self.light.is_slow_for(len(images)):
            self.engine = self.light
        else:
            self.opened.begin(images, folder)
            self.engine = self.opened
        return self.engine

    @property
    def labels(self) -> list[str] | None:
        """The classes that `probabilities` has, in their order; None where there is no such column."""
        return self.engine.labels

    def batches(
        self, images: ImageDataset, compute: Callable[[list[str], Any], Any]
    ) -> Iterator[tuple[ImageRows, Any]]:
        """Yield the rows of images, all of them and in order, each batch with what is computed of those that
        can be read, or None. This is the one loop over images that are asked about, with any engine."""
        for rows in self.engine.rows(images):
            names = [rows.names[place] for place in rows.readable]
            yield rows, compute(names, rows.images) if names else None

    def answers(self, images: ImageDataset) -> Iterator[Answer]:
        """Yield the answer to each image, in order: of one that cannot be read why not."""
        for rows, found in self.batches(images, self.engine.answers):
            yield from with_unreadable(rows, found or ())

    def columns(self, images: ImageDataset) -> Iterator[AnswerColumns]:
        """Yield the rows of images, a batch after the other, as columns: path, those of the output, and what
        is wrong with an image."""
        for rows, found in self.batches(images, self.engine.columns):
            yield with_failed_rows(rows, found or {})

    def __call__(self, batch: Mapping[str, Any]) -> AnswerColumns:
        """Return a row for each image: its path, its prediction, and what is wrong with it. `damaged` says
        what is missing, and `error` why it cannot be read; both are None for an intact image.

        Args:
            batch: columns "path" or "bytes" (the content of files), or both.
        """
        if not hasattr(batch, "keys"):
            raise InputError(
                f"a batch is a mapping of columns, such as {{'path': [...]}}, not {type(batch).__name__}: "
                "vitreous.predict and vitreous.embed take a single image, a list or a folder"
            )
        if "bytes" in batch:
            images: ImageList = StoredImages(list(batch["bytes"]))
        elif "path" in batch:
            paths = list(batch["path"])
            missing = {row: "there is no path" for row, path in enumerate(paths) if is_blank(path)}
            images = ImageList([str(path) for path in paths], missing)
        else:
            raise InputError(f"a batch needs a column path or bytes; this one has {', '.join(batch)}")
        found = list(self.columns(images))
        if not any(len(columns) > len(NO_ANSWER) for columns in found):
            # Where not one image can be read, or there is none, the columns stay the same.
            found.append(self.blank())
        known = dict[str, None]()  # the columns, in their order
        for columns in sorted(found, key=len, reverse=True):
            known.update(dict.fromkeys(columns))
        whole: AnswerColumns = {}
        for name in known:
            whole[name] = []
            for columns in found:
                whole[name].extend(columns.get(name, [None] * len(columns["path"])))
        if "path" in batch:
            whole["path"] = [utf8_name(path) for path in batch["path"]]
        return whole

    def blank(self) -> AnswerColumns:
        """Return the columns that any image has, without a row."""
        columns = next(self.columns(ImageList([Image.new("RGB", (64, 64))])))
        return {name: values[:0] for name, values in columns.items()}


LATEST: dict[str, Predictor] = {}  # the one that was made last for a stored model, by `state_of` it


def predictor_for(model: ModelLike, output: str, *, patches: int | None, **options: Any) -> Predictor:
    """Return what answers as the options of `predict` and `embed` ask, with `patches` to each image in its
    own aspect ratio. Raises InputError if `native_aspect` does.

    Of a stored model the one that was opened last stays open, for as long as what was asked of it is asked
    again and no file of the model has changed: `vitreous.predict` in a loop reads the weights once. It is one
    model and no more, and a changed file, which has another inode, size or time, is read again.
    """
    if patches is not None:
        model = model_source.native_aspect(model, patches, changed_fields(options))
        options |= {"settings": None, "config": None, "image_size": None}
    predictor = Predictor(model, output, **options)
    state = state_of(output, predictor.use)
    if state not in LATEST:
        LATEST.clear()
        if not state:
            return predictor
        LATEST[state] = predictor
    return LATEST[state]


def state_of(output: str, use: ModelUse) -> str:
    """Return what says which files a model is stored in, as they are now, and what is asked of it; "" for a
    model in memory, or from elsewhere."""
    path, folder = path_of_run(use.model), weights_folder(use.model)
    if not isinstance(path, str | Path) or (folder is None and not local_path(path).is_file()):
        return ""
    place = local_path(path)
    places = {place, *place.glob("*"), *(folder or place).glob("*")}  # of a run, and of its weights
    found = [output, str(place.absolute()), use.device, use.precision]
    found += map(repr, (use.fields, use.options, use.batch_size, use.workers))
    for each in sorted(places):
        about = each.stat()
        found.append(f"{each} {about.st_ino} {about.st_size} {about.st_mtime_ns} {about.st_ctime_ns}")
    return "\n".join(found)


class StoredImages(ImageList):
    """Images as the bytes of files, named by their numbers: the paths of a batch may be equal."""

    def encoded(self, index: int) -> bytes:
        try:
            return bytes(memoryview(self.images[index]))  # type: ignore[arg-type]  # whatever was given
        except TypeError:  # None, or what a library has for it
            raise BadImage(self.name(index), "there are no bytes of a file") from None
