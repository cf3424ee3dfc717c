"""`vitreous pretrain`: see `vitreous.cli.training`."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Annotated, TypedDict, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import BatchSizes, Json, Text
from vitreous.cli.printing import print_named
from vitreous.cli.training import ImageOptions, MovedData, Resume, RunOptions, train_or_resume
from vitreous.extensions import objectives

if TYPE_CHECKING:
    from vitreous.tasks.result import RunResult

OBJECTIVES = objectives()


class OwnPretrainOptions(TypedDict, total=False):
    objective: Annotated[
        Text,
        Parameter(help=f"{OBJECTIVES[0]} (the default), {', '.join(OBJECTIVES[1:])}"),
    ]
    recipe: Annotated[
        Text,
        Parameter(
            help="the recipe of a paper, such as mae or paper-masked-patch; by default it follows from the "
            "data"
        ),
    ]
    batch_size: Annotated[BatchSizes, Parameter(help="images in each step")]


class PretrainOptions(OwnPretrainOptions, ImageOptions, RunOptions, total=False):
    """Options of `vitreous pretrain`."""


def pretrain(
    data: Annotated[
        str | None, Parameter(help="digits, any folder of images, a manifest, shards, cifar10:PATH")
    ] = None,
    /,
    *,
    resume: Resume = None,
    moved_data: MovedData = None,
    json: Json = False,
    **options: Unpack[PretrainOptions],
) -> int:
    """Pre-train an encoder on images alone. Labels, where there are any, are not used."""

    def print_next(result: RunResult) -> None:
        print_named("next", f"vitreous train DATA --init {quote(str(result.run.path))}")

    return train_or_resume(
        vt.pretrain, data, options, resume, moved_data, command="pretrain", json=json, after=print_next
    )
