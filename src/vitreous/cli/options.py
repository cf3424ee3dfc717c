"""Options that have the same name and meaning in every command, and how results are printed."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from vitreous.errors import InputError

if TYPE_CHECKING:
    from vitreous.data.image_list import Failure


def at_least(option: str, least: int) -> Callable[[object, int | None], None]:
    """Raises InputError where an option's number is lower."""

    def check(_: object, value: int | None) -> None:
        if value is not None and value < least:
            raise InputError(f"{option} {value} is too low: use {least} or more")

    return check


Json = Annotated[bool, Parameter(name="--json", help="print exactly one JSON object on stdout")]
Out = Annotated[Path | None, Parameter(name="--out", help="where to write")]
Device = Annotated[str, Parameter(name="--device", help="auto, cpu, cuda or cuda:N")]
Precision = Annotated[
    str, Parameter(name="--precision", help="auto, fp32 or bf16; in training fp8, too, on GPUs that have it")
]
Shard = Annotated[
    bool | None,
    Parameter(
        name="--shard",
        negative="--no-shard",
        help="under torchrun: each process keeps a share of every weight (FSDP)",
    ),
]
Workers = Annotated[
    int | None,
    Parameter(
        name="--workers",
        help="threads that decode; by default one a core",
        validator=at_least("--workers", 0),
    ),
]
Seed = Annotated[int, Parameter(name="--seed")]
Epochs = Annotated[float | None, Parameter(name="--epochs", help="number of epochs (total, when resuming)")]
BatchSize = Annotated[
    int,
    Parameter(name="--batch-size", help="images in one step", validator=at_least("--batch-size", 1)),
]
Resume = Annotated[
    Path | None, Parameter(name="--resume", help="a run directory: resume from its last checkpoint")
]
ImageSize = Annotated[str | None, Parameter(name="--image-size", help="pixels: 384, or 384x512 (HxW)")]
Settings = Annotated[
    list[str] | None,
    Parameter(name="--set", help="any leaf of the configuration: --set model.depth=6", negative=()),
]
ConfigFile = Annotated[Path | None, Parameter(name="--config", help="a TOML file of settings")]


def parse_size(text: str | None) -> tuple[int, int] | None:
    """(H, W) from "384" or "384x512"."""
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise InputError(f"--image-size {text!r} is not a size: write 384, or 384x512 for height x width")
    return int(parts[0]), int(parts[-1])


def check_resume(*given: object) -> None:
    """Raise InputError where a run that is resumed gets settings: its config.toml has them all."""
    if any(given):
        raise InputError("--resume goes on with the run's own configuration: give no other settings")


def parse_settings(settings: Sequence[str] | None) -> dict[str, Any]:
    """Return --set model.depth=6 as {"model.depth": 6}."""
    from vitreous.models.settings import parse_value

    parsed: dict[str, Any] = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise InputError(f"--set {setting!r} is not a setting: write --set training.peak_lr=1e-3")
        parsed[name.strip()] = parse_value(value.strip())
    return parsed


def tell_failed(failed: Iterable[Failure]) -> int:
    """Print a line on stderr for each image that could not be read. The exit code: 1 if there are any."""
    code = 0
    for each in failed:
        print(f"vitreous: {each.path}: {each.reason}", file=sys.stderr)
        code = 1
    return code


def print_json(result: Mapping[str, Any]) -> None:
    """The one JSON object of a command. Numbers that are not finite become null."""
    print(json_module.dumps(finite(result), ensure_ascii=False), file=sys.stdout, flush=True)


def finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value
