"""`vitreous doctor`, `data check` and `data pack`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

from cyclopts import Parameter

import vitreous as vt
from vitreous.api.options import CheckOptions, PackOptions
from vitreous.cli.options import Json, SettingsParameter, with_parsed_options
from vitreous.cli.printing import print_findings, print_json, print_named
from vitreous.errors import printable, utf8_name
from vitreous.languages import unreadable_reason
from vitreous.languages.terminal import CallError, said, word

if TYPE_CHECKING:
    from vitreous.data.findings import DataReport


def doctor(
    subject: Annotated[
        str, Parameter(help="a run directory, or a dataset in any form that vitreous train takes")
    ],
    /,
    *,
    settings: SettingsParameter | None = None,
    json: Json = False,
) -> int:
    """Why is it not learning? Findings about a run or a dataset, each with its fix. The exit code is 1 where
    a finding is an error."""
    diagnosis = vt.doctor(subject, settings=settings)
    if json:
        print_json(diagnosis.to_json())
    elif not diagnosis.findings:
        print(
            said("{subject}: nothing found that would keep a model from learning", subject=utf8_name(subject))
        )
    else:
        print_findings(diagnosis.findings)
    return 1 if diagnosis.errors else 0


@with_parsed_options()
def check(
    data: Annotated[str, Parameter(help="a dataset in any form that vitreous train takes")],
    /,
    *,
    json: Json = False,
    **options: Unpack[CheckOptions],
) -> int:
    """Look at every image: broken files, duplicates, leaks between splits, imbalance, doubtful labels."""
    if "language" in options and "report" not in options:
        raise CallError("--language applies to the page that --report writes: leave it out, or add --report")
    found = vt.check_data(data, **options)
    if json:
        print_json({"data": utf8_name(data), **found.to_json()})
    else:
        print_report(utf8_name(data), found)
    return 1 if found.errors else 0


@with_parsed_options()
def pack(
    data: Annotated[str, Parameter(help="a dataset in any form that vitreous train takes")],
    out: Annotated[Path, Parameter(help="a new folder")],
    /,
    *,
    json: Json = False,
    **options: Unpack[PackOptions],
) -> int:
    """Write tar shards of images resized once; `vitreous train DST` reads them."""
    packed = vt.pack_data(data, out, **options)
    for name, reason in packed.bad:
        print(
            printable(
                f"vitreous: {said('left out {name}: {reason}', name=name, reason=unreadable_reason(reason))}"
            ),
            file=sys.stderr,
        )
    if json:
        print_json(packed.to_json())
    else:
        print(
            said(
                "{images} images in {shards} shards, {size:.1f} MB: {out}",
                images=packed.images,
                shards=packed.shards,
                size=packed.bytes / 1e6,
                out=out,
            )
        )
        print(said("images: {pipeline}", pipeline=packed.pipeline))
        print(said("train on them with: vitreous train {out}", out=out))
    return 1 if packed.bad else 0


def print_report(source: str, report: DataReport) -> None:
    """Print findings, the gravest first, a few images each."""
    parts = ", ".join(
        said("{count} {part}", count=count, part=word(name)) for name, count in report.images.items()
    )
    counts = list(report.classes.values())
    classes = ""
    if counts:
        least, most = min(counts), max(counts)
        each = str(least) if least == most else said("{low} to {high}", low=least, high=most)
        classes = said("; {count} classes of {each} images", count=len(counts), each=each)
        if len(counts) == 1 or most == 1:
            classes = said("; classes: {count}, images of each: {each}", count=len(counts), each=each)
    print(f"{source}: {parts}{classes}")
    if report.pipeline:
        print(said("images: {pipeline}", pipeline=report.pipeline))
    print_findings(report.findings)
    if report.moved:
        print(said("moved to quarantine: {count} files that cannot be read", count=len(report.moved)))
    if not report.findings:
        print(said("nothing is wrong with it"))
    if report.page:
        print_named("report", report.page)
        print_named("actions", f"{report.actions}  (vitreous train {source} --exclude)")
