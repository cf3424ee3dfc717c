"""`vitreous inspect MODEL [IMAGES...]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from vitreous.cli.options import Device, ImageSize, Json, Out, Settings, opening, print_json
from vitreous.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

    from vitreous.inspection.model_report import ModelReport

UNASKED = 24  # pictures where none are named


def inspect(
    model: str,
    /,
    *images: str,
    out: Out = None,
    label: Annotated[str | None, Parameter(help="the class to explain; else each picture's answer")] = None,
    patch: Annotated[str | None, Parameter(help="the patch to follow, ROWxCOLUMN from 1: 3x5")] = None,
    compare: Annotated[str | None, Parameter(help="another model, to compare layers with")] = None,
    image_size: ImageSize = None,
    device: Device = "auto",
    set: Settings = None,
    json: Json = False,
) -> int:
    """The paper's figures for a model: one page to explore, figures as PNG and SVG, numbers as arrays.

    Parameters
    ----------
    model
        A run directory, a checkpoint in any format, or a model's name.
    images
        Files, folders, globs; by default held-out pictures of the run, or handwritten digits. For a run of
        vitreous translate: texts.
    """
    from vitreous.cli.segmentation_runs import inspect_segmenter, is_segmenter
    from vitreous.cli.sequence_runs import kind_of_run

    if kind := kind_of_run(Path(model)):
        from vitreous.cli.inspect_sequences import inspect_sequences

        return inspect_sequences(Path(model), kind, images, out=out, device=device, json=json)
    if is_segmenter(model):
        if label or compare:
            raise InputError(
                "--label and --compare are for models that name pictures, not pixels: leave them out"
            )
        return inspect_segmenter(
            model, images, out=out, patch=patch, image_size=image_size, device=device, json=json
        )
    from vitreous.checkpoints import open_model
    from vitreous.cli.progress import progress_bar
    from vitreous.inspection.close_look import Question
    from vitreous.inspection.model_report import write_model_report
    from vitreous.training.device import pick_device
    from vitreous.training.run import default_path

    followed = parse_patch(patch)
    opened = open_model(model, **opening(image_size, set)).to(pick_device(device))
    question = Question(
        label=label,
        patch=followed,
        other=None if compare is None else open_model(compare).to(pick_device(device)),
        other_name=compare or "",
    )
    pictures, about, failed = named_pictures(images) if images else unasked_pictures(model)
    if not Path(model).exists() and ":" not in model:  # a name, not a place
        about = f"Its weights are fresh: it has learned nothing yet. {about}"
    folder = out or default_path(model, root=Path("inspection"))
    with progress_bar("looking") as progress:
        report = write_model_report(
            opened,
            pictures,
            folder,
            name=Path(model).name if Path(model).exists() else model,
            about_pictures=about,
            question=question,
            progress=progress,
        )
    return told(report, failed, json=json)


def told(report: ModelReport, failed: Sequence[tuple[str, str]], *, json: bool) -> int:
    """Say where the report is; the exit code."""
    if json:
        print_json(
            {
                "report": str(report.report),
                "figures": [str(path) for path in report.figures],
                "arrays": str(report.arrays),
                **report.summary,
                "failed": [{"path": path, "reason": reason} for path, reason in failed],
            }
        )
    else:
        print(f"{report.report}\n{len(report.figures)} figures and {report.arrays.name} beside it")
    for path, reason in failed:
        print(f"vitreous: {path}: {reason}", file=sys.stderr)
    return 2 if failed else 0


def parse_patch(text: str | None) -> tuple[int, int] | None:
    """(row, column) from 0, of "3x5" from 1."""
    if text is None:
        return None
    row, cross, column = text.lower().partition("x")
    if not (cross and row.isdigit() and column.isdigit() and int(row) and int(column)):
        raise InputError(f"--patch {text!r} is no patch: write ROWxCOLUMN, counted from 1, such as 3x5")
    return int(row) - 1, int(column) - 1


Pictures = tuple[list[tuple["Image.Image", str]], str, list[tuple[str, str]]]


def named_pictures(images: tuple[str, ...]) -> Pictures:
    """The pictures of files, folders and globs; a sentence about them; those that could not be read."""
    from vitreous.data.pictures import BadPicture
    from vitreous.deployment.predictor import Files, find_pictures

    paths, missing = find_pictures(images)
    files = Files(paths)
    pictures, failed = [], [(failure.path, failure.reason) for failure in missing]
    for index, path in enumerate(paths):
        try:
            pictures.append((files.picture(index), Path(path).name))
        except BadPicture as bad:
            failed.append((bad.name, bad.reason))
    if not pictures:
        raise InputError(f"no picture could be read ({failed[0][0]}: {failed[0][1]})")
    return pictures, "", failed


def unasked_pictures(model: str) -> Pictures:
    """Held-out pictures of a run; of the handwritten digits for any other model."""
    from vitreous.data.config import DataConfig
    from vitreous.data.sources import open_data
    from vitreous.evaluation.held_out import held_out
    from vitreous.inspection.training_report import spread

    if (Path(model) / "config.toml").is_file():
        source, part, pictures = held_out(model, None, {})
        about = f"No pictures were given: these are of {source}, {part}."
    else:
        splits = open_data("digits", DataConfig())
        assert splits.test is not None  # the digits always have one
        pictures, about = splits.test, "No pictures were given: these are handwritten digits."
    found, names = spread(pictures, UNASKED)
    return list(zip(found, names, strict=True)), about, []
