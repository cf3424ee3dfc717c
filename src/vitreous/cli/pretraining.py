"""`vitreous pretrain`: see `vitreous.cli.training`."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import Json, with_parsed_options
from vitreous.cli.printing import print_named
from vitreous.cli.training import MovedData, Resume, train_or_resume
from vitreous.training.options import PretrainOptions

if TYPE_CHECKING:
    from vitreous.tasks.result import RunResult


@with_parsed_options()
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
