"""What `vitreous inspect` does alike for every model of images: which images it is shown, which of their
patches is followed, where the report is."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vitreous.cli.images import opened
from vitreous.cli.options import print_json, tell_failed
from vitreous.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

    from vitreous.data.image_list import Failure
    from vitreous.inspection.model_report import ModelReport


class Shown(NamedTuple):
    """Images with their names, a sentence about them, and those that could not be read."""

    images: list[tuple[Image.Image, str]]
    about: str
    failed: list[Failure]


def named_images(images: tuple[str, ...]) -> Shown:
    """The images of files, folders and globs."""
    found, failed = opened(images)
    if not found:
        raise InputError(f"no image could be read ({failed[0].path}: {failed[0].reason})")
    return Shown([(image, Path(path).name) for path, image in found], "", failed)


def parse_patch(text: str | None) -> tuple[int, int] | None:
    """(row, column) from 0, of "3x5" from 1."""
    if text is None:
        return None
    row, cross, column = text.lower().partition("x")
    if not (cross and row.isdigit() and column.isdigit() and int(row) and int(column)):
        raise InputError(f"--patch {text!r} is no patch: write ROWxCOLUMN, counted from 1, such as 3x5")
    return int(row) - 1, int(column) - 1


def refuse(kind: str, given: Mapping[str, object]) -> None:
    """Raises InputError for an option that a kind of model has no use for."""
    for option, value in given.items():
        if value:
            raise InputError(f"{option} does not go with {kind}: leave it out")


@contextmanager
def writing_into(folder: Path) -> Iterator[None]:
    """Raises InputError where the folder cannot be written, or the disk is full."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot write into {folder}: {reason}; choose another --out") from None


def told(report: ModelReport, failed: Sequence[Failure], *, json: bool) -> int:
    """Say where the report is; the exit code."""
    if json:
        print_json(
            {
                "report": str(report.report),
                "figures": [str(path) for path in report.figures],
                "arrays": str(report.arrays),
                **report.summary,
                "failed": [asdict(each) for each in failed],
            }
        )
    else:
        print(f"{report.report}\n{len(report.figures)} figures and {report.arrays.name} beside it")
    if report.boxes:
        print(
            "letters of some names are boxes in the PNG figures, since no installed font has them (the page "
            "and the SVG figures are right): Noto Sans CJK has most",
            file=sys.stderr,
        )
    return tell_failed(failed)
