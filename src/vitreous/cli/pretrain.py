"""`vitreous pretrain DATA`."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import BatchSize, ImageRunOptions, Json
from vitreous.cli.training import Resume, train_or_resume

if TYPE_CHECKING:
    from vitreous.tasks.running import RunResult


class PretrainOptions(ImageRunOptions, total=False):
    """A run that learns from images alone."""

    objective: Annotated[str, Parameter(help="masked-patch, mae (the default), simmim or dino")]
    batch_size: Annotated[BatchSize, Parameter(help="images in one step")]


def pretrain(
    data: str | None = None,
    /,
    *,
    resume: Resume = None,
    json: Json = False,
    **options: Unpack[PretrainOptions],
) -> int:
    """Pre-train an encoder on images alone. Labels, where there are any, are not used.

    Fine-tune the result with vitreous train --init RUN, measure it with vitreous probe RUN DATA.

    Parameters
    ----------
    data
        digits, any folder of images, a manifest, shards, cifar10:PATH
    """
    return train_or_resume(
        vt.pretrain, data, options, resume, command="pretrain", json=json, after=print_next
    )


def print_next(result: RunResult) -> None:
    """Print what to do with the encoder."""
    print(f"next    vitreous train DATA --init {quote(str(result.run.path))}")
