"""`vitreous.check_data`, `pack_data` and `doctor`: what is wrong with data or a run; shards for training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from vitreous.api.arguments import settings_tree
from vitreous.api.data_source import data_source, is_frame
from vitreous.api.options import CheckOptions, PackOptions
from vitreous.data.checks import Action, actions, collect, data_findings, quarantined, report_of
from vitreous.data.dataset import Splits
from vitreous.data.findings import DataReport, Diagnosis
from vitreous.data.image_samples import pipeline
from vitreous.data.packing import Packed, Packing, pack
from vitreous.data.sources import open_data
from vitreous.errors import InputError, Param, nearest, require_packages, utf8_name, writing_to
from vitreous.extensions import imported, tasks
from vitreous.languages import speaking
from vitreous.outside import local_path, read_regular, read_text, sha256_of
from vitreous.tasks.doctor import examine_run
from vitreous.tasks.images import check_data_settings, data_config, with_form
from vitreous.tasks.recipe_choice import choose
from vitreous.training.options import Settings, with_options
from vitreous.whole_files import write_csv


def doctor(subject: Any, *, settings: Settings | None = None) -> Diagnosis:
    """Diagnose why a model does not learn, or why its measured accuracy may be misleading.

    Example:
        >>> found = vt.doctor("photos/")
        >>> for each in found.findings:
        ...     print(each.severity, each.problem, each.fix)

    Args:
        subject: a run directory, a `Run`, or a dataset in any form that `train` takes.
        settings: of a dataset, {"data.form.label_column": "diagnosis"}.

    Raises:
        InputError: the subject is neither, the data of the run has moved, or settings are given for a run.
    """
    path = getattr(subject, "path", subject)
    is_run = isinstance(path, str | Path) and (Path(path) / "config.toml").exists()
    if is_run and settings:
        raise InputError(f"{path} is a run, which has its own settings: leave out {Param('settings')}")
    findings = examine_run(Path(path)) if is_run else data_findings(open_splits("doctor", path, settings))
    subject = str(path) if isinstance(path, str | Path) else type(path).__name__
    return Diagnosis(tuple(findings), utf8_name(subject))


def open_splits(command: str, data: object, settings: Settings | None, seed: int = 0) -> Splits:
    """Open data as `train` does. Raises InputError: a setting that is not about the data."""
    tree = settings_tree({"data.split.seed": seed, **(settings or {})} if seed else settings)
    check_data_settings(command, tree)
    data = data_source(data, settings=tree) if is_frame(data) else data
    return open_data(data, data_config(with_form(tree, data)))


@with_options(CheckOptions)
def check_data(data: object, **options: Unpack[CheckOptions]) -> DataReport:
    """Check every image for broken files, duplicates, leaks between splits, imbalance and doubtful labels.

    Example:
        >>> found = vt.check_data("photos/")
        >>> found.images, found.classes
        ({'train': 20, 'test': 4}, {'apples': 12, 'pears': 12})
        >>> [each.problem for each in found.findings]
        []

    Args:
        data: a dataset in any form that `train` takes.
        options: of `CheckOptions`.

    Raises:
        InputError: the data or the task does not exist; files are to be moved, but the data is not a folder;
            or the report would replace a file that is not an earlier report.
    """
    name, settings, report = options["task"], options["settings"], options["report"]
    workers, quarantine = options["workers"], options["quarantine"]
    checks = {each: imported(task.check) for each, task in tasks().items() if task.check}
    if name == "classification":
        page = None if report is None else Path(report)
        found = check_classes(data, settings, page, workers, options["language"])
    elif name in tasks() and name not in checks:
        raise InputError(
            f"data check has nothing of its own for {name}: leave out {Param('task')}, and it checks the "
            "images and what their labels are"
        )
    elif name not in checks:
        raise InputError(f"unknown task {name!r}: {nearest(name, ['classification', *checks])}")
    elif report is not None or settings:
        given = Param("settings" if report is None else "report")
        raise InputError(
            f"{given} is for images and their classes, not for {Param('task')} {name}: leave it out"
        )
    else:
        found = checks[name](data_source(data) if is_frame(data) else data, workers=workers)
    return found if quarantine is None else quarantined(found, data, Path(quarantine))


def check_classes(
    data: object, settings: Settings | None, page: Path | None, workers: int | None, language: str | None
) -> DataReport:
    """Check images and their classes; write a page and the CSV of actions, if any. Raises InputError."""
    if page is not None:
        require_packages("matplotlib", extra="train", what=f"data check {Param('report')}")
        if page.suffix.lower() not in (".html", ".htm"):
            raise InputError(f"{Param('report')} {page} names an HTML page: end it in .html")
        check_replaceable(page.with_suffix(".csv"), data, Action._fields, page)
    evidence = collect(splits := open_splits("data check", data, settings), workers=workers)
    chosen = choose(splits.name, splits.summary, name=None).config  # as `train` does
    found = replace(report_of(evidence), pipeline=pipeline(chosen.prepared))
    if page is None:
        return found
    from vitreous.inspection.data_report import write_data_report  # it imports matplotlib

    with speaking(language), writing_to(page, f"name another file for {Param('report')}"):
        page.parent.mkdir(parents=True, exist_ok=True)
        table = page.with_suffix(".csv")
        # A file of that name may have come into being since.
        check_replaceable(table, data, Action._fields, page)
        write_csv(table, Action._fields, actions(evidence))
        write_data_report(page, splits.name, evidence, found, table)
        with page.open("a", encoding="utf-8") as written:
            written.write(f"<!-- {sha256_of(table)} -->\n")
    return replace(found, page=utf8_name(page), actions=utf8_name(table))


def check_replaceable(table: Path, data: object, header: Sequence[str], page: Path) -> None:
    """Raise InputError where a page would replace one of another kind, which does not end with its table's
    hash; or a table DATA, a file that is not such a table, or one that was edited since its page."""
    with writing_to(page, f"name another file for {Param('report')}"):
        written = read_text(page, errors="replace")[-80:] if page.exists() else ""
        mark = re.search(r"<!-- ([0-9a-f]{64}) -->\s*$", written)
        if page.exists() and not mark:
            raise InputError(
                f"{Param('report')} would replace {page}, which is not such a report: name another file"
            )
        if not table.exists():
            return
        start = read_regular(table)[: len(",".join(header))].decode(errors="replace")
    if start != ",".join(header) or (
        isinstance(data, str | Path) and Path(data).resolve() == table.resolve()
    ):
        raise InputError(
            f"{Param('report')} would replace {table}, which was not written by such a report: name another "
            "file"
        )
    if mark and mark[1] != sha256_of(table):
        raise InputError(
            f"{Param('report')} would replace {table}, which was edited after its report: name another file"
        )


@with_options(PackOptions)
def pack_data(data: object, out: str | Path, **options: Unpack[PackOptions]) -> Packed:
    """Resize images once and write them to tar shards, which `train` reads fast.

    Example:
        >>> packed = vt.pack_data("photos/", "shards", size=32)
        >>> packed.images
        24
        >>> vt.check_data("shards").classes
        {'apples': 12, 'pears': 12}

    Args:
        data: a dataset in any form that `train` takes.
        out: a new folder.
        options: of `PackOptions`.

    Raises:
        InputError: values that contradict each other, or a folder that is not empty.
    """
    size, per_shard, quality = options["size"], options["per_shard"], options["quality"]
    raw, seed, workers = options["raw"], options["seed"], options["workers"]
    if size < 1 or per_shard < 1 or (quality is not None and not 1 <= quality <= 95):
        raise InputError(
            f"{Param('size')} and {Param('per_shard')} are at least 1, and {Param('quality')} is from 1 to 95"
        )
    if seed < 0:
        raise InputError(f"{Param('seed')} {seed} is too low: use 0 or more")
    if raw and quality is not None:
        raise InputError(f"{Param('raw')} writes no JPEGs: leave out {Param('quality')}, or {Param('raw')}")
    if isinstance(data, str | Path) and local_path(data).resolve() in Path(out).resolve().parents:
        raise InputError(f"{out} is inside {data}, and would become part of the data: name another folder")
    packing = Packing(size=size, quality=quality or 90, raw=raw, per_shard=per_shard, workers=workers)
    splits = open_splits("data pack", data, options["settings"], seed)
    return pack(splits, Path(out), packing, strict=options["strict"])
