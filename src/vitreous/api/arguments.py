"""What the arguments of the API mean: a model, DATA, settings, a size, a device."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from vitreous.errors import InputError, writing_to
from vitreous.outside import local_path, read_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from vitreous.data.config import TargetKind
    from vitreous.data.dataset import ImageDataset
    from vitreous.tasks.task import Task


BATCH = {"cpu": 16, "cuda": 64}  # images that are computed together by default


ImageSize = int | tuple[int, int]
Settings = Mapping[str, Any]
Threshold = int | float | str | Mapping[str, float]


def settings_tree(settings: Settings | None, config: str | Path | None = None) -> dict[str, Any]:
    """Merge settings over those of a TOML file.

    Args:
        settings: dotted names, {"training.peak_lr": 1e-3}, or a tree, {"training": {"peak_lr": 1e-3}}.
        config: the TOML file.

    Raises:
        InputError: the file cannot be read, or a name is both a setting and a group of settings.
    """
    from vitreous.models.settings import set_leaf

    tree = read_toml(Path(config)) if config else {}
    for name, value in leaves_of(settings or {}):
        set_leaf(tree, name, value)
    return tree


def leaves_of(settings: Settings, group: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of each setting of a tree."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from leaves_of(value, f"{group}{name}.")
        else:
            yield f"{group}{name}", value


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raises InputError: it cannot be read, or is not TOML."""
    try:
        return tomllib.loads(read_text(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except RecursionError:
        raise InputError(f"{path} is nested too deeply to be read") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None


def model_fields(tree: dict[str, Any], image_size: ImageSize | None) -> dict[str, Any]:
    """Return the fields of the model's configuration that settings and `image_size` change. Raises
    InputError: a setting is not one of the model's."""
    others = [name for name in tree if name != "model"]
    if others:
        raise InputError(
            f"`settings` {others[0]} is none of the model's settings: write `settings` model.heads=12"
        )
    return {**tree.get("model", {}), **({} if image_size is None else {"image_size": image_size})}


def native_aspect(model: Any, patches: int, fields: Mapping[str, Any]) -> Any:
    """Return what MODEL means as a model that takes each image in its own aspect ratio. Raises InputError: as
    `resolve_model`; or it cannot."""
    from vitreous.evaluation.native_aspect import NativeAspect

    check_whole("patches", patches)
    if patches < 1:
        raise InputError(f"`patches` {patches} leaves nothing of an image: use 1 or more")
    return NativeAspect(resolve_model(model, **fields), patches=patches)


def resolve_model(model: Any, **fields: Any) -> Any:
    """Return the model that MODEL means, in evaluation mode.

    Args:
        model: a run directory, a checkpoint in any format, `hf:org/name`, a model name such as "ViT-B/16", an
            exported program, a `Run`, or a module of vitreous, timm, transformers ...
        fields: of the model's configuration, to be changed.

    Raises:
        InputError: MODEL is none of these, or its run has not finished; or fields for a module.
    """
    from torch import nn

    from vitreous.checkpoints import load
    from vitreous.deployment.programs import open_image_model

    model = path_of_run(model)
    if isinstance(model, nn.Module):
        if any(each.is_meta for each in model.parameters()):
            raise InputError("a model on the meta device has no weights: load it with vitreous.load")
        if not (hasattr(model, "preprocessing") and hasattr(model, "config")):
            return load(model, **fields)
        if fields:
            raise InputError(
                f"{next(iter(fields))} does not go with a model that is loaded already: use vitreous.resize, "
                "or vitreous.load with it"
            )
        return model
    if not isinstance(model, str | Path):
        raise InputError(
            f"a model is a path, a name such as ViT-B/16, a Run or a PyTorch module, not {model!r:.60}"
        )
    return open_image_model(model, **fields)


def program_of(model: Any) -> Any:
    """Return the module that an exported file means, which says its task; any other MODEL as it is."""
    from vitreous.deployment.programs import is_program, open_program

    return open_program(Path(model)) if is_program(model) else model


@dataclass
class ModelUse:
    """A model that is asked about images, and how: it can be pickled, and is opened where it is used.

    Attributes:
        fields: of the model's configuration, to be changed.
        options: of the answers: `top`, `threshold`, `tta`.
    """

    model: Any
    device: str
    precision: str
    batch_size: int | None
    workers: int | None
    fields: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("source", "task")}

    @cached_property
    def source(self) -> Any:
        """The model; of an exported file the module that it means."""
        return self.model if self.fields else program_of(self.model)

    @cached_property
    def task(self) -> Task:
        """The task of the model; that of a classifier where it does not say."""
        from vitreous.tasks import task_named
        from vitreous.tasks.answerer import task_of

        return task_of(self.source) or task_named("classification")

    def computation(self) -> dict[str, Any]:
        """Return what `computation` does."""
        return computation(self.device, self.batch_size, self.workers)


def is_fresh(model: Any) -> bool:
    """Return whether MODEL is a mere name, whose weights are fresh."""
    return isinstance(model, str) and not Path(model).exists() and ":" not in model


def path_of_run(model: Any) -> Any:
    """Return the path of a `Run`; anything else as it is."""
    return model.path if hasattr(model, "path") and hasattr(model, "resume") else model


def named_path(model: Any) -> str:
    """Return the name of MODEL, which is opened again later. Raises InputError: a model in memory."""
    path = path_of_run(model)
    if not isinstance(path, str | Path):
        kind = type(model).__name__
        raise InputError(
            f"a model of type {kind} is not served from memory: vitreous.save it, and serve the folder"
        )
    return str(path)


def model_name(model: Any) -> str:
    """Return what a report calls MODEL."""
    path = path_of_run(model)
    return str(path) if isinstance(path, str | Path) else type(model).__name__


def file_stem(model: str) -> str:
    """Return a file name for MODEL: "ViT-Ti-16" for "ViT-Ti/16", "mine" for runs/mine."""
    path = Path(model)
    name = path.resolve().name if path.exists() else model.rpartition(":")[2].replace("/", "-")
    return name.removesuffix(path.suffix) if path.is_file() else name


def computation(device: str, batch_size: int | None, workers: int | None) -> dict[str, Any]:
    """Return where and how images are computed: the device, as many threads that decode as it has cores where
    `workers` is None, and batches of 16 on a CPU and 64 on a GPU where `batch_size` is None. Memory that a
    batch has freed is kept for the next one."""
    from vitreous.data.workers import loading_workers
    from vitreous.training.memory import keep_freed_memory
    from vitreous.training.precision import pick_device

    check_batch_size(batch_size)
    keep_freed_memory()
    here = pick_device(device)
    return {"device": here, "batch_size": batch_size or BATCH[here.type], "workers": loading_workers(workers)}


def check_whole(name: str, value: Any) -> None:
    """Raise InputError where a parameter is not a whole number."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
        raise InputError(f"`{name}` {value!r} is not a whole number")


def check_batch_size(batch_size: int | None) -> None:
    """Raise InputError for batches without an image or a text."""
    check_whole("batch_size", batch_size)
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size is {batch_size}: give at least 1")


def fastest(model: Any, precision: str, device: str, fields: Mapping[str, Any]) -> Any:
    """Return what computes MODEL fastest: what an add-on has chosen for it, where nothing else is asked for,
    and said on stderr; or MODEL itself."""
    from vitreous.deployment.programs import substitute

    plain = precision == "auto" and device in ("auto", "cpu") and not fields
    chosen = substitute(model) if plain else None
    if chosen is None:
        return model
    say(chosen.sentence)
    return chosen.open(resolve_model(model)) if chosen.file is None else chosen.file


def weights_folder(model: Any) -> Path | None:
    """Return the folder that holds the weights of MODEL, where it is a run or a folder."""
    path = path_of_run(model)
    if not isinstance(path, str | Path):
        return None
    folders = (local_path(path) / "model", local_path(path))
    return next((each for each in folders if (each / "model.safetensors").is_file()), None)


def threshold_of(model: Any, threshold: Threshold | None) -> int | float | Mapping[str, float] | None:
    """Return a threshold of labels, for "best" those that were chosen for MODEL. Raises InputError: there are
    none, or it is not a probability."""
    if threshold == "best":
        from vitreous.deployment.classifier import read_thresholds

        return read_thresholds(weights_folder(model), model_name(model))
    for each in threshold.values() if isinstance(threshold, Mapping) else (threshold,):
        if isinstance(each, str) or (each is not None and not 0 <= each <= 1):
            raise InputError(f"`threshold` {each} is not a probability: give a number from 0 to 1, or best")
    return threshold  # type: ignore[return-value]


def say(sentence: str) -> None:
    """Print a sentence about how something is computed on stderr."""
    print(f"vitreous: {sentence}", file=sys.stderr)


def silent(sentence: str) -> None:
    """Print nothing, where no progress is to be shown."""


@contextmanager
def progress_bar(what: str, shown: bool = True) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar in a terminal or a notebook while the context lasts; nothing elsewhere.

    Yields:
        a function to be called with the count that is done and the whole count, None where it is not known.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    visible = shown and (console.is_terminal or console.is_jupyter)
    with Progress(console=console, transient=True, disable=not visible) as bar:
        task = bar.add_task(what)

        def advance(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        yield advance


def data_source(data: Any, targets: TargetKind = "classes") -> str:
    """Return DATA as the command line writes it. Objects are written as a manifest with PNG files.

    The manifest is in the cache ($VITREOUS_CACHE/data), named by its content: so a run on it can be resumed
    and evaluated later, and the same data are not written twice.

    Args:
        data: a path or name; or objects as `vitreous.data.sources.objects.open_objects` takes them.
        targets: what the labels are; see `vitreous.data.sources.open_data`.

    Raises:
        InputError: data of another form, images that cannot be read, or nothing at all.
    """
    if isinstance(data, str) and not data:
        raise InputError("DATA is empty: is a variable not set? Name one, or leave it out")
    if isinstance(data, str | Path):
        return str(data)
    if is_frame(data):
        return frame_manifest(data)
    from vitreous.data.config import DataConfig
    from vitreous.data.sources import open_data
    from vitreous.errors import cache_folder

    whole = DataConfig(test_fraction=0.0, validation_fraction=0.0)
    splits = open_data(data, whole, targets)
    parts = {"train": splits.train, "val": splits.validation, "test": splits.test}
    home = cache_folder() / "data"
    with writing_to(home, "make room, or set VITREOUS_CACHE"):
        home.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=home, prefix=".unfinished-") as unfinished:
            written = Path(unfinished, "data")
            written.mkdir()
            digest = write_manifest(written, {name: part for name, part in parts.items() if part is not None})
            folder = home / digest
            with suppress(OSError):  # it is there, whole; of another call or process, perhaps only now
                os.replace(written, folder)
            (folder / "manifest.csv").stat()
    return str(folder / "manifest.csv")


def is_frame(data: Any) -> bool:
    """Return whether this is a data frame, of pandas or polars."""
    return hasattr(data, "columns") and hasattr(data, "to_csv" if hasattr(data, "to_csv") else "write_csv")


def frame_manifest(frame: Any) -> str:
    """Return the manifest that a data frame with the columns path and label describes, written into the cache
    and named by its content; relative paths are those of the working directory. Raises InputError: a column
    is missing."""
    from vitreous.errors import cache_folder
    from vitreous.whole_files import whole

    names = [str(name).strip().lower() for name in frame.columns]
    if "path" not in names:
        raise InputError(
            f"the data frame has no column 'path' (it has: {', '.join(names) or 'none'}): give the columns "
            "path, label and, if wanted, split"
        )
    columns = [list(frame[name]) for name in frame.columns]
    written = io.StringIO(newline="")
    rows = csv.writer(written)
    rows.writerow(names)
    for row in zip(*columns, strict=True):
        values = ["" if value is None or value != value else value for value in row]
        place = names.index("path")
        values[place] = os.path.abspath(values[place]) if values[place] else ""
        rows.writerow(values)
    content = written.getvalue().encode("utf-8", "surrogateescape")
    file = cache_folder() / "data" / f"{hashlib.blake2b(content, digest_size=12).hexdigest()}.csv"
    with writing_to(file, "make room, or set VITREOUS_CACHE"):
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            with whole(file) as beside:
                beside.write_bytes(content)
    return str(file)


def write_manifest(folder: Path, parts: dict[str, ImageDataset]) -> str:
    """Write the images, as the same ones in files are read (upright, 8-bit gray or RGB), and labels of all
    parts into `folder`. Returns a hash of them. Raises InputError: an image cannot be read."""
    from vitreous.data.decoding import BadImage, EncodedImage, is_gray

    digest, count = hashlib.blake2b(digest_size=12), 0
    with (folder / "manifest.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", *(["split"] if len(parts) > 1 else [])])
        for split, images in parts.items():
            if barred := [name for name in images.classes if "|" in name]:
                raise InputError(f"the class {barred[0]!r} has a | in its name: rename it")
            for index in range(len(images)):
                label = images.label(index)
                try:
                    image = images.image(index)
                    channels = 1 if is_gray(image.mode) else 3
                    image = EncodedImage(image, images.name(index), channels).upright()
                except BadImage as bad:
                    raise InputError(f"{bad.name} of DATA cannot be read: {bad.reason}") from None
                name = f"{count:08d}.png"
                image.save(folder / name, compress_level=1)
                digest.update(f"{split}\0{label}\0{image.mode}{image.size}".encode() + image.tobytes())
                rows.writerow([name, label, *([split] if len(parts) > 1 else [])])
                count += 1
    return digest.hexdigest()
