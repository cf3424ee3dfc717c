"""`vitreous doctor`, `data check`, `data pack` and `verify`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.cli.options import Int, Json, Language, Like, Model, ModelOptions, Workers
from vitreous.cli.printing import print_findings, print_json
from vitreous.errors import InputError, printable

if TYPE_CHECKING:
    from vitreous.data.findings import DataReport


def doctor(subject: str, /, *, json: Json = False) -> int:
    """Why is it not learning? Findings about a run or a dataset, each with its fix.

    The exit code is 1 where a finding is an error.

    Parameters
    ----------
    subject
        a run directory, or DATA as `vitreous train` takes it
    """
    diagnosis = vt.doctor(subject)
    if json:
        print_json(diagnosis.to_json())
    elif not diagnosis.findings:
        print(f"{subject}: nothing found that would keep a model from learning")
    else:
        print_findings(diagnosis.findings)
    return 1 if diagnosis.errors else 0


def verify(
    model: Model,
    image: Annotated[str, Parameter(help="an image whose content you know")],
    /,
    *,
    source_format: Annotated[
        str | None, Parameter(name="--from", help="the checkpoint's format, where it is not to be detected")
    ] = None,
    like: Like | None = None,
    json: Json = False,
    **options: Unpack[ModelOptions],
) -> int:
    """Name the five most probable labels of an image, and compare with the library that the checkpoint was
    written for, if it is installed.

    timm, transformers or torchvision opens the same file. Compared are its outputs for the same pixels, and
    the pixels that it prepares from the image, where the file describes that. The exit code is 1 where they
    differ.
    """
    found = vt.verify(model, image, format=source_format, like=like, **options)
    print_json(found.to_json()) if json else print(found)
    return 1 if found.equal is False else 0


def check(
    source: str,
    /,
    *,
    task: Annotated[
        Literal["classification", "captioning", "segmentation"],
        Parameter(help="what is to be learned of each image"),
    ] = "classification",
    workers: Workers | None = None,
    quarantine: Path | None = None,
    report: Path | None = None,
    language: Language | None = None,
    json: Json = False,
) -> int:
    """Look at every image: broken files, duplicates, leaks between splits, imbalance, doubtful labels.

    Parameters
    ----------
    source
        DATA: a folder, a manifest, shards, digits ...; with --task captioning a manifest whose label is the
        text; with --task segmentation a folder with images/ and masks/
    quarantine
        a folder to which files that cannot be read are moved, out of a folder of images
    report
        an HTML page to write, which shows the images that were found; beside it, with the ending .csv, a list
        for vitreous train --exclude
    """
    if language is not None and report is None:
        raise InputError("--language is of the page that --report writes: leave it out, or add --report")
    found = vt.check_data(
        source, task=task, workers=workers, quarantine=quarantine, report=report, language=language
    )
    if json:
        print_json({"data": source, **found.to_json()})
    else:
        print_report(source, found)
    return 1 if found.errors else 0


class PackOptions(TypedDict, total=False):
    """How images are stored."""

    size: Annotated[
        Int, Parameter(help="pixels of the shorter side, 256 by default; smaller images keep theirs")
    ]
    quality: Annotated[Int, Parameter(help="of the JPEGs, 1 to 95; 90 by default")]
    raw: Annotated[
        bool, Parameter(help="pixels instead of JPEGs: nothing to decode, and nearly ten times as large")
    ]
    per_shard: Annotated[Int, Parameter(help="images in each file, 5000 by default")]
    workers: Workers
    strict: Annotated[bool, Parameter(help="an image that cannot be read is an error")]
    seed: Annotated[Int, Parameter(help="random seed of the split, where the source has none")]


def pack(source: str, destination: Path, /, *, json: Json = False, **options: Unpack[PackOptions]) -> int:
    """Write tar shards of images resized once; `vitreous train DST` reads them.

    Parameters
    ----------
    source
        DATA: a folder, a manifest, shards ...
    destination
        a new folder for the shards
    """
    packed = vt.pack_data(source, destination, **options)
    for name, reason in packed.bad:
        print(printable(f"vitreous: left out {name}: {reason}"), file=sys.stderr)
    if json:
        print_json(packed.to_json())
    else:
        megabytes = packed.bytes / 1e6
        print(f"{packed.images} images in {packed.shards} shards, {megabytes:.1f} MB: {destination}")
        print(f"train on them with: vitreous train {destination}")
    return 0


def print_report(source: str, report: DataReport) -> None:
    """Findings, the gravest first, a few images each."""
    parts = ", ".join(f"{count} {name}" for name, count in report.images.items())
    counts = list(report.classes.values())
    classes = f"; {len(counts)} classes of {min(counts)} to {max(counts)} images" if counts else ""
    print(f"{source}: {parts}{classes}")
    print_findings(report.findings)
    if report.moved:
        print(f"moved to quarantine: {len(report.moved)} files that cannot be read")
    if not report.findings:
        print("nothing is wrong with it")
    if report.page:
        print(f"report  {report.page}\nactions {report.actions}  (for vitreous train {source} --exclude)")
