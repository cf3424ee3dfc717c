"""Options that several commands have, with one name and one meaning.

A command takes a group of them, `**options: Unpack[LoadingOptions]`, and passes those that are given to its
function of the Python API, which has the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from cyclopts import Parameter, Token

from vitreous.errors import InputError


def whole_number(_: object, tokens: Sequence[Token]) -> int:
    """An integer, which is not rounded."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise InputError(f"{tokens[0].keyword} {tokens[0].value!r} is not a whole number") from None


def at_least(option: str, least: int) -> Callable[[object, int | None], None]:
    """Raises InputError where an option's number is lower."""

    def check(_: object, value: int | None) -> None:
        if value is not None and value < least:
            raise InputError(f"{option} {value} is too low: use {least} or more")

    return check


def parse_size(_: object, tokens: Sequence[Token]) -> tuple[int, int]:
    """(H, W) from "384" or "384x512"."""
    text = tokens[0].value
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise InputError(f"--image-size {text!r} is not a size: write 384, or 384x512 for height x width")
    return int(parts[0]), int(parts[-1])


def parse_settings(_: object, tokens: Sequence[Token]) -> dict[str, Any]:
    """{"model.depth": 6} from --set model.depth=6."""
    from vitreous.models.settings import parse_value

    parsed: dict[str, Any] = {}
    for token in tokens:
        name, equals, value = (part.strip() for part in token.value.partition("="))
        if not equals or not name:
            raise InputError(f"--set {token.value!r} is not a setting: write --set training.peak_lr=1e-3")
        if name in parsed and parsed[name] != parse_value(value):
            raise InputError(
                f"--set {name} is given twice: keep one (several names are one list: --set "
                "'training.freeze=[stem, blocks.0]')"
            )
        parsed[name] = parse_value(value)
    return parsed


Int = Annotated[int, Parameter(converter=whole_number)]
MODEL_HELP = (
    "a run directory, a checkpoint of any format, hf:org/name[/file][@revision], an https: address, "
    "vitreous:small, or a model name such as ViT-B/16 (fresh weights)"
)
Model = Annotated[str, Parameter(help=MODEL_HELP)]
EXPORTED = ", or an exported .onnx or .pt2 file or OpenVINO folder"
AnyModel = Annotated[str, Parameter(help=MODEL_HELP + EXPORTED)]
TrainedModel = Annotated[str, Parameter(help=f"a run directory, any checkpoint with a head{EXPORTED}")]
Like = Annotated[
    str, Parameter(help="what describes a file that is only weights: timm:NAME, hf:org/name, or a folder")
]
Images = Annotated[
    str, Parameter(help="files, folders, globs; with a folder as --out also manifests, shards, Parquet, URLs")
]
Json = Annotated[bool, Parameter(name="--json", help="print exactly one JSON object on stdout")]
Device = Annotated[str, Parameter(name="--device", help="auto (the default), cpu, cuda or cuda:N")]
BatchSize = Annotated[Int, Parameter(name="--batch-size", validator=at_least("--batch-size", 1))]
ImageSize = Annotated[
    tuple[int, int],
    Parameter(
        name="--image-size",
        converter=parse_size,
        n_tokens=1,
        metavar="SIZE",
        help="pixels: 384, or 384x512 (HxW)",
    ),
]
Workers = Annotated[
    Int,
    Parameter(
        name="--workers",
        validator=at_least("--workers", 0),
        help="threads that decode images; by default one for each core",
    ),
]
Settings = Annotated[
    dict[str, Any],
    Parameter(
        name="--set",
        converter=parse_settings,
        accepts_keys=False,
        n_tokens=-1,
        metavar="NAME=VALUE",
        help="any field of the configuration: --set model.depth=6",
    ),
]
ConfigFile = Annotated[Path, Parameter(name="--config", help="a TOML file of settings")]


Language = Annotated[
    str, Parameter(name="--language", help="of the page: en or ko; by default that of the locale")
]


class ModelOptions(TypedDict, total=False):
    """A model, with another configuration than it says."""

    image_size: ImageSize
    settings: Settings
    config: ConfigFile


BATCH_HELP = "images in one step; by default 16 on a CPU, 64 on a GPU"


class DeviceOptions(ModelOptions, total=False):
    """A model that is measured or inspected."""

    device: Device
    precision: Annotated[str, Parameter(name="--precision", help="fp32 (the default), or bf16")]


class AnsweringOptions(ModelOptions, total=False):
    """A model at work."""

    device: Device
    precision: Annotated[
        str,
        Parameter(
            name="--precision",
            help="auto (the default): what `optimize` has chosen, or bf16 where that is faster and gives the "
            "same answers; fp32; bf16",
        ),
    ]


class LoadingOptions(AnsweringOptions, total=False):
    """A model at work on many images."""

    batch_size: Annotated[BatchSize, Parameter(help=BATCH_HELP)]
    workers: Workers


class RunOptions(TypedDict, total=False):
    """A run of any task."""

    out: Annotated[Path, Parameter(name="--out", help="the run directory; by default a new one in runs/")]
    epochs: Annotated[float, Parameter(name="--epochs", help="number of epochs (total, when resuming)")]
    device: Device
    precision: Annotated[
        str, Parameter(name="--precision", help="auto (the default), fp32, bf16, or fp8 on GPUs that have it")
    ]
    shard: Annotated[
        bool,
        Parameter(
            name="--shard",
            negative="--no-shard",
            help="under torchrun: each process keeps a part of every weight (FSDP)",
        ),
    ]
    deterministic: Annotated[
        bool, Parameter(name="--deterministic", help="the same bits each time, on the same machine; slower")
    ]
    seed: Annotated[
        Int, Parameter(name="--seed", help="random seed (initialization, shuffling, augmentation)")
    ]
    settings: Settings
    config: ConfigFile
    language: Language


class ImageRunOptions(RunOptions, total=False):
    """A run that learns from images."""

    model: Annotated[
        str,
        Parameter(
            name="--model",
            help="ViT-Ti/16, R50+ViT-B/16, with fresh weights, at 224 pixels; by default the data decide",
        ),
    ]
    init: Annotated[
        str,
        Parameter(
            name="--init",
            help="pre-trained weights to start from: hf:google/vit-base-patch16-224, a run, a checkpoint of "
            "any format; try:CHECKPOINT: only where a short trial from them is better on the validation part",
        ),
    ]
    image_size: ImageSize
    workers: Workers
