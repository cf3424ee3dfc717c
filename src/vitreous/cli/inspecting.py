"""`vitreous inspect MODEL [IMAGES...]`, `compare RUN...` and `learn [MODEL]`: what becomes a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, TypedDict, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import BatchSize, Device, DeviceOptions, Json, Language, ModelOptions, Workers
from vitreous.cli.printing import print_failed, print_json, print_table
from vitreous.errors import InputError
from vitreous.results import percent

SHOWN_CLASSES = 8  # that differ most


def inspect(
    model: str,
    /,
    *images: str,
    out: Annotated[Path | None, Parameter(help="the folder to make, for the page and all else")] = None,
    label: Annotated[str | None, Parameter(help="the class to explain; else the predicted one")] = None,
    patch: Annotated[str | None, Parameter(help="the patch to follow, ROWxCOLUMN from 1: 3x5")] = None,
    compare: Annotated[str | None, Parameter(help="another model, shown beside this one")] = None,
    attributions: Annotated[
        int | None, Parameter(help="images to attribute by every method; else what takes about a minute")
    ] = None,
    language: Language | None = None,
    json: Json = False,
    **options: Unpack[DeviceOptions],
) -> int:
    """The paper's figures for a model: one page to explore, figures as PNG and SVG, numbers as arrays.

    Parameters
    ----------
    model
        A run directory, a checkpoint in any format, or a model's name.
    images
        Files, folders, globs; by default held-out images of the run, or handwritten digits. For a run of
        vitreous translate: texts.
    """
    result = vt.inspect(
        model,
        list(images) or None,
        out=out,
        label=label,
        patch=parse_patch(patch),
        compare=compare,
        attributions=attributions,
        language=language,
        **options,
    )
    if json:
        print_json(result.to_json())
    else:
        figures = f"{len(result.drawings)} figures and " if result.drawings else ""
        print(f"{result.report}\n{figures}{result.arrays.name} beside it")
    if result.boxes:
        print(
            "letters of some names are boxes in the PNG figures, since no installed font has them (the page "
            "and the SVG figures are right): Noto Sans CJK has most",
            file=sys.stderr,
        )
    return print_failed(result.failed)


def parse_patch(text: str | None) -> tuple[int, int] | None:
    """Return (row, column) from 0 of "3x5", which counts from 1."""
    if text is None:
        return None
    row, cross, column = text.lower().partition("x")
    if not (cross and row.isdigit() and column.isdigit() and int(row) and int(column)):
        raise InputError(f"--patch {text!r} is not a patch: write ROWxCOLUMN, counted from 1, such as 3x5")
    return int(row) - 1, int(column) - 1


class CompareOptions(TypedDict, total=False):
    """What runs are compared on, and where the page goes."""

    data: Annotated[
        str,
        Parameter(
            name="--data", help="compare on these data; by default on the held-out part of the runs' own"
        ),
    ]
    out: Annotated[Path, Parameter(name="--out", help="the page; by default a new one in comparisons/")]
    batch_size: Annotated[BatchSize, Parameter(help="examples in one step; 64 by default")]
    workers: Workers
    device: Device
    precision: Annotated[
        str,
        Parameter(name="--precision", help="fp32 (the default), bf16, or auto: bf16 where that is faster"),
    ]
    language: Language


def compare(
    *runs: Annotated[str, Parameter(help="two or more run directories of one task")],
    json: Json = False,
    **options: Unpack[CompareOptions],
) -> None:
    """Compare runs of one task with the first of them, on the same held-out examples."""
    found = vt.compare(*runs, **options)
    if json:
        print_json(found.to_json())
        return
    for note in found.notes():
        print(note)
    header, *lines = found.lines()
    print()
    print_table(header, lines)
    print()
    for verdict in found.verdicts():
        print(verdict)
    if found.settings:
        print()
        values = [[name, *map(str, row)] for name, row in found.settings.items()]
        print_table(["different settings", *(run.name for run in found.runs)], values, words=1 + len(runs))
    if found.by_class:
        print()
        values = [[name, *map(percent, row)] for name, row in list(found.by_class.items())[:SHOWN_CLASSES]]
        print_table(["classes that differ most", *(run.name for run in found.runs)], values)
    if found.common:
        print(f"\ndifferent answers to {len(found.differing):,} of {found.count:,} examples")
    print(f"page  {found.report}")


def learn(
    model: str | None = None,
    /,
    *images: str,
    out: Annotated[Path | None, Parameter(help="the HTML file; by default learn.html in the run")] = None,
    language: Language | None = None,
    json: Json = False,
    **options: Unpack[ModelOptions],
) -> int:
    """A page in which a small model runs: draw an image, and follow it through every tensor, offline.

    Parameters
    ----------
    model
        A run directory, a checkpoint in any format, or a model's name; by default the newest run in runs/.
    images
        Files, folders, globs to try; by default held-out images of the run, or handwritten digits.
    """
    result = vt.learn(model, list(images) or None, out=out, language=language, **options)
    if json:
        print_json(result.to_json())
    else:
        print(result.page)
    return 0
