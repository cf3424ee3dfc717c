"""What the arguments of the API mean, before a model or data is opened. Importing this takes milliseconds."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from vitreous.api.options import Threshold
from vitreous.checkpoints.pretrained_encoders import BEST, best_encoder
from vitreous.errors import InputError, Param
from vitreous.languages.terminal import said
from vitreous.models.settings import set_leaf
from vitreous.outside import local_path, read_text
from vitreous.training.options import HasModel, ImageSize, ModelLike, RunLike, Settings

if TYPE_CHECKING:
    from torch import nn


def settings_tree(settings: Settings | None, config: str | Path | None = None) -> dict[str, object]:
    """Merge settings over those of a TOML file.

    Args:
        settings: dotted names, {"training.peak_lr": 1e-3}, or a tree, {"training": {"peak_lr": 1e-3}}.
        config: the TOML file.

    Raises:
        InputError: the file cannot be read, or a name is both a setting and a group of settings.
    """
    tree = read_toml(Path(config)) if config else {}
    for name, value in leaves_of(settings or {}):
        set_leaf(tree, name, value)
    return tree


def leaves_of(settings: Settings, group: str = "") -> Iterator[tuple[str, object]]:
    """Yield the dotted name and the value of each setting of a tree."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from leaves_of(value, f"{group}{name}.")
        else:
            yield f"{group}{name}", value


def read_toml(path: Path) -> dict[str, object]:
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
            f"{Param('settings')} {others[0]} is not a setting of the model: write {Param('settings')} "
            "model.heads=12"
        )
    return {**tree.get("model", {}), **({} if image_size is None else {"image_size": image_size})}


def changed_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the model's configuration that the options `settings`, `config` and `image_size`
    change. Raises InputError if `settings_tree` or `model_fields` does."""
    return model_fields(settings_tree(options["settings"], options["config"]), options["image_size"])


def is_fresh(model: object) -> TypeGuard[str]:
    """Return whether MODEL is a mere name, whose weights are fresh."""
    return isinstance(model, str) and not Path(model).exists() and ":" not in model


def path_of_run(model: ModelLike) -> str | Path | HasModel | nn.Module:
    """Return the path of a `Run`, the name of the encoder that `vitreous:best` stands for, and anything else
    unchanged."""
    if isinstance(model, str) and model == BEST:
        return best_encoder().name
    return model.path if isinstance(model, RunLike) else model


def chosen_encoder(model: ModelLike) -> ModelLike:
    """Return MODEL; for `vitreous:best`, return and print the name of the encoder that it stands for."""
    if not isinstance(model, str) or model != BEST:
        return model
    encoder = best_encoder()
    say(said("encoder: {name} ({about})", name=encoder.name, about=encoder.about))
    return encoder.name


def model_name(model: ModelLike) -> str:
    """Return what a report calls MODEL."""
    path = path_of_run(model)
    return str(path) if isinstance(path, str | Path) else type(model).__name__


def file_stem(model: str) -> str:
    """Return a file name for MODEL: "ViT-Ti-16" for "ViT-Ti/16", "mine" for runs/mine."""
    path = Path(model)
    name = path.resolve().name if path.exists() else model.rpartition(":")[2].replace("/", "-")
    return name.removesuffix(path.suffix) if path.is_file() else name


def check_whole(name: str, value: object) -> None:
    """Raise InputError where a parameter is not a whole number."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
        raise InputError(f"{Param(name)} {value!r} is not a whole number")


def check_batch_size(batch_size: int | None) -> None:
    """Raise InputError for a batch size below 1."""
    check_whole("batch_size", batch_size)
    if batch_size is not None and batch_size < 1:
        raise InputError(f"{Param('batch_size')} is {batch_size}: pass at least 1")


def weights_folder(model: ModelLike) -> Path | None:
    """Return the folder that contains the weights of MODEL, if it is a run or a folder."""
    path = path_of_run(model)
    if not isinstance(path, str | Path):
        return None
    folders = (local_path(path) / "model", local_path(path))
    return next((each for each in folders if (each / "model.safetensors").is_file()), None)


def threshold_of(model: ModelLike, threshold: Threshold | None) -> int | float | Mapping[str, float] | None:
    """Return the threshold for labels; for "best", the ones chosen for MODEL. Raises InputError: there are
    none, or a threshold is not a probability."""
    if threshold == "best":
        from vitreous.evaluation.calibration import read_thresholds

        return read_thresholds(weights_folder(model), model_name(model))
    for each in threshold.values() if isinstance(threshold, Mapping) else (threshold,):
        if isinstance(each, str) or (each is not None and not 0 <= each <= 1):
            raise InputError(
                f"{Param('threshold')} {each} is not a probability: pass a number from 0 to 1, or best"
            )
    return threshold  # type: ignore[return-value]


def say(sentence: str) -> None:
    """Print a sentence about how something is computed on stderr."""
    print(f"vitreous: {sentence}", file=sys.stderr)


def silent(sentence: str) -> None:
    """Print nothing, when no progress should be shown."""


@contextmanager
def progress_bar(what: str, shown: bool) -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar in a terminal or a notebook while the context is open, and nothing elsewhere.

    Yields:
        A function to call with the number of items done and the total number (None if unknown).
    """
    if not shown:
        yield lambda done, total: None
        return
    from rich.console import Console  # a start without a bar needs neither
    from rich.progress import Progress

    console = Console(stderr=True)
    visible = console.is_terminal or console.is_jupyter
    with Progress(console=console, transient=True, disable=not visible) as bar:
        task = bar.add_task(what)

        def advance(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        yield advance
